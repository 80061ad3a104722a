//! Opening: loads the newest readable snapshot and replays the log from there.
//!
//! Steps:
//! 1. The directory is locked, and unfinished snapshots are removed.
//! 2. The ends of the snapshots are read: the log must be complete up to their highest position.
//! 3. The log is opened; a torn tail is cut.
//! 4. The newest snapshot is read into an empty store. If it is damaged, the store is discarded and
//!    the previous snapshot is read, provided that the log reaches back to it. A log that was never
//!    trimmed reaches back to an empty store.
//! 5. The log is read from the lowest position of the snapshot on. An operation is run if its
//!    entry's position is not below the position at which the range of its key was taken.
//!
//! Invariant: a store is returned only if it holds everything acknowledged. If that is in doubt, an
//! error names the position and the remedy.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_base::Durability;
use forebay_base::error_chain::chain;
use forebay_base::fs::FileSystem;
use forebay_log::{Cut, Log, Lsn, Recovery};

use super::PersistOptions;
use super::check::shown;
use super::directory::{self, Directory};
use super::error::{LogFault, OpenError, SnapshotReadError};
use super::format;
use super::join::{Joiner, Whole};
use super::journal::{Journal, Kept, Parts};
use super::ops::{Decoded, OpsReader};
use super::ranges::Ranges;
use super::snapshot::Sizes;
use super::snapshot::SnapshotInfo;
use super::snapshot::read::{ReadValue, Sink, SnapshotFile};
use crate::store::{Deadline, Key, Keyspace, SHARDS};

/// Bytes after which progress is reported.
const PROGRESS_SIZE: u64 = 4 << 20;

/// The target of a recovery.
pub trait Restore {
    /// The store that holds the keys: a [`Keyspace`], or a type that contains one.
    type Store: AsRef<Keyspace>;

    /// Creates an empty store whose keys are hashed with this seed.
    ///
    /// Called again if the data read into the first store is damaged.
    fn build(&mut self, seed: u64) -> Self::Store;

    /// Runs an operation again, at its original time.
    ///
    /// * `words`: a name, the one key it concerns, and the remaining words. Never
    ///   [`FLUSH`](super::FLUSH), which recovery handles itself.
    ///
    /// # Errors
    /// Why it cannot be replayed; this ends the recovery.
    fn replay(
        &mut self,
        store: &Self::Store,
        now_ms: u64,
        database: usize,
        words: &[&[u8]],
    ) -> Result<(), String>;

    /// Called every few MiB, and at the end of each phase.
    fn progress(&mut self, _progress: &Progress) {}
}

/// A phase of recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The snapshot; items are keys.
    Snapshot,
    /// The log; items are operations.
    Log,
}

/// Progress within a phase.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Progress {
    /// The phase.
    pub phase: Phase,
    /// Bytes read.
    pub bytes: u64,
    /// Total number of bytes.
    pub bytes_total: u64,
    /// Keys or operations so far.
    pub items: u64,
    /// Time since the phase began.
    pub elapsed: Duration,
}

