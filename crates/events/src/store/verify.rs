//! Verification: every stored byte is read and hashed again, and the result is compared with what
//! was signed.
//!
//! It needs no open store and trusts nothing it reads: segments are read completely and their
//! digests computed, every event becomes a leaf hash, and the tree is built only from those. The
//! first damage of every kind is reported; verification continues after it if possible.

#![expect(
    clippy::cast_possible_truncation,
    reason = "positions are differences within one tile or batch"
)]

mod absent;
mod leaves;
mod segments;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_base::error_chain::chain;
use forebay_base::fs::FileSystem;
use forebay_log::Lsn;

use super::error::{Disk, OpenError};
use super::manifest::{Manifest, segment_path};
use crate::checkpoint::{Checkpoint, History, VerifierKey, load_key};
use crate::format::system::SystemEntry;
use crate::format::{entry, leaf};
use crate::merkle::{self, Hash, LeafHashes, TILE_WIDTH, Tree, TreeFile};
use crate::segment::Segment;
use absent::Signed;
use leaves::Leaves;

/// Events of a tile.
const TILE: u64 = TILE_WIDTH as u64;

/// A difference from what was written.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// A segment's bytes differ from those that were sealed.
    Segment {
        /// Its file.
        path: PathBuf,
        /// What is wrong, with block and event if known.
        found: String,
    },
    /// The log is damaged.
    Log {
        /// What is wrong, and where.
        found: String,
    },
    /// The tree's file is damaged, or does not match the events.
    Tree {
        /// What is wrong.
        found: String,
    },
    /// A checkpoint is damaged, or not signed by the store's key.
    Checkpoint {
        /// Which one, and what is wrong.
        found: String,
    },
    /// Events are absent, and no signed entry of the store says that it removed them.
    Absent {
        /// Index of the first.
        first: u64,
        /// Index of the last.
        last: u64,
    },
    /// The events differ from those for which a checkpoint was signed.
    History {
        /// The checkpoint's size.
        size: u64,
        /// What is wrong.
        found: String,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Segment { path, found } => write!(formatter, "{}: {found}", path.display()),
            Self::Log { found } => write!(formatter, "log: {found}"),
            Self::Tree { found } => write!(formatter, "tree: {found}"),
            Self::Checkpoint { found } => write!(formatter, "checkpoint: {found}"),
            Self::Absent { first, last } => {
                let reason = "and no signed entry of the store says that it was removed";
                if first == last {
                    return write!(formatter, "event {first} is absent, {reason}");
                }
                write!(formatter, "each of the events {first} to {last} is absent, {reason}")
            }
            Self::History { size, found } => {
                write!(formatter, "history, compared with the checkpoint of {size} events: {found}")
            }
        }
    }
}

/// The result of a verification.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// Number of hashed events.
    pub events: u64,
    /// Number of pruned events, of which only hashes or roots remain.
    pub pruned: u64,
    /// Number of those that an earlier version pruned, without recording which.
    pub pruned_before_recording: u64,
    /// Size of the hashed leaves in bytes.
    pub leaf_bytes: u64,
    /// Size of the read files in bytes.
    pub file_bytes: u64,
    /// Number of segments read.
    pub segments: u64,
    /// Number of checkpoints whose signature and root were checked.
    pub checkpoints: u64,
    /// The root of all events, if proofs are kept and it could be computed.
    pub root: Option<Hash>,
    /// All faults.
    pub faults: Vec<Fault>,
}

/// Reads and hashes everything in `dir`; changes nothing, but locks the directory meanwhile.
///
/// * `since`: earlier checkpoints that were kept elsewhere; each must be signed by `key`, or by the
///   store's own key if none is given.
/// * `on_event`: called as events are hashed, for progress.
///
/// # Errors
/// [`OpenError::Absent`], [`OpenError::Locked`], [`OpenError::Manifest`] or [`OpenError::Io`]:
/// there was nothing to verify. Damage is not an error but a [`Fault`].
pub fn verify(
    fs: &Arc<dyn FileSystem>,
    dir: &Path,
    since: &[String],
    key: Option<&VerifierKey>,
    on_event: &(dyn Fn(u64) + Sync),
) -> Result<Verified, OpenError> {
    let manifest =
        Manifest::read(&**fs, dir)?.ok_or_else(|| OpenError::Absent { path: dir.to_path_buf() })?;
    let path = dir.join("lock");
    let _lock = fs.lock_exclusive(&path).map_err(|source| {
        if source.kind() == std::io::ErrorKind::WouldBlock {
            OpenError::Locked { path: dir.to_path_buf(), source }
        } else {
            OpenError::Io(Disk::new("lock", &path, source))
        }
    })?;
    let mut verifying = Verifying {
        fs,
        dir,
        manifest,
        on_event,
        entries: Vec::new(),
        damaged: Vec::new(),
        signed: Vec::new(),
        verified: Verified::default(),
    };
    let mut leaves = verifying.segments();
    let end_seq = verifying.log(&mut leaves);
    if verifying.manifest.merkle {
        verifying.proofs(&leaves, end_seq, since, key);
    } else if !since.is_empty() {
        let found = "this event store keeps no proofs".to_owned();
        verifying.verified.faults.push(Fault::Checkpoint { found });
    }
    Ok(verifying.verified)
}

