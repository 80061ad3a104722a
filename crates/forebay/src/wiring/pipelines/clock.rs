//! Runs that begin by themselves.
//!
//! A pipeline is due so long after its last run began; one that is overdue when the server starts runs at
//! once. Where a run cannot begin, it is due again after a while, or at its next time if it is running.

use std::sync::Arc;
use std::time::Duration;

use forebay_pipeline::run::Options;

use super::catalogue::Name;
use super::runner::Refused;
use super::{Shared, on_thread, unremembered};
use crate::config::Schedule;
use crate::pipelines::now_ms;

/// How long a run waits that could not begin because of others.
const AGAIN: Duration = Duration::from_secs(5);
/// How long one waits whose file is wrong.
const MENDED: Duration = Duration::from_secs(60);

/// When a run of a schedule is due, in milliseconds since 1970; now, if there was none.
pub(super) fn due_ms(schedule: &Schedule, last_began_ms: Option<u64>) -> u64 {
    let every = u64::try_from(schedule.every.as_millis()).unwrap_or(u64::MAX);
    // A clock that was set back would make it wait for all that time.
    let last = last_began_ms.map(|last| last.min(now_ms()));
    last.map_or_else(now_ms, |last| last.saturating_add(every))
}

/// Begins runs when they are due, until it is dropped.
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
                tokio::time::sleep(AGAIN).await;
                continue;
            }
        };
        tokio::time::sleep(Duration::from_millis(due.saturating_sub(now_ms()))).await;
        if let Some(wait) = begin(&shared, &schedule).await {
            tokio::time::sleep(wait).await;
        }
    }
}

/// Begins a run; how long to wait where it did not begin.
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
            tracing::debug!(pipeline = name, run, "a run is due while another is under way");
        }
        Ok(Err(Refused::TooMany)) => {
            tracing::warn!(
                pipeline = name,
                "a run waits: as many as pipelines.runs_max are under way"
            );
        }
        Ok(Err(Refused::Closing)) => {}
        Ok(Err(Refused::State(error))) => drop(unremembered(&error)),
        Err(problem) => {
            let labels = [("pipeline", name.clone()), ("outcome", "refused".to_owned())];
            metrics::counter!("forebay_pipeline_runs_total", &labels).increment(1);
            tracing::error!(pipeline = name, why = problem.into_message(), "a run cannot begin");
            return Some(MENDED);
        }
    }
    Some(AGAIN)
}
