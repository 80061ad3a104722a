//! Removes backups, and then the chunks that no list names any more.
//!
//! Order: the lists of all backups that stay are read, the others are removed, on stable storage, and only then
//! chunks. So an interruption at any moment leaves backups that are whole, and chunks that the next run removes.
//!
//! No backup is made meanwhile: the target is held. Where a hold can be lost, because its command was stopped for
//! long, it is checked before every removal, and a backup that appeared nevertheless and lost a chunk is removed, too.
//!
//! Invariants: if the list of a backup that stays cannot be read nothing is removed; what is no chunk and no list stays.

use std::collections::HashSet;

use anyhow::{Context as _, ensure};
use serde::Serialize;

use super::ChunkId;
use super::keep::{Decision, Keep};
use super::store::Store;
use crate::exit::{Coded, Exit};
use crate::interrupt::Interrupt;

/// Number of chunks that are removed at a time.
const REMOVED_AT_ONCE: usize = 1_000;

/// What is to be removed.
#[derive(Debug)]
pub(crate) struct Order<'a> {
    /// What is kept: all without.
    pub(crate) keep: Option<Keep>,
    /// Backups that are removed whatever the rules say.
    pub(crate) remove: &'a [String],
    /// Nothing is removed, only counted.
    pub(crate) is_dry: bool,
}

/// What was removed.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Pruned {
    /// Backups that stay, the oldest first.
    pub(crate) kept: Vec<Kept>,
    /// Ids of the others.
    pub(crate) removed: Vec<String>,
    /// Number of chunks that no backup needs any more.
    pub(crate) chunks: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// Whether nothing was removed.
    pub(crate) dry_run: bool,
}

/// A backup that stays.
#[derive(Debug, Serialize)]
pub(crate) struct Kept {
    pub(crate) id: String,
    /// The rules that keep it.
    pub(crate) reasons: Vec<&'static str>,
}

/// Removes backups.
///
/// * `progress`: called with the number of chunks that were looked at.
///
/// # Errors
/// All backups that exist are whole; chunks that none needs may remain.
pub(crate) fn prune(
    store: &Store,
    order: &Order<'_>,
    interrupt: &Interrupt,
    progress: &dyn Fn(u64),
) -> anyhow::Result<Pruned> {
    let ids = store.ids()?;
    let mut pruned = decide(&ids, order)?;
    let needed = needed(store, &pruned.kept, interrupt)?;
    check(interrupt)?;
    if !order.is_dry {
        store.check_held()?;
        store.remove_lists(pruned.removed.iter().map(String::as_str))?;
    }
    let mut batch = Vec::new();
    let mut gone = HashSet::new();
    let mut remove = |batch: &mut Vec<ChunkId>| {
        check(interrupt)?;
        store.check_held()?;
        gone.extend(batch.iter().copied());
        store.remove_chunks(batch)?;
        batch.clear();
        anyhow::Ok(())
    };
    let mut seen = 0;
    store.chunks(&mut |chunk, size| {
        seen += 1;
        progress(seen);
        check(interrupt)?;
        if needed.contains(&chunk) {
            return Ok(());
        }
        pruned.chunks += 1;
        pruned.bytes += size;
        if !order.is_dry {
            batch.push(chunk);
            if batch.len() == REMOVED_AT_ONCE {
                remove(&mut batch)?;
            }
        }
        Ok(())
    })?;
    if !batch.is_empty() {
        remove(&mut batch)?;
    }
    if !gone.is_empty() {
        remove_broken(store, &ids, &gone)?;
    }
    Ok(pruned)
}

/// Decides which backups stay.
fn decide(ids: &[String], order: &Order<'_>) -> anyhow::Result<Pruned> {
    for id in order.remove {
        ensure!(ids.contains(id), "there is no backup {id:?}; `forebay backup list` shows them");
    }
    let (named, others): (Vec<_>, Vec<_>) =
        ids.iter().cloned().partition(|id| order.remove.contains(id));
    let mut pruned = Pruned { removed: named, dry_run: order.is_dry, ..Pruned::default() };
    let decisions = match order.keep {
        Some(keep) => keep.decide(&others),
        None => others.into_iter().map(|id| Decision { id, reasons: vec!["all"] }).collect(),
    };
    for Decision { id, reasons } in decisions {
        match reasons.is_empty() {
            true => pruned.removed.push(id),
            false => pruned.kept.push(Kept { id, reasons }),
        }
    }
    pruned.removed.sort_unstable();
    Ok(pruned)
}

/// The chunks of all backups that stay.
fn needed(store: &Store, kept: &[Kept], interrupt: &Interrupt) -> anyhow::Result<HashSet<ChunkId>> {
    let mut needed = HashSet::new();
    for Kept { id, .. } in kept {
        check(interrupt)?;
        let list = store.list(Some(id)).with_context(|| {
            format!(
                "nothing was removed, since it is unknown what backup {id} needs; if its list cannot be \
                 brought back, remove it with --remove {id}"
            )
        })?;
        needed.extend(list.entries.into_iter().flat_map(|entry| entry.chunks));
    }
    Ok(needed)
}

/// Removes backups that appeared meanwhile and need what is gone.
fn remove_broken(store: &Store, known: &[String], gone: &HashSet<ChunkId>) -> anyhow::Result<()> {
    for id in store.ids()?.iter().filter(|id| !known.contains(id)) {
        let list = store.list(Some(id))?;
        if list.entries.iter().any(|entry| entry.chunks.iter().any(|chunk| gone.contains(chunk))) {
            store.remove_lists(std::iter::once(id.as_str()))?;
            crate::out::note(format_args!(
                "removed backup {id}: its command was stopped for too long, and chunks of it were removed"
            ));
        }
    }
    Ok(())
}

fn check(interrupt: &Interrupt) -> anyhow::Result<()> {
    if interrupt.asked() {
        let text = "interrupted; all backups are whole, and the next prune removes what remains";
        return Err(Coded::error(Exit::Interrupted, text));
    }
    Ok(())
}
