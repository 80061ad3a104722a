//! Runs jobs: a dispatcher gives each its turn, a task runs its worker and records how it ended.
//!
//! Invariants:
//! - A job starts only once its submission is durable, and has ended only once the entry of its end is.
//! - A job that may have ended an earlier process, because it was there at the opening or has failed before, starts
//!   only once the entry of its start is durable too: if it ends this process, the next one knows.
//! - A worker that panics fails its job, and no other.
//! - Jobs that take long never have the last free worker.
//! - While many submissions are being accepted, one short job runs at a time ([`Arrivals`](crate::arrivals::Arrivals)).

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use forebay_log::Lsn;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::body::BodyReader;
use crate::error::BodyError;
use crate::format::{self, Entry};
use crate::id::JobId;
use crate::queue::Inner;
use crate::table::{Job, State};

/// How often old jobs are forgotten and a stalled log is tried again.
pub(crate) const TICK: Duration = Duration::from_secs(1);

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The work was done; the result is at most 4 MiB.
    Done(Vec<u8>),
    /// The work was refused, and would be again.
    Refused {
        /// The result, at most 4 MiB.
        result: Vec<u8>,
        /// Why, for people.
        reason: String,
    },
    /// The work may succeed later.
    Again {
        /// The result if this was the last attempt.
        result: Vec<u8>,
        /// Why, for people.
        reason: String,
    },
}

/// Does a kind of work.
pub trait Worker: Send + Sync + 'static {
    /// Runs a job. Its effect must happen once, however often it runs.
    fn run(&self, job: Running) -> Pin<Box<dyn Future<Output = Outcome> + Send>>;

    /// Whether a job with this order may take minutes.
    fn is_long(&self, _order: &[u8]) -> bool {
        false
    }
}

