//! Closes a queue: running jobs are interrupted, and what remains of them is recorded.
//!
//! Invariant: an attempt that stopped in time has its outcome in the log before that is closed.

use std::sync::Arc;
use std::time::Duration;

use forebay_log::CommitError;

use crate::id::JobId;
use crate::queue::{ENDINGS_MAX, Inner};
use crate::workers::{Control, TICK};

impl Inner {
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
                if control.abort() {
                    tracing::warn!(job = %id, "a job did not stop in time; it runs again later");
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

    /// Completes when no job runs, and how each attempt ended is recorded.
    async fn all_stopped(&self) {
        loop {
            let stopped = self.stopped.notified();
            let (running, adopted) = {
                let table = self.lock();
                (table.running, table.adopted)
            };
            if running + adopted == 0 {
                break;
            }
            stopped.await;
        }
        // An attempt that is no longer counted as running holds one until it is recorded.
        drop(self.endings.acquire_many(ENDINGS_MAX).await);
    }
}
