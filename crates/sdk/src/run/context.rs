//! State shared by all parts of a run: its id, its cancellation, its time accounting.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::watch;

use super::kept::Kept;
use super::measures::Measures;
use crate::platform::Instant;

/// A phase of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Phase {
    /// Connecting.
    Connect,
    /// From a query to its first row.
    Query,
    /// Waiting for rows from the source.
    Fetch,
    /// Converting input to batches.
    Decode,
    /// Transforms.
    Transform,
    /// Converting batches to the destination's form.
    Encode,
    /// Sending them.
    Flush,
    /// Committing.
    Commit,
    /// Waiting for the other side of the run.
    Wait,
}

/// Names of the phases, in order.
pub const PHASES: [&str; 9] =
    ["connect", "query", "fetch", "decode", "transform", "encode", "flush", "commit", "wait"];

/// Time spent in each phase, summed over all tasks: two tasks at work for a second count as two.
#[derive(Debug, Default)]
pub struct Phases([AtomicU64; PHASES.len()]);

impl Phases {
    /// Adds the time since `begun`.
    pub fn add(&self, phase: Phase, begun: Instant) {
        let ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.0[phase as usize].fetch_add(ns, Ordering::Relaxed);
    }

    /// The time spent.
    #[must_use]
    pub fn spent(&self) -> [Duration; PHASES.len()] {
        std::array::from_fn(|phase| Duration::from_nanos(self.0[phase].load(Ordering::Relaxed)))
    }
}

/// Maximum number of warnings of a run.
const WARNINGS_MAX: usize = 1_000;

/// Progress so far.
#[derive(Debug, Default)]
pub struct Moved {
    /// Number of rows read.
    pub rows_read: AtomicU64,
    /// Their size in bytes, as batches.
    pub bytes_read: AtomicU64,
    /// Number of rows committed.
    pub rows_committed: AtomicU64,
    /// Number of rows stored as dead letters or skipped, of the units that are committed.
    pub rows_dead: AtomicU64,
    /// Number of units committed.
    pub units_committed: AtomicU64,
    /// Of a feed: the source's time, in microseconds since 1970, up to which every commit is applied; 0 if it is
    /// not known.
    pub applied_until_us: AtomicU64,
    /// Of a feed: bytes of the source's log that are not applied, as of a few seconds ago.
    pub lag_bytes: AtomicU64,
    /// Of a feed: when the copies were complete and following began, in microseconds since 1970; 0 before.
    pub following_since_us: AtomicU64,
}

impl Moved {
    /// Records that the copies of a feed are complete.
    ///
    /// * `now_ms`: in milliseconds since 1970.
    pub fn begin_following(&self, now_ms: u64) {
        self.following_since_us.store(now_ms.saturating_mul(1_000), Ordering::Relaxed);
    }

    /// How long a feed has been behind its source, in microseconds; `None` while its tables are copied, and for other
    /// pipelines.
    ///
    /// * `now_ms`: in milliseconds since 1970, by a clock that agrees with that of the source.
    #[must_use]
    pub fn lag_us(&self, now_ms: u64) -> Option<u64> {
        let since = self.following_since_us.load(Ordering::Relaxed);
        if since == 0 {
            return None;
        }
        let current = self.applied_until_us.load(Ordering::Relaxed).max(since);
        Some(now_ms.saturating_mul(1_000).saturating_sub(current))
    }

    /// Records that every commit of a source up to a time is applied.
    ///
    /// * `at_us`: in microseconds since 1970.
    pub fn applied_until(&self, at_us: i64) {
        self.applied_until_us.fetch_max(u64::try_from(at_us).unwrap_or(0), Ordering::Relaxed);
    }
}

/// Shared by every part of a run. Clones share the same state.
#[derive(Debug, Clone)]
pub struct Context {
    /// Id of the run.
    pub run: Arc<str>,
    /// Its time accounting.
    pub phases: Arc<Phases>,
    /// Its progress.
    pub moved: Arc<Moved>,
    /// What its connectors count.
    pub measures: Arc<Measures>,
    kept: Option<Kept>,
    warnings: Arc<Mutex<Vec<String>>>,
    /// Number of rows that transforms skipped in one reading of a unit.
    skipped: Arc<AtomicU64>,
    cancelled: watch::Receiver<bool>,
}

