//! `GET /v1/files/duplicates`: contents with several names, and the space that storing them once saves.

use axum::extract::{Request, State};
use axum::response::Response;
use forebay_intake::answer::{FileAnswer, to_json};
use forebay_intake::digest::Digest;
use forebay_intake::names::Namespace;
use forebay_intake::{Intake, IntakeError};
use http::Uri;
use serde::Serialize;
use utoipa::ToSchema;

use super::{bad_option, json, page_limit, problem, query, unknown_option};

/// Contents in an answer by default.
const PAGE: usize = 100;

/// A content with several names.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct DuplicateContent<'a> {
    /// SHA-256 in hexadecimal.
    sha256: String,
    /// Size in bytes.
    size: u64,
    /// Number of names and versions that refer to it.
    names: u64,
    /// Bytes that further copies would take.
    saved_bytes: u64,
    /// Its first names, at most ten.
    files: Vec<FileAnswer<'a>>,
}

/// Contents with several names.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct DuplicateReport<'a> {
    /// The contents, those that save the most space first.
    contents: Vec<DuplicateContent<'a>>,
    /// Where the next page begins; null on the last.
    next_cursor: Option<String>,
}

pub(super) async fn list(State(intake): State<Intake>, request: Request) -> Response {
    match report(&intake, request.uri()).await {
        Ok(response) => response,
        Err(error) => problem::answer(&error, request.headers()),
    }
}

async fn report(intake: &Intake, uri: &Uri) -> Result<Response, IntakeError> {
    let (mut within, mut limit, mut after) = (None, PAGE, None);
    for (name, value) in query(uri) {
        match name.as_str() {
            "namespace" => within = Some(Namespace::parse(&value)?),
            "limit" => limit = page_limit(&value)?,
            "cursor" => {
                let place = place(&value);
                after = Some(place.ok_or_else(|| bad_option("cursor", "a next_cursor"))?);
            }
            _ => return Err(unknown_option(&name, "namespace, limit, cursor")),
        }
    }
    let mut found = intake.duplicates(within, limit + 1, after).await?;
    let has_more = found.len() > limit;
    found.truncate(limit);
    let last = found.last().filter(|_| has_more).map(|last| &last.content);
    let next_cursor = last.map(|last| format!("{}.{}", last.saved_bytes(), last.digest));
    let contents = found.iter().map(|duplicate| DuplicateContent {
        sha256: duplicate.content.digest.to_hex(),
        size: duplicate.content.size,
        names: duplicate.content.names,
        saved_bytes: duplicate.content.saved_bytes(),
        files: duplicate.files.iter().map(FileAnswer::of).collect(),
    });
    Ok(json(200, to_json(&DuplicateReport { contents: contents.collect(), next_cursor })))
}

/// The content after which a page begins: the bytes that it saves, and its digest.
fn place(cursor: &str) -> Option<(u64, Digest)> {
    let (saved_bytes, digest) = cursor.split_once('.')?;
    Some((saved_bytes.parse().ok()?, Digest::from_hex(digest)?))
}
