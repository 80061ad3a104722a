//! What every part of a run shares: its id, whether it is to stop, where its time goes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::sync::watch;

/// What a run does with its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Phase {
    /// Connecting.
    Connect,
    /// From a query to its first row.
    Query,
    /// Waiting for rows of a source.
    Fetch,
    /// Turning what came into batches.
    Decode,
    /// Transforms.
    Transform,
    /// Turning batches into what the destination takes.
    Encode,
    /// Handing it over.
    Flush,
    /// Committing.
    Commit,
    /// Waiting for the other side of the run.
    Wait,
}

/// Names of the phases, in order.
pub const PHASES: [&str; 9] =
    ["connect", "query", "fetch", "decode", "transform", "encode", "flush", "commit", "wait"];

/// Time spent in each phase, by all tasks together: with two at work, a second has two.
#[derive(Debug, Default)]
pub struct Phases([AtomicU64; PHASES.len()]);

impl Phases {
    /// Adds time since `begun`.
    pub fn add(&self, phase: Phase, begun: Instant) {
        let ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.0[phase as usize].fetch_add(ns, Ordering::Relaxed);
    }

    /// What was spent.
    #[must_use]
    pub fn spent(&self) -> [Duration; PHASES.len()] {
        std::array::from_fn(|phase| Duration::from_nanos(self.0[phase].load(Ordering::Relaxed)))
    }
}

/// What has been moved so far.
#[derive(Debug, Default)]
pub struct Moved {
    /// Rows that were read.
    pub rows_read: AtomicU64,
    /// Bytes of them, as batches.
    pub bytes_read: AtomicU64,
    /// Rows that were committed.
    pub rows_committed: AtomicU64,
    /// Rows that were put aside.
    pub rows_dead: AtomicU64,
    /// Units that were committed.
    pub units_committed: AtomicU64,
}

/// Shared by every part of a run; clones are the same.
#[derive(Debug, Clone)]
pub struct Context {
    /// Id of the run.
    pub run: Arc<str>,
    /// Where its time goes.
    pub phases: Arc<Phases>,
    /// What it has moved.
    pub moved: Arc<Moved>,
    cancelled: watch::Receiver<bool>,
}

/// Cancels a run.
#[derive(Debug, Clone)]
pub struct Cancel(Arc<watch::Sender<bool>>);

impl Cancel {
    /// Asks the run to stop at the next commit boundary.
    pub fn cancel(&self) {
        self.0.send_replace(true);
    }
}

impl Context {
    /// A context for a run of this id, and what cancels it.
    #[must_use]
    pub fn new(run: &str) -> (Self, Cancel) {
        let (send, cancelled) = watch::channel(false);
        let context =
            Self { run: run.into(), phases: Arc::default(), moved: Arc::default(), cancelled };
        (context, Cancel(Arc::new(send)))
    }

    /// Whether the run is to stop.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        *self.cancelled.borrow()
    }

    /// Returns once the run is to stop.
    pub async fn cancelled(&self) {
        let mut cancelled = self.cancelled.clone();
        if cancelled.wait_for(|is| *is).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// A report of phases, in seconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct PhaseSeconds {
    /// Connecting.
    pub connect: f64,
    /// From a query to its first row.
    pub query: f64,
    /// Waiting for rows of a source.
    pub fetch: f64,
    /// Turning what came into batches.
    pub decode: f64,
    /// Transforms.
    pub transform: f64,
    /// Turning batches into what the destination takes.
    pub encode: f64,
    /// Handing it over.
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
