//! Rereads backups: every list, and every chunk that one of them names.

use std::collections::HashSet;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use parking_lot::Mutex;
use serde::Serialize;

use super::parallel::each;
use super::store::Store;
use super::{ChunkId, check};
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
/// The target cannot be listed, or there is no such backup.
pub(crate) fn verify(
    store: &Store,
    id: Option<&str>,
    interrupt: &Interrupt,
    progress: &(dyn Fn(u64) + Sync),
) -> anyhow::Result<Verified> {
    let ids = store.ids()?;
    let ids = match id {
        Some(id) => vec![ids.into_iter().find(|known| known == id).with_context(|| {
            format!("there is no backup {id:?}; `forebay backup list` shows them")
        })?],
        None => ids,
    };
    ensure!(!ids.is_empty(), "there is no backup");
    let verified = Mutex::new(Verified::default());
    let read = |piece: Piece| {
        let Piece { chunk, size, owner } = piece;
        let read = store.read_chunk(&chunk, size, true);
        let mut verified = verified.lock();
        verified.chunks += 1;
        verified.bytes += size as u64;
        progress(verified.bytes);
        if let Err(error) = read {
            verified.found(format!("{error:#}; {owner} needs it"));
        }
        Ok(())
    };
    each(store.workers(), read, |feed| {
        let mut seen = HashSet::new();
        for id in &ids {
            let list = match store.list(Some(id)) {
                Ok(list) => list,
                Err(error) => {
                    verified.lock().found(format!("backup {id}: {error:#}"));
                    continue;
                }
            };
            verified.lock().backups += 1;
            for entry in &list.entries {
                let owner: Arc<str> = format!("{:?} of backup {id}", entry.path).into();
                for (chunk, size) in entry.sized_chunks() {
                    check(interrupt)?;
                    if seen.insert((chunk, size)) {
                        feed.send(Piece { chunk, size, owner: Arc::clone(&owner) })?;
                    }
                }
            }
        }
        Ok(())
    })?;
    Ok(verified.into_inner())
}

/// A chunk that is to be read.
struct Piece {
    chunk: ChunkId,
    size: usize,
    /// What needs it.
    owner: Arc<str>,
}
