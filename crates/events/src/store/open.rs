//! Opening: reads the durable data, removes what a crash left incomplete, fills memory from the
//! log.

#![expect(clippy::cast_possible_truncation, reason = "a constant")]

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use forebay_base::clock::Clock;
use forebay_base::error_chain::chain;
use forebay_base::fs::{FileSystem, Lock};
use forebay_log::{Log, Lsn, Recovery};
use parking_lot::{Condvar, Mutex, RwLock};

use super::anchor::publishers;
use super::checked::Checks;
use super::cosigned::Cosigned;
use super::counters::Counters;
use super::error::{Disk, OpenError};
use super::journal::Journal;
use super::manifest::{Manifest, SegmentEntry, remove, segment_path, segments_dir};
use super::options::Options;
use super::read::Blocks;
use super::replay::{Limits, Replayed};
use super::seal::FileKey;
use super::sealing::{Entries, SmallFiles, read_key};
use super::signal::Signal;
use super::tree::{Leaves, TreeKeeper};
use super::view::{Stored, View};
use super::{Checkpoints, Inner, Sequencer, Store, newest, replay};
use crate::batch::BATCH_SIZE_MAX;
use crate::checkpoint::{History, SigningKey, create_key};
use crate::format::system::SystemEntry;
use crate::memory::Table;
use crate::merkle::{Hash, PartsError, TILE_WIDTH, Tree, TreeFile};
use crate::segment::{Segment, SegmentError, Unreadable};

/// The result of opening a store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovered {
    /// Whether the store was created now.
    pub created: bool,
    /// Events in segments.
    pub events_in_segments: u64,
    /// Events read back from the log.
    pub events_from_log: u64,
    /// Bytes of leaves read back from the log.
    pub bytes_from_log: u64,
    /// Bytes of a torn tail that were cut off the log.
    pub cut_bytes: u64,
    /// Files of incomplete work that were removed.
    pub leftovers: u64,
    /// How long it took.
    pub took: Duration,
}

impl Store {
    /// Opens the store in `dir`, creating one if it does not exist, and starts its threads.
    ///
    /// * Returns the store, and the result of opening it.
    ///
    /// # Errors
    /// [`OpenError`]: something is damaged, in use, or conflicts with the options; no durable data
    /// changed.
    pub fn open(
        fs: Arc<dyn FileSystem>,
        clock: Arc<dyn Clock>,
        dir: &Path,
        options: Options,
    ) -> Result<(Self, Recovered), OpenError> {
        let started = clock.monotonic();
        let mut recovered = Recovered::default();
        let inner = Inner::open(fs, Arc::clone(&clock), dir, options, &mut recovered)?;
        let inner = Arc::new(inner);
        inner.journal.start_committer();
        inner.record_unused();
        let (threads, publishing) = (inner.start_threads(), inner.start_publishing());
        recovered.took = clock.monotonic().saturating_sub(started);
        Ok((Self { inner, threads, publishing, stopped: false }, recovered))
    }

    /// Like [`Store::open`], without threads: appenders also write, sync and flush, and nothing
    /// is joined or signed unless requested. So the same calls have the same effect on the disk.
    ///
    /// # Errors
    /// As [`Store::open`].
    #[doc(hidden)]
    pub fn open_quiet(
        fs: Arc<dyn FileSystem>,
        clock: Arc<dyn Clock>,
        dir: &Path,
        options: Options,
    ) -> Result<(Self, Recovered), OpenError> {
        let mut recovered = Recovered::default();
        let mut inner = Inner::open(fs, clock, dir, options, &mut recovered)?;
        inner.quiet = true;
        inner.record_unused();
        let (inner, threads, publishing) = (Arc::new(inner), Vec::new(), Vec::new());
        Ok((Self { inner, threads, publishing, stopped: false }, recovered))
    }

    /// Whether there is a store in `dir`.
    ///
    /// # Errors
    /// The device failed. [`OpenError::Manifest`]: it is damaged, or missing beside other files of a store.
    pub fn exists(fs: &dyn FileSystem, dir: &Path) -> Result<bool, OpenError> {
        let exists = Manifest::read(fs, dir, None)?.is_some();
        if !exists {
            refuse_remains(fs, dir)?;
        }
        Ok(exists)
    }
}

/// Why the lock of a store was not acquired.
fn locked(dir: &Path) -> impl FnOnce(io::Error) -> OpenError {
    let path = dir.to_path_buf();
    move |source| match source.kind() {
        io::ErrorKind::WouldBlock => OpenError::Locked { path, source },
        _ => OpenError::Io(Disk::new("lock", path, source)),
    }
}

