//! Copying, moving and deleting several files in one request.
//!
//! Each file is a separate change: it happens as a whole or not at all, whatever happens to the others, and
//! the answer has a result for each. The requests go to the log together, so that they share its flushes.
//!
//! Invariants:
//! A key that is limited to some namespaces changes nothing, and learns nothing, if the body names another one.
//! Under an `Idempotency-Key` each file is changed once. Its change is remembered in the entry that
//! makes it, so a request that is sent again after a crash continues where it was, and the answer to a request
//! whose results are final is remembered as a whole.

use std::collections::HashSet;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use forebay_intake::answer::{FileAnswer, to_json};
use forebay_intake::digest::Digest;
use forebay_intake::request::{Fingerprint, RequestKey};
use forebay_intake::{Condition, FileCopy, Intake, IntakeError};
use futures_util::stream::{self, StreamExt as _};
use http::request::Parts;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::answers::PartError;
use super::files::{name_key, new_key};
use super::{PartTurn, Turn, claim, json, json_body, part_turn, problem, remember, request_key};
use crate::keys::{Area, Grant};
use crate::problem::Problem;

/// Maximum number of files of one request.
pub(super) const FILES_MAX: usize = 1_000;
/// Changes that wait for the log at a time.
pub(super) const AT_ONCE: usize = 64;

/// A file, by its name.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FilePath {
    /// Its namespace.
    pub(super) namespace: String,
    /// Its name in the namespace.
    pub(super) name: String,
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

/// A body that names files.
pub(super) trait Named: serde::de::DeserializeOwned {
    fn namespaces(&self) -> impl Iterator<Item = &str>;
    fn count(&self) -> usize;
}

impl Named for Transfers {
    fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.files.iter().flat_map(|file| [&*file.from.namespace, &*file.to.namespace])
    }

    fn count(&self) -> usize {
        self.files.len()
    }
}

impl Named for Deletions {
    fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(|file| &*file.namespace)
    }

    fn count(&self) -> usize {
        self.files.len()
    }
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
    /// Its comment, metadata or tags were changed.
    Changed,
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
    answer(request, async |body, parts| transfer(&intake, body, parts, false).await).await
}

pub(super) async fn rename(State(intake): State<Intake>, request: Request) -> Response {
    answer(request, async |body, parts| transfer(&intake, body, parts, true).await).await
}

pub(super) async fn delete(State(intake): State<Intake>, request: Request) -> Response {
    answer(request, async |body, parts| delete_files(&intake, body, parts).await).await
}

pub(super) async fn answer(
    request: Request,
    handle: impl AsyncFnOnce(Body, &Parts) -> Result<Response, IntakeError>,
) -> Response {
    let (parts, body) = request.into_parts();
    match handle(body, &parts).await {
        Ok(response) => response,
        Err(error) => problem::answer(&error, &parts.headers),
    }
}

async fn transfer(
    intake: &Intake,
    body: Body,
    parts: &Parts,
    is_moved: bool,
) -> Result<Response, IntakeError> {
    once(intake, body, parts, act(is_moved), async |Transfers { files }, key| {
        let at_once = if are_independent(&files) { AT_ONCE } else { 1 };
        let done = stream::iter(files).enumerate().map(|(at, file)| async move {
            let path = file.from.clone();
            let put = transfer_one(intake, &file, is_moved, key.map(|key| key.part(at))).await;
            let status = if is_moved { TransferStatus::Moved } else { TransferStatus::Copied };
            result(path, put.map(|file| (status, Some(file))))
        });
        done.buffered(at_once).collect().await
    })
    .await
}

