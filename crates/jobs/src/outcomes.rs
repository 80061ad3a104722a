//! Records how attempts end: with the job, with a delay, or with a crash of the process.
//!
//! Invariant: an attempt has one outcome in the log. What finds another one there leaves it.

use std::sync::Arc;
use std::time::Duration;

use forebay_base::backoff::Backoff;

use crate::format::{self, End, Entry, How, RESULT_SIZE_MAX};
use crate::id::JobId;
use crate::options::DELAY_MAX;
use crate::queue::Inner;
use crate::table::State;
use crate::transitions::Refusal;
use crate::workers::{CANCELLED, INTERRUPTED, Outcome, Running};

/// A job that was running at this many crashes fails.
const CRASHES_MAX: u32 = 3;

impl Inner {
    /// Records how an attempt ended.
    pub(crate) async fn end_attempt(self: &Arc<Self>, running: &Running, outcome: Outcome) {
        let (id, wish) = (running.id(), running.control.wish());
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
    pub(crate) async fn postpone(&self, id: JobId, attempt: u32, due_ms: u64, reason: &str) {
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
