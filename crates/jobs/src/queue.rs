//! What callers use: submit jobs, look at them, cancel them, queue them again.
//!
//! Invariants:
//! - What an opening makes of the log is what was in memory, but for jobs that were running: they wait.
//! - What a call returns is as durable as configured.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use forebay_base::clock::Clock;
use forebay_base::fs::{FileSystem, Lock};
use forebay_log::{CommitError, Committer, Log};
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, broadcast};
use tokio::task::JoinHandle;

use crate::arrivals::Arrivals;
use crate::body::{Bodies, BodyWriter, ReceivedBody};
use crate::error::{JobError, OpenError, SubmitError};
use crate::format;
use crate::id::JobId;
use crate::options::Options;
use crate::status::{EndCounts, Priority, Status};
use crate::table::{Job, State, Table};
use crate::workers::{Worker, Workers};

/// Jobs whose end may be recorded at once.
pub(crate) const ENDINGS_MAX: u32 = 1_024;
/// Changes that a slow observer may be behind.
const CHANGES_MAX: usize = 4_096;

/// A queue of jobs. Cloning is cheap; all clones are the same queue.
#[derive(Clone)]
pub struct Queue {
    pub(crate) inner: Arc<Inner>,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("dir", &self.inner.options.dir).finish_non_exhaustive()
    }
}

pub(crate) struct Inner {
    pub(crate) options: Options,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) log: Log,
    pub(crate) bodies: Arc<Bodies>,
    pub(crate) table: Mutex<Table>,
    pub(crate) changes: broadcast::Sender<Change>,
    /// Something may start.
    pub(crate) wake: Notify,
    /// A job stopped running.
    pub(crate) stopped: Notify,
    pub(crate) committer: Mutex<Option<Committer>>,
    pub(crate) dispatcher: Mutex<Option<JoinHandle<()>>>,
    /// Limits the jobs whose end is being recorded.
    pub(crate) endings: Semaphore,
    /// Size of the log, in bytes, below which it is not shortened: more after that failed.
    pub(crate) shorten_from: AtomicU64,
    pub(crate) held_from: OnceLock<HeldFrom>,
    pub(crate) arrivals: Arrivals,
    _lock: Box<dyn Lock>,
}

/// Returns the position from which the log is needed by a follower; `None` if it is not.
pub(crate) struct HeldFrom(pub(crate) Box<dyn Fn() -> Option<u64> + Send + Sync>);

/// A job to be submitted.
#[derive(Debug)]
pub struct NewJob {
    /// The kind of work, which says what worker runs it: at most 255 bytes.
    pub work: String,
    /// How urgent it is.
    pub priority: Priority,
    /// What makes a repeated submission recognisable: a key, and the fingerprint of what is submitted.
    pub key: Option<([u8; 16], [u8; 16])>,
    /// What its worker needs to know: at most 256 KiB.
    pub order: Vec<u8>,
    /// What it is about, if there is anything.
    pub body: Option<ReceivedBody>,
}

/// A job that was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Submitted {
    /// Its name.
    pub id: JobId,
    /// Its status: of an earlier one with the same key, any.
    pub status: Status,
    /// Whether it was submitted now, and not earlier with the same key.
    pub is_new: bool,
}

/// A change of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The job.
    pub id: JobId,
    /// The number of the change, from 1.
    pub number: u64,
}

/// What is known of a job.
#[derive(Debug, Clone)]
pub struct JobView {
    /// Its name.
    pub id: JobId,
    /// The kind of work.
    pub work: Arc<str>,
    /// What its worker knows.
    pub order: Bytes,
    /// How urgent it is.
    pub priority: Priority,
    /// Its status.
    pub status: Status,
    /// Number of attempts that were started.
    pub attempts: u32,
    /// When it was submitted, in milliseconds since 1970.
    pub submitted_ms: u64,
    /// When its last attempt was started.
    pub started_ms: Option<u64>,
    /// When it ended.
    pub ended_ms: Option<u64>,
    /// When its next attempt is due, if it waits for that.
    pub due_ms: Option<u64>,
    /// Why its last attempt failed; empty if none did.
    pub reason: Arc<str>,
    /// Size of its body in bytes.
    pub body_size: u64,
    /// Progress of a running job: done, and in total.
    pub progress: Option<(u64, u64)>,
    /// Number of its changes so far.
    pub changes: u64,
}

