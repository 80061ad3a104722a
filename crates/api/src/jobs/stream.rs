//! `GET /v1/jobs/{id}/events`: what happens to a job, as server-sent events.
//!
//! ```text
//! retry: 2000
//! id: 3                  the number of the change
//! event: status          or `progress`, without an id
//! data: {"job_id":...}   as GET /v1/jobs/{id} answers
//! ```
//!
//! Invariants: the first event is the current state, so nothing is missed by connecting late; the last one
//! is the end of the job, and a client that has seen it gets 204, which stops it from connecting again.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use bytes::Bytes;
use forebay_jobs::{Change, JobId};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::Shared;
use super::routes::{described, parse};
use crate::answer::{answer, line};
use crate::problem::Problem;

/// How often progress is sent.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);
/// Number of these without news after which a comment is sent.
const QUIET_MAX: u32 = 15;

pub(super) async fn events(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    answer(parse(&id).and_then(|id| follow(shared, id, &headers)), &headers)
}

fn follow(shared: Shared, id: JobId, headers: &HeaderMap) -> Result<Response, Problem> {
    // Before the state is read, so that no change is between the two.
    let changes = shared.queue.changes();
    described(&shared, id)?;
    let seen =
        headers.get("last-event-id").and_then(|seen| seen.to_str().ok()?.parse::<u64>().ok());
    let view = shared.queue.job(id);
    if view.is_some_and(|job| job.status.is_ended() && seen.is_some_and(|seen| seen >= job.changes))
    {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        return Ok(response);
    }
    let follower = Follower { shared, id, changes, sent: None, quiet: 0 };
    let events = futures_util::stream::unfold(Some(follower), |follower| async move {
        let mut follower = follower?;
        let (text, is_last) = follower.next().await?;
        let event = Ok::<_, Infallible>(Bytes::from(text));
        Some((event, (!is_last).then_some(follower)))
    });
    let mut response = Response::new(Body::from_stream(events));
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
                    "status" => format!("id: {}\n", view.changes),
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
