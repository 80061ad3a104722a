//! Runs jobs: a dispatcher gives each its turn, a task runs its worker and records how it ended.
//!
//! Invariants:
//! - A job starts only once its submission is durable, and has ended only once the entry of its end is.
//! - A job that may have ended an earlier process, because it was there at the opening or has failed before, starts
//!   only once the entry of its start is durable too: if it ends this process, the next one knows.
//! - A worker that panics fails its job, and no other.
//! - Jobs that take long never have the last free worker.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use forebay_base::backoff::Backoff;
use forebay_log::{CommitError, Lsn};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::body::BodyReader;
use crate::error::BodyError;
use crate::format::{self, End, Entry, How, RESULT_SIZE_MAX};
use crate::id::JobId;
use crate::options::DELAY_MAX;
use crate::queue::{ENDINGS_MAX, Inner};
use crate::table::{Job, State};
use crate::transitions::Refusal;

/// How often old jobs are forgotten and a stalled log is tried again.
pub(crate) const TICK: Duration = Duration::from_secs(1);
/// A job that was running at this many crashes fails.
const CRASHES_MAX: u32 = 3;

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
const CANCELLED: u8 = 1;
const INTERRUPTED: u8 = 2;

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

    fn interrupt(&self) {
        // A job that was cancelled is not to continue after the next start.
        let going =
            self.wish.compare_exchange(GOING, INTERRUPTED, Ordering::AcqRel, Ordering::Acquire);
        if going.is_ok() {
            self.wished.notify_waiters();
        }
    }

    fn wish(&self) -> u8 {
        self.wish.load(Ordering::Acquire)
    }
}

