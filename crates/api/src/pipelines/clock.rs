//! Scheduled runs.
//!
//! A pipeline is due its interval after the start of its last run. If it is overdue when the server
//! starts, it runs at once. If a run cannot start, it is due again after a delay, or at its next
//! time if it is running.
//!
//! A run is started by the same request as a client's, so it is a job as well. One that a crash interrupted is
//! repeated by its job: the schedule waits for that.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use forebay_base::backoff::Backoff;
use http::{Request, StatusCode};
use serde_json::Value;
use tower::ServiceExt as _;

use super::Schedule;
use super::now_ms;
use super::{Shared, unremembered};
use crate::blocking::on_thread;
use crate::work::{RUNNING, Scheduled};

/// Maximum delay of a run that could not start because of others.
const AGAIN_MAX: Duration = Duration::from_secs(5);
/// Delay of a run whose file is not valid.
const RETRY_INVALID: Duration = Duration::from_secs(60);

/// Maximum size of an answer that is read, in bytes.
const ANSWER_SIZE_MAX: usize = 64 << 10;

/// Returns when a scheduled run is due, in milliseconds since 1970; now if there was none.
pub(super) fn due_ms(schedule: &Schedule, last_began_ms: Option<u64>) -> u64 {
    let every = u64::try_from(schedule.every.as_millis()).unwrap_or(u64::MAX);
    // Otherwise it would wait for as long as the clock was set back.
    let last = last_began_ms.map(|last| last.min(now_ms()));
    last.map_or_else(now_ms, |last| last.saturating_add(every))
}

/// Starts runs when they are due, until it is dropped.
///
/// * `routes`: those of the server, with what makes jobs of runs around them.
pub(super) async fn keep(shared: Arc<Shared>, routes: Router) {
    let mut keepers = tokio::task::JoinSet::new();
    for schedule in shared.schedules.clone() {
        keepers.spawn(one(Arc::clone(&shared), routes.clone(), schedule));
    }
    while keepers.join_next().await.is_some() {}
}

async fn one(shared: Arc<Shared>, routes: Router, schedule: Schedule) {
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
        if let Some(wait) = begin(&routes, &schedule).await {
            tokio::time::sleep(wait).await;
        }
    }
}

/// Requests a run; returns the delay if it did not start.
async fn begin(routes: &Router, schedule: &Schedule) -> Option<Duration> {
    let name = &schedule.pipeline;
    let request = Request::post(format!("/v1/pipelines/{name}/runs"))
        .header("x-request-id", "schedule")
        .extension(Scheduled)
        .body(Body::empty());
    let (status, code, message) = match request {
        Ok(request) => read(routes.clone().oneshot(request).await.unwrap_or_default()).await,
        Err(error) => (StatusCode::BAD_REQUEST, String::new(), error.to_string()),
    };
    match status {
        StatusCode::ACCEPTED => return None,
        StatusCode::CONFLICT if code == RUNNING => {
            tracing::debug!(pipeline = name, message, "a run is due while another is running");
        }
        // The server stops, or its log has the reason.
        StatusCode::SERVICE_UNAVAILABLE => {}
        StatusCode::TOO_MANY_REQUESTS | StatusCode::INSUFFICIENT_STORAGE => {
            tracing::warn!(pipeline = name, message, "a run is delayed");
        }
        _ => {
            let labels = [("pipeline", name.clone()), ("outcome", "refused".to_owned())];
            metrics::counter!("forebay_pipeline_runs_total", &labels).increment(1);
            tracing::error!(pipeline = name, why = message, "cannot start a due run");
            return Some(RETRY_INVALID);
        }
    }
    Some(again())
}

/// Status of a response, and code and message of its error.
async fn read(response: Response) -> (StatusCode, String, String) {
    let status = response.status();
    let body = axum::body::to_bytes(response.into_body(), ANSWER_SIZE_MAX).await;
    let json: Value = serde_json::from_slice(&body.unwrap_or_default()).unwrap_or_default();
    let text = |name: &str| json["error"][name].as_str().unwrap_or_default().to_owned();
    (status, text("code"), text("message"))
}

/// Returns a delay of a run that could not start because of others: different for each schedule, so
/// that those which wait for the same thing do not return to it together.
fn again() -> Duration {
    Backoff::new(AGAIN_MAX, AGAIN_MAX).delay()
}
