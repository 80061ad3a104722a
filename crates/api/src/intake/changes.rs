//! `POST /v1/files/change`: comments, metadata and tags of several files in one request.
//!
//! Each file has its own patch, as `PATCH` takes it, and its own result. Invariants as for copying and
//! moving several files (`transfers`).

use axum::extract::{Request, State};
use axum::response::Response;
use forebay_intake::answer::FileAnswer;
use forebay_intake::catalogue::FileRecord;
use forebay_intake::digest::Digest;
use forebay_intake::{Condition, Intake, IntakeError};
use futures_util::stream::{self, StreamExt as _};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::details::{AttributePatch, FilePatch, given};
use super::files::name_key;
use super::transfers::{AT_ONCE, FilePath, Named, TransferStatus, answer, file_of, once, result};
use super::{PartTurn, part_turn};

/// A file, and how what is stored beside its bytes is changed. What is absent stays as it is.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FileChange {
    /// Its namespace.
    namespace: String,
    /// Its name in the namespace.
    name: String,
    /// The comment; null removes it.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    comment: Option<Option<String>>,
    /// Metadata by name; null removes one name, or all.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<std::collections::BTreeMap<String, Option<String>>>)]
    metadata: AttributePatch,
    /// Tags by name; null removes one tag, or all.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<std::collections::BTreeMap<String, Option<String>>>)]
    tags: AttributePatch,
}

/// Files to be changed.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FileChanges {
    /// At most 1000 files.
    files: Vec<FileChange>,
}

impl Named for FileChanges {
    fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(|file| file.namespace.as_str())
    }

    fn count(&self) -> usize {
        self.files.len()
    }
}

pub(super) async fn change(State(intake): State<Intake>, request: Request) -> Response {
    answer(request, async |body, parts| {
        once(&intake, body, parts, "change", async |FileChanges { files }, key| {
            // A file that is named twice is changed twice, in this order.
            let names = files.iter().map(|file| (&file.namespace, &file.name));
            let different: std::collections::HashSet<_> = names.collect();
            let at_once = if different.len() == files.len() { AT_ONCE } else { 1 };
            let intake = &intake;
            let done = stream::iter(files).enumerate().map(|(at, file)| async move {
                let changed = change_one(intake, &file, key.map(|key| key.part(at))).await;
                let path = FilePath { namespace: file.namespace, name: file.name };
                result(path, changed.map(|file| (TransferStatus::Changed, Some(file))))
            });
            done.buffered(at_once).collect().await
        })
        .await
    })
    .await
}

async fn change_one(
    intake: &Intake,
    file: &FileChange,
    part: Option<Digest>,
) -> Result<Value, IntakeError> {
    let key = name_key(&file.namespace, &file.name)?;
    let FileChange { namespace, name, comment, metadata, tags } = file;
    let patch = json!([comment, metadata, tags]).to_string();
    let print = [b"change".as_slice(), namespace.as_bytes(), name.as_bytes(), patch.as_bytes()];
    let (record, _held) = match part_turn(intake, part, Digest::of_parts(&print)).await? {
        PartTurn::Act(record, held) => (record, held),
        PartTurn::Answered(answer) => return Ok(file_of(&answer)),
    };
    let patch = FilePatch::new(comment.clone(), metadata.clone(), tags.clone());
    let change = |file: &FileRecord| patch.apply(file);
    let put = intake.change_details(&key, Condition::None, record, change).await?;
    Ok(json!(FileAnswer::of(&put.file)))
}
