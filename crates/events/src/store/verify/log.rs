//! Events of the log: their hashes, and those of sizes inside a tile.

#![expect(clippy::cast_possible_truncation, reason = "positions are differences within one batch")]

use std::path::Path;
use std::sync::Arc;

use forebay_base::error_chain::chain;
use forebay_base::fs::FileSystem;
use forebay_log::Lsn;

use super::leaves::Leaves;
use super::{Fault, Verifying, hash_all};
use crate::format::system::SystemEntry;
use crate::format::{entry, leaf};
use crate::merkle::{Hash, LeafHashes};
use crate::segment::Segment;
use crate::store::manifest::{Manifest, segment_path};
use crate::store::proofs;
use crate::store::seal::FileKey;
use crate::store::sealing::Entries;

impl Verifying<'_> {
    /// Reads the log from where the segments end; returns the position after its last event.
    pub(super) fn log(&mut self, leaves: &mut Leaves, key: Option<&FileKey>) -> u64 {
        let mut end_seq = self.manifest.flushed_seq;
        let from = Lsn(self.manifest.log_position);
        let log_dir = self.dir.join("log");
        let mut faults = Vec::new();
        let mut hashes = Vec::new();
        let (mut events, mut leaf_bytes) = (0, 0);
        let merkle = self.manifest.merkle;
        let entries = &mut self.entries;
        let manifest = self.manifest.clone();
        let own = Entries::of(&manifest, key, 0);
        let mut unused = Vec::new();
        let checked = forebay_log::check_entries(
            &**self.fs,
            &log_dir,
            &mut |found| {
                if found.lsn < from || !faults.is_empty() {
                    return;
                }
                unused.extend(judge(&own, &found));
                match entry_hashes(found.payload, merkle, &mut hashes) {
                    Ok((first_seq, count, size)) if first_seq == end_seq => {
                        entries.extend(entries_of(found.payload));
                        for (place, &hash) in hashes.iter().enumerate() {
                            leaves.put(first_seq + place as u64, hash);
                        }
                        end_seq += count;
                        events += count;
                        leaf_bytes += size;
                        (self.on_event)(count);
                    }
                    Ok((first_seq, count, _)) if first_seq + count <= end_seq => {}
                    Ok((first_seq, ..)) => faults.push(format!(
                        "the entry at {} starts with event {first_seq}, not {end_seq}",
                        found.lsn
                    )),
                    Err(reason) => faults.push(format!("the entry at {}: {reason}", found.lsn)),
                }
            },
            &mut |damage| self.verified.faults.push(Fault::Log { found: damage.to_string() }),
        );
        let faults = faults.into_iter().chain(unused);
        self.verified.faults.extend(faults.map(|found| Fault::Log { found }));
        match checked {
            Ok(log) => self.verified.file_bytes += log.bytes,
            Err(error) => {
                self.verified.faults.push(Fault::Log { found: chain(&error).to_string() });
            }
        }
        self.verified.events += events;
        self.verified.leaf_bytes += leaf_bytes;
        end_seq
    }
}

/// What is not used of an entry, and why.
fn judge(own: &Entries<'_>, found: &forebay_log::CheckedEntry<'_>) -> Vec<String> {
    let Ok(batch) = entry::decode(found.payload) else { return Vec::new() };
    let note = |reason| format!("the note of a request at {}: {reason}", found.lsn);
    match own.judge(found.lsn.0, &batch) {
        Ok(judged) => {
            let events = judged.events.err();
            let events = events.map(|reason| format!("the entry at {}: {reason}", found.lsn));
            judged.note.err().map(note).into_iter().chain(events).collect()
        }
        Err(reason) => vec![note(reason)],
    }
}

/// Leaf hashes from the files, for roots of sizes inside a tile.
pub(super) struct Segments<'a> {
    pub(super) fs: &'a Arc<dyn FileSystem>,
    pub(super) dir: &'a Path,
    pub(super) manifest: &'a Manifest,
}

impl LeafHashes for Segments<'_> {
    type Error = String;

    fn leaf_hashes(&self, first: u64, count: usize) -> Result<Vec<Hash>, String> {
        let end = first + count as u64;
        let mut hashes = Vec::with_capacity(count);
        for entry in &self.manifest.segments {
            let (from, to) = (first.max(entry.first_seq), end.min(entry.end_seq));
            if from < to {
                let path = segment_path(self.dir, entry.number);
                let found = Segment::open(&**self.fs, &path)
                    .and_then(|segment| proofs::leaf_hashes_of(&segment, from, to))
                    .map_err(|error| chain(&error).to_string())?;
                hashes.extend(found);
            }
        }
        if hashes.len() < count {
            self.hashes_in_log(first + hashes.len() as u64, count - hashes.len(), &mut hashes)?;
        }
        Ok(hashes)
    }
}

impl Segments<'_> {
    /// Adds the hashes of `count` events from `first` that are in the log.
    fn hashes_in_log(&self, first: u64, count: usize, out: &mut Vec<Hash>) -> Result<(), String> {
        let end = first + count as u64;
        let mut hashes = Vec::new();
        let mut next = first;
        let mut each = |found: forebay_log::CheckedEntry<'_>| {
            if found.lsn < Lsn(self.manifest.log_position) {
                return;
            }
            if let Ok((first_seq, count, _)) = entry_hashes(found.payload, true, &mut hashes)
                && (first_seq..first_seq + count).contains(&next)
            {
                let from = (next - first_seq) as usize;
                let to = (end.min(first_seq + count) - first_seq) as usize;
                out.extend_from_slice(hashes.get(from..to).unwrap_or_default());
                next = first_seq + to as u64;
            }
        };
        forebay_log::check_entries(&**self.fs, &self.dir.join("log"), &mut each, &mut |_| {})
            .map_err(|error| chain(&error).to_string())?;
        if next == end { Ok(()) } else { Err(format!("event {next} is not in the log")) }
    }
}

/// First position, count and bytes of an entry's events; their hashes replace `hashes`.
fn entry_hashes(
    payload: &[u8],
    merkle: bool,
    hashes: &mut Vec<Hash>,
) -> Result<(u64, u64, u64), &'static str> {
    let batch = entry::decode(payload)?;
    let ends: Vec<usize> = batch.ends.iter().map(|&end| end as usize).collect();
    let mut start = 0;
    for &end in &ends {
        let bytes = batch.leaves.get(start..end).ok_or("a leaf is truncated")?;
        leaf::decode(bytes).map_err(|error| error.reason)?;
        start = end;
    }
    hashes.clear();
    if merkle {
        hash_all(batch.leaves, &ends, hashes);
    }
    Ok((batch.first_seq, ends.len() as u64, batch.leaves.len() as u64))
}

/// The store's own entries in a log entry, with their positions.
fn entries_of(payload: &[u8]) -> Vec<(u64, SystemEntry)> {
    let Ok(batch) = entry::decode(payload) else { return Vec::new() };
    let mut start = 0;
    let leaves = batch.ends.iter().map(|&end| {
        let leaf = batch.leaves.get(start..end as usize).unwrap_or_default();
        start = end as usize;
        leaf
    });
    let decoded = leaves.map(|leaf| leaf::decode(leaf).ok().as_ref().and_then(SystemEntry::decode));
    let positions = batch.first_seq..;
    positions.zip(decoded).filter_map(|(seq, entry)| Some((seq, entry?))).collect()
}
