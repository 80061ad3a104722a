//! Makes a job of a request that asks for one: `?async=true`, or `POST /v1/ingest/async`.
//!
//! Invariants:
//! - 202 is sent once the body and the job are as durable as configured.
//! - A request that is sent again with its `Idempotency-Key` gets the same job, and one with another body
//!   or target none.
//! - Whether there is room is checked before the body is read.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use forebay_jobs::{BodyError, BodyWriter, NewJob, Priority, SubmitError, Submitted};
use http::header::{CONTENT_LENGTH, LOCATION};
use http::{HeaderValue, Method, StatusCode};
use http_body_util::BodyExt as _;
use sha2::{Digest as _, Sha256};

use super::Shared;
use super::answers::Accepted;
use super::order::{OWN, Order, WORK, target};
use crate::answer::{answer, json};
use crate::idempotency;
use crate::problem::Problem;
use crate::query;

/// The path at which every request is a job, and the one that the job has.
pub(super) const INGEST_ASYNC: &str = "/v1/ingest/async";
const INGEST: &str = "/v1/ingest";

/// Accepts a request as a job if it asks for that; passes on any other.
pub(super) async fn accept(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    match wanted(&request) {
        Ok(false) => next.run(without_own_parameters(request)).await,
        Ok(true) => {
            let path = request.uri().path().to_owned();
            submit(shared, path, request).await
        }
        Err(problem) => problem.answer(request.headers()),
    }
}

/// `POST /v1/ingest/async`.
pub(super) async fn ingest(State(shared): State<Shared>, request: Request) -> Response {
    submit(shared, INGEST.to_owned(), request).await
}

/// Whether requests of this method and path can be jobs: those that take data, or start long work. The API
/// description has a parameter `async` for the same.
fn can_be_job(method: &Method, path: &str) -> bool {
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    matches!(
        (method.as_str(), segments.as_slice()),
        ("PUT", ["v1", "files", _, _, ..])
            | ("POST", ["v1", "ingest"] | ["v1", "documents" | "inventories", _])
            | ("POST", ["v1", "pipelines", _, "runs"])
    )
}

/// Handlers know nothing of the parameters of jobs.
fn without_own_parameters(mut request: Request) -> Request {
    let uri = request.uri();
    let is_own =
        |query: &str| query::pairs(query).iter().any(|(name, _)| OWN.contains(&name.as_str()));
    if can_be_job(request.method(), uri.path())
        && uri.query().is_some_and(is_own)
        && let Ok(uri) = target(uri.path(), uri).parse()
    {
        *request.uri_mut() = uri;
    }
    request
}

/// Whether a request asks to be a job.
fn wanted(request: &Request) -> Result<bool, Problem> {
    if !can_be_job(request.method(), request.uri().path()) {
        return Ok(false);
    }
    let query = request.uri().query().unwrap_or_default();
    let flag = |value: Vec<u8>| match value.as_slice() {
        b"" | b"true" | b"1" => Ok(true),
        b"false" | b"0" => Ok(false),
        _ => Err(Problem::bad("query", "query parameter \"async\" must be true or false")),
    };
    let mut flags = query::values(query, "async").map(flag);
    let wanted = flags.next().transpose()?.unwrap_or(false);
    if !wanted && query::values(query, "priority").next().is_some() {
        return Err(Problem::bad("query", "query parameter \"priority\" needs async=true"));
    }
    Ok(wanted)
}

async fn submit(shared: Shared, path: String, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let accepted = async {
        let target = parts.uri.query().unwrap_or_default();
        let priority = match query::first(target, "priority") {
            None => Priority::Normal,
            Some(name) => Priority::parse(&name).ok_or_else(|| {
                Problem::bad("query", "query parameter \"priority\" must be high, normal or low")
            })?,
        };
        idempotency::key(&parts.headers).map_err(|text| Problem::bad("idempotency_key", text))?;
        let order = Order::received(&path, &parts)?;
        shared.queue.check_room().map_err(|error| refused(&error))?;
        let declared = parts.headers.get(CONTENT_LENGTH).and_then(|size| size.to_str().ok());
        let declared = declared.and_then(|size| size.parse().ok()).unwrap_or(0);
        shared.queue.check_body(declared).map_err(|error| not_stored(&error))?;
        let body = receive(shared.queue.body(), body).await?;
        let digest = body.sha256();
        let body = finish(body).await?;
        let key = order.header(idempotency::HEADER).map(|key| identity(&order, key, &digest));
        let order = order.encode();
        let new = NewJob { work: WORK.to_owned(), priority, key, order, body: Some(body) };
        shared.queue.submit(new).await.map_err(|error| refused(&error))
    };
    answer(accepted.await.map(response), &parts.headers)
}

fn response(accepted: Submitted) -> Response {
    let Submitted { id, status, is_new } = accepted;
    let url = format!("/v1/jobs/{id}");
    let location = HeaderValue::try_from(url.as_str());
    let mut response = json(
        StatusCode::ACCEPTED,
        &Accepted { job_id: id.to_string(), status: status.into(), url },
    );
    if let Ok(location) = location {
        response.headers_mut().insert(LOCATION, location);
    }
    if !is_new {
        response.headers_mut().insert("idempotent-replay", HeaderValue::from_static("true"));
    }
    response
}