/// Workers by their kind of work.
#[derive(Clone, Default)]
pub struct Workers(BTreeMap<&'static str, Arc<dyn Worker>>);

impl Workers {
    /// Adds a worker.
    #[must_use]
    pub fn with(mut self, work: &'static str, worker: Arc<dyn Worker>) -> Self {
        self.0.insert(work, worker);
        self
    }

    fn is_long(&self, job: &Job) -> bool {
        self.0.get(&*job.work).is_some_and(|worker| worker.is_long(&job.order))
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}

/// How far a job is, in units that its worker chooses.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
    total: AtomicU64,
}

impl Progress {
    /// Says how much there is to do.
    pub fn set_total(&self, total: u64) {
        self.total.store(total, Ordering::Relaxed);
    }

    /// Says how much is done.
    pub fn set_done(&self, done: u64) {
        self.done.store(done, Ordering::Relaxed);
    }

    /// What is done, and what there is to do.
    #[must_use]
    pub fn get(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }
}

const GOING: u8 = 0;
pub(crate) const CANCELLED: u8 = 1;
pub(crate) const INTERRUPTED: u8 = 2;

/// What others may do to a running job.
#[derive(Debug, Default)]
pub(crate) struct Control {
    pub(crate) progress: Progress,
    wish: AtomicU8,
    wished: Notify,
    task: Mutex<Option<AbortHandle>>,
}

impl Control {
    pub(crate) fn cancel(&self) {
        self.wish.store(CANCELLED, Ordering::Release);
        self.wished.notify_waiters();
    }

    pub(crate) fn interrupt(&self) {
        // A job that was cancelled is not to continue after the next start.
        let going =
            self.wish.compare_exchange(GOING, INTERRUPTED, Ordering::AcqRel, Ordering::Acquire);
        if going.is_ok() {
            self.wished.notify_waiters();
        }
    }

    /// Drops the attempt, if its worker was started. Returns whether it was.
    pub(crate) fn abort(&self) -> bool {
        let task = self.task.lock().take();
        task.inspect(AbortHandle::abort).is_some()
    }

    pub(crate) fn wish(&self) -> u8 {
        self.wish.load(Ordering::Acquire)
    }
}

/// A job that runs, as its worker sees it.
#[derive(Clone)]
pub struct Running {
    pub(crate) id: JobId,
    pub(crate) attempt: u32,
    pub(crate) order: Bytes,
    pub(crate) control: Arc<Control>,
    pub(crate) inner: Arc<Inner>,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Running {
    /// Its name.
    #[must_use]
    pub fn id(&self) -> JobId {
        self.id
    }

    /// The number of this attempt, from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// What it was submitted with.
    #[must_use]
    pub fn order(&self) -> &Bytes {
        &self.order
    }

    /// Opens its body, from the beginning.
    ///
    /// # Errors
    /// [`BodyError`]: it cannot be read.
    pub fn body(&self) -> Result<BodyReader, BodyError> {
        self.inner.read_body(self.id)
    }

    /// How far it is; the worker says so.
    #[must_use]
    pub fn progress(&self) -> &Progress {
        &self.control.progress
    }

    /// Whether the job should stop: it was cancelled, or the queue is being closed.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.control.wish() != GOING
    }

    /// Completes when the job should stop.
    pub async fn stopped(&self) {
        loop {
            let wished = self.control.wished.notified();
            if self.is_stopped() {
                return;
            }
            wished.await;
        }
    }
}

/// Starts jobs in their turn until the queue is closed.
pub(crate) async fn dispatch(inner: Arc<Inner>, workers: Workers) {
    inner.fail_crashed().await;
    let mut kept = Instant::now();
    loop {
        let woken = inner.wake.notified();
        let next_due_ms = {
            let mut table = inner.lock();
            if table.closed {
                return;
            }
            table.make_ready(inner.clock.now_ms(), inner.options.delay_max_ms())
        };
        inner.start_ready(&workers);
        let until = next_due_ms.map_or(TICK, |due_ms| {
            Duration::from_millis(due_ms.saturating_sub(inner.clock.now_ms())).min(TICK)
        });
        let until =
            inner.arrivals.crowded_for(Instant::now()).map_or(until, |left| until.min(left));
        // Waiting in vain is as good as being woken.
        tokio::time::timeout(until.max(Duration::from_millis(1)), woken).await.unwrap_or(());
        if kept.elapsed() >= TICK {
            Arc::clone(&inner).keep_up().await;
            kept = Instant::now();
        }
    }
}

impl Inner {
    /// Starts every job that may start now.
    fn start_ready(self: &Arc<Self>, workers: &Workers) {
        while let Some(begun) = self.begin(workers) {
            tokio::spawn(begun.finish());
        }
    }

    /// Takes the job whose turn it is, and records that it starts; `None` if none may start now.
    pub(crate) fn begin(self: &Arc<Self>, workers: &Workers) -> Option<Begun> {
        let begun = {
            let mut table = self.lock();
            let max = self.options.workers.max(1);
            if table.running >= max || table.closed || self.log.stalled().is_some() {
                return None;
            }
            let runs_short = table.running > table.long_running;
            let has_places = table.waiting() < self.options.queued_max / 2;
            if runs_short && has_places && self.arrivals.crowded_for(Instant::now()).is_some() {
                return None;
            }
            let room_for_long = max == 1 || table.long_running < max - 1;
            let acknowledged = self.log.acknowledged();
            let id = table.next(|job| {
                job.stated.1 <= acknowledged && (room_for_long || !workers.is_long(job))
            })?;
            let now_ms = self.clock.now_ms();
            let attempt = table.jobs.get(&id)?.attempts + 1;
            let entry = format::encode(id, now_ms, &Entry::Started { attempt });
            // Blocks for a write, never for a sync.
            let appended = self.log.append(&[&entry]);
            let appended = match appended {
                Ok(appended) => appended,
                Err(error) => {
                    tracing::error!(job = %id, %error, "cannot record the start of a job");
                    table.wait(id, 0);
                    return None;
                }
            };
            let control = Arc::<Control>::default();
            let job = table.jobs.get_mut(&id)?;
            (job.attempts, job.started_ms) = (attempt, now_ms);
            job.state = State::Running(Arc::clone(&control));
            let is_long = workers.is_long(job);
            let durable = job.is_suspect.then_some(appended.end);
            let order = job.order.clone();
            let worker = workers.0.get(&*job.work).cloned();
            table.running += 1;
            table.long_running += usize::from(is_long);
            let kind = if is_long { SlotKind::Long } else { SlotKind::Short };
            let slot = Slot { inner: Arc::clone(self), kind };
            let running = Running { id, attempt, order, control, inner: Arc::clone(self) };
            Begun { running, worker, durable, slot }
        };
        self.announce(begun.running.id);
        Some(begun)
    }

    /// What is done once a second: a stalled log is tried again, old jobs are forgotten, the log is
    /// shortened.
    async fn keep_up(self: Arc<Self>) {
        let kept = forebay_base::blocking::spawn(move || {
            if self.log.stalled().is_some()
                && let Err(error) = self.log.retry()
            {
                tracing::debug!(%error, "the log of the job queue is stalled");
            }
            self.forget_old();
            self.shorten_if_long();
        });
        if let Err(error) = kept.await {
            tracing::error!(%error, "the upkeep of the job queue failed");
        }
    }
}

/// A job that has its turn.
pub(crate) struct Begun {
    pub(crate) running: Running,
    pub(crate) worker: Option<Arc<dyn Worker>>,
    /// The position up to which the log must be durable before it runs, if it is not yet.
    pub(crate) durable: Option<Lsn>,
    pub(crate) slot: Slot,
}

impl Begun {
    /// Runs it, and records how it ended.
    pub(crate) async fn finish(self) {
        let Self { running, worker, durable, slot } = self;
        let inner = Arc::clone(&slot.inner);
        if let Some(end) = durable
            && let Err(error) = inner.durable(end).await
        {
            tracing::error!(job = %running.id, %error, "a job is not durable");
            return;
        }
        let outcome = attempt(&running, worker).await;
        // Another job may run while the log is synced. What waits for that is limited.
        let _ending = inner.endings.acquire().await;
        drop(slot);
        inner.end_attempt(&running, outcome).await;
    }
}

/// What a running job occupies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotKind {
    /// A worker.
    Short,
    /// A worker, for minutes.
    Long,
    /// None of the workers: its work had begun already.
    Adopted,
}

