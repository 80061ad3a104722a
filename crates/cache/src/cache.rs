//! The cache as a whole: an engine with its data, its log and its background work.
//!
//! [`Cache::open`] recovers what is on disk, starts the threads that flush the log, sweep for
//! expired keys and take snapshots, and [`Cache::close`] ends them with everything acknowledged on
//! stable storage. A [`Server`](crate::server::Server) puts sockets in front of it; without one it
//! is a library.
//!
//! Invariant: no command runs at a time before the latest time in the recovered data, even if the
//! machine's clock was set back meanwhile, so no expired key comes back.

use std::hash::{BuildHasher as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_base::clock::Clock;
use forebay_base::error_chain::chain;
use forebay_base::fs::FileSystem;
use forebay_base::image::Image;
use forebay_log::{CommitError, Committer};
use parking_lot::{Condvar, Mutex};

use crate::command::{self, Flags};
use crate::engine::{Engine, Saver, Session};
use crate::health::Unhealthy;
use crate::persist::{
    self, CacheImageError, Checked, OpenError, PersistOptions, Recovered, Restore, SnapshotError,
};
use crate::store::{Keyspace, Policy, Rules};

/// Interval between sweeps for expired keys, and the time budget of one sweep.
const SWEEP_EVERY: Duration = Duration::from_millis(100);
const SWEEP_BUDGET: Duration = Duration::from_millis(5);
/// Number of sweeps after which writing to a stalled log is tried again.
const RESUME_SWEEPS: u32 = 5;
/// Interval between checks whether a snapshot is due.
const DUE_EVERY: Duration = Duration::from_secs(1);
/// Maximum duration of a thread's turn, during which its time stands still. A snapshot leaves out
/// only keys that had expired before any running turn began.
const TURN_MAX_MS: u64 = 60_000;

/// How a cache is opened.
#[derive(Clone, Default)]
pub struct CacheOptions {
    /// Data directory; `None` keeps everything in memory only.
    pub dir: Option<PathBuf>,
    /// Options of persistence.
    pub persist: PersistOptions,
    /// Maximum size of data, index and buffers in bytes; 0 for no limit.
    pub max_memory: usize,
    /// Which keys are evicted when the memory limit is reached.
    pub policy: Policy,
    /// Password that clients must give before any other command.
    pub password: Option<Vec<u8>>,
}

impl std::fmt::Debug for CacheOptions {
    /// Formats everything except the password.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { dir, persist, max_memory, policy, password } = self;
        formatter
            .debug_struct("CacheOptions")
            .field("dir", dir)
            .field("persist", persist)
            .field("max_memory", max_memory)
            .field("policy", policy)
            .field("password", &password.as_ref().map(|_| "(redacted)"))
            .finish()
    }
}

/// An open cache. Dropping it closes it, but errors of closing are lost.
#[derive(Debug)]
pub struct Cache {
    engine: Arc<Engine>,
    saving: Arc<Saving>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    committer: Mutex<Option<Committer>>,
    recovered: Option<Recovered>,
}

impl Cache {
    /// Opens the data, or creates an empty cache, and starts the background work.
    ///
    /// # Errors
    /// [`OpenError`]: the data cannot be read, is damaged, or belongs to a running server. It is
    /// then unchanged, except that a torn tail of its log has been cut off.
    pub fn open(
        fs: Arc<dyn FileSystem>,
        clock: Arc<dyn Clock>,
        options: &CacheOptions,
    ) -> Result<Self, OpenError> {
        let clock = Arc::new(NeverBack { clock, least_ms: AtomicU64::new(0) });
        let (engine, recovered) = match &options.dir {
            Some(dir) => {
                let mut rebuild = Rebuild { clock: Arc::clone(&clock), session: None };
                let opened = persist::open(fs, dir, &options.persist, &mut rebuild)?;
                clock.least_ms.store(opened.recovered.last_ms, Ordering::Release);
                let mut engine = opened.store.0;
                engine.set_journal(opened.journal);
                (engine, Some(opened.recovered))
            }
            None => {
                let drawn = std::hash::RandomState::new().build_hasher().finish();
                let rules = Rules::new(options.persist.seed.unwrap_or(drawn));
                (Engine::new(Keyspace::new(rules), None, clock), None)
            }
        };
        engine.keyspace().rules().set_max_memory(options.max_memory);
        engine.keyspace().rules().set_policy(options.policy);
        engine.config().set_password(options.password.as_deref());
        let saving = Arc::new(Saving::default());
        if engine.journal().is_some() {
            engine.set_saver(Arc::<Saving>::clone(&saving));
        }
        let engine = Arc::new(engine);
        let committer = Mutex::new(engine.start_committer());
        engine.settle_opening();
        let cache = Self { engine, saving, threads: Mutex::default(), committer, recovered };
        cache.start();
        Ok(cache)
    }

