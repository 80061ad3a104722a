//! One document over HTTP: read with its entity tag, replaced, merged, deleted; and a namespace dropped.
//!
//! Invariants: a document is answered and accepted byte for byte, and its entity tag is the SHA-256 of its
//! bytes; a namespace is dropped only by a request that names it twice.

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use forebay_intake::answer::to_json;
use forebay_intake::digest::Digest;
use forebay_intake::documents::change::{ChangeRequest, NewContent};
use forebay_intake::names::Namespace;
use forebay_intake::upload::Source as _;
use forebay_intake::{Intake, IntakeError};
use http::header::{CONTENT_TYPE, ETAG};
use http::request::Parts;
use http::{HeaderMap, Method};
use utoipa::openapi::path::Parameter;

use super::body::PacedBody;
use super::condition::{self, etag};
use super::content::Content;
use super::openapi::{
    BUSY, CONDITION, FULL, KEY_IN_USE, KEY_REUSED, STORAGE, TOO_LARGE, idempotency_key,
};
use super::{Turn, claim, json, problem, query, unknown_option};
use crate::answer::{no_content, unchanged};
use crate::describe::{JsonObject, Kind, Operation, header, needed, path};

/// The media types of a merge patch. A request without one is taken for it.
const MERGE_PATCH: [&str; 2] = ["application/merge-patch+json", "application/json"];

pub(super) async fn get(
    State(intake): State<Intake>,
    Path((namespace, id)): Path<(String, String)>,
    request: Request,
) -> Response {
    let headers = request.headers();
    let found = get_document(&intake, &namespace, &id, headers).await;
    found.unwrap_or_else(|error| problem::answer(&error, headers))
}

async fn get_document(
    intake: &Intake,
    namespace: &str,
    id: &str,
    headers: &HeaderMap,
) -> Result<Response, IntakeError> {
    let (namespace, id) = document_id(namespace, id)?;
    let stored = intake.document(&namespace, id).await?;
    let stored = stored.ok_or_else(|| missing(&namespace))?;
    let digest = Digest::of(&stored.raw);
    condition::check_tag(headers, digest)?;
    let mut response = if condition::has_tag(headers, digest) {
        unchanged(Response::default())
    } else {
        json(200, stored.raw)
    };
    response.headers_mut().insert(ETAG, etag(digest));
    Ok(response)
}

pub(super) async fn change(
    State(intake): State<Intake>,
    Path((namespace, id)): Path<(String, String)>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let changed = change_document(&intake, (&namespace, &id), &parts, body).await;
    changed.unwrap_or_else(|error| problem::answer(&error, &parts.headers))
}

async fn change_document(
    intake: &Intake,
    (namespace, id): (&str, &str),
    parts: &Parts,
    body: Body,
) -> Result<Response, IntakeError> {
    let (namespace, id) = document_id(namespace, id)?;
    no_options(parts)?;
    let condition = condition::of_write(&parts.headers)?;
    let is_patch = parts.method == Method::PATCH;
    if is_patch {
        check_kind(&parts.headers)?;
    }
    let keyed = claim(intake, &parts.headers).await?;
    let bytes = read(intake, &parts.headers, body).await?;
    let method = parts.method.as_str().as_bytes();
    let digest = Digest::of(&bytes);
    let request: [&[u8]; 3] = [method, parts.uri.path().as_bytes(), &digest.0];
    let print = || condition::fingerprint(&request, &parts.headers);
    let (idempotency, _held) = match keyed.turn(print)? {
        Turn::Act(record, held) => (record, held),
        Turn::Replay(answer) => return Ok(answer),
    };
    let request = ChangeRequest { namespace, id, condition, idempotency };
    let bytes = bytes.into();
    let content = if is_patch { NewContent::Merged(bytes) } else { NewContent::Replaced(bytes) };
    let changed = intake.change_document(request, content).await?;
    let mut response = json(200, to_json(&changed));
    if let Some(digest) = Digest::from_hex(&changed.sha256) {
        response.headers_mut().insert(ETAG, etag(digest));
    }
    Ok(response)
}

