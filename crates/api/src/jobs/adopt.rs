//! Makes jobs of work that requests start at once, so that one queue shows, cancels and repeats all work.
//!
//! Invariants:
//! - What a route refuses leaves no job, and is answered as without a queue.
//! - 202 is sent once the job is as durable as configured. Work that cannot be recorded is cancelled.
//! - Whatever becomes of the client, work that started is recorded or cancelled.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use forebay_jobs::{NewJob, Outcome, Priority, Running, Submitted, Worker};
use http::header::{CONTENT_LENGTH, LINK};
use http::{HeaderValue, StatusCode};
use http_body_util::BodyExt as _;
use parking_lot::Mutex;

use super::Shared;
use super::accept::{finish, half, not_stored, receive, refused};
use super::order::{Order, WORK};
use super::worker::follow;
use crate::problem::Problem;
use crate::work::{RUNNING, Scheduled, Started, Work};

/// Passes a request on, and makes a job of the work that it starts.
pub(super) async fn adopt(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    // A separate task: it is not dropped with the connection.
    let headers = request.headers().clone();
    let adopted = tokio::spawn(async move {
        let headers = request.headers().clone();
        let adopted = start(&shared, request, next).await;
        adopted.unwrap_or_else(|problem| problem.answer(&headers))
    });
    match adopted.await {
        Ok(response) => response,
        Err(error) => match error.try_into_panic() {
            // As if it had panicked here: the server answers, and counts.
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Problem::closed("the server is shutting down").answer(&headers),
        },
    }
}

async fn start(shared: &Shared, request: Request, next: Next) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let order = Order::received(parts.uri.path(), &parts)?;
    shared.queue.check_adopt().map_err(|error| refused(&error))?;
    let declared = parts.headers.get(CONTENT_LENGTH).and_then(|size| size.to_str().ok());
    let declared = declared.and_then(|size| size.parse().ok()).unwrap_or(0);
    shared.queue.check_body(declared).map_err(|error| not_stored(&error))?;
    let is_scheduled = parts.extensions.get::<Scheduled>().is_some();
    if is_scheduled && shared.queue.open_orders().iter().any(|open| order.is_same_work(open)) {
        let text = "a job for the same work waits or runs";
        return Err(Problem::new(StatusCode::CONFLICT, RUNNING, text));
    }
    // No more of the body is kept than the route reads, which has a limit.
    let read = Arc::new(Mutex::new(Vec::new()));
    let copy = Arc::clone(&read);
    let body = Body::new(body.map_frame(move |frame| {
        if let Some(bytes) = frame.data_ref() {
            copy.lock().extend_from_slice(bytes);
        }
        frame
    }));
    let mut response = next.run(Request::from_parts(parts, body)).await;
    let Some(Started(work)) = response.extensions_mut().remove() else { return Ok(response) };
    let read = std::mem::take(&mut *read.lock());
    // Of a schedule, the last run is known. The others are in the record of runs.
    let target = order.target.as_bytes();
    let key = is_scheduled.then(|| (half(&[b"schedule", target]), half(&[target])));
    let recorded = record(shared, &order, key, read.into(), Arc::clone(&work)).await;
    let Submitted { id, .. } = recorded.inspect_err(|_| work.cancel())?;
    if let Ok(link) = HeaderValue::try_from(format!("</v1/jobs/{id}>; rel=\"monitor\"")) {
        response.headers_mut().insert(LINK, link);
    }
    Ok(response)
}

async fn record(
    shared: &Shared,
    order: &Order,
    key: Option<([u8; 16], [u8; 16])>,
    body: Bytes,
    work: Arc<dyn Work>,
) -> Result<Submitted, Problem> {
    let body = finish(receive(shared.queue.body(), body.into()).await?).await?;
    let new = NewJob {
        work: WORK.to_owned(),
        priority: Priority::Normal,
        key,
        order: order.encode(),
        body: Some(body),
    };
    let adopted = shared.queue.adopt(new, Arc::new(Follower(work))).await;
    adopted.map_err(|error| refused(&error))
}

/// Waits for the end of work that has begun.
struct Follower(Arc<dyn Work>);

impl Worker for Follower {
    fn run(&self, job: Running) -> Pin<Box<dyn Future<Output = Outcome> + Send>> {
        let work = Arc::clone(&self.0);
        Box::pin(async move { follow(&job, work).await })
    }
}

#[cfg(test)]
mod tests;
