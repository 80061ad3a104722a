//! State shared by all parts of a run: its id, its cancellation, its time accounting.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::sync::watch;

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

/// Progress so far.
#[derive(Debug, Default)]
pub struct Moved {
    /// Number of rows read.
    pub rows_read: AtomicU64,
    /// Their size in bytes, as batches.
    pub bytes_read: AtomicU64,
    /// Number of rows committed.
    pub rows_committed: AtomicU64,
    /// Number of rows stored as dead letters.
    pub rows_dead: AtomicU64,
    /// Number of units committed.
    pub units_committed: AtomicU64,
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
        let context =
            Self { run: run.into(), phases: Arc::default(), moved: Arc::default(), cancelled };
        (context, Cancel(Arc::new(send)))
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