impl Progress {
    /// Returns the keys or operations per second.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a rate is shown with few digits")]
    pub fn items_rate(&self) -> f64 {
        self.items as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// The result of a recovery.
#[derive(Debug)]
#[non_exhaustive]
pub struct Recovered {
    /// The snapshot that was loaded.
    pub snapshot: Option<SnapshotInfo>,
    /// What is wrong with newer snapshots that were skipped, newest first.
    pub passed_over: Vec<String>,
    /// Operations of the log that were replayed.
    pub operations: u64,
    /// Operations that were already in the snapshot.
    pub known: u64,
    /// Bytes of the log's entries that were read.
    pub log_bytes: u64,
    /// The torn tail that was cut off the log.
    pub cut: Option<Cut>,
    /// The latest time in the data, in milliseconds since 1970. Commands must not run at an earlier
    /// time, or an expired key might come back.
    pub last_ms: u64,
    /// Time the snapshot took to read.
    pub snapshot_took: Duration,
    /// Time the log took to read.
    pub log_took: Duration,
}

/// An opened store.
#[derive(Debug)]
pub struct Opened<S> {
    /// The store created by [`Restore::build`], with all data.
    pub store: S,
    /// The log to append to.
    pub journal: Journal,
    /// The result of the recovery.
    pub recovered: Recovered,
}

/// Opens the data in `dir`, creating it if it does not exist.
///
/// No thread is started: see [`Log::start_committer`].
///
/// # Errors
/// [`OpenError`]; each variant names the file and, where possible, the remedy.
pub fn open<R: Restore>(
    fs: Arc<dyn FileSystem>,
    dir: &Path,
    options: &PersistOptions,
    restore: &mut R,
) -> Result<Opened<R::Store>, OpenError> {
    let directory = Directory::open(fs, dir)?;
    let (candidates, newest_number) = candidates(&directory)?;
    let (log, recovery) = open_log(&directory, options, &candidates)?;
    let loaded = load(&directory, &log, &recovery, options, candidates, restore)?;
    let Loaded { store, ranges, info, passed_over, took: snapshot_took } = loaded;
    let from = if info.is_some() { ranges.bounds().0 } else { log.start() };
    let mut replay = Replay {
        directory: &directory,
        log: &log,
        ranges: &ranges,
        restore,
        store: &store,
        from,
        operations: 0,
        known: 0,
        bytes: 0,
        last_ms: info.as_ref().map_or(0, |info| info.created_ms),
    };
    let started = Instant::now();
    replay.run(started)?;
    let recovered = Recovered {
        snapshot: info.clone(),
        passed_over,
        operations: replay.operations,
        known: replay.known,
        log_bytes: replay.bytes,
        cut: recovery.cut,
        last_ms: replay.last_ms,
        snapshot_took,
        log_took: started.elapsed(),
    };
    log.append(&[&format::opened()]).map_err(|source| OpenError::Append { source })?;
    let journal = Journal::new(Parts {
        log,
        entry_size_max: options.entry_size_max as usize,
        directory,
        kept: Kept { newest: info, next_number: newest_number + 1 },
        sizes: Sizes { piece: options.piece_size.max(1), large: options.large_size.max(1) },
        snapshot_log_min: options.snapshot_log_min,
        replayed: recovered.log_bytes,
    });
    Ok(Opened { store, journal, recovered })
}

/// A snapshot's file, opened as far as possible.
type Candidate = (PathBuf, Result<SnapshotFile, SnapshotReadError>);

/// Returns the snapshots, newest first, and the greatest number of any of them.
fn candidates(directory: &Directory) -> Result<(Vec<Candidate>, u64), OpenError> {
    let fs = &*directory.fs;
    let (found, _) = directory::list(fs, directory.path()).map_err(OpenError::Io)?;
    let newest = found.first().map_or(0, |(number, _)| *number);
    let candidates: Vec<Candidate> = found
        .into_iter()
        .map(|(_, path)| {
            let file = SnapshotFile::open(fs, &path);
            (path, file)
        })
        .collect();
    if !candidates.is_empty() && !directory::has_log(fs, directory.path()).map_err(OpenError::Io)? {
        return Err(OpenError::NoLog { path: directory.path().to_path_buf() });
    }
    Ok((candidates, newest))
}

fn open_log(
    directory: &Directory,
    options: &PersistOptions,
    candidates: &[Candidate],
) -> Result<(Log, Recovery), OpenError> {
    let path = directory::log_dir(directory.path());
    let ends = candidates.iter().filter_map(|(_, file)| file.as_ref().ok());
    let log_options = forebay_log::Options {
        segment_size: options.segment_size,
        entry_size_max: options.entry_size_max,
        buffer_size_max: options.buffer_size_max,
        durability: options.durability,
        // Before a snapshot got its name, the log was synced up to its positions.
        known_synced: ends.map(|file| file.end.highest).max().unwrap_or_default(),
        // The engine knows which reads to refuse meanwhile.
        hold_when_full: true,
    };
    Log::open(Arc::clone(&directory.fs), &path, log_options)
        .map_err(|source| OpenError::Log { path, source })
}

/// A store loaded from a snapshot, or an empty one.
struct Loaded<S> {
    store: S,
    ranges: Ranges,
    info: Option<SnapshotInfo>,
    passed_over: Vec<String>,
    took: Duration,
}

fn load<R: Restore>(
    directory: &Directory,
    log: &Log,
    recovery: &Recovery,
    options: &PersistOptions,
    candidates: Vec<Candidate>,
    restore: &mut R,
) -> Result<Loaded<R::Store>, OpenError> {
    let mut passed_over = Vec::new();
    let start = log.start();
    for (_, candidate) in candidates {
        let started = Instant::now();
        let read = candidate.and_then(|file| {
            let lowest = file.end.lowest;
            if lowest < start {
                let path = file.path().to_path_buf();
                return Err(SnapshotReadError::Unreachable { path, lowest, start });
            }
            Ok(file)
        });
        let read = match read {
            Ok(file) => {
                belongs(&file, directory, log, recovery)?;
                read_into(&file, restore)
            }
            Err(error) => Err(error),
        };
        match read {
            Ok((store, ranges, info)) => {
                let (info, took) = (Some(info), started.elapsed());
                return Ok(Loaded { store, ranges, info, passed_over, took });
            }
            Err(error) => passed_over.push(chain(&error).to_string()),
        }
    }
    if start > Lsn(0) {
        let path = directory.path().to_path_buf();
        return Err(OpenError::NoSnapshot { path, start, reasons: passed_over });
    }
    let store = restore.build(options.seed.unwrap_or_else(fresh_seed));
    Ok(Loaded { store, ranges: Ranges::default(), info: None, passed_over, took: Duration::ZERO })
}

/// Checks that a snapshot and the log belong together, and that the log is complete.
fn belongs(
    file: &SnapshotFile,
    directory: &Directory,
    log: &Log,
    recovery: &Recovery,
) -> Result<(), OpenError> {
    let snapshot = file.path().to_path_buf();
    if file.header.log_id != log.id() {
        return Err(OpenError::Foreign { path: snapshot });
    }
    // Positions between the end of the entries and the end are skipped and belong to no entry.
    let (highest, end) = (file.end.highest, recovery.end.max(recovery.entries_end));
    if highest > end {
        let path = directory::log_dir(directory.path());
        return Err(OpenError::Behind { path, snapshot, highest, end });
    }
    Ok(())
}

fn read_into<R: Restore>(
    file: &SnapshotFile,
    restore: &mut R,
) -> Result<(R::Store, Ranges, SnapshotInfo), SnapshotReadError> {
    let store = restore.build(file.header.seed);
    let keyspace = store.as_ref();
    let started = Instant::now();
    let mut reported = 0;
    let mut report = |bytes: u64, keys: u64| {
        if bytes - reported >= PROGRESS_SIZE || bytes == file.len {
            reported = bytes;
            restore.progress(&Progress {
                phase: Phase::Snapshot,
                bytes,
                bytes_total: file.len,
                items: keys,
                elapsed: started.elapsed(),
            });
        }
    };
    let mut filling = Filling { keyspace, report: &mut report };
    let ranges = file.read(keyspace.rules(), &mut filling)?;
    let info = SnapshotInfo {
        path: file.path().to_path_buf(),
        number: file.header.number,
        bytes: file.len,
        keys: file.end.keys,
        created_ms: file.header.created_ms,
        lowest: file.end.lowest,
        highest: file.end.highest,
    };
    Ok((store, ranges, info))
}

/// Puts the keys of a snapshot into a store.
struct Filling<'a> {
    keyspace: &'a Keyspace,
    report: &'a mut dyn FnMut(u64, u64),
}

impl Sink for Filling<'_> {
    fn put(
        &mut self,
        database: usize,
        key: &Key<'_>,
        found: ReadValue<'_>,
        deadline_ms: Option<u64>,
    ) {
        let deadline = deadline_ms.map_or(Deadline::None, Deadline::At);
        // At time 0 no deadline has passed: expiration is decided when a key is accessed.
        let mut shard = self.keyspace.lock(database, key.shard(), 0);
        match found {
            ReadValue::Text(text) => shard.put_string(key, text, deadline),
            ReadValue::Value(value) => shard.put_value(key, value, deadline),
        }
    }

