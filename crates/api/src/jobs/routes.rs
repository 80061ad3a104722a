//! `/v1/jobs`: look at jobs, cancel them, queue them again, remove them.

use axum::Extension;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use forebay_jobs::{Filter, JobError, JobId, JobView, Status};
use http::{HeaderMap, Method, StatusCode, Uri};
use serde_json::value::RawValue;

use super::Shared;
use super::answers::{JobAnswer, JobList, JobStats};
use super::order::Order;
use crate::answer::{answer, json, moved, no_content};
use crate::keys::Grant;
use crate::problem::Problem;
use crate::serve::permits_target;
use crate::{pages, query};

/// Jobs on a page by default.
const PAGE: usize = 100;
/// Jobs on the page for browsers.
const SHOWN: usize = 200;

/// `GET /jobs`.
pub(super) async fn to_page() -> Response {
    moved("/v1/jobs/page")
}

/// `GET /v1/jobs/page`.
pub(super) async fn page(State(shared): State<Shared>) -> Response {
    let (jobs, _) = shared.queue.list(Filter::default(), SHOWN);
    let jobs: Vec<JobAnswer> = jobs.into_iter().map(JobAnswer::from).collect();
    let rows = jobs.iter().map(|job| pages::JobRow::of(&serde_json::json!(job))).collect();
    let stats = serde_json::json!(JobStats::from(shared.queue.stats()));
    crate::answer::html(pages::jobs_page(rows, &stats), crate::answer::PAGE)
}

/// `GET /v1/jobs`.
pub(super) async fn list(State(shared): State<Shared>, request: Request) -> Response {
    answer(listed(&shared, request.uri()), request.headers())
}

fn listed(shared: &Shared, uri: &Uri) -> Result<Response, Problem> {
    let (mut filter, mut limit) = (Filter::default(), PAGE);
    for (name, value) in query::pairs(uri.query().unwrap_or_default()) {
        let text = String::from_utf8(value).unwrap_or_default();
        let bad = |expected: &str| {
            Problem::bad("query", format!("query parameter {name:?} must be {expected}"))
        };
        match name.as_str() {
            "status" => {
                let status = Status::parse(&text);
                let expected = "queued, running, completed, failed or cancelled";
                filter.status = Some(status.ok_or_else(|| bad(expected))?);
            }
            "cursor" => {
                filter.before = Some(JobId::parse(&text).ok_or_else(|| bad("a next_cursor"))?);
            }
            _ => {
                let number = text.parse().ok().filter(|number| (1..=1_000).contains(number));
                limit = number.ok_or_else(|| bad("a number from 1 to 1000"))?;
            }
        }
    }
    let (jobs, more) = shared.queue.list(filter, limit);
    let next_cursor = jobs.last().filter(|_| more).map(|job| job.id.to_string());
    let jobs = jobs.into_iter().map(JobAnswer::from).collect();
    Ok(json(StatusCode::OK, &JobList { jobs, next_cursor }))
}

/// `GET /v1/jobs/stats`.
pub(super) async fn stats(State(shared): State<Shared>) -> Response {
    json(StatusCode::OK, &JobStats::from(shared.queue.stats()))
}

/// `GET /v1/jobs/{id}`.
pub(super) async fn one(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    grant: Option<Extension<Grant>>,
    headers: HeaderMap,
) -> Response {
    let found = reached(&shared, &id, grant.as_deref()).and_then(|id| described(&shared, id));
    answer(found.map(|job| json(StatusCode::OK, &job)), &headers)
}

/// `POST /v1/jobs/{id}/cancel`.
pub(super) async fn cancel(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    grant: Option<Extension<Grant>>,
    headers: HeaderMap,
) -> Response {
    let cancelled = async {
        let id = reached(&shared, &id, grant.as_deref())?;
        let status = shared.queue.cancel(id).await.map_err(|error| problem(&error))?;
        // A running job ends soon, and may still complete.
        let code = if status.is_ended() { StatusCode::OK } else { StatusCode::ACCEPTED };
        Ok(json(code, &described(&shared, id)?))
    };
    answer(cancelled.await, &headers)
}

/// `POST /v1/jobs/{id}/requeue`.
pub(super) async fn requeue(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    let queued = async {
        let id = parse(&id)?;
        shared.queue.queue_again(id).await.map_err(|error| problem(&error))?;
        Ok(json(StatusCode::ACCEPTED, &described(&shared, id)?))
    };
    answer(queued.await, &headers)
}

/// `DELETE /v1/jobs/{id}`.
pub(super) async fn remove(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    let removed = async {
        let id = parse(&id)?;
        shared.queue.forget(id).await.map_err(|error| problem(&error))?;
        Ok(no_content())
    };
    answer(removed.await, &headers)
}

/// Parses an id in a path.
fn parse(id: &str) -> Result<JobId, Problem> {
    JobId::parse(id).ok_or_else(|| Problem::not_found("no job has this id"))
}

/// Parses the id of a job that the key of a request reaches. Any other job does not exist for a key that is
/// limited to some names.
///
/// * `grant`: what the key permits; `None` if no key is required.
pub(super) fn reached(shared: &Shared, id: &str, grant: Option<&Grant>) -> Result<JobId, Problem> {
    let parsed = parse(id)?;
    let Some(grant) = grant.filter(|grant| grant.is_limited()) else { return Ok(parsed) };
    let names = |job: JobView| {
        let order = Order::decode(&job.order)?;
        let method = Method::from_bytes(order.method.as_bytes()).ok()?;
        let target: Uri = order.target.parse().ok()?;
        Some(permits_target(grant, &method, &target))
    };
    match shared.queue.job(parsed).and_then(names) {
        Some(true) => Ok(parsed),
        _ => Err(problem(&JobError::Unknown(parsed))),
    }
}

/// What is known of a job, with its result.
pub(super) fn described(shared: &Shared, id: JobId) -> Result<JobAnswer, Problem> {
    let view = shared.queue.job(id).ok_or_else(|| problem(&JobError::Unknown(id)))?;
    let result = shared.queue.result(id).map_err(|error| problem(&error))?;
    let result = result.filter(|result| !result.is_empty());
    let result = result.and_then(|result| String::from_utf8(result.to_vec()).ok());
    let mut job = JobAnswer::from(view);
    // Written by the worker, as JSON.
    job.result = result.and_then(|result| RawValue::from_string(result).ok());
    Ok(job)
}

fn problem(error: &JobError) -> Problem {
    let text = error.to_string();
    match error {
        JobError::Unknown(_) => Problem::not_found(text),
        JobError::Status { .. } => Problem::new(StatusCode::CONFLICT, "job_status", text),
        JobError::Full { .. } => Problem::new(StatusCode::TOO_MANY_REQUESTS, "jobs_full", text),
        JobError::Closed => Problem::closed(text),
        error => {
            tracing::error!(error = %forebay_base::error_chain::chain(error), "a job cannot be changed");
            Problem::closed("cannot read or write the record of jobs; see the server's log")
        }
    }
}