/// What makes a request recognisable: its key, and the digest of what it does.
fn identity(order: &Order, key: &str, body: &[u8; 32]) -> ([u8; 16], [u8; 16]) {
    let kind = order.header("content-type").unwrap_or_default();
    let what = [order.method.as_bytes(), order.target.as_bytes(), kind.as_bytes(), body];
    (half(&[b"request", key.as_bytes()]), half(&what))
}

/// The first half of a digest of all parts.
pub(super) fn half(parts: &[&[u8]]) -> [u8; 16] {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    let digest: [u8; 32] = hasher.finalize().into();
    let mut half = [0; 16];
    half.copy_from_slice(&digest[..16]);
    half
}

/// Reads a body: a little into memory, more into a file. What has arrived is written while more arrives.
pub(super) async fn receive(to: BodyWriter, mut body: Body) -> Result<BodyWriter, Problem> {
    let (mut writing, mut gathered, mut size) = (Writing::Idle(to), Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            let error = forebay_base::error_chain::chain(&error);
            Problem::bad("body_incomplete", format!("the body was interrupted: {error}"))
        })?;
        // Trailers carry nothing that is used.
        let Ok(bytes) = frame.into_data() else { continue };
        size += bytes.len();
        gathered.push(bytes);
        if size >= GATHERED_MAX || gathered.len() >= PIECES_MAX {
            writing = writing.add(std::mem::take(&mut gathered)).await?;
            size = 0;
        }
    }
    writing.add(gathered).await?.ended().await
}

/// Bytes that are written at a time. Twice as many are held.
const GATHERED_MAX: usize = 1 << 20;

/// Pieces that are written at a time: each keeps the buffer that it was received in.
const PIECES_MAX: usize = 256;

/// A body that is being written.
enum Writing {
    Idle(BodyWriter),
    Running(forebay_base::blocking::Task<Result<BodyWriter, BodyError>>),
}

impl Writing {
    /// Adds pieces, after those before were written.
    async fn add(self, pieces: Vec<Bytes>) -> Result<Self, Problem> {
        let mut to = self.ended().await?;
        let blocks = to.blocks(pieces.iter().map(Bytes::len).sum());
        let write = move || {
            pieces.iter().try_for_each(|piece| to.write(piece))?;
            Ok(to)
        };
        if blocks {
            return Ok(Self::Running(forebay_base::blocking::spawn(write)));
        }
        write().map(Self::Idle).map_err(|error| not_stored(&error))
    }

    /// Waits until everything was written.
    async fn ended(self) -> Result<BodyWriter, Problem> {
        match self {
            Self::Idle(to) => Ok(to),
            Self::Running(task) => {
                task.await.map_err(|_| interrupted())?.map_err(|error| not_stored(&error))
            }
        }
    }
}

pub(super) async fn finish(body: BodyWriter) -> Result<forebay_jobs::ReceivedBody, Problem> {
    if !body.blocks(0) {
        return body.finish().map_err(|error| not_stored(&error));
    }
    let finished = forebay_base::blocking::spawn(move || body.finish());
    finished.await.map_err(|_| interrupted())?.map_err(|error| not_stored(&error))
}

fn interrupted() -> Problem {
    Problem::closed("storing the body was interrupted; try again")
}

/// Why a body was not stored.
pub(super) fn not_stored(error: &BodyError) -> Problem {
    match error {
        BodyError::Full { max } => Problem::new(
            StatusCode::TOO_MANY_REQUESTS,
            "jobs_full",
            format!("the bodies of waiting jobs have reached jobs.bodies_size_max ({max} bytes)"),
        ),
        BodyError::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => {
            Problem::full("there is no disk space for the body of a job")
        }
        error => {
            tracing::error!(error = %forebay_base::error_chain::chain(error), "cannot store a body");
            Problem::closed("cannot store the body of the job; see the server's log")
        }
    }
}

/// Why a job was not accepted.
pub(super) fn refused(error: &SubmitError) -> Problem {
    let text = error.to_string();
    match error {
        SubmitError::Full { .. } => Problem::new(
            StatusCode::TOO_MANY_REQUESTS,
            "jobs_full",
            format!("{text} (jobs.queued_max); try again later"),
        ),
        SubmitError::TooManyAdopted { .. } => {
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "jobs_full", text)
        }
        SubmitError::KeyReused { .. } => {
            Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "idempotency_key_reused", text)
        }
        SubmitError::TooLarge { .. } => {
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", text)
        }
        SubmitError::Closed => Problem::closed(text),
        error => {
            tracing::error!(error = %forebay_base::error_chain::chain(error), "cannot store a job");
            match error {
                SubmitError::Commit(forebay_jobs::CommitError::Stalled { .. }) => {
                    Problem::full("there is no disk space for a job")
                }
                _ => Problem::closed("cannot store the job; see the server's log"),
            }
        }
    }
}