    fn progress(&mut self, bytes: u64, keys: u64) {
        (self.report)(bytes, keys);
    }
}

/// Replays the log's operations.
struct Replay<'a, R: Restore> {
    directory: &'a Directory,
    log: &'a Log,
    ranges: &'a Ranges,
    restore: &'a mut R,
    store: &'a R::Store,
    from: Lsn,
    operations: u64,
    known: u64,
    bytes: u64,
    last_ms: u64,
}

impl<R: Restore> Replay<'_, R> {
    fn run(&mut self, started: Instant) -> Result<(), OpenError> {
        let log_dir = directory::log_dir(self.directory.path());
        let bytes_total = self.log.written().0.saturating_sub(self.from.0);
        let mut reader = self.log.reader(self.from);
        let mut joiner = Joiner::new(self.from);
        let mut reported = 0;
        loop {
            let entry = reader.next();
            let entry =
                entry.map_err(|source| OpenError::ReadLog { path: log_dir.clone(), source })?;
            let done = entry.is_none();
            if let Some(entry) = entry {
                self.bytes += entry.payload.len() as u64;
                let whole = joiner.take(entry.lsn, entry.payload);
                if let Some(whole) = whole.map_err(|fault| self.wrong(entry.lsn, fault))? {
                    self.apply(&whole)?;
                }
            }
            let bytes = reader.position().0.saturating_sub(self.from.0);
            if done || bytes - reported >= PROGRESS_SIZE {
                reported = bytes;
                let (items, elapsed) = (self.operations, started.elapsed());
                let phase = Phase::Log;
                self.restore.progress(&Progress { phase, bytes, bytes_total, items, elapsed });
            }
            if done {
                return Ok(());
            }
        }
    }

    fn apply(&mut self, whole: &Whole<'_>) -> Result<(), OpenError> {
        self.last_ms = self.last_ms.max(whole.now_ms);
        let mut ops = OpsReader::new(whole.bytes);
        let keyspace = self.store.as_ref();
        while let Some(op) =
            ops.next().map_err(|fault| self.wrong(whole.lsn, LogFault::Ops(fault)))?
        {
            let Decoded { database, words } = &op;
            let Some(key) = op.key() else {
                self.operations += 1;
                flush(keyspace, self.ranges, *database, whole.lsn);
                continue;
            };
            let is_known = |database: usize, key: &[u8]| {
                whole.lsn < self.ranges.position(database, keyspace.rules().hash(key))
            };
            let known = is_known(*database, key);
            if op.second_key().is_some_and(|(database, key)| is_known(database, key) != known) {
                return Err(self.wrong(whole.lsn, LogFault::Divided));
            }
            if known {
                self.known += 1;
                continue;
            }
            self.operations += 1;
            let replayed = self.restore.replay(self.store, whole.now_ms, *database, words);
            replayed.map_err(|reason| {
                let (path, offset) = self.place(whole.lsn);
                let command = shown(words.first());
                OpenError::Replay { path, offset, command, reason }
            })?;
        }
        Ok(())
    }

    fn wrong(&self, lsn: Lsn, fault: LogFault) -> OpenError {
        let (path, offset) = self.place(lsn);
        OpenError::Entry { path, offset, fault }
    }

    /// Returns the file that contains a position, and the offset in it.
    fn place(&self, lsn: Lsn) -> (PathBuf, u64) {
        let dir = directory::log_dir(self.directory.path());
        let segments = self.log.segments().unwrap_or_default();
        let segment = segments.iter().rev().find(|segment| segment.base <= lsn);
        let base = segment.map_or(0, |segment| segment.base.0);
        (dir.join(format!("{base:016x}.log")), lsn.0 - base)
    }
}