/// A job that runs, as its worker sees it.
#[derive(Clone)]
pub struct Running {
    id: JobId,
    attempt: u32,
    order: Bytes,
    control: Arc<Control>,
    inner: Arc<Inner>,
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
            let slot = Slot { inner: Arc::clone(self), is_long };
            let running = Running { id, attempt, order, control, inner: Arc::clone(self) };
            Begun { running, worker, durable, slot }
        };
        self.announce(begun.running.id);
        Some(begun)
    }

    /// Records how an attempt ended.
    async fn end_attempt(self: &Arc<Self>, running: &Running, outcome: Outcome) {
        let (id, wish) = (running.id, running.control.wish());
        let last = running.attempt > self.options.retries_max;
        let (how, result, reason) = match outcome {
            Outcome::Done(result) => (How::Completed, result, String::new()),
            Outcome::Refused { result, reason } | Outcome::Again { result, reason }
                if wish == CANCELLED =>
            {
                (How::Cancelled, result, reason)
            }
            Outcome::Refused { .. } | Outcome::Again { .. } if wish == INTERRUPTED => {
                let attempt = running.attempt.saturating_sub(1);
                self.postpone(id, attempt, 0, "the server was stopped").await;
                return;
            }
            Outcome::Again { reason, .. } if !last => {
                let delay = delay(self.options.retry_after, running.attempt);
                let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
                let due_ms = self.clock.now_ms().saturating_add(delay_ms).max(1);
                self.lock().retries += 1;
                metrics::counter!("forebay_jobs_retries_total").increment(1);
                self.postpone(id, running.attempt, due_ms, &reason).await;
                return;
            }
            Outcome::Refused { result, reason } | Outcome::Again { result, reason } => {
                (How::Failed, result, reason)
            }
        };
        let started_ms = self.lock().jobs.get(&id).map_or(0, |job| job.started_ms);
        let took_ms = self.clock.now_ms().saturating_sub(started_ms);
        #[expect(clippy::cast_precision_loss, reason = "milliseconds of a job")]
        metrics::histogram!("forebay_job_seconds").record(took_ms as f64 / 1e3);
        self.end(id, how, result, &reason).await;
    }

    /// Records that a job has ended.
    async fn end(self: &Arc<Self>, id: JobId, how: How, mut result: Vec<u8>, reason: &str) {
        let mut reason = reason.to_owned();
        if result.len() > RESULT_SIZE_MAX {
            reason =
                format!("{reason} (the result of {} bytes is too large to be kept)", result.len());
            result.clear();
        }
        let reason = format::reason(reason.trim());
        let now_ms = self.clock.now_ms();
        let attempts = self.lock().jobs.get(&id).map_or(0, |job| job.attempts);
        let end = End { how, result: &result, reason };
        let entry = format::encode(id, now_ms, &Entry::Ended { attempts, end });
        let appended = self.append_when(
            &entry,
            |table| if table.is_open(id) { Ok(()) } else { Err(()) },
            |table, appended| {
                table.leave(id);
                if let Some(job) = table.jobs.get_mut(&id) {
                    job.state = State::Ending { end: appended.end };
                    job.reason = reason.into();
                }
                appended
            },
        );
        let appended = match appended.await {
            Ok(appended) => appended,
            // It has ended already.
            Err(Refusal::By(())) => return,
            Err(Refusal::Log(error)) => {
                tracing::error!(job = %id, %error, "cannot record the end of a job: it runs again after a restart");
                return;
            }
        };
        let settled = self.settled(id, how, now_ms, (appended, result.len()));
        if let Err(error) = settled.await {
            tracing::error!(job = %id, %error, "the end of a job may be lost: it may run again");
        }
    }

    /// Lets a job wait for its next attempt.
    async fn postpone(&self, id: JobId, attempt: u32, due_ms: u64, reason: &str) {
        let reason = format::reason(reason);
        let entry = Entry::Postponed { attempt, due_ms, reason };
        let entry = format::encode(id, self.clock.now_ms(), &entry);
        let postponed = self.append_when(
            &entry,
            // Only one of its attempt and of what closes the queue records how it stopped.
            |table| if table.is_running(id) { Ok(()) } else { Err(()) },
            |table, _| {
                if let Some(job) = table.jobs.get_mut(&id) {
                    job.attempts = attempt;
                    job.crashes = 0;
                    job.reason = reason.into();
                }
                table.wait(id, due_ms);
            },
        );
        match postponed.await {
            Ok(()) => {}
            Err(Refusal::By(())) => return,
            Err(Refusal::Log(error)) => {
                tracing::error!(job = %id, %error, "cannot record the delay of a job: it runs again after a restart");
            }
        }
        self.announce(id);
        self.wake.notify_one();
    }

    /// Fails jobs that were running each time the process crashed.
    pub(crate) async fn fail_crashed(self: &Arc<Self>) {
        let crashed: Vec<JobId> = {
            let table = self.lock();
            let waiting = table.jobs.iter().filter(|(_, job)| !job.status().is_ended());
            waiting.filter(|(_, job)| job.crashes >= CRASHES_MAX).map(|(id, _)| *id).collect()
        };
        for id in crashed {
            let reason = format!("the process ended {CRASHES_MAX} times while the job was running");
            self.end(id, How::Failed, Vec::new(), &reason).await;
        }
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

    /// Lets no further job start, and asks those that run to stop.
    pub(crate) fn interrupt(&self) -> Vec<(JobId, Arc<Control>)> {
        let running = {
            let mut table = self.lock();
            table.closed = true;
            table.running_jobs()
        };
        running.iter().for_each(|(_, control)| control.interrupt());
        self.wake.notify_one();
        running
    }

    /// Ends everything: see [`Queue::close`](crate::Queue::close).
    pub(crate) async fn close(&self, limit: Duration) -> Result<(), CommitError> {
        let running = self.interrupt();
        let dispatcher = self.dispatcher.lock().take();
        if let Some(Err(error)) = match dispatcher {
            Some(task) => Some(task.await),
            None => None,
        } {
            tracing::error!(%error, "the dispatcher of the job queue failed");
        }
        if tokio::time::timeout(limit, self.all_stopped()).await.is_err() {
            for (id, control) in &running {
                if let Some(task) = control.task.lock().take() {
                    tracing::warn!(job = %id, "a job did not stop in time; it runs again later");
                    task.abort();
                }
            }
            // The rest cannot be recorded: the log has no room.
            tokio::time::timeout(TICK, self.all_stopped()).await.unwrap_or(());
        }
        let left = self.lock().running_jobs();
        for (id, _) in left {
            let attempts = self.lock().jobs.get(&id).map_or(1, |job| job.attempts);
            self.postpone(id, attempts.saturating_sub(1), 0, "the server was stopped").await;
        }
        let committer = self.committer.lock().take();
        match committer {
            Some(committer) => {
                forebay_base::blocking::spawn(move || committer.stop()).await.unwrap_or(Ok(()))
            }
            None => self.log.sync().map(drop),
        }
    }

    /// Completes when no worker runs, and how each attempt ended is recorded.
    async fn all_stopped(&self) {
        loop {
            let stopped = self.stopped.notified();
            if self.lock().running == 0 {
                break;
            }
            stopped.await;
        }
        // An attempt that is no longer counted as running holds one until it is recorded.
        drop(self.endings.acquire_many(ENDINGS_MAX).await);
    }
}

/// A job that has its turn.
pub(crate) struct Begun {
    running: Running,
    worker: Option<Arc<dyn Worker>>,
    /// The position up to which the log must be durable before it runs, if it is not yet.
    durable: Option<Lsn>,
    slot: Slot,
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

/// Frees the place of a running job, however its task ends.
struct Slot {
    inner: Arc<Inner>,
    is_long: bool,
}

impl Drop for Slot {
    fn drop(&mut self) {
        {
            let mut table = self.inner.lock();
            table.running -= 1;
            table.long_running -= usize::from(self.is_long);
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

/// The delay after an attempt.
fn delay(first: Duration, attempt: u32) -> Duration {
    let mut backoff = Backoff::new(first, DELAY_MAX);
    let mut delay = first;
    for _ in 0..attempt.min(20) {
        delay = backoff.delay();
    }
    delay
}