/// The opened files of a store, and what was read from them.
struct OpenedFiles {
    lock: Box<dyn Lock>,
    log: Log,
    manifest: Manifest,
    /// Why nothing may be changed, if so.
    suspended: Option<String>,
    stored: Vec<Arc<Stored>>,
    proofs: Option<(TreeKeeper, TreeFile, Checkpoints)>,
    file_key: Option<FileKey>,
    small: SmallFiles,
}

impl OpenedFiles {
    /// Opens every file of a store, creating what a new one has.
    fn open(
        fs: &Arc<dyn FileSystem>,
        dir: &Path,
        options: &Options,
        recovered: &mut Recovered,
    ) -> Result<Self, OpenError> {
        let segments = segments_dir(dir);
        fs.create_dir_all(&segments).map_err(disk("create", &segments))?;
        let lock = fs.lock_exclusive(&dir.join("lock")).map_err(locked(dir))?;
        // A store without proofs has no key.
        let key = if options.merkle { read_key(&**fs, dir)? } else { None };
        let file_key = key.as_ref().map(FileKey::of);
        let found = Manifest::read(&**fs, dir, file_key.as_ref())?;
        let (manifest, unauthentic) =
            found.map_or((None, None), |found| (Some(found.manifest), found.unauthentic));
        // Nothing may be removed because of a manifest whose name a power cut could still revert.
        fs.sync_dir(dir).map_err(disk("sync", dir))?;
        if manifest.is_none() {
            refuse_remains(&**fs, dir)?;
        }
        recovered.created = manifest.is_none();
        let (log, log_recovery) = open_log(fs, dir, options)?;
        recovered.cut_bytes = log_recovery.cut.as_ref().map_or(0, |cut| cut.bytes);
        let mut manifest = match manifest {
            Some(manifest) => checked(manifest, &log, dir, options)?,
            None => create(&**fs, dir, options, &log)?,
        };
        if manifest.sealed && key.is_none() {
            let reason = "it is missing, and the other files cannot be authenticated without it; \
                          restore it from a backup";
            return Err(OpenError::Manifest { path: dir.join("key"), reason });
        }
        let stored = open_segments(&**fs, dir, &manifest, recovered)?;
        let mut suspended =
            unauthentic.map(|reason| format!("{}: {reason}", dir.join("manifest").display()));
        let proofs = match manifest.merkle {
            true => Some(open_proofs(fs, dir, options, &mut manifest, key, &stored)?),
            false => None,
        };
        if let Some((tree, ..)) = &proofs
            && let Some(reason) = tree.lacks()
        {
            suspended
                .get_or_insert_with(|| format!("the end of its tree cannot be computed: {reason}"));
        }
        // Files that an unauthentic manifest does not name may be those that the store needs.
        if unauthentic.is_none() {
            remove_leftovers(&**fs, dir, &manifest, recovered)?;
        }
        let file_key = proofs.as_ref().map(|(.., checkpoints)| FileKey::of(&checkpoints.key));
        let small = SmallFiles::read(&**fs, dir, &manifest, file_key.as_ref())?;
        Ok(Self { lock, log, manifest, suspended, stored, proofs, file_key, small })
    }
}

impl Inner {
    fn open(
        fs: Arc<dyn FileSystem>,
        clock: Arc<dyn Clock>,
        dir: &Path,
        options: Options,
        recovered: &mut Recovered,
    ) -> Result<Self, OpenError> {
        let found = OpenedFiles::open(&fs, dir, &options, recovered)?;
        let (log, suspended) = (found.log.clone(), found.suspended.clone());
        let inner = Self::new(fs, clock, dir, options, found)?;
        if let Some(reason) = suspended {
            inner.suspend(format!("{reason}; run `forebay events verify`"));
        }
        let system = inner.replay(&log, recovered)?;
        inner.refuse_rollback()?;
        inner.refuse_cut_history();
        inner.judge_unsigned(system);
        inner.seal_or_warn();
        Ok(inner)
    }