    /// # Panics
    /// If the operating system refuses a thread, as for the log's committer.
    fn start(&self) {
        let spawn = |name: &str, run: fn(&Engine, &Saving)| {
            let (engine, saving) = (Arc::clone(&self.engine), Arc::clone(&self.saving));
            let started = std::thread::Builder::new()
                .name(name.to_owned())
                .spawn(move || run(&engine, &saving));
            self.threads.lock().push(started.expect("a thread for the cache's background work"));
        };
        spawn("cache-sweep", sweep);
        if self.engine.journal().is_some() {
            spawn("cache-snapshot", take_snapshots);
        }
    }

    /// Returns the engine, which runs commands.
    #[must_use]
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Returns what was recovered from disk.
    #[must_use]
    pub fn recovered(&self) -> Option<&Recovered> {
        self.recovered.as_ref()
    }

    /// Checks that the cache acknowledges writes and that all its threads run. Cheap enough for a
    /// health check. A failed log stays failed until the data is opened again.
    ///
    /// # Errors
    /// [`Unhealthy`]: why it has to be restarted.
    pub fn health(&self) -> Result<(), Unhealthy> {
        if let Some(journal) = self.engine.journal() {
            journal.log().usable().map_err(|source| Unhealthy::Log { source })?;
        }
        if self.engine.log_closed().is_some() {
            return Err(Unhealthy::Refusing);
        }
        let threads = self.threads.lock();
        let ended = threads.iter().find(|thread| thread.is_finished());
        ended.map_or(Ok(()), |thread| {
            let name = thread.thread().name().unwrap_or_default().to_owned();
            Err(Unhealthy::Thread { name })
        })
    }

    /// Returns why writes are temporarily refused: no disk space or no descriptors for the log.
    /// Reads continue, and writes resume by themselves once there are.
    #[must_use]
    pub fn stalled(&self) -> Option<String> {
        self.engine.stalled()
    }

    /// Adds the cache to an image of its data directory: nothing if it has none. Blocks; commands run.
    ///
    /// # Errors
    /// [`CacheImageError`]: nothing of the cache is in the image.
    pub fn image(&self, image: &mut Image) -> Result<(), CacheImageError> {
        self.engine.journal().map_or(Ok(()), |journal| journal.image(image))
    }

    /// Ends the background work and puts everything acknowledged on stable storage. No command may
    /// run any more. A snapshot in progress is abandoned.
    ///
    /// # Errors
    /// The rest of the log could not be written.
    pub fn close(&self) -> Result<(), CommitError> {
        self.saving.stop();
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("a background thread of the cache panicked");
            }
        }
        self.committer.lock().take().map_or(Ok(()), Committer::stop)
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::error!(error = %chain(&error), "cannot close the cache's log");
        }
    }
}

/// Checks the data of a cache that no process has open: frames, snapshots, and that this program
/// supports every operation in the log. Changes nothing.
///
/// * `on_damage`: called for each damage found, with its file and offset if known.
///
/// # Errors
/// As [`persist::check()`].
pub fn check(
    fs: &dyn FileSystem,
    dir: &Path,
    on_damage: &mut dyn FnMut(String),
) -> Result<Checked, OpenError> {
    persist::check(fs, dir, &judge, on_damage)
}

/// Returns what is wrong with an operation: it must be a write command with enough words.
fn judge(words: &[&[u8]]) -> Result<(), String> {
    let name = words.first().copied().unwrap_or_default();
    let spec = command::find(name).ok_or("unknown command")?;
    if !spec.flags.has(Flags::WRITE) {
        return Err("it is not a write command".to_owned());
    }
    if !spec.takes(words.len()) {
        return Err(format!("wrong number of arguments: {} words", words.len()));
    }
    Ok(())
}

/// A clock that never returns a time before a given one.
#[derive(Debug)]
struct NeverBack {
    clock: Arc<dyn Clock>,
    least_ms: AtomicU64,
}

impl Clock for NeverBack {
    fn now_ms(&self) -> u64 {
        self.clock.now_ms().max(self.least_ms.load(Ordering::Relaxed))
    }

    fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }
}

/// Fills an engine from disk.
struct Rebuild {
    clock: Arc<NeverBack>,
    session: Option<Session>,
}

struct Rebuilt(Engine);

impl AsRef<Keyspace> for Rebuilt {
    fn as_ref(&self) -> &Keyspace {
        self.0.keyspace()
    }
}

