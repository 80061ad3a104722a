//! Copying, moving and deleting several files in one request.
//!
//! Each file is a separate change: it happens as a whole or not at all, whatever happens to the others, and
//! the answer has a result for each. The requests go to the log together, so that they share its flushes.

use std::collections::HashSet;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use forebay_intake::answer::{FileAnswer, to_json};
use forebay_intake::{Condition, FileCopy, Intake, IntakeError};
use futures_util::stream::{self, StreamExt as _};
use http::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::answers::PartError;
use super::files::{name_key, new_key};
use super::{json, json_body, problem};
use crate::idempotency;

/// Maximum number of files of one request.
pub(super) const FILES_MAX: usize = 1_000;
/// Changes that wait for the log at a time.
const AT_ONCE: usize = 64;

/// A file, by its name.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FilePath {
    /// Its namespace.
    namespace: String,
    /// Its name in the namespace.
    name: String,
}

/// A file to be copied or moved.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Transfer {
    /// The file.
    from: FilePath,
    /// The name that it gets.
    to: FilePath,
    /// Whether a file that has this name already is replaced [default: false].
    #[serde(default)]
    overwrite: bool,
}

/// Files to be copied or moved.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Transfers {
    /// At most 1000 files.
    files: Vec<Transfer>,
}

/// Files to be deleted.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Deletions {
    /// At most 1000 files.
    files: Vec<FilePath>,
}

/// What happened to one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum TransferStatus {
    /// It has the new name too.
    Copied,
    /// It has the new name.
    Moved,
    /// It was deleted.
    Deleted,
    /// There was no such file to delete.
    Absent,
    /// It was not changed.
    Failed,
}

/// The result of one file.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct TransferResult {
    /// Namespace of the file, as in the request.
    namespace: String,
    /// Its name, as in the request.
    name: String,
    /// What happened to it.
    status: TransferStatus,
    /// The file under its new name; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Option<FileAnswer<'static>>)]
    file: Option<Value>,
    /// Why it was not changed; absent if it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    error: Option<PartError>,
}

/// The results of several files.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct TransferResults {
    /// A result for each file, in the order of the request.
    results: Vec<TransferResult>,
}

pub(super) async fn copy(State(intake): State<Intake>, request: Request) -> Response {
    answer(request, async |body, headers| transfer(&intake, body, headers, false).await).await
}

pub(super) async fn rename(State(intake): State<Intake>, request: Request) -> Response {
    answer(request, async |body, headers| transfer(&intake, body, headers, true).await).await
}

pub(super) async fn delete(State(intake): State<Intake>, request: Request) -> Response {
    answer(request, async |body, headers| delete_files(&intake, body, headers).await).await
}

async fn answer(
    request: Request,
    handle: impl AsyncFnOnce(Body, &HeaderMap) -> Result<Response, IntakeError>,
) -> Response {
    let (parts, body) = request.into_parts();
    match handle(body, &parts.headers).await {
        Ok(response) => response,
        Err(error) => problem::answer(&error, &parts.headers),
    }
}

async fn transfer(
    intake: &Intake,
    body: Body,
    headers: &HeaderMap,
    is_moved: bool,
) -> Result<Response, IntakeError> {
    check_headers(headers)?;
    let Transfers { files } = json_body::read(body, headers, intake.limits()).await?;
    check_count(files.len())?;
    let at_once = if are_independent(&files) { AT_ONCE } else { 1 };
    let done = stream::iter(files).map(|file| async move {
        let path = file.from.clone();
        let put = transfer_one(intake, &file, is_moved).await;
        let status = if is_moved { TransferStatus::Moved } else { TransferStatus::Copied };
        result(path, put.map(|file| (status, Some(file))))
    });
    Ok(results(done.buffered(at_once).collect().await))
}

/// Whether the order of the files makes no difference: no name is named twice.
fn are_independent(files: &[Transfer]) -> bool {
    let names = files.iter().flat_map(|file| [&file.from, &file.to]);
    let different: HashSet<_> = names.map(|path| (&path.namespace, &path.name)).collect();
    different.len() == 2 * files.len()
}

async fn transfer_one(
    intake: &Intake,
    file: &Transfer,
    is_moved: bool,
) -> Result<Value, IntakeError> {
    let copy = FileCopy {
        from: name_key(&file.from.namespace, &file.from.name)?,
        to: new_key(&file.to.namespace, &file.to.name)?,
        source: Condition::None,
        condition: if file.overwrite { Condition::None } else { Condition::Absent },
        comment: None,
        attributes: None,
        idempotency: None,
    };
    let put = if is_moved { intake.rename(copy).await? } else { intake.copy(copy).await? };
    Ok(json!(FileAnswer::of(&put.file)))
}

async fn delete_files(
    intake: &Intake,
    body: Body,
    headers: &HeaderMap,
) -> Result<Response, IntakeError> {
    check_headers(headers)?;
    let Deletions { files } = json_body::read(body, headers, intake.limits()).await?;
    check_count(files.len())?;
    let done = stream::iter(files).map(|path| async move {
        let deleted = match name_key(&path.namespace, &path.name) {
            Ok(key) => intake.delete(&key, Condition::None, None).await,
            Err(error) => Err(error),
        };
        let status = |deleted| match deleted {
            true => TransferStatus::Deleted,
            false => TransferStatus::Absent,
        };
        result(path, deleted.map(|deleted| (status(deleted.is_some()), None)))
    });
    Ok(results(done.buffered(AT_ONCE).collect().await))
}

fn result(
    FilePath { namespace, name }: FilePath,
    done: Result<(TransferStatus, Option<Value>), IntakeError>,
) -> TransferResult {
    match done {
        Ok((status, file)) => TransferResult { namespace, name, status, file, error: None },
        Err(error) => {
            let message = forebay_base::error_chain::chain(&error).to_string();
            if problem::classify(&error).0.is_server_error() {
                tracing::error!(error = %message, "a file of a request failed");
            }
            let error = Some(PartError::of(&error, message));
            TransferResult { namespace, name, status: TransferStatus::Failed, file: None, error }
        }
    }
}

/// 200 if every file was changed; 207 if one was not.
fn results(results: Vec<TransferResult>) -> Response {
    let failed = results.iter().any(|result| result.status == TransferStatus::Failed);
    json(if failed { 207 } else { 200 }, to_json(&TransferResults { results }))
}

fn check_headers(headers: &HeaderMap) -> Result<(), IntakeError> {
    if headers.contains_key(idempotency::HEADER) {
        let text = "this request takes no Idempotency-Key: each of its files is a separate change";
        return Err(IntakeError::rejected("idempotency_key", text));
    }
    Ok(())
}

fn check_count(count: usize) -> Result<(), IntakeError> {
    if count == 0 || count > FILES_MAX {
        let text = format!("files has {count} entries; 1 to {FILES_MAX} are allowed");
        return Err(IntakeError::rejected("json", text));
    }
    Ok(())
}
