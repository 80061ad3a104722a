//! Verification: every stored byte is read and hashed again, and the result is compared with what
//! was signed.
//!
//! It trusts nothing it reads: segments are read completely and their digests computed, every event
//! becomes a leaf hash, and the tree is built only from those. Each damaged block is reported, and
//! the first damage of every other kind; verification continues after it if possible. It needs no
//! open store, but an open one can verify itself too (`online`).

mod absent;
mod leaves;
mod log;
mod online;
mod segments;
mod signed;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_base::error_chain::chain;
use forebay_base::fs::FileSystem;

use super::error::{Disk, OpenError};
use super::manifest::{Manifest, ReadManifest};
use super::proofs::Source;
use super::seal::FileKey;
use super::sealing::SmallFiles;
use crate::checkpoint::{CosignerKey, VerifierKey, load_key};
use crate::format::system::SystemEntry;
use crate::format::tree;
use crate::merkle::{Hash, LeafHashes, TILE_WIDTH, Tree, TreeFile};
use leaves::Leaves;
use log::Segments;
use segments::Opened;
use signed::{History, Signed};

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
    /// Another file of the store is damaged.
    File {
        /// What is wrong, and in which.
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
            Self::File { found } => formatter.write_str(found),
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

/// What is known of a store from elsewhere.
#[derive(Debug, Clone, Default)]
pub struct Kept {
    /// Earlier checkpoints.
    pub since: Vec<String>,
    /// The key that signed them; none: the store's own.
    pub key: Option<VerifierKey>,
    /// Keys of witnesses.
    pub witnesses: Vec<CosignerKey>,
    /// Number of these witnesses that must have cosigned a checkpoint; at least 1 if there are any.
    pub quorum: usize,
}

/// A checkpoint that witnesses cosigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Witnessed {
    /// Its size.
    pub events: u64,
    /// Number of the given witnesses that cosigned it.
    pub witnesses: usize,
    /// When the first of them did, in seconds since 1970.
    pub time_s: Option<u64>,
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
    /// Number of events after the newest of these: no signature covers them yet, so nothing shows
    /// whether they were changed, removed or added.
    pub unsigned: u64,
    /// The newest checkpoint that witnesses cosigned.
    pub witnessed: Option<Witnessed>,
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
    let kept = Kept { since: since.to_vec(), key: key.cloned(), ..Kept::default() };
    verify_kept(fs, dir, &kept, on_event)
}

