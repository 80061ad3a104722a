//! `GET /v1/jobs/{id}/events`: what happens to a job, as server-sent events.
//!
//! ```text
//! retry: 2000
//! id: 3                  the number of the change, or end- and its time
//! event: status          or `progress`, without an id
//! data: {"job_id":...}   as GET /v1/jobs/{id} answers
//! ```
//!
//! Invariants: the first event is the current state, so nothing is missed by connecting late; the last one
//! is the end of the job, and a client that has seen it gets 204, which stops it from connecting again.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use bytes::Bytes;
use forebay_jobs::{Change, JobId, JobView};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::Shared;
use super::routes::{described, reached};
use crate::answer::{answer, line, no_content};
use crate::keys::Grant;
use crate::problem::Problem;
use crate::serve::Endless;

/// How often progress is sent.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);
/// Number of these without news after which a comment is sent.
const QUIET_MAX: u32 = 15;

pub(super) async fn events(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    grant: Option<Extension<Grant>>,
    headers: HeaderMap,
) -> Response {
    let id = reached(&shared, &id, grant.as_deref());
    answer(id.and_then(|id| follow(shared, id, &headers)), &headers)
}

fn follow(shared: Shared, id: JobId, headers: &HeaderMap) -> Result<Response, Problem> {
    // Before the state is read, so that no change is between the two.
    let changes = shared.queue.changes();
    described(&shared, id)?;
    let seen = headers.get("last-event-id").and_then(|seen| seen.to_str().ok());
    let view = shared.queue.job(id);
    if view.is_some_and(|job| job.status.is_ended() && seen == Some(event_id(&job).as_str())) {
        return Ok(no_content());
    }
    let Ok(permit) = Arc::clone(&shared.followers).try_acquire_owned() else {
        let text = "too many clients follow jobs";
        return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, "busy", text));
    };
    let follower = Follower { shared, id, changes, sent: None, quiet: 0, _permit: permit };
    let events = futures_util::stream::unfold(Some(follower), |follower| async move {
        let mut follower = follower?;
        let (text, is_last) = follower.next().await?;
        let event = Ok::<_, Infallible>(Bytes::from(text));
        Some((event, (!is_last).then_some(follower)))
    });
    let mut response = Response::new(Body::from_stream(events));
    response.extensions_mut().insert(Endless);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

struct Follower {
    shared: Shared,
    id: JobId,
    changes: Receiver<Change>,
    /// The number of the last change that was sent, and the progress.
    sent: Option<(u64, Option<(u64, u64)>)>,
    quiet: u32,
    _permit: OwnedSemaphorePermit,
}

/// The id of the event of a change. That of the end is the same after a restart, which counts the others again.
fn event_id(job: &JobView) -> String {
    match job.ended_ms {
        Some(ended_ms) => format!("end-{ended_ms}"),
        None => job.changes.to_string(),
    }
}

impl Follower {
    /// The next event, and whether it is the last; `None` if the job is forgotten or the server stops.
    async fn next(&mut self) -> Option<(String, bool)> {
        loop {
            let view = self.shared.queue.job(self.id)?;
            let is_ended = view.status.is_ended();
            let news = match self.sent {
                Some((number, _)) if number != view.changes => Some("status"),
                Some((_, progress)) if progress != view.progress => Some("progress"),
                Some(_) => None,
                None => Some("status"),
            };
            if let Some(event) = news {
                let first = if self.sent.is_none() { "retry: 2000\n" } else { "" };
                let id = match event {
                    "status" => format!("id: {}\n", event_id(&view)),
                    _ => String::new(),
                };
                self.sent = Some((view.changes, view.progress));
                self.quiet = 0;
                let job = described(&self.shared, self.id).ok()?;
                let text = format!("{first}{id}event: {event}\ndata: {}\n\n", line(&job));
                return Some((text, is_ended));
            }
            if self.quiet >= QUIET_MAX {
                self.quiet = 0;
                return Some((": waiting\n\n".to_owned(), false));
            }
            self.quiet += 1;
            let deadline = tokio::time::sleep(PROGRESS_EVERY);
            tokio::pin!(deadline);
            loop {
                tokio::select! {
                    () = &mut deadline => break,
                    () = self.shared.closing() => return None,
                    change = self.changes.recv() => match change {
                        Ok(change) if change.id != self.id => {}
                        Ok(_) | Err(RecvError::Lagged(_)) => break,
                        Err(RecvError::Closed) => return None,
                    },
                }
            }
        }
    }
}
