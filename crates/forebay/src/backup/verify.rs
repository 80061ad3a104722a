//! Rereads backups: every list, and every chunk that one of them names.

use std::collections::HashSet;

use serde::Serialize;

use super::check;
use super::store::Store;
use crate::interrupt::Interrupt;

/// Maximum number of findings that are named.
const FINDINGS_MAX: usize = 1_000;

/// The result of a verification.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Verified {
    /// Backups whose lists were read.
    pub(crate) backups: usize,
    /// Chunks that were read, each once.
    pub(crate) chunks: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// Number of what is damaged.
    pub(crate) damaged: u64,
    /// What is damaged, and what it belongs to: the first of them.
    pub(crate) findings: Vec<String>,
}

impl Verified {
    fn found(&mut self, text: String) {
        self.damaged += 1;
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(text);
        }
    }
}

/// Verifies one backup, or all.
///
/// * `progress`: called with the bytes read.
///
/// # Errors
/// The directory cannot be listed, or there is no such backup.
pub(crate) fn verify(
    store: &Store,
    id: Option<&str>,
    interrupt: &Interrupt,
    progress: &mut dyn FnMut(u64),
) -> anyhow::Result<Verified> {
    let mut verified = Verified::default();
    let mut seen = HashSet::new();
    let ids = match id {
        Some(id) => vec![id.to_owned()],
        None => store.ids()?,
    };
    anyhow::ensure!(!ids.is_empty(), "there is no backup");
    for id in &ids {
        let list = match store.list(Some(id)) {
            Ok(list) => list,
            Err(error) if store.ids()?.contains(id) => {
                verified.found(format!("backup {id}: {error:#}"));
                continue;
            }
            Err(error) => return Err(error),
        };
        verified.backups += 1;
        for entry in &list.entries {
            for (chunk, size) in entry.sized_chunks() {
                check(interrupt)?;
                if !seen.insert((chunk, size)) {
                    continue;
                }
                verified.chunks += 1;
                verified.bytes += size as u64;
                progress(verified.bytes);
                if let Err(error) = store.read_chunk(&chunk, size, true) {
                    let path = &entry.path;
                    verified.found(format!("{error:#}; {path:?} of backup {id} needs it"));
                }
            }
        }
    }
    Ok(verified)
}
