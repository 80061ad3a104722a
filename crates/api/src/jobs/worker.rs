//! Runs a stored request: sends it to the routes, and makes its response the result of the job.
//!
//! Invariants:
//! - Every attempt has the same `Idempotency-Key`, so what an earlier one stored is not stored twice.
//! - What may pass (no answer, 408, 429, 5xx) is tried again, everything else is final.
//! - A job that starts work which continues after the response (an index, a run of a pipeline) lasts as long
//!   as that work.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use forebay_jobs::{BodyError, BodyReader, Outcome, Running, Worker};
use http::header::LOCATION;
use http::{HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use parking_lot::Mutex;
use serde_json::Value;
use serde_json::value::RawValue;
use tower::ServiceExt as _;

use super::answers::JobResult;
use super::order::Order;
use crate::intake;
use crate::work::{RUNNING, Started, Work};

/// Maximum size of a response that is kept, in bytes.
const RESPONSE_SIZE_MAX: usize = 3 << 20;
/// How often the progress of work that continues after the response is read, and a request that has to wait for other
/// work is sent.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Why a body was not sent to its end.
enum Cut {
    Stopped,
    Unreadable(BodyError),
}

/// Sends requests to the routes of the server.
#[derive(Default)]
pub(super) struct Sender {
    /// Set once all routes are there.
    pub(super) router: OnceLock<Router>,
}

/// Runs stored requests.
pub(super) struct RequestWorker(pub(super) Arc<Sender>);

impl Worker for RequestWorker {
    fn run(&self, job: Running) -> Pin<Box<dyn Future<Output = Outcome> + Send>> {
        let sender = Arc::clone(&self.0);
        Box::pin(async move { sender.run(&job).await })
    }

    fn is_long(&self, order: &[u8]) -> bool {
        Order::decode(order).is_some_and(|order| order.starts_work())
    }
}

impl Sender {
    async fn run(&self, job: &Running) -> Outcome {
        let Some(order) = Order::decode(job.order()) else {
            return refused("the stored request is of another version", Vec::new());
        };
        loop {
            let mut answered = match self.attempt(job, &order).await {
                Ok(answered) => answered,
                Err(outcome) => return outcome,
            };
            if let Some(work) = answered.work.take() {
                return follow(job, work).await;
            }
            // Another build or run of this name is in progress: it ends.
            let waits = order.starts_work() && answered.is_in_progress() && !job.is_stopped();
            if !waits {
                return answered.outcome(answered.may_pass());
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = job.stopped() => {}
            }
        }
    }

    /// Sends the request once.
    async fn attempt(&self, job: &Running, order: &Order) -> Result<Answered, Outcome> {
        let body = job.body().map_err(|error| unreadable(&error))?;
        let cut = Arc::new(Mutex::new(None));
        let request = request(job, order, body, &cut).map_err(|error| {
            refused(&format!("the stored request is not valid: {error}"), Vec::new())
        })?;
        let answered = Answered::read(self.send(request).await).await;
        // What a route answers to a body that was cut is not the answer to the request.
        match cut.lock().take() {
            None => Ok(answered),
            Some(Cut::Stopped) => {
                let reason = "the job was stopped".to_owned();
                Err(Outcome::Again { result: Vec::new(), reason })
            }
            Some(Cut::Unreadable(error)) => Err(unreadable(&error)),
        }
    }

    async fn send(&self, request: Request<Body>) -> Response {
        match self.router.get() {
            // A router never fails.
            Some(router) => router.clone().oneshot(request).await.unwrap_or_default(),
            None => {
                let mut response = Response::new(Body::empty());
                *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
                response
            }
        }
    }
}

/// Waits for work that continues after the response, and ends it if the job is stopped.
pub(super) async fn follow(job: &Running, work: Arc<dyn Work>) -> Outcome {
    let mut ended = Arc::clone(&work).ended();
    let mut stopping = false;
    let answered = loop {
        tokio::select! {
            answered = &mut ended => break Answered::read(answered).await,
            () = job.stopped(), if !stopping => {
                stopping = true;
                work.cancel();
            }
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        let (done, total) = work.progress();
        job.progress().set_total(total);
        job.progress().set_done(done);
    };
    let json: Value = serde_json::from_slice(&answered.body).unwrap_or_default();
    match json["state"].as_str().or_else(|| json["outcome"].as_str()) {
        Some("built" | "done") => answered.outcome(false),
        Some(end) => {
            let reason = match end {
                "running" => "how it ended was not recorded",
                end => json["error"].as_str().unwrap_or(end),
            };
            Outcome::Refused { result: answered.encode(), reason: reason.to_owned() }
        }
        None => answered.outcome(answered.may_pass()),
    }
}

/// The request that is sent.
fn request(
    job: &Running,
    order: &Order,
    body: BodyReader,
    cut: &Arc<Mutex<Option<Cut>>>,
) -> Result<Request<Body>, http::Error> {
    let mut request = Request::builder().method(order.method.as_str()).uri(order.target.as_str());
    if let Some(headers) = request.headers_mut() {
        *headers = order.headers();
        headers.insert("x-request-id", id_value(job));
        headers.insert(http::header::CONTENT_LENGTH, HeaderValue::from(body.size()));
        if !headers.contains_key("idempotency-key")
            && let Ok(key) = HeaderValue::try_from(format!("job-{}", job.id()))
        {
            headers.insert("idempotency-key", key);
        }
    }
    if let (Some(extensions), Some(key)) = (request.extensions_mut(), order.sent_by()) {
        extensions.insert(key);
    }
    job.progress().set_total(body.size());
    request.body(stream(job.clone(), body, Arc::clone(cut)))
}

fn id_value(job: &Running) -> HeaderValue {
    HeaderValue::try_from(job.id().to_string()).unwrap_or(HeaderValue::from_static("job"))
}

/// The stored body, until the job should stop.
fn stream(job: Running, body: BodyReader, cut: Arc<Mutex<Option<Cut>>>) -> Body {
    let pieces = futures_util::stream::unfold(Some((body, 0)), move |state| {
        let (job, cut) = (job.clone(), Arc::clone(&cut));
        async move {
            let (mut body, sent) = state?;
            if job.is_stopped() {
                *cut.lock() = Some(Cut::Stopped);
                let error = io::Error::new(io::ErrorKind::Interrupted, "the job was stopped");
                return Some((Err(error), None));
            }
            let (body, piece) = if body.blocks() {
                forebay_base::blocking::spawn(move || {
                    let piece = body.read_next();
                    (body, piece)
                })
                .await
                .ok()?
            } else {
                let piece = body.read_next();
                (body, piece)
            };
            match piece {
                Ok(Some(bytes)) => {
                    let sent = sent + bytes.len() as u64;
                    job.progress().set_done(sent);
                    Some((Ok(bytes), Some((body, sent))))
                }
                Ok(None) => None,
                Err(error) => {
                    *cut.lock() = Some(Cut::Unreadable(error));
                    Some((Err(io::Error::other("the stored body cannot be read")), None))
                }
            }
        }
    });
    Body::from_stream(pieces)
}

/// A response that was read.
struct Answered {
    status: StatusCode,
    location: Option<String>,
    body: Vec<u8>,
    /// What continues after it.
    work: Option<Arc<dyn Work>>,
}

impl Answered {
    async fn read(response: Response) -> Self {
        let (mut parts, body) = response.into_parts();
        let work = parts.extensions.remove().map(|Started(work)| work);
        let location = parts.headers.get(LOCATION).and_then(|value| value.to_str().ok());
        let location = location.map(str::to_owned);
        let body = match Limited::new(body, RESPONSE_SIZE_MAX).collect().await {
            Ok(body) => body.to_bytes().to_vec(),
            Err(error) => {
                tracing::debug!(%error, "the response to a job is not kept");
                Vec::new()
            }
        };
        Self { status: parts.status, location, body, work }
    }

    /// Whether the request, or a part of a batch, may succeed later. What an attempt stored is not stored
    /// again.
    fn may_pass(&self) -> bool {
        let json: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        let passes = |error: &Value| error["code"].as_str().is_some_and(intake::may_pass);
        let parts = json["parts"].as_array().into_iter().flatten();
        self.status.is_server_error()
            || [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS].contains(&self.status)
            || passes(&json["error"]) && self.is_batch()
            || json["error"]["code"] == "idempotency_key_in_use"
            || self.is_batch() && parts.into_iter().any(|part| passes(&part["error"]))
    }

    /// Whether it is that to a batch of which not everything was stored.
    fn is_batch(&self) -> bool {
        [StatusCode::MULTI_STATUS, StatusCode::UNPROCESSABLE_ENTITY].contains(&self.status)
    }

    /// Whether another build or run is in progress.
    fn is_in_progress(&self) -> bool {
        let json: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        matches!(json["error"]["code"].as_str(), Some("building" | RUNNING))
    }

    /// The result of the job.
    fn encode(&self) -> Vec<u8> {
        let body: Option<Box<RawValue>> = serde_json::from_slice(&self.body).ok();
        let (status, location) = (self.status.as_u16(), self.location.clone());
        crate::answer::line(&JobResult { status, location, body }).into_bytes()
    }

    fn outcome(&self, may_pass: bool) -> Outcome {
        let result = self.encode();
        let json: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        // A batch that ended early is not done, though parts of it are.
        if self.status.is_success() && !may_pass && json["error"].is_null() {
            return Outcome::Done(result);
        }
        let message = json["error"]["message"].as_str().unwrap_or_default();
        let reason = format!("status {}: {message}", self.status.as_u16());
        if may_pass {
            Outcome::Again { result, reason }
        } else {
            Outcome::Refused { result, reason }
        }
    }
}

fn refused(reason: &str, result: Vec<u8>) -> Outcome {
    Outcome::Refused { result, reason: reason.to_owned() }
}

/// The stored body cannot be read. That of a busy disk can be later.
fn unreadable(error: &BodyError) -> Outcome {
    let reason = forebay_base::error_chain::chain(error).to_string();
    match error {
        BodyError::Io { source, .. } if source.kind() != io::ErrorKind::NotFound => {
            Outcome::Again { result: Vec::new(), reason }
        }
        BodyError::Read(_) => Outcome::Again { result: Vec::new(), reason },
        _ => refused(&reason, Vec::new()),
    }
}