/// Carries out a request, unless it was answered before under its key.
///
/// * `change`: changes the files; takes the body, and the key if there is one.
pub(super) async fn once<T: Named>(
    intake: &Intake,
    body: Body,
    parts: &Parts,
    act: &str,
    change: impl AsyncFnOnce(T, Option<&RequestKey>) -> Vec<TransferResult>,
) -> Result<Response, IntakeError> {
    let headers = &parts.headers;
    let key = request_key(headers)?;
    let keyed = claim(intake, headers).await?;
    let body = json_body::bytes(body, headers, intake.limits()).await?;
    let files: T = json_body::parse(&body)?;
    check_count(files.count())?;
    if let Some(grant) = parts.extensions.get::<Grant>()
        && !files.namespaces().all(|namespace| grant.permits(Area::Files, namespace))
    {
        return Ok(Problem::KEY_LIMIT.answer(headers));
    }
    let print = || Fingerprint::of(&[b"POST", act.as_bytes(), &body]).finish();
    let (record, _held) = match keyed.turn(print)? {
        Turn::Act(record, held) => (record, held),
        Turn::Replay(answer) => return Ok(answer),
    };
    let results = change(files, key.as_ref()).await;
    let is_failed = |result: &TransferResult| result.status == TransferStatus::Failed;
    let may_pass = |result: &TransferResult| {
        result.error.as_ref().is_some_and(|error| problem::may_pass(error.code))
    };
    let status = if results.iter().any(is_failed) { 207 } else { 200 };
    let is_final = !results.iter().any(may_pass);
    let answer = to_json(&TransferResults { results });
    if let Some(record) = record.filter(|_| is_final) {
        remember(intake, record, status, &answer).await?;
    }
    Ok(json(status, answer))
}

/// What a request does, for its fingerprint.
fn act(is_moved: bool) -> &'static str {
    if is_moved { "move" } else { "copy" }
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
    part: Option<Digest>,
) -> Result<Value, IntakeError> {
    let (from, to) = (&file.from, &file.to);
    let print = Digest::of_parts(&[
        act(is_moved).as_bytes(),
        from.namespace.as_bytes(),
        from.name.as_bytes(),
        to.namespace.as_bytes(),
        to.name.as_bytes(),
        &[file.overwrite.into()],
    ]);
    let (record, _held) = match part_turn(intake, part, print).await? {
        PartTurn::Act(record, held) => (record, held),
        PartTurn::Answered(answer) => return Ok(file_of(&answer)),
    };
    let copy = FileCopy {
        from: name_key(&from.namespace, &from.name)?,
        to: new_key(&to.namespace, &to.name)?,
        source: Condition::None,
        condition: if file.overwrite { Condition::None } else { Condition::Absent },
        comment: None,
        attributes: None,
        idempotency: record,
    };
    let put = if is_moved { intake.rename(copy).await? } else { intake.copy(copy).await? };
    Ok(json!(FileAnswer::of(&put.file)))
}

/// The file of an answer that is remembered with a change: that of a `PUT`.
pub(super) fn file_of(answer: &[u8]) -> Value {
    let mut file: Value = serde_json::from_slice(answer).unwrap_or_default();
    if let Some(members) = file.as_object_mut() {
        members.remove("status");
        members.remove("replaced");
    }
    file
}

async fn delete_files(intake: &Intake, body: Body, parts: &Parts) -> Result<Response, IntakeError> {
    once(intake, body, parts, "delete", async |Deletions { files }, key| {
        let done = stream::iter(files).enumerate().map(|(at, path)| async move {
            let deleted = delete_one(intake, &path, key.map(|key| key.part(at))).await;
            let status = |deleted| match deleted {
                true => TransferStatus::Deleted,
                false => TransferStatus::Absent,
            };
            result(path, deleted.map(|deleted| (status(deleted), None)))
        });
        done.buffered(AT_ONCE).collect().await
    })
    .await
}

/// Deletes a file; returns whether it existed.
async fn delete_one(
    intake: &Intake,
    path: &FilePath,
    part: Option<Digest>,
) -> Result<bool, IntakeError> {
    let key = name_key(&path.namespace, &path.name)?;
    let print = [b"delete".as_slice(), path.namespace.as_bytes(), path.name.as_bytes()];
    match part_turn(intake, part, Digest::of_parts(&print)).await? {
        PartTurn::Answered(_) => Ok(true),
        PartTurn::Act(record, _held) => {
            Ok(intake.delete(&key, Condition::None, record).await?.is_some())
        }
    }
}

pub(super) fn result(
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

fn check_count(count: usize) -> Result<(), IntakeError> {
    if count == 0 || count > FILES_MAX {
        let text = format!("files has {count} entries; 1 to {FILES_MAX} are allowed");
        return Err(IntakeError::rejected("json", text));
    }
    Ok(())
}