struct Verifying<'a> {
    fs: &'a Arc<dyn FileSystem>,
    dir: &'a Path,
    manifest: Manifest,
    on_event: &'a (dyn Fn(u64) + Sync),
    /// The store's own entries, with their positions.
    entries: Vec<(u64, SystemEntry)>,
    /// Positions of damaged segments.
    damaged: Vec<std::ops::Range<u64>>,
    /// Checkpoints with a valid signature.
    signed: Vec<Signed>,
    verified: Verified,
}

impl Verifying<'_> {
    /// Reads all segments.
    fn segments(&mut self) -> Leaves {
        let read = segments::read(self.fs, self.dir, &self.manifest, self.on_event);
        self.verified.events += read.events;
        self.verified.leaf_bytes += read.leaf_bytes;
        self.verified.faults.extend(read.faults);
        self.entries = read.entries;
        self.damaged = read.damaged;
        for entry in &self.manifest.segments {
            self.verified.segments += 1;
            self.verified.file_bytes += entry.file_size;
            self.verified.pruned += entry.end_seq - entry.first_seq - entry.rows;
        }
        read.leaves
    }

    /// Reads the log from where the segments end; returns the position after its last event.
    fn log(&mut self, leaves: &mut Leaves) -> u64 {
        let mut end_seq = self.manifest.flushed_seq;
        let from = Lsn(self.manifest.log_position);
        let log_dir = self.dir.join("log");
        let mut faults = Vec::new();
        let mut hashes = Vec::new();
        let (mut events, mut leaf_bytes) = (0, 0);
        let merkle = self.manifest.merkle;
        let entries = &mut self.entries;
        let checked = forebay_log::check_entries(
            &**self.fs,
            &log_dir,
            &mut |found| {
                if found.lsn < from || !faults.is_empty() {
                    return;
                }
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
        self.verified.faults.extend(faults.into_iter().map(|found| Fault::Log { found }));
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

    /// Compares the tree of the events with the tree's file and with all signed checkpoints.
    fn proofs(
        &mut self,
        leaves: &Leaves,
        end_seq: u64,
        since: &[String],
        key: Option<&VerifierKey>,
    ) {
        let tiles = self.manifest.flushed_seq / TILE;
        let id = self.manifest.log_id;
        let stored = match TreeFile::read(&**self.fs, &self.dir.join("tree"), id, tiles) {
            Ok(roots) => roots,
            Err(error) => {
                self.verified.faults.push(Fault::Tree { found: chain(&error).to_string() });
                Vec::new()
            }
        };
        if let Some(seq) = leaves.twice() {
            let found = format!("event {seq} is duplicated");
            self.verified.faults.push(Fault::Tree { found });
        }
        let mut roots = Vec::new();
        for tile in 0..end_seq / TILE {
            let known = usize::try_from(tile).ok().and_then(|at| stored.get(at)).copied();
            match (leaves.root(tile), known) {
                (Some(found), Some(known)) if found != known => {
                    let first = tile * TILE;
                    let found =
                        format!("events {first} to {} give a different root", first + TILE - 1);
                    self.verified.faults.push(Fault::Tree { found });
                    roots.push(known);
                }
                (Some(found), _) => roots.push(found),
                // Pruning leaves the hashes of all events of a tile, or of none.
                (None, Some(known)) if leaves.is_open(tile) => {
                    let first = tile * TILE;
                    let found =
                        format!("hashes of events {first} to {} are missing", first + TILE - 1);
                    self.verified.faults.push(Fault::Tree { found });
                    roots.push(known);
                }
                // All events of the tile were pruned: the signed checkpoints show whether its root
                // is right.
                (None, Some(known)) => roots.push(known),
                (None, None) => break,
            }
        }
        let edge_tile = end_seq / TILE;
        let edge: Option<Vec<Hash>> =
            (0..(end_seq % TILE) as usize).map(|place| leaves.leaf(edge_tile, place)).collect();
        let complete = roots.len() as u64 == edge_tile;
        let tree = match edge {
            Some(edge) if complete => Tree::from_parts(roots, edge).ok(),
            _ => None,
        };
        if tree.is_none() {
            let found =
                "some of the events' hashes are missing, so the root cannot be computed".to_owned();
            self.verified.faults.push(Fault::Tree { found });
        }
        self.verified.root = tree.as_ref().map(Tree::root);
        self.signed(tree.as_ref(), since, key);
        let (end_seq, verified) = (self.manifest.flushed_seq, &mut self.verified);
        absent::check(leaves, &mut self.entries, &self.signed, end_seq, &self.damaged, verified);
        absent::check_roots(&**self.fs, self.dir, &self.manifest, &self.entries, verified);
    }

    /// Checks signature and root of the store's own checkpoints, and of the given ones.
    fn signed(&mut self, tree: Option<&Tree>, since: &[String], key: Option<&VerifierKey>) {
        let own = match load_key(&**self.fs, &self.dir.join("key")) {
            Ok(Some(own)) => Some(own.verifier().clone()),
            Ok(None) => {
                self.checkpoint_fault("the store's key is missing".to_owned());
                None
            }
            Err(error) => {
                self.checkpoint_fault(chain(&error).to_string());
                None
            }
        };
        let id = self.manifest.log_id;
        match History::read(&**self.fs, &self.dir.join("checkpoints"), id) {
            Ok(notes) => {
                if notes.torn() > 0 {
                    let torn = notes.torn();
                    self.checkpoint_fault(format!(
                        "{torn} bytes follow the last complete checkpoint: a checkpoint is \
                         incomplete or damaged"
                    ));
                }
                for note in notes {
                    match (note, &own) {
                        (Ok(note), Some(own)) => self.note(tree, &note, own),
                        (Ok(_), None) => {}
                        (Err(error), _) => self.checkpoint_fault(chain(&error).to_string()),
                    }
                }
            }
            Err(error) => self.checkpoint_fault(chain(&error).to_string()),
        }
        if let (Some(key), Some(own)) = (key, &own)
            && key != own
        {
            self.checkpoint_fault(
                "the store signs with a different key from the one given".to_owned(),
            );
        }
        if let Some(key) = key.or(own.as_ref()) {
            since.iter().for_each(|note| self.note(tree, note, key));
        }
    }

    /// Checks one signed note.
    fn note(&mut self, tree: Option<&Tree>, note: &str, key: &VerifierKey) {
        let checkpoint = match Checkpoint::open(note.as_bytes(), key) {
            Ok(checkpoint) => checkpoint,
            Err(error) => return self.checkpoint_fault(chain(&error).to_string()),
        };
        self.verified.checkpoints += 1;
        let source = Segments { fs: self.fs, dir: self.dir, manifest: &self.manifest };
        let found = tree.and_then(|tree| contradiction(tree, &checkpoint, &source));
        self.signed.push(Signed {
            size: checkpoint.size,
            recorded: checkpoint.is_recorded(),
            confirmed: found.is_none(),
        });
        if let Some(found) = found {
            self.verified.faults.push(Fault::History { size: checkpoint.size, found });
        }
    }

    fn checkpoint_fault(&mut self, found: String) {
        self.verified.faults.push(Fault::Checkpoint { found });
    }
}

/// Returns how a tree contradicts a checkpoint, if it does.
fn contradiction(tree: &Tree, checkpoint: &Checkpoint, source: &Segments<'_>) -> Option<String> {
    if checkpoint.size > tree.size() {
        let missing = checkpoint.size - tree.size();
        return Some(format!("its newest {missing} events are missing"));
    }
    match tree.root_at(checkpoint.size, source) {
        Ok(root) if root == checkpoint.root => None,
        Ok(root) => Some(format!(
            "the events give the root {root}, but {} was signed: events were changed, \
             reordered or replaced",
            checkpoint.root
        )),
        Err(error) => Some(error.to_string()),
    }
}

/// Leaf hashes from the files, for roots of sizes inside a tile.
struct Segments<'a> {
    fs: &'a Arc<dyn FileSystem>,
    dir: &'a Path,
    manifest: &'a Manifest,
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
                    .and_then(|segment| super::proofs::leaf_hashes_of(&segment, from, to))
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

/// Hashes the leaves that end at `ends` in `bytes`.
fn hash_all(bytes: &[u8], ends: &[usize], hashes: &mut Vec<Hash>) {
    hashes.clear();
    let leaves = ends.iter().scan(0, |start, &end| {
        let leaf = bytes.get(*start..end).unwrap_or_default();
        *start = end;
        Some(leaf)
    });
    merkle::leaf_hashes(leaves, hashes);
}