impl Restore for Rebuild {
    type Store = Rebuilt;

    fn build(&mut self, seed: u64) -> Rebuilt {
        let clock: Arc<dyn Clock> = Arc::<NeverBack>::clone(&self.clock);
        Rebuilt(Engine::new(Keyspace::new(Rules::new(seed)), None, clock))
    }

    fn replay(
        &mut self,
        store: &Rebuilt,
        now_ms: u64,
        database: usize,
        words: &[&[u8]],
    ) -> Result<(), String> {
        judge(words)?;
        let session = self.session.get_or_insert_with(|| store.0.inner_session());
        store.0.replay(session, now_ms, database, words).map_err(|error| error.to_string())
    }
}

/// Commands for the background threads.
#[derive(Debug, Default)]
struct Saving {
    state: Mutex<SavingState>,
    changed: Condvar,
    cancel: AtomicBool,
}

#[derive(Debug, Default)]
struct SavingState {
    asked: bool,
    running: bool,
    stopping: bool,
}

impl Saving {
    fn stop(&self) {
        self.cancel.store(true, Ordering::Release);
        self.state.lock().stopping = true;
        self.changed.notify_all();
    }

    /// Waits for a stop, at most `limit`; returns whether the threads are to stop.
    fn stopped_within(&self, limit: Duration) -> bool {
        let mut state = self.state.lock();
        let deadline = Instant::now() + limit;
        while !state.stopping && !self.changed.wait_until(&mut state, deadline).timed_out() {}
        state.stopping
    }

    /// Takes a snapshot that [`Engine::begin_saving`] has counted.
    fn take(&self, engine: &Engine) -> Result<(), SnapshotError> {
        let Some(journal) = engine.journal() else {
            engine.end_saving(None);
            return Ok(());
        };
        let now_ms = engine.now_ms();
        let begun_ms = now_ms.saturating_sub(TURN_MAX_MS);
        let taken = persist::snapshot(engine.keyspace(), journal, begun_ms, &self.cancel, &|_| {});
        engine.end_saving(match &taken {
            Ok(_) => Some(Ok(now_ms / 1_000)),
            // Another one is in progress, or the server stops.
            Err(SnapshotError::Running | SnapshotError::Cancelled) => None,
            Err(_) => Some(Err(())),
        });
        let report = taken?;
        tracing::info!(
            keys = report.info.keys,
            bytes = report.info.bytes,
            log_freed = report.log_freed,
            took_ms = report.took.as_secs_f64() * 1_000.0,
            longest_pause_ms = report.longest_pause.as_secs_f64() * 1_000.0,
            "snapshot taken"
        );
        if let Some(error) = &report.untidy {
            tracing::warn!(error = %chain(error), "cannot remove what the snapshot replaces");
        }
        Ok(())
    }
}

impl Saver for Saving {
    fn save(&self, engine: &Engine) -> Result<(), String> {
        engine.begin_saving();
        self.take(engine).map_err(|error| chain(&error).to_string())
    }

    fn save_soon(&self, engine: &Engine) -> bool {
        let mut state = self.state.lock();
        if state.asked || state.running {
            return false;
        }
        state.asked = true;
        engine.begin_saving();
        self.changed.notify_all();
        true
    }
}

/// Sweeps for expired keys, a little at a time.
fn sweep(engine: &Engine, saving: &Saving) {
    let mut sweeps = 0u32;
    while !saving.stopped_within(SWEEP_EVERY) {
        engine.background(SWEEP_BUDGET);
        sweeps = sweeps.wrapping_add(1);
        if sweeps.is_multiple_of(RESUME_SWEEPS) {
            engine.try_resume();
        }
    }
}

/// Takes a snapshot whenever one is due or requested.
fn take_snapshots(engine: &Engine, saving: &Saving) {
    loop {
        let due = engine.journal().is_some_and(persist::Journal::snapshot_due);
        // When the log has no space, a snapshot has none either.
        let due = due && engine.stalled().is_none();
        {
            let mut state = saving.state.lock();
            if !state.asked && !due && !state.stopping {
                saving.changed.wait_for(&mut state, DUE_EVERY);
            }
            if state.stopping {
                return;
            }
            if !state.asked && !due {
                continue;
            }
            // A request is counted already.
            if !std::mem::take(&mut state.asked) {
                engine.begin_saving();
            }
            state.running = true;
        }
        match saving.take(engine) {
            Ok(()) | Err(SnapshotError::Cancelled | SnapshotError::Running) => {}
            Err(error) => {
                tracing::error!(error = %chain(&error), "cannot take a snapshot");
            }
        }
        saving.state.lock().running = false;
    }
}