/// Like [`verify`], also with keys of witnesses.
///
/// # Errors
/// As [`verify`].
pub fn verify_kept(
    fs: &Arc<dyn FileSystem>,
    dir: &Path,
    kept: &Kept,
    on_event: &(dyn Fn(u64) + Sync),
) -> Result<Verified, OpenError> {
    // Why there is none is reported with the checkpoints.
    let key = load_key(&**fs, &dir.join("key")).ok().flatten().as_ref().map(FileKey::of);
    let found = Manifest::read(&**fs, dir, key.as_ref())?;
    let ReadManifest { manifest, unauthentic } =
        found.ok_or_else(|| OpenError::Absent { path: dir.to_path_buf() })?;
    let path = dir.join("lock");
    let _lock = fs.lock_exclusive(&path).map_err(|source| {
        if source.kind() == std::io::ErrorKind::WouldBlock {
            OpenError::Locked { path: dir.to_path_buf(), source }
        } else {
            OpenError::Io(Disk::new("lock", &path, source))
        }
    })?;
    let (opened, faults) = segments::open_all(&**fs, dir, &manifest);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let read = segments::read(&opened, faults, manifest.merkle, threads, on_event);
    let mut verifying = Verifying::new(fs, dir, manifest, on_event);
    verifying.file("manifest", unauthentic);
    verifying.small_files(key.as_ref());
    let mut leaves = verifying.segments(read);
    let end_seq = verifying.log(&mut leaves, key.as_ref());
    if verifying.manifest.merkle {
        let history = verifying.history_in_files();
        verifying.proofs(&leaves, end_seq, &opened, None, history, kept);
    } else if !kept.since.is_empty() || !kept.witnesses.is_empty() {
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

/// The source of leaf hashes for roots of sizes inside a tile.
enum Inside<'a> {
    Files(Segments<'a>),
    Open(&'a Source<'a>),
}

impl LeafHashes for Inside<'_> {
    type Error = String;

    fn leaf_hashes(&self, first: u64, count: usize) -> Result<Vec<Hash>, String> {
        match self {
            Self::Files(files) => files.leaf_hashes(first, count),
            Self::Open(source) => source.leaf_hashes(first, count),
        }
    }
}

impl<'a> Verifying<'a> {
    fn new(
        fs: &'a Arc<dyn FileSystem>,
        dir: &'a Path,
        manifest: Manifest,
        on_event: &'a (dyn Fn(u64) + Sync),
    ) -> Self {
        Self {
            fs,
            dir,
            manifest,
            on_event,
            entries: Vec::new(),
            damaged: Vec::new(),
            signed: Vec::new(),
            verified: Verified::default(),
        }
    }

    /// Reads the files of arrivals and requests.
    fn small_files(&mut self, key: Option<&FileKey>) {
        match SmallFiles::read(&**self.fs, self.dir, &self.manifest, key) {
            Ok(files) => {
                for (name, reason) in files.unused() {
                    self.file(name, Some(reason));
                }
            }
            Err(error) => {
                self.verified.faults.push(Fault::File { found: chain(&error).to_string() });
            }
        }
        if !self.manifest.merkle {
            self.remains_of_proofs();
        }
    }

    /// Adds a fault of a file, if there is one.
    fn file(&mut self, name: &str, reason: Option<&str>) {
        if let Some(reason) = reason {
            let found = format!("{}: {reason}", self.dir.join(name).display());
            self.verified.faults.push(Fault::File { found });
        }
    }

    /// A store without proofs has no files of proofs: a manifest that states that there are none
    /// would hide all of them.
    fn remains_of_proofs(&mut self) {
        for name in ["key", "checkpoints", "newest-checkpoint", "tree"] {
            match self.fs.exists(&self.dir.join(name)) {
                Ok(false) => {}
                Ok(true) => self.file(name, Some("it exists, but the manifest states no proofs")),
                Err(error) => self.file(name, Some(&error.to_string())),
            }
        }
    }

    /// Takes over what was read of the segments.
    fn segments(&mut self, read: segments::Read) -> Leaves {
        self.verified.events += read.events;
        self.verified.leaf_bytes += read.leaf_bytes;
        self.verified.faults.extend(read.faults);
        self.entries = read.entries;
        let damaged = |number: u64| read.damaged.contains(&number);
        let segments = self.manifest.segments.iter().filter(|entry| damaged(entry.number));
        self.damaged = segments.map(|entry| entry.first_seq..entry.end_seq).collect();
        for entry in &self.manifest.segments {
            self.verified.segments += 1;
            self.verified.file_bytes += entry.file_size;
            self.verified.pruned += entry.end_seq - entry.first_seq - entry.rows;
        }
        read.leaves
    }

    /// Compares the tree of the events with the tree's file and with all signed checkpoints.
    ///
    /// * `open`: where hashes inside a tile are, if the store is open.
    fn proofs(
        &mut self,
        leaves: &Leaves,
        end_seq: u64,
        opened: &[Opened<'_>],
        open: Option<&Source<'_>>,
        history: History,
        kept: &Kept,
    ) {
        let tree = self.tree(leaves, end_seq);
        self.flushed(tree.as_ref(), open);
        self.verified.root = tree.as_ref().map(Tree::root);
        self.signed(tree.as_ref(), open, history, kept);
        self.verified.unsigned = end_seq.saturating_sub(absent::covered_end(&self.signed));
        let (end_seq, verified) = (self.manifest.flushed_seq, &mut self.verified);
        absent::check(leaves, &mut self.entries, &self.signed, end_seq, &self.damaged, verified);
        absent::check_roots(opened, &self.entries, verified);
    }

    /// Compares the tree of the flushed events with the root in the manifest.
    fn flushed(&mut self, tree: Option<&Tree>, open: Option<&Source<'_>>) {
        let (Some(tree), Some(root)) = (tree, self.manifest.root) else { return };
        let files = Segments { fs: self.fs, dir: self.dir, manifest: &self.manifest };
        let inside = open.map_or(Inside::Files(files), Inside::Open);
        let size = self.manifest.flushed_seq;
        let found = match tree.root_at(size, &inside) {
            Ok(found) if found == root => return,
            Ok(_) => format!("the first {size} events do not give the root in the manifest"),
            Err(error) => error.to_string(),
        };
        self.verified.faults.push(Fault::Tree { found });
    }

    /// The tree of the events, compared with the tree's file; `None` if hashes are missing.
    fn tree(&mut self, leaves: &Leaves, end_seq: u64) -> Option<Tree> {
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
        tree
    }
}

/// Hashes the leaves that end at `ends` in `bytes`.
fn hash_all(bytes: &[u8], ends: &[usize], hashes: &mut Vec<Hash>) {
    hashes.clear();
    let leaves = ends.iter().scan(0, |start, &end| {
        let leaf = bytes.get(*start..end).unwrap_or_default();
        *start = end;
        Some(leaf)
    });
    tree::hashes(leaves, hashes);
}