/// Frees the slot of a running job, however its task ends.
pub(crate) struct Slot {
    pub(crate) inner: Arc<Inner>,
    pub(crate) kind: SlotKind,
}

impl Drop for Slot {
    fn drop(&mut self) {
        {
            let mut table = self.inner.lock();
            match self.kind {
                SlotKind::Adopted => table.adopted -= 1,
                SlotKind::Short | SlotKind::Long => table.running -= 1,
            }
            table.long_running -= usize::from(self.kind == SlotKind::Long);
        }
        self.inner.stopped.notify_waiters();
        self.inner.wake.notify_one();
    }
}

/// Runs a worker, in a task that can be dropped and may panic.
async fn attempt(running: &Running, worker: Option<Arc<dyn Worker>>) -> Outcome {
    let Some(worker) = worker else {
        let reason = "this build cannot do this kind of work".to_owned();
        return Outcome::Refused { result: Vec::new(), reason };
    };
    let task = tokio::spawn(worker.run(running.clone()));
    *running.control.task.lock() = Some(task.abort_handle());
    match task.await {
        Ok(outcome) => outcome,
        Err(error) if error.is_panic() => {
            tracing::error!(job = %running.id, "the worker of a job panicked");
            let reason = "the work failed with a bug in the program; see the log".to_owned();
            Outcome::Refused { result: Vec::new(), reason }
        }
        Err(_) => {
            Outcome::Again { result: Vec::new(), reason: "the attempt was dropped".to_owned() }
        }
    }
}
