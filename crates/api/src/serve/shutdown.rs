//! Stops in stages, observed by every connection.
//!
//! `Running → Draining` on the first signal: no new connection, no new request; running ones
//! finish. `Draining → Aborting` at `server.shutdown_limit`: the rest is aborted. Stages only
//! advance.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// The stage of the shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// Serving.
    Running = 0,
    /// Finishing running requests.
    Draining = 1,
    /// Aborting the rest.
    Aborting = 2,
}

/// The stage, and the number of connections.
#[derive(Debug, Default)]
pub(super) struct Stop {
    stage: AtomicU8,
    changed: Notify,
    open: AtomicUsize,
    none_open: Notify,
    one_left: Notify,
}

impl Stop {
    /// Returns the current stage. One load: cheap enough for every poll of every connection.
    pub(super) fn stage(&self) -> Stage {
        match self.stage.load(Ordering::Acquire) {
            0 => Stage::Running,
            1 => Stage::Draining,
            _ => Stage::Aborting,
        }
    }

    /// Enters `stage` and wakes all tasks that wait for a change.
    pub(super) fn advance(&self, stage: Stage) {
        if self.stage.fetch_max(stage as u8, Ordering::AcqRel) < stage as u8 {
            self.changed.notify_waiters();
        }
    }

    /// Resolves at the next change of stage after its first poll. Check the stage after that poll:
    /// a change just before it does not wake it.
    pub(super) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Returns the number of open connections.
    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Counts one more connection unless `max` are open.
    pub(super) fn enter(&self, max: usize) -> bool {
        // Each port has its own accept loop.
        let more = |open| (open < max).then(|| open + 1);
        self.open.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).is_ok()
    }

    /// Waits for a connection to end, at most for `limit`.
    pub(super) async fn one_left(&self, limit: Duration) {
        // The caller checks the count even if none has ended.
        tokio::time::timeout(limit, self.one_left.notified()).await.unwrap_or_default();
    }

    /// Counts one connection less.
    pub(super) fn leave(&self) {
        self.one_left.notify_one();
        if self.open.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.none_open.notify_one();
        }
    }

    /// Waits until no connection is open, at most for `limit`. Returns whether that was reached.
    pub(super) async fn drained(&self, limit: Duration) -> bool {
        let empty = async {
            while self.open.load(Ordering::Acquire) > 0 {
                self.none_open.notified().await;
            }
        };
        tokio::time::timeout(limit, empty).await.is_ok()
    }
}
