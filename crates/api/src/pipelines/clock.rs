//! Scheduled runs.
//!
//! A pipeline is due its interval after the start of its last run. If it is overdue when the server
//! starts, it runs at once. If a run cannot start, it is due again after a delay, or at its next
//! time if it is running.

use std::sync::Arc;
use std::time::Duration;

use forebay_base::backoff::Backoff;
use forebay_pipeline::run::Options;

use super::Schedule;
use super::catalogue::Name;
use super::now_ms;
use super::runner::Refused;
use super::{Shared, unremembered};
use crate::blocking::on_thread;

/// Maximum delay of a run that could not start because of others.
const AGAIN_MAX: Duration = Duration::from_secs(5);
/// Delay of a run whose file is not valid.
const RETRY_INVALID: Duration = Duration::from_secs(60);

/// Returns when a scheduled run is due, in milliseconds since 1970; now if there was none.
pub(super) fn due_ms(schedule: &Schedule, last_began_ms: Option<u64>) -> u64 {
    let every = u64::try_from(schedule.every.as_millis()).unwrap_or(u64::MAX);
    // Otherwise it would wait for as long as the clock was set back.
    let last = last_began_ms.map(|last| last.min(now_ms()));
    last.map_or_else(now_ms, |last| last.saturating_add(every))
}

/// Starts runs when they are due, until it is dropped.
pub(super) async fn keep(shared: Arc<Shared>) {
    let mut keepers = tokio::task::JoinSet::new();
    for schedule in shared.schedules.clone() {
        keepers.spawn(one(Arc::clone(&shared), schedule));
    }
    while keepers.join_next().await.is_some() {}
}

async fn one(shared: Arc<Shared>, schedule: Schedule) {
    loop {
        let asked = Arc::clone(&shared);
        let pipeline = schedule.pipeline.clone();
        let last = on_thread(move || {
            let runs = asked.runner.remembered(|state| state.runs(Some(&pipeline), 1, now_ms()));
            Ok(runs.map_err(|error| unremembered(&error))?.pop())
        })
        .await;
        let due = match last {
            Ok(last) => due_ms(&schedule, last.map(|run| run.began_ms)),
            Err(_) => {
                tokio::time::sleep(again()).await;
                continue;
            }
        };
        tokio::time::sleep(Duration::from_millis(due.saturating_sub(now_ms()))).await;
        if let Some(wait) = begin(&shared, &schedule).await {
            tokio::time::sleep(wait).await;
        }
    }
}

/// Starts a run; returns the delay if it did not start.
async fn begin(shared: &Arc<Shared>, schedule: &Schedule) -> Option<Duration> {
    let shared = Arc::clone(shared);
    let pipeline = schedule.pipeline.clone();
    let begun = on_thread(move || {
        let file = shared.catalogue.load(&Name::parse(&pipeline)?)?;
        Ok(shared.runner.start(file, Options::default()))
    });
    let name = &schedule.pipeline;
    match begun.await {
        Ok(Ok(_)) => return None,
        Ok(Err(Refused::Running(run))) => {
            tracing::debug!(pipeline = name, run, "a run is due while another is running");
        }
        Ok(Err(Refused::TooMany)) => {
            tracing::warn!(
                pipeline = name,
                "a run is delayed: the limit pipelines.runs_max is reached"
            );
        }
        Ok(Err(Refused::Closing)) => {}
        Ok(Err(Refused::State(error))) => drop(unremembered(&error)),
        Err(problem) => {
            let labels = [("pipeline", name.clone()), ("outcome", "refused".to_owned())];
            metrics::counter!("forebay_pipeline_runs_total", &labels).increment(1);
            tracing::error!(
                pipeline = name,
                why = problem.into_message(),
                "cannot start a due run"
            );
            return Some(RETRY_INVALID);
        }
    }
    Some(again())
}

/// Returns a delay of a run that could not start because of others: different for each schedule, so
/// that those which wait for the same thing do not return to it together.
fn again() -> Duration {
    Backoff::new(AGAIN_MAX, AGAIN_MAX).delay()
}