    /// The state of a store, without what is in its log.
    fn new(
        fs: Arc<dyn FileSystem>,
        clock: Arc<dyn Clock>,
        dir: &Path,
        options: Options,
        found: OpenedFiles,
    ) -> Result<Self, OpenError> {
        let OpenedFiles { lock, log, manifest, stored, proofs, file_key, small, .. } = found;
        let unused = small.unused();
        let (arrivals, requests) = small.into_usable(&manifest, &*clock);
        let (tree, tree_file, checkpoints) = match proofs {
            Some((tree, file, checkpoints)) => {
                (Some(tree), Some(Mutex::new(file)), Some(Mutex::new(checkpoints)))
            }
            None => (None, None, None),
        };
        let active = Arc::new(Table::new(manifest.flushed_seq));
        let view = View { segments: stored, tables: vec![Arc::clone(&active)] };
        let log_end = Lsn(manifest.log_position);
        let sequencer = Sequencer::new(manifest.flushed_seq, log_end, active);
        let blocks = Blocks::new(options.block_cache_size, options.segment.block_size);
        let key = checkpoints.as_ref().map(|found| found.lock().key.verifier().clone());
        let cosigned = Cosigned::open(&*fs, dir, key.as_ref())?;
        let publishers = if key.is_some() { publishers(&fs, &options) } else { Vec::new() };
        Ok(Self {
            visible: AtomicU64::new(manifest.flushed_seq),
            fs,
            dir: dir.to_path_buf(),
            options,
            clock,
            journal: Journal::new(log.clone()),
            sequencer: Mutex::new(sequencer),
            room: Condvar::new(),
            view: RwLock::new(Arc::new(view)),
            shown: Signal::default(),
            watcher: OnceLock::new(),
            named: Arc::default(),
            tree,
            tree_file,
            checkpoints,
            manifest: Mutex::new(manifest),
            maintaining: Mutex::new(()),
            recorded: Mutex::default(),
            requests: Mutex::new(requests),
            arrivals: Mutex::new(Arc::new(arrivals)),
            policy: Mutex::default(),
            damaged: Mutex::default(),
            distrusted: OnceLock::new(),
            suspended: OnceLock::new(),
            file_key,
            unused: Mutex::new(unused),
            log_found: log.end(),
            publishers,
            publishing: Signal::default(),
            cosigned: Mutex::new(cosigned),
            blocks,
            checks: Checks::new(),
            signing: Signal::default(),
            maintenance: Signal::default(),
            counters: Counters::default(),
            quiet: false,
            _lock: lock,
        })
    }

    /// Fills memory tables from the log, and returns the store's own entries there. Full tables wait
    /// for the flush thread.
    fn replay(
        &self,
        log: &Log,
        recovered: &mut Recovered,
    ) -> Result<Vec<(u64, SystemEntry)>, OpenError> {
        let mut sequencer = self.sequencer.lock();
        let manifest = self.manifest.lock().clone();
        // Events that cannot be compared with the tree must have their codes.
        let comparable = self.tree.as_ref().is_none_or(|tree| tree.lacks().is_none());
        let signed = if comparable { self.signed_size() } else { 0 };
        let entries = Entries::of(&manifest, self.file_key.as_ref(), signed);
        let limits = Limits::of(&self.options, manifest.flushed_seq);
        let from = Lsn(manifest.log_position);
        let mut system = Vec::new();
        replay::read(log, from, (entries, limits), &mut |mut replayed| {
            for (lsn, note) in replayed.notes.drain(..) {
                match note {
                    Ok(note) => self.requests.lock().add(note),
                    Err(reason) => self.ignore_note(lsn, reason),
                }
            }
            if replayed.run.end_seq() > sequencer.next_seq {
                system.append(&mut replayed.system);
                self.take_back(&mut sequencer, replayed, recovered)?;
            }
            Ok(())
        })?;
        self.show(sequencer.next_seq);
        Ok(system)
    }

    /// Adds a run of the log to memory.
    fn take_back(
        &self,
        sequencer: &mut Sequencer,
        replayed: Replayed,
        recovered: &mut Recovered,
    ) -> Result<(), OpenError> {
        let Replayed { lsns, run, hashes, .. } = replayed;
        if run.first_seq != sequencer.next_seq {
            let reason = "its first event does not follow the last one";
            return Err(OpenError::Entry { lsn: lsns.start.0, reason });
        }
        recovered.events_from_log += run.len() as u64;
        recovered.bytes_from_log += run.leaf_bytes().len() as u64;
        sequencer.next_seq = run.end_seq();
        sequencer.log_end = lsns.end;
        // When it arrived is not known any more: not later than now.
        sequencer.active.receive(self.now_ns());
        let run = sequencer.active.push(run);
        if let Some(tree) = &self.tree {
            // Leaves without hashes are hashed later: proofs wait for that, reading does not.
            tree.push(hashes.map_or(Leaves::Run(run), Leaves::Hashed), lsns.end);
        }
        if sequencer.active.len() >= self.options.memory_table_events
            || sequencer.active.size() >= self.options.memory_table_size
        {
            self.freeze(sequencer);
        }
        Ok(())
    }