/// Cancels a run.
#[derive(Debug, Clone)]
pub struct Cancel(Arc<watch::Sender<bool>>);

impl Cancel {
    /// Asks the run to stop at the next commit.
    pub fn cancel(&self) {
        self.0.send_replace(true);
    }
}

impl Context {
    /// Creates a context for a run with this id, and its canceller.
    #[must_use]
    pub fn new(run: &str) -> (Self, Cancel) {
        let (send, cancelled) = watch::channel(false);
        let context = Self {
            run: run.into(),
            phases: Arc::default(),
            moved: Arc::default(),
            measures: Arc::default(),
            kept: None,
            warnings: Arc::default(),
            skipped: Arc::default(),
            cancelled,
        };
        (context, Cancel(Arc::new(send)))
    }

    /// This context, with a place where connectors keep values between runs.
    #[must_use]
    pub fn keeping(self, kept: Kept) -> Self {
        Self { kept: Some(kept), ..self }
    }

    /// Where connectors keep values between runs; `None`: nowhere, as in a plan.
    #[must_use]
    pub fn kept(&self) -> Option<&Kept> {
        self.kept.as_ref()
    }

    /// Adds a warning to the run's report. One that is known already is not repeated: a stream may be
    /// opened several times.
    pub fn warn(&self, text: &str) {
        let mut warnings = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        if warnings.len() < WARNINGS_MAX && !warnings.iter().any(|known| known == text) {
            warnings.push(text.to_owned());
        }
    }

    /// The context of one reading of a unit, which counts the rows that it skips by itself: a unit may be
    /// read again.
    #[must_use]
    pub fn of_reading(&self) -> Self {
        Self { skipped: Arc::default(), ..self.clone() }
    }

    /// Counts rows that a transform skips.
    pub fn skip(&self, rows: u64) {
        self.skipped.fetch_add(rows, Ordering::Relaxed);
    }

    /// Number of rows that transforms skipped in this reading.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.skipped.load(Ordering::Relaxed)
    }

    /// The warnings so far.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the run has been asked to stop.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        *self.cancelled.borrow()
    }

    /// Returns once the run has been asked to stop.
    pub async fn cancelled(&self) {
        let mut cancelled = self.cancelled.clone();
        if cancelled.wait_for(|is| *is).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// A report of phases, in seconds.
#[derive(Debug, Clone, Copy, Serialize, utoipa::ToSchema)]
#[schema(as = PipelinePhaseSeconds)]
pub struct PhaseSeconds {
    /// Connecting.
    pub connect: f64,
    /// From a query to its first row.
    pub query: f64,
    /// Waiting for rows from the source.
    pub fetch: f64,
    /// Converting input to batches.
    pub decode: f64,
    /// Transforms.
    pub transform: f64,
    /// Converting batches to the destination's form.
    pub encode: f64,
    /// Sending them.
    pub flush: f64,
    /// Committing.
    pub commit: f64,
    /// Waiting for the other side of the run.
    pub wait: f64,
}

impl From<&Phases> for PhaseSeconds {
    fn from(phases: &Phases) -> Self {
        let [connect, query, fetch, decode, transform, encode, flush, commit, wait] =
            phases.spent().map(|spent| spent.as_secs_f64());
        Self { connect, query, fetch, decode, transform, encode, flush, commit, wait }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_a_reading_skips_are_counted_by_itself() {
        let (context, _cancel) = Context::new("r");
        let (first, again) = (context.of_reading(), context.of_reading());
        first.clone().skip(3);
        again.skip(2);
        assert_eq!((first.skipped(), again.skipped(), context.skipped()), (3, 2, 0));
    }

    #[test]
    fn a_warning_is_reported_once() {
        let (context, _cancel) = Context::new("r");
        context.clone().warn("rows are left out");
        context.warn("rows are left out");
        context.warn("others, too");
        assert_eq!(context.warnings(), ["rows are left out", "others, too"]);
    }
}