/// Removes every key of a database that was taken before `lsn`.
fn flush(keyspace: &Keyspace, ranges: &Ranges, database: usize, lsn: Lsn) {
    if !keyspace.is_made(database) {
        return;
    }
    let whole = ranges.highest_of(database) <= lsn;
    for shard in 0..SHARDS {
        let mut shard = keyspace.lock(database, shard, 0);
        if whole {
            shard.clear();
            continue;
        }
        let mut gone: Vec<Box<[u8]>> = Vec::new();
        let mut next = Some(0);
        while let Some(from) = next {
            next = shard.visit_range(from, &mut |shard, at| {
                let key = shard.key(at);
                if ranges.position(database, keyspace.rules().hash(key)) <= lsn {
                    gone.push(key.into());
                }
            });
        }
        for key in gone {
            shard.remove(&keyspace.key(&key));
        }
    }
}

/// Returns a seed that no client can guess.
fn fresh_seed() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    // The standard library seeds these from the operating system's source of randomness.
    RandomState::new().hash_one(std::process::id())
}

impl Default for PersistOptions {
    fn default() -> Self {
        Self {
            durability: Durability::Interval(Duration::from_millis(50)),
            segment_size: 64 << 20,
            entry_size_max: 16 << 20,
            buffer_size_max: 8 << 20,
            snapshot_log_min: 64 << 20,
            piece_size: 256 << 10,
            large_size: 1 << 20,
            seed: None,
        }
    }
}