    /// A store with fewer events than it signed for has lost its newest ones.
    fn refuse_rollback(&self) -> Result<(), OpenError> {
        let (found, signed) = (self.visible(), self.signed_size());
        if found < signed { Err(OpenError::Truncated { found, signed }) } else { Ok(()) }
    }

    /// Number of events that the newest checkpoint covers.
    fn signed_size(&self) -> u64 {
        let latest = |found: &Mutex<Checkpoints>| Some(found.lock().latest.as_ref()?.0.size);
        self.checkpoints.as_ref().and_then(latest).unwrap_or(0)
    }
}

fn disk(act: &'static str, path: &Path) -> impl FnOnce(io::Error) -> OpenError + use<> {
    let path = path.to_path_buf();
    move |source| OpenError::Io(Disk::new(act, path, source))
}

/// Without a manifest no file may exist that one could have named: a lost manifest is not a new
/// store.
fn refuse_remains(fs: &dyn FileSystem, dir: &Path) -> Result<(), OpenError> {
    let segments = segments_dir(dir);
    let mut remains = match fs.list(&segments) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        listed => !listed.map_err(disk("list", &segments))?.is_empty(),
    };
    for name in ["tree", "checkpoints", "key", newest::NAME] {
        let path = dir.join(name);
        remains |= fs.exists(&path).map_err(disk("check for", &path))?;
    }
    let path = dir.join("manifest");
    let reason = "it is missing, but the files it describes exist";
    if remains { Err(OpenError::Manifest { path, reason }) } else { Ok(()) }
}

pub(super) fn open_log(
    fs: &Arc<dyn FileSystem>,
    dir: &Path,
    options: &Options,
) -> Result<(Log, Recovery), OpenError> {
    let log_options = forebay_log::Options {
        segment_size: options.log_segment_size,
        // A batch, the ends of its leaves, and its header.
        entry_size_max: 2 * BATCH_SIZE_MAX as u32,
        durability: options.durability,
        hold_when_full: true,
        ..forebay_log::Options::default()
    };
    Log::open(Arc::clone(fs), &dir.join("log"), log_options).map_err(OpenError::Log)
}

/// Returns the existing manifest, if it matches the log and the options.
fn checked(
    manifest: Manifest,
    log: &Log,
    dir: &Path,
    options: &Options,
) -> Result<Manifest, OpenError> {
    if manifest.log_id != log.id() {
        return Err(OpenError::Foreign { path: dir.to_path_buf() });
    }
    if manifest.merkle != options.merkle {
        return Err(OpenError::Merkle { path: dir.to_path_buf(), merkle: manifest.merkle });
    }
    Ok(manifest)
}

/// Writes a new store's manifest, before anything else becomes durable.
fn create(
    fs: &dyn FileSystem,
    dir: &Path,
    options: &Options,
    log: &Log,
) -> Result<Manifest, OpenError> {
    let manifest = Manifest {
        recording: true,
        sealed: false,
        merkle: options.merkle,
        segment_next: 1,
        flushed_seq: 0,
        log_position: log.start().0,
        log_id: log.id(),
        policy: None,
        segments: Vec::new(),
        root: None,
        requests: 0,
        codes_from: 0,
        edge: Arc::default(),
    };
    // Its files have codes once there is a key.
    manifest.write(fs, dir, None).map_err(OpenError::Io)?;
    Ok(manifest)
}

/// Opens every segment in the manifest.
fn open_segments(
    fs: &dyn FileSystem,
    dir: &Path,
    manifest: &Manifest,
    recovered: &mut Recovered,
) -> Result<Vec<Arc<Stored>>, OpenError> {
    let mut stored = Vec::with_capacity(manifest.segments.len());
    for entry in &manifest.segments {
        let path = segment_path(dir, entry.number);
        let segment = match Segment::open(fs, &path) {
            Ok(segment) => segment,
            // The others can be read; what this one may have is an error.
            Err(error @ SegmentError::Damaged { .. }) => unreadable(path, entry, &error),
            Err(error) => return Err(OpenError::Segment(error)),
        };
        recovered.events_in_segments += entry.rows;
        stored.push(Arc::new(Stored { entry: entry.clone(), segment }));
    }
    Ok(stored)
}

/// A segment whose file is damaged so that it cannot be opened.
fn unreadable(path: PathBuf, entry: &SegmentEntry, error: &SegmentError) -> Segment {
    let reason = match error {
        SegmentError::Damaged { offset, found, .. } => format!("damaged at byte {offset}: {found}"),
        other => chain(other).to_string(),
    };
    tracing::error!(
        "events {} to {} of the event store cannot be read: {}; restore the file from a backup",
        entry.first_seq,
        entry.end_seq.saturating_sub(1),
        chain(error)
    );
    let unreadable = Unreadable {
        path,
        first_seq: entry.first_seq,
        end_seq: entry.end_seq,
        rows: entry.rows,
        time_min_ns: entry.time_min_ns,
        time_max_ns: entry.time_max_ns,
        file_size: entry.file_size,
        reason,
    };
    unreadable.into_segment()
}