pub(super) async fn delete(
    State(intake): State<Intake>,
    Path((namespace, id)): Path<(String, String)>,
    request: Request,
) -> Response {
    let (parts, _) = request.into_parts();
    let deleted = delete_document(&intake, &namespace, &id, &parts).await;
    deleted.unwrap_or_else(|error| problem::answer(&error, &parts.headers))
}

async fn delete_document(
    intake: &Intake,
    namespace: &str,
    id: &str,
    parts: &Parts,
) -> Result<Response, IntakeError> {
    let (namespace, id) = document_id(namespace, id)?;
    no_options(parts)?;
    let condition = condition::of_write(&parts.headers)?;
    let keyed = claim(intake, &parts.headers).await?;
    let (idempotency, _held) = match keyed.turn(|| deletion(parts))? {
        Turn::Act(record, held) => (record, held),
        Turn::Replay(answer) => return Ok(answer),
    };
    intake.delete_document(ChangeRequest { namespace, id, condition, idempotency }).await?;
    Ok(no_content())
}

pub(super) async fn drop_namespace(
    State(intake): State<Intake>,
    Path(namespace): Path<String>,
    request: Request,
) -> Response {
    let (parts, _) = request.into_parts();
    let dropped = drop_documents(&intake, &namespace, &parts).await;
    dropped.unwrap_or_else(|error| problem::answer(&error, &parts.headers))
}

async fn drop_documents(
    intake: &Intake,
    namespace: &str,
    parts: &Parts,
) -> Result<Response, IntakeError> {
    let namespace = Namespace::parse(namespace)?;
    let mut confirmed = None;
    for (name, value) in query(&parts.uri) {
        match name.as_str() {
            "confirm" => confirmed = Some(value),
            _ => return Err(unknown_option(&name, "confirm")),
        }
    }
    if confirmed.as_deref() != Some(namespace.as_str()) {
        let message = format!(
            "dropping a namespace deletes all its documents: repeat its name, with ?confirm={namespace}"
        );
        return Err(IntakeError::rejected("confirm", message));
    }
    let keyed = claim(intake, &parts.headers).await?;
    let (idempotency, _held) = match keyed.turn(|| deletion(parts))? {
        Turn::Act(record, held) => (record, held),
        Turn::Replay(answer) => return Ok(answer),
    };
    intake.drop_documents(&namespace, idempotency).await?;
    Ok(no_content())
}

/// The fingerprint of a request that deletes.
fn deletion(parts: &Parts) -> Digest {
    let query = parts.uri.query().unwrap_or_default();
    let request: [&[u8]; 3] = [b"DELETE", parts.uri.path().as_bytes(), query.as_bytes()];
    condition::fingerprint(&request, &parts.headers)
}

fn no_options(parts: &Parts) -> Result<(), IntakeError> {
    match query(&parts.uri).first() {
        Some((name, _)) => Err(unknown_option(name, "none")),
        None => Ok(()),
    }
}

fn document_id(namespace: &str, id: &str) -> Result<(Namespace, u64), IntakeError> {
    let namespace = Namespace::parse(namespace)?;
    match id.parse() {
        Ok(id) => Ok((namespace, id)),
        Err(_) => Err(missing(&namespace)),
    }
}

fn missing(namespace: &Namespace) -> IntakeError {
    IntakeError::NotFound { what: format!("document with this id in namespace {namespace}") }
}

fn check_kind(headers: &HeaderMap) -> Result<(), IntakeError> {
    let Some(kind) = headers.get(CONTENT_TYPE) else { return Ok(()) };
    let kind = kind.to_str().unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if MERGE_PATCH.iter().any(|known| kind.eq_ignore_ascii_case(known)) {
        return Ok(());
    }
    let message = "a document is changed by a JSON merge patch, application/merge-patch+json";
    Err(IntakeError::rejected("media_type", message))
}

