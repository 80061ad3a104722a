//! The intake over HTTP: routes, and what all handlers share.
//!
//! `docs/formats/http-api.md` is the contract with clients.
//!
//! Invariants: every body is read through `body::PacedBody` and so has limits in size, time and
//! memory; every error is JSON with a stable code; nothing from outside reaches a header unescaped;
//! a file that a browser could execute is only ever served as an attachment in a sandbox.

mod answers;
mod batch;
mod blobs;
mod body;
mod changes;
mod condition;
mod content;
mod database;
mod details;
mod document;
mod documents;
mod download;
mod duplicates;
mod file_namespaces;
mod files;
mod follow;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod json_body;
mod openapi;
mod parts;
mod problem;
mod range;
mod schema;
mod search;
mod sending;
mod statistics;
mod store;
mod transfers;
mod versions;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::FromRef;
use axum::middleware::from_fn;
use axum::response::Response;
use axum::routing::{get, post, put};
use http::{HeaderMap, HeaderValue, StatusCode};

use forebay_intake::digest::Digest;
use forebay_intake::format::IdempotencyRecord;
use forebay_intake::request::{Claim, HeldKey, RequestKey};
use forebay_intake::rules::{Protocol, Sender};
use forebay_intake::{Intake, IntakeError};
pub use sending::Sending;
use tokio::sync::Semaphore;

use crate::answer::{encoded, pairs};
use crate::idempotency;
use crate::keys::SentBy;

/// Maximum size of the answer to a request of several parts that is remembered as a whole, in bytes.
const REMEMBERED_MAX: usize = 4 << 20;

/// State of every handler.
#[derive(Clone)]
struct Served {
    intake: Intake,
    sending: Sending,
    /// Clients that may follow documents.
    followers: Arc<Semaphore>,
}

impl FromRef<Served> for Intake {
    fn from_ref(served: &Served) -> Self {
        served.intake.clone()
    }
}

/// Returns the routes of an intake, with full paths, ready to serve.
pub fn router(intake: &Intake) -> Router {
    let not_remembered = Router::new()
        .route("/v1/namespaces", get(file_namespaces::list))
        .route(
            "/v1/namespaces/{namespace}",
            get(file_namespaces::get).put(file_namespaces::put).delete(file_namespaces::delete),
        )
        .route("/v1/blobs", get(blobs::status))
        .route("/v1/blobs/move", post(blobs::begin_move))
        .route("/v1/database", get(database::status))
        .route("/v1/database/replay", post(database::replay))
        .route("/v1/documents/{namespace}/schema", get(schema::get).post(schema::decide))
        .route_layer(from_fn(idempotency::refuse));
    not_remembered
        .route("/v1/files", get(files::list))
        .route("/v1/files/search", get(search::search))
        .route("/v1/files/{id}", get(download::by_id))
        .route(
            "/v1/files/{namespace}/{*name}",
            put(files::put)
                .get(download::by_name)
                .post(versions::restore)
                .patch(details::patch)
                .delete(files::delete),
        )
        .route("/v1/files/duplicates", get(duplicates::list))
        .route("/v1/files/statistics", get(statistics::get))
        .route("/v1/files/copy", post(transfers::copy))
        .route("/v1/files/move", post(transfers::rename))
        .route("/v1/files/delete", post(transfers::delete))
        .route("/v1/files/change", post(changes::change))
        .route("/v1/ingest", post(batch::ingest))
        .route("/v1/documents", get(documents::namespaces))
        .route(
            "/v1/documents/{namespace}",
            post(documents::post).get(documents::page).delete(document::drop_namespace),
        )
        .route(
            "/v1/documents/{namespace}/{id}",
            get(document::get)
                .put(document::change)
                .patch(document::change)
                .delete(document::delete),
        )
        .with_state(Served {
            intake: intake.clone(),
            sending: Sending::default(),
            followers: Arc::new(Semaphore::new(follow::FOLLOWERS_MAX)),
        })
}

pub(crate) use body::PacedBody;
pub(crate) use openapi::with_form;
pub(crate) use problem::{answer as refuse, classify, may_pass};

/// Returns the description of the routes.
#[must_use]
pub fn openapi() -> utoipa::openapi::OpenApi {
    openapi::document()
}

/// A JSON answer.
fn json(status: u16, body: Vec<u8>) -> Response {
    encoded(StatusCode::from_u16(status).unwrap_or(StatusCode::OK), body)
}

/// A remembered answer. One without a body consists of its status alone.
fn replayed(status: u16, answer: Vec<u8>) -> Response {
    let mut response = if answer.is_empty() {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
        response
    } else {
        json(status, answer)
    };
    response.headers_mut().insert("idempotent-replay", HeaderValue::from_static("true"));
    response
}

/// The result of looking up an `Idempotency-Key` header.
enum Keyed {
    /// There is no header.
    No,
    /// The key is new and held.
    Held(HeldKey),
    /// The request was answered before: the body is read only for its fingerprint.
    Answered { fingerprint: Digest, status: u16, answer: Vec<u8> },
}