/// Removes files of segments that are not in the manifest.
fn remove_leftovers(
    fs: &dyn FileSystem,
    dir: &Path,
    manifest: &Manifest,
    recovered: &mut Recovered,
) -> Result<(), OpenError> {
    let segments = segments_dir(dir);
    for found in fs.list(&segments).map_err(disk("list", &segments))? {
        let path = segments.join(&found.name);
        let named = |entry: &SegmentEntry| segment_path(dir, entry.number) == path;
        if !manifest.segments.iter().any(named) {
            remove(fs, &path).map_err(OpenError::Io)?;
            recovered.leftovers += 1;
        }
    }
    Ok(())
}

/// Opens the flushed part of the tree, the key, and the signed checkpoints.
fn open_proofs(
    fs: &Arc<dyn FileSystem>,
    dir: &Path,
    options: &Options,
    manifest: &mut Manifest,
    key: Option<SigningKey>,
    stored: &[Arc<Stored>],
) -> Result<(TreeKeeper, TreeFile, Checkpoints), OpenError> {
    let tile = TILE_WIDTH as u64;
    let tiles = manifest.flushed_seq / tile;
    let path = dir.join("tree");
    let (file, roots) =
        TreeFile::open(&**fs, &path, manifest.log_id, tiles).map_err(OpenError::Tree)?;
    let keeper = open_tree(manifest, stored, roots).map_err(OpenError::Parts)?;
    let path = dir.join("key");
    let key = match key {
        Some(key) => key,
        None => {
            let key = SigningKey::generate(&options.origin).map_err(OpenError::Origin)?;
            create_key(&**fs, &path, &key).map_err(OpenError::Key)?;
            key
        }
    };
    let history = History::open(&**fs, &dir.join("checkpoints"), manifest.log_id)
        .map_err(OpenError::History)?;
    let checkpoints = newest::compare(&**fs, dir, key, history)?;
    let latest = checkpoints.latest.as_ref();
    let older = latest.is_some_and(|(latest, _)| {
        latest.is_recorded() && !manifest.recording || latest.is_sealed() && !manifest.sealed
    });
    if older {
        let path = dir.join("manifest");
        let reason = "it is of an older version than the newest checkpoint: another put it there; \
                      restore the store from a backup";
        return Err(OpenError::Manifest { path, reason });
    }
    Ok((keeper, file, checkpoints))
}

/// The tree of all flushed events.
///
/// The hashes after its last complete tile are those of the manifest, if the root there confirms them:
/// they do not depend on the state of the segments. Otherwise they are computed from the events, and
/// `manifest` gets them.
///
/// * `roots`: those of its complete tiles.
fn open_tree(
    manifest: &mut Manifest,
    stored: &[Arc<Stored>],
    roots: Vec<Hash>,
) -> Result<TreeKeeper, PartsError> {
    let log_end = Lsn(manifest.log_position);
    let from = (roots.len() * TILE_WIDTH) as u64;
    let tree = Tree::from_parts(roots, manifest.edge.to_vec())?;
    if tree.size() == manifest.flushed_seq && Some(tree.root()) == manifest.root {
        return Ok(TreeKeeper::new(tree, log_end));
    }
    let edge = edge_hashes(stored, from, manifest.flushed_seq);
    manifest.edge = edge.as_deref().unwrap_or_default().into();
    let tree = Tree::from_parts(tree.tile_roots().to_vec(), manifest.edge.to_vec())?;
    Ok(match edge {
        Ok(_) => TreeKeeper::new(tree, log_end),
        // Without these hashes the tree cannot grow, but everything else can be read.
        Err(error) => TreeKeeper::incomplete(tree, log_end, chain(&error).to_string()),
    })
}

/// The leaf hashes of positions `from..to`, all in segments.
fn edge_hashes(stored: &[Arc<Stored>], from: u64, to: u64) -> Result<Vec<Hash>, SegmentError> {
    let mut hashes = Vec::new();
    for stored in stored.iter().filter(|stored| stored.entry.end_seq > from) {
        let from = from.max(stored.entry.first_seq);
        let to = to.min(stored.entry.end_seq);
        hashes.extend(super::proofs::leaf_hashes_of(&stored.segment, from, to)?);
    }
    Ok(hashes)
}