/// Reads a body that is one document, or a patch of one.
async fn read(intake: &Intake, headers: &HeaderMap, body: Body) -> Result<Vec<u8>, IntakeError> {
    let size_max = intake.limits().document_size_max;
    let mut body = Content::new(headers, PacedBody::new(body, intake.limits()))?;
    let mut read = Vec::new();
    while let Some(bytes) = body.next().await? {
        if read.len() + bytes.len() > size_max {
            let limit = size_max as u64;
            return Err(IntakeError::TooLarge { what: "the document", limit });
        }
        read.extend_from_slice(&bytes);
    }
    Ok(read)
}

const TAG: &str = "The SHA-256 of the document's bytes, in quotation marks";

fn parameters() -> [Parameter; 2] {
    [path("namespace", "The namespace"), path("id", "The document's id")]
}

fn conditions() -> [Parameter; 4] {
    [
        idempotency_key(),
        header("If-Match", "ETags: only if the document has one of them"),
        header("If-None-Match", "ETags: only if the document has none of them"),
        header("If-Unmodified-Since", "Date: only if the document was not received later"),
    ]
}

pub(super) fn described_get() -> Operation {
    Operation::new("documents", "get_document", "Get one document, byte for byte")
        .parameters(parameters())
        .parameters([
            header("If-None-Match", "ETags that the client has"),
            header("If-Match", "ETags: only if the document has one of them"),
        ])
        .json::<JsonObject>(200, "The document")
        .header(200, "ETag", TAG)
        .empty(304, "Unchanged")
        .header(304, "ETag", TAG)
        .problems(&[
            (400, "The name is invalid"),
            (404, "There is no such document"),
            CONDITION,
            STORAGE,
        ])
}

fn described_change(id: &str, summary: &str) -> Operation {
    Operation::new("documents", id, summary)
        .parameters(parameters())
        .parameters(conditions())
        .json::<forebay_intake::documents::change::ChangedDocument>(
            200,
            "The document was changed. It keeps its id",
        )
        .header(200, "ETag", TAG)
        .problems(&[
            (400, "A parameter is invalid, or the body is no document"),
            (404, "There is no such document"),
            (408, "The body was too slow"),
            KEY_IN_USE,
            CONDITION,
            TOO_LARGE,
            (415, "The body's media type or encoding is not supported"),
            KEY_REUSED,
            BUSY,
            STORAGE,
            FULL,
        ])
}

pub(super) fn described_put() -> Operation {
    described_change("replace_document", "Replace a document")
        .takes::<JsonObject>(true, "The document, which is stored byte for byte")
}

pub(super) fn described_patch() -> Operation {
    described_change("merge_document", "Merge a JSON merge patch into a document (RFC 7396)")
        .text("What the patch does not name is kept byte for byte; what is null in it is removed.")
        .takes_also::<JsonObject>(true, "The patch", &["application/merge-patch+json"])
}

pub(super) fn described_delete() -> Operation {
    Operation::new("documents", "delete_document", "Delete a document")
        .text("Its id is not given to another one.")
        .parameters(parameters())
        .parameters(conditions())
        .empty(204, "The document was deleted")
        .problems(&[
            (400, "A parameter is invalid"),
            (404, "There is no such document"),
            KEY_IN_USE,
            CONDITION,
            KEY_REUSED,
            BUSY,
            STORAGE,
            FULL,
        ])
}

pub(super) fn described_drop() -> Operation {
    Operation::new("documents", "drop_documents", "Drop a namespace with all its documents")
        .text("Documents that are stored under the name later begin with a new decision and further ids.")
        .parameter(path("namespace", "The namespace"))
        .parameters([
            needed("confirm", Kind::Text, "The namespace once more"),
            idempotency_key(),
        ])
        .empty(204, "The namespace was dropped")
        .problems(&[
            (400, "A parameter is invalid, or the name is not repeated"),
            (404, "There is no such namespace"),
            KEY_IN_USE,
            KEY_REUSED,
            BUSY,
            STORAGE,
            FULL,
        ])
}