/// Which jobs are listed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Filter {
    /// Only with this status.
    pub status: Option<Status>,
    /// Only those submitted before this one.
    pub before: Option<JobId>,
}

/// Counts of a queue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// Known jobs by status, in the order of [`Status::ALL`].
    pub by_status: [usize; 5],
    /// Age of the oldest job that waits, in milliseconds.
    pub oldest_waiting_ms: u64,
    /// Jobs that completed, failed and were cancelled since the opening.
    pub ended: [u64; 3],
    /// Attempts that were tried again since the opening.
    pub retries: u64,
    /// Bytes of all bodies in files.
    pub bodies_bytes: u64,
    /// Number of jobs that may wait.
    pub queued_max: usize,
    /// Number of jobs that workers run at once.
    pub workers: usize,
}

impl Queue {
    /// Opens the queue in `options.dir`, creating it if it does not exist. Nothing runs yet.
    ///
    /// # Errors
    /// [`OpenError`]: it is in use or damaged; nothing was changed but leftovers of a crash.
    pub fn open(
        fs: Arc<dyn FileSystem>,
        clock: Arc<dyn Clock>,
        options: Options,
    ) -> Result<Self, OpenError> {
        let dir = &options.dir;
        let failed = |act| {
            let path = dir.clone();
            move |source| OpenError::Io { act, path, source }
        };
        fs.create_dir_all(dir).map_err(failed("create"))?;
        let lock = fs.lock_exclusive(&dir.join("lock")).map_err(|source| match source.kind() {
            std::io::ErrorKind::WouldBlock => OpenError::Locked { path: dir.clone() },
            _ => failed("lock")(source),
        })?;
        let log_options = forebay_log::Options {
            segment_size: options.segment_size,
            durability: options.durability,
            hold_when_full: true,
            ..forebay_log::Options::default()
        };
        let (log, _) =
            Log::open(Arc::clone(&fs), &dir.join("log"), log_options).map_err(OpenError::Log)?;
        let mut table = Table::default();
        let mut reader = log.reader(log.start());
        while let Some(found) = reader.next().map_err(OpenError::Read)? {
            let (id, at_ms, entry) = format::decode(found.payload)
                .map_err(|reason| OpenError::Entry { lsn: found.lsn.0, reason })?;
            table.replay(id, at_ms, &entry, (found.lsn, found.next));
        }
        table.recover();
        let bodies = Bodies::open(fs, dir, options.bodies_size_max)?;
        let inner = Inner {
            clock,
            log,
            bodies,
            table: Mutex::new(table),
            changes: broadcast::channel(CHANGES_MAX).0,
            wake: Notify::new(),
            stopped: Notify::new(),
            committer: Mutex::new(None),
            dispatcher: Mutex::new(None),
            endings: Semaphore::new(ENDINGS_MAX as usize),
            shorten_from: AtomicU64::new(0),
            held_from: OnceLock::new(),
            arrivals: Arrivals::new(),
            _lock: lock,
            options,
        };
        // First what is there is counted, then what is forgotten is removed.
        let removed = inner.bodies.sweep(|id| {
            let table = inner.table.lock();
            table.jobs.get(&id).is_some_and(Job::needs_file)
        })?;
        if removed > 0 {
            tracing::info!(removed, "removed bodies without a job");
        }
        inner.forget_old();
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Starts to run jobs. Called once, inside a tokio runtime.
    pub fn start(&self, workers: Workers) {
        *self.inner.committer.lock() = Some(self.inner.log.start_committer());
        let task = tokio::spawn(crate::workers::dispatch(Arc::clone(&self.inner), workers));
        *self.inner.dispatcher.lock() = Some(task);
    }

    /// Keeps the log from a position on, however long it gets, for one who follows the ends of jobs
    /// ([`endings`](Self::endings)).
    ///
    /// * `from`: that position; `None` if it is not needed. Called often, and must not block.
    pub fn hold_log(&self, from: impl Fn() -> Option<u64> + Send + Sync + 'static) {
        let from = HeldFrom(Box::new(from));
        self.inner.held_from.get_or_init(|| from);
    }

    /// Runs the job whose turn it is to its end, without threads, so that the same calls have the same
    /// effect on the disk. Returns whether there was one.
    #[doc(hidden)]
    pub async fn run_one(&self, workers: &Workers) -> bool {
        self.inner.fail_crashed().await;
        let (now_ms, delay_max_ms) = (self.inner.clock.now_ms(), self.inner.options.delay_max_ms());
        self.inner.lock().make_ready(now_ms, delay_max_ms);
        match self.inner.begin(workers) {
            Some(begun) => {
                begun.finish().await;
                true
            }
            None => false,
        }
    }

    /// States every job again and truncates the log before that, as happens when it is long.
    ///
    /// # Errors
    /// [`JobError`]: the log does not take it, or cannot be read.
    #[doc(hidden)]
    pub fn shorten(&self) -> Result<(), JobError> {
        self.inner.shorten()
    }

    /// Begins to receive the body of a job.
    #[must_use]
    pub fn body(&self) -> BodyWriter {
        BodyWriter::new(Arc::clone(&self.inner.bodies), JobId::new())
    }

    /// Checks that a job would be accepted now, before its body is read.
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    pub fn check_room(&self) -> Result<(), SubmitError> {
        self.inner.room(&self.inner.table.lock())
    }

    /// Checks that a body would have room now, before it is read.
    ///
    /// * `size`: what its sender declares, in bytes.
    ///
    /// # Errors
    /// [`BodyError::Full`](crate::BodyError::Full).
    pub fn check_body(&self, size: u64) -> Result<(), crate::BodyError> {
        let is_file = size > crate::INLINE_SIZE_MAX as u64;
        if is_file { self.inner.bodies.has_room(size) } else { Ok(()) }
    }

    /// Accepts a job. When this returns it is durable, and will run.
    ///
    /// # Errors
    /// [`SubmitError`]: it was not accepted; after [`SubmitError::Commit`] that is unknown.
    pub async fn submit(&self, new: NewJob) -> Result<Submitted, SubmitError> {
        self.inner.submit(new).await
    }

    /// Checks that work which has begun would be adopted now, before it begins.
    ///
    /// # Errors
    /// As [`adopt`](Self::adopt).
    pub fn check_adopt(&self) -> Result<(), SubmitError> {
        self.inner.adopts(&self.inner.table.lock())
    }

    /// Accepts a job whose work has begun already: it runs from here on, beside the workers, and `worker` waits
    /// for its end. When this returns it is durable; if the process ends before its work does, it runs again as
    /// any other job. The same key makes it take the place of an earlier job that has ended: of work that is
    /// repeated, the last is known.
    ///
    /// * `worker`: ends the work if the job is stopped. Called once the job is durable. An attempt that may succeed
    ///   later is left to the worker of this kind of work.
    ///
    /// # Errors
    /// [`SubmitError`]: the job was not adopted, and the work is the caller's to end. After
    /// [`SubmitError::Commit`] the job is cancelled as soon as the log takes that; after that and
    /// [`SubmitError::Append`] it is unknown whether the next opening finds it.
    pub async fn adopt(
        &self,
        new: NewJob,
        worker: Arc<dyn Worker>,
    ) -> Result<Submitted, SubmitError> {
        self.inner.adopt(new, worker).await
    }

    /// What the workers know of each job that waits or runs.
    #[must_use]
    pub fn open_orders(&self) -> Vec<Bytes> {
        let table = self.inner.table.lock();
        let jobs = table.open.iter().filter_map(|(_, id)| table.jobs.get(id));
        let open = jobs.filter(|job| !job.status().is_ended());
        open.map(|job| job.order.clone()).collect()
    }

    /// What is known of a job.
    #[must_use]
    pub fn job(&self, id: JobId) -> Option<JobView> {
        self.inner.table.lock().jobs.get(&id).map(|job| view(id, job))
    }

    /// The result of a job that has ended; `None` if it is not known or has not ended. Reads the log.
    ///
    /// # Errors
    /// [`JobError::Read`]: it is damaged.
    pub fn result(&self, id: JobId) -> Result<Option<Bytes>, JobError> {
        let payload = self.inner.read_stated(id, |job| match &job.state {
            State::Ended { result: (lsn, _), .. } => Some(*lsn),
            _ => None,
        });
        let Some(payload) = payload.map_err(|source| JobError::Read { id, source })? else {
            return Ok(None);
        };
        let entry = format::decode(&payload).ok();
        Ok(entry.and_then(|(.., entry)| entry.result().map(Bytes::copy_from_slice)))
    }

    /// Up to `limit` jobs, the newest first, and whether there are more.
    #[must_use]
    pub fn list(&self, filter: Filter, limit: usize) -> (Vec<JobView>, bool) {
        let table = self.inner.table.lock();
        let before = filter.before.unwrap_or(JobId(u128::MAX));
        let mut matching = table
            .jobs
            .range(..before)
            .rev()
            .filter(|(_, job)| filter.status.is_none_or(|status| job.status() == status));
        let page = matching.by_ref().take(limit).map(|(id, job)| view(*id, job)).collect();
        let more = matching.next().is_some();
        (page, more)
    }

    /// Counts of the queue.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let now_ms = self.inner.clock.now_ms();
        let table = self.inner.table.lock();
        let EndCounts { completed, failed, cancelled } = table.ends;
        let oldest_ms = table.oldest_waiting_ms();
        Stats {
            by_status: table.by_status(),
            oldest_waiting_ms: oldest_ms.map_or(0, |at_ms| now_ms.saturating_sub(at_ms)),
            ended: [completed, failed, cancelled],
            retries: table.retries,
            bodies_bytes: self.inner.bodies.used(),
            queued_max: self.inner.options.queued_max,
            workers: self.inner.options.workers,
        }
    }