/// What a request does once its fingerprint is known.
enum Turn {
    /// Nothing: it was answered before, and this is sent again.
    Replay(Response),
    /// It is carried out, and the record belongs into its log entry. The key is held until it is dropped.
    Act(Option<IdempotencyRecord>, Option<HeldKey>),
}

impl Keyed {
    /// Whether the request was answered before.
    fn is_answered(&self) -> bool {
        matches!(self, Self::Answered { .. })
    }

    /// Compares the request with the one that its key belongs to.
    ///
    /// * `print`: computes its fingerprint; not called without a key.
    ///
    /// # Errors
    /// [`IntakeError::KeyReused`]: they differ.
    fn turn(self, print: impl FnOnce() -> Digest) -> Result<Turn, IntakeError> {
        match self {
            Self::No => Ok(Turn::Act(None, None)),
            Self::Held(held) => Ok(Turn::Act(Some(held.record(print())), Some(held))),
            Self::Answered { fingerprint, status, answer } if fingerprint == print() => {
                Ok(Turn::Replay(replayed(status, answer)))
            }
            Self::Answered { .. } => Err(IntakeError::KeyReused),
        }
    }
}

/// What a part of a request does once its fingerprint is known.
enum PartTurn {
    /// Nothing: it was done before, and this was remembered.
    Answered(Vec<u8>),
    /// It is carried out, and the record belongs into its log entry. The key is held until it is dropped.
    Act(Option<IdempotencyRecord>, Option<HeldKey>),
}

/// Compares a part of a request with the one that its key belongs to.
///
/// * `part`: its key, from [`RequestKey::part`]; `None` if the request has none.
/// * `print`: its fingerprint.
///
/// # Errors
/// [`IntakeError::KeyReused`]: they differ. Those of [`Intake::claim`].
async fn part_turn(
    intake: &Intake,
    part: Option<Digest>,
    print: Digest,
) -> Result<PartTurn, IntakeError> {
    let Some(part) = part else { return Ok(PartTurn::Act(None, None)) };
    match intake.claim(part).await? {
        Claim::Answered { fingerprint, answer, .. } if fingerprint == print => {
            Ok(PartTurn::Answered(answer))
        }
        Claim::Answered { .. } => Err(IntakeError::KeyReused),
        Claim::New(held) => Ok(PartTurn::Act(Some(held.record(print)), Some(held))),
    }
}

/// Remembers the answer to a request of several parts, each of which is remembered by itself. A longer one
/// than [`REMEMBERED_MAX`] is put together again from its parts.
async fn remember(
    intake: &Intake,
    record: IdempotencyRecord,
    status: u16,
    answer: &[u8],
) -> Result<(), IntakeError> {
    if answer.len() > REMEMBERED_MAX {
        return Ok(());
    }
    intake.remember(record, status, answer).await
}

fn request_key(headers: &HeaderMap) -> Result<Option<RequestKey>, IntakeError> {
    let key = idempotency::key(headers);
    let key = key.map_err(|text| IntakeError::rejected("idempotency_key", text))?;
    key.map(|value| RequestKey::parse(value.as_bytes())).transpose()
}

async fn claim(intake: &Intake, headers: &HeaderMap) -> Result<Keyed, IntakeError> {
    let Some(key) = request_key(headers)? else { return Ok(Keyed::No) };
    Ok(match intake.claim(key.digest()).await? {
        Claim::New(held) => Keyed::Held(held),
        Claim::Answered { fingerprint, status, answer } => {
            Keyed::Answered { fingerprint, status, answer }
        }
    })
}

/// Where a file of a request comes from.
fn sender(extensions: &http::Extensions) -> Sender {
    Sender { protocol: Protocol::Http, key: SentBy::of(extensions).map(|SentBy(id)| id) }
}

/// The declared size of a request's body.
fn declared_size(headers: &HeaderMap) -> Option<u64> {
    headers.get(http::header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The parameters of a query string, decoded. Repeated ones were refused, unless they are lists.
fn query(uri: &http::Uri) -> Vec<(String, String)> {
    let text = |value: Vec<u8>| String::from_utf8_lossy(&value).into_owned();
    pairs(uri).into_iter().map(|(name, value)| (name, text(value))).collect()
}

fn unknown_option(name: &str, known: &str) -> IntakeError {
    let name: String = name.chars().take(60).collect();
    IntakeError::rejected(
        "query",
        format!("unknown query parameter {name:?}; this route accepts {known}"),
    )
}

fn bad_option(name: &str, expected: &str) -> IntakeError {
    IntakeError::rejected("query", format!("query parameter {name:?} must be {expected}"))
}

/// Reads a page size.
fn page_limit(value: &str) -> Result<usize, IntakeError> {
    match value.parse() {
        Ok(limit @ 1..=1_000) => Ok(limit),
        _ => Err(bad_option("limit", "a number from 1 to 1000")),
    }
}

fn flag(name: &str, value: &str) -> Result<bool, IntakeError> {
    match value {
        "" | "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(bad_option(name, "true or false")),
    }
}
