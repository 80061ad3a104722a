//! Versions of a file: its history, an earlier version, restoring one, and erasing them.
//!
//! ```text
//! GET    /v1/files/{namespace}/{name}?versions=true      the history, the newest first
//! GET    ...?version=ID                                  the bytes of one version
//! POST   ...?restore=ID                                  make it the current file again
//! DELETE ...?version=ID   ...?prune=N                    erase one; all but the newest N
//! ```

use axum::extract::{Path, Request, State};
use axum::response::Response;
use forebay_intake::answer::{FileAnswer, PutAnswer, id_of, id_text, time_text, to_json};
use forebay_intake::catalogue::VersionRecord;
use forebay_intake::{Intake, IntakeError, NameKey};
use http::header::ETAG;
use http::{HeaderMap, Uri};
use serde::Serialize;
use utoipa::ToSchema;

use super::condition::{self, etag};
use super::files::{name_key, not_found};
use super::{Turn, bad_option, claim, flag, json, page_limit, problem, query, unknown_option};
use crate::idempotency;

/// Versions on a page by default.
const PAGE: usize = 100;
/// Parameters by which a request is about versions.
const PARAMETERS: [&str; 4] = ["versions", "version", "restore", "prune"];

/// One earlier state of a name.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct FileVersion<'a> {
    /// Whether the name was deleted: then there is no file.
    deleted: bool,
    /// The file as it was; absent if the name was deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    file: Option<FileAnswer<'a>>,
    /// Id of the version.
    id: String,
    /// When the name was given, or deleted, RFC 3339.
    created: String,
}

/// The history of a name.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct FileHistory<'a> {
    /// The file as it is; null if the name does not exist.
    #[schema(required)]
    current: Option<FileAnswer<'a>>,
    /// Earlier versions, the newest first.
    versions: Vec<FileVersion<'a>>,
    /// `cursor` of the next page; null after the last.
    #[schema(required)]
    next_cursor: Option<String>,
}

/// The number of erased versions.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ErasedVersions {
    /// How many were erased.
    erased: usize,
}

/// Whether a request is about versions.
pub(super) fn is_asked(uri: &Uri) -> bool {
    query(uri).iter().any(|(name, _)| PARAMETERS.contains(&name.as_str()))
}

impl<'a> FileVersion<'a> {
    fn of(version: &'a VersionRecord) -> Self {
        let VersionRecord { file, is_deletion } = version;
        Self {
            deleted: *is_deletion,
            file: (!is_deletion).then(|| FileAnswer::of(file)),
            id: id_text(file.id),
            created: time_text(file.created_ms),
        }
    }
}

/// The version that a read asks for; `None` if it asks for the history.
pub(super) fn asked(uri: &Uri) -> Result<Option<u64>, IntakeError> {
    let version = query(uri).into_iter().find(|(name, _)| name == "version");
    version.map(|(name, value)| version_id(&name, &value)).transpose()
}

fn version_id(name: &str, value: &str) -> Result<u64, IntakeError> {
    id_of(value).ok_or_else(|| bad_option(name, "the id of a version, 16 hexadecimal digits"))
}

pub(super) fn missing(key: &NameKey) -> IntakeError {
    IntakeError::NotFound { what: format!("such version of {}/{}", key.0, key.1) }
}

/// Answers with the history of a name.
pub(super) async fn history(
    intake: &Intake,
    key: &NameKey,
    uri: &Uri,
) -> Result<Response, IntakeError> {
    let (mut before, mut limit, mut wanted) = (None, PAGE, false);
    for (name, value) in query(uri) {
        match name.as_str() {
            "versions" => wanted = flag(&name, &value)?,
            "limit" => limit = page_limit(&value)?,
            "cursor" => before = Some(version_id(&name, &value)?),
            _ => return Err(unknown_option(&name, "versions, limit, cursor")),
        }
    }
    if !wanted {
        return Err(bad_option("versions", "true"));
    }
    let found = intake.versions(key, before, limit).await?;
    if found.current.is_none() && found.versions.is_empty() && before.is_none() {
        return Err(not_found(key));
    }
    let last = found.versions.last().filter(|_| found.more);
    let history = FileHistory {
        current: found.current.as_ref().map(|file| FileAnswer::of(&file.record)),
        versions: found.versions.iter().map(FileVersion::of).collect(),
        next_cursor: last.map(|version| id_text(version.file.id)),
    };
    Ok(json(200, to_json(&history)))
}

pub(super) async fn restore(
    State(intake): State<Intake>,
    Path((namespace, name)): Path<(String, String)>,
    request: Request,
) -> Response {
    let (parts, _) = request.into_parts();
    match restore_version(&intake, (&namespace, &name), &parts.uri, &parts.headers).await {
        Ok(response) => response,
        Err(error) => problem::answer(&error, &parts.headers),
    }
}

async fn restore_version(
    intake: &Intake,
    (namespace, name): (&str, &str),
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<Response, IntakeError> {
    let key = name_key(namespace, name)?;
    let mut id = None;
    for (name, value) in query(uri) {
        match name.as_str() {
            "restore" => id = Some(version_id(&name, &value)?),
            _ => return Err(unknown_option(&name, "restore")),
        }
    }
    let id = id.ok_or_else(|| bad_option("restore", "the id of a version"))?;
    let condition = condition::of_write(headers)?;
    let target = uri.path_and_query().map_or("", |target| target.as_str());
    let print = condition::fingerprint(&[b"POST", target.as_bytes()], headers);
    let (record, _held) = match claim(intake, headers).await?.turn(|| print)? {
        Turn::Act(record, held) => (record, held),
        Turn::Replay(answer) => return Ok(answer),
    };
    let put = intake.restore_version(&key, id, condition, record).await?;
    let answer = PutAnswer::of(&put.file, put.duplicate, put.replaced);
    let mut response = json(put.status(), to_json(&answer));
    response.headers_mut().insert(ETAG, etag(put.file.digest));
    Ok(response)
}

/// Erases one version, or all but the newest.
pub(super) async fn erase(
    intake: &Intake,
    key: &NameKey,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<Response, IntakeError> {
    if headers.contains_key(idempotency::HEADER) {
        let text = "erasing versions takes no Idempotency-Key: repeating it has the same effect";
        return Err(IntakeError::rejected("idempotency_key", text));
    }
    let asked = query(uri);
    let [(name, value)] = asked.as_slice() else {
        return Err(IntakeError::rejected("query", "use either version or prune, once"));
    };
    let erased = match name.as_str() {
        "version" => {
            let id = version_id(name, value)?;
            match intake.erase_versions(key, &[id]).await? {
                0 => return Err(missing(key)),
                erased => erased,
            }
        }
        "prune" => {
            let kept = value.parse().map_err(|_| bad_option(name, "a number of versions"))?;
            intake.prune_versions(key, kept).await?
        }
        _ => return Err(unknown_option(name, "version, prune")),
    };
    Ok(json(200, to_json(&ErasedVersions { erased })))
}