    /// When the oldest job that may still run, as a failed one may, was submitted, in milliseconds since 1970.
    #[must_use]
    pub fn oldest_runnable_ms(&self) -> Option<u64> {
        self.inner.table.lock().open.first().map(|(submitted_ms, _)| *submitted_ms)
    }

    /// Follows the changes of jobs from now on.
    #[must_use]
    pub fn changes(&self) -> broadcast::Receiver<Change> {
        self.inner.changes.subscribe()
    }

    /// Cancels a job: one that waits at once, one that runs as soon as its worker notices. Returns its
    /// status then; a running job may still complete.
    ///
    /// # Errors
    /// [`JobError`]: it is not known, or has ended.
    pub async fn cancel(&self, id: JobId) -> Result<Status, JobError> {
        Arc::clone(&self.inner).cancel(id).await
    }

    /// Queues a failed job again, with all its attempts.
    ///
    /// # Errors
    /// [`JobError`]: it is not known, or did not fail.
    pub async fn queue_again(&self, id: JobId) -> Result<(), JobError> {
        self.inner.queue_again(id).await
    }

    /// Forgets a job that has ended.
    ///
    /// # Errors
    /// [`JobError`]: it is not known, or has not ended.
    pub async fn forget(&self, id: JobId) -> Result<(), JobError> {
        Arc::clone(&self.inner).forget(id).await
    }

    /// Checks that jobs are accepted.
    ///
    /// # Errors
    /// Why not.
    pub fn ready(&self) -> Result<(), CommitError> {
        self.inner.log.usable()?;
        match self.inner.log.stalled() {
            Some(source) => Err(CommitError::Stalled { source }),
            None => Ok(()),
        }
    }

    /// Lets no further job start, and asks those that run to stop; [`close`](Self::close) waits for them. Does
    /// not block.
    pub fn interrupt(&self) {
        self.inner.interrupt();
    }

    /// Lets no further job start, interrupts those that run, and closes the log. What was interrupted runs
    /// again after the next opening.
    ///
    /// * `limit`: how long running jobs may take to stop. Those that take longer are dropped.
    ///
    /// # Errors
    /// [`CommitError`]: the log could not be written completely.
    pub async fn close(&self, limit: Duration) -> Result<(), CommitError> {
        self.inner.close(limit).await
    }
}

/// What callers see of a job.
fn view(id: JobId, job: &Job) -> JobView {
    let (ended_ms, due_ms, progress) = match &job.state {
        State::Ended { at_ms, .. } => (Some(*at_ms), None, None),
        State::Waiting { due_ms } => (None, (*due_ms > 0).then_some(*due_ms), None),
        State::Running(control) => (None, None, Some(control.progress.get())),
        State::Ending { .. } => (None, None, None),
    };
    JobView {
        id,
        work: Arc::clone(&job.work),
        order: job.order.clone(),
        priority: job.priority,
        status: job.status(),
        attempts: job.attempts,
        submitted_ms: job.submitted_ms,
        started_ms: (job.started_ms > 0).then_some(job.started_ms),
        ended_ms,
        due_ms,
        reason: Arc::clone(&job.reason),
        body_size: job.body.size(),
        progress,
        changes: job.changes,
    }
}
