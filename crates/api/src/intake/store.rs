//! One part of a batch: its file is stored, its documents are ingested.
//!
//! JSON that holds documents is stored as the original file, and its documents are ingested into
//! the namespace as well: once, however often the same file is sent under the same name.

use bytes::Bytes;
use forebay_intake::IntakeError;
use forebay_intake::answer::{PutAnswer, PutStatus};
use forebay_intake::attributes::Attributes;
use forebay_intake::blocks::BlockReader;
use forebay_intake::classify::{Category, Classified};
use forebay_intake::digest::Digest;
use forebay_intake::documents::decide::Wish;
use forebay_intake::documents::frame::Framing;
use forebay_intake::documents::ingest::DocumentOptions;
use forebay_intake::format::IdempotencyRecord;
use forebay_intake::names::Namespace;
use forebay_intake::request::Claim;
use forebay_intake::rules::Sender;
use forebay_intake::upload::{FileBytes, Upload};
use forebay_intake::{Condition, Intake, NameKey, NewFile, Put};
use serde_json::{Value, json};

use super::answers::{
    DocumentsBefore, DocumentsRefused, PartAnswer, PartDocuments, PartError, PartStatus,
    TakenDocuments,
};
use super::{PartTurn, part_turn, problem};

/// How a JSON part is processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum JsonParts {
    /// The file is stored and its documents are ingested.
    #[default]
    Both,
    /// It is stored as a file only.
    File,
    /// Only its documents are ingested.
    Documents,
}

impl JsonParts {
    pub(super) fn parse(word: &str) -> Option<Self> {
        match word {
            "both" => Some(Self::Both),
            "file" => Some(Self::File),
            "documents" => Some(Self::Documents),
            _ => None,
        }
    }
}

/// Values of the fields of a batch so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Settings {
    pub(super) comment: String,
    pub(super) wish: Wish,
    pub(super) json: JsonParts,
    /// Whether a routing rule may choose the namespace of a file.
    pub(super) is_routed: bool,
    pub(super) sender: Sender,
}

/// The result of a part that was refused.
pub(super) fn rejected(name: &str, error: &IntakeError) -> PartAnswer {
    let message = forebay_base::error_chain::chain(error).to_string();
    PartAnswer::rejected(Some(name), PartError::of(error, message))
}

/// Stores a part. Every failure becomes its result.
///
/// * `key`: the key that the part's result is remembered under, if the batch had one.
pub(super) async fn store(
    intake: &Intake,
    key: NameKey,
    settings: &Settings,
    upload: Upload,
    part: Option<Digest>,
) -> PartAnswer {
    let name = key.1.clone();
    match store_part(intake, key, settings, upload, part).await {
        Ok(result) => result,
        Err(error) => {
            let (status, _) = problem::classify(&error);
            if status.is_server_error() {
                let error = forebay_base::error_chain::chain(&error);
                tracing::error!(%error, "a part of a batch failed");
            }
            rejected(name.as_str(), &error)
        }
    }
}

async fn store_part(
    intake: &Intake,
    key: NameKey,
    settings: &Settings,
    upload: Upload,
    part: Option<Digest>,
) -> Result<PartAnswer, IntakeError> {
    let classified = upload.classify(&key.1).await;
    let has_documents = settings.json == JsonParts::Documents
        || settings.json == JsonParts::Both && classified.category == Category::Json;
    let content = has_documents.then(|| upload.content()).transpose()?;
    let content = content.map(|content| (content, upload.size()));
    let fingerprint = Digest::of_parts(&[
        key.0.as_str().as_bytes(),
        key.1.as_str().as_bytes(),
        settings.comment.as_bytes(),
        &upload.digest().0,
    ]);
    let (digest, lines) = (upload.digest(), lines_wanted(&upload, classified));
    if settings.json == JsonParts::Documents {
        let content = content.unwrap_or((FileBytes::Memory(Bytes::new()), 0));
        let claim = part.unwrap_or_else(|| Digest::of_parts(&[b"once", &fresh()]));
        let taken = documents(intake, &key, settings, content, (claim, fingerprint), lines).await?;
        return Ok(PartAnswer {
            status: if taken.has_accepted() { PartStatus::Stored } else { PartStatus::Rejected },
            documents: Some(taken),
            error: None,
            file: None,
            name: Some(key.1.as_str().to_owned()),
        });
    }
    let (put, mut result) =
        put(intake, &key, settings, upload, classified, part, fingerprint).await?;
    if let Some(content) = content {
        let key = (namespace_of(&result, key.0)?, key.1);
        // Documents that were deleted since may be sent again.
        let removed_at = intake.documents_removed_at(&key.0).await?;
        let removed = removed_at.map(u64::to_le_bytes);
        let (namespace, name) = (key.0.as_str().as_bytes(), key.1.as_str().as_bytes());
        let mut parts: Vec<&[u8]> = vec![b"documents of", namespace, name, &digest.0];
        parts.extend(removed.as_ref().map(|removed| &removed[..]));
        let once = Digest::of_parts(&parts);
        let kept = intake.limits().idempotency_kept;
        let kept_ms = i64::try_from(kept.as_millis()).unwrap_or(i64::MAX);
        let old = put.is_some_and(|put| {
            let is_old = intake.now_ms() - put.file.created_ms > kept_ms;
            let is_whole = removed_at.is_none_or(|removed| removed <= put.file.id);
            put.duplicate && !put.created && is_old && is_whole
        });
        let taken = if old {
            Ok(PartDocuments::Before(DocumentsBefore { repeated: true }))
        } else {
            documents(intake, &key, settings, content, (once, fingerprint), lines).await
        };
        result.documents = Some(taken.unwrap_or_else(|error| {
            let error = PartError::of(&error, error.to_string());
            PartDocuments::Refused(DocumentsRefused { error })
        }));
    }
    Ok(result)
}

/// The namespace that a file was stored in: a routing rule may have chosen it.
fn namespace_of(stored: &PartAnswer, asked: Namespace) -> Result<Namespace, IntakeError> {
    let namespace = stored.file.as_ref().and_then(|file| file["namespace"].as_str());
    Ok(namespace.map_or(Ok(asked), Namespace::parse)?)
}

fn fresh() -> [u8; 16] {
    *uuid::Uuid::now_v7().as_bytes()
}

fn lines_wanted(upload: &Upload, classified: Classified) -> Framing {
    match classified.mime {
        "application/x-ndjson" => Framing::Lines,
        _ => Framing::of(upload.head()),
    }
}

/// Stores the file. A part that was answered before under its key gets the same answer.
async fn put(
    intake: &Intake,
    key: &NameKey,
    settings: &Settings,
    upload: Upload,
    classified: Classified,
    part: Option<Digest>,
    fingerprint: Digest,
) -> Result<(Option<Put>, PartAnswer), IntakeError> {
    let (idempotency, _held) = match part_turn(intake, part, fingerprint).await? {
        PartTurn::Act(record, held) => (record, held),
        PartTurn::Answered(answer) => {
            let file: Value = serde_json::from_slice(&answer).unwrap_or_default();
            let duplicate = file["status"] == PutStatus::Duplicate.as_str();
            return Ok((None, stored(PutStatus::of(duplicate), None, file)));
        }
    };
    let new = NewFile {
        attributes: Attributes::default(),
        key: key.clone(),
        comment: settings.comment.clone(),
        classified,
        condition: Condition::None,
        idempotency,
        is_routed: settings.is_routed,
        sender: settings.sender,
    };
    let put = intake.put(new, upload).await?;
    let answer = PutAnswer::of(&put.file, put.duplicate, put.replaced);
    let (status, name) = (answer.status, answer.file.name.to_owned());
    let result = stored(status, Some(name), json!(answer));
    Ok((Some(put), result))
}

/// The result of a part that was stored as a file.
fn stored(status: PutStatus, name: Option<String>, file: Value) -> PartAnswer {
    let status = status.into();
    PartAnswer { documents: None, error: None, file: Some(file), name, status }
}

/// Ingests a part's documents, unless they were ingested before under the same claim.
async fn documents(
    intake: &Intake,
    key: &NameKey,
    settings: &Settings,
    (content, size): (FileBytes, u64),
    (claim, fingerprint): (Digest, Digest),
    framing: Framing,
) -> Result<PartDocuments, IntakeError> {
    let taken = |answer: &[u8], repeated| {
        let answer = serde_json::from_slice(answer).unwrap_or_default();
        PartDocuments::Taken(TakenDocuments { answer, repeated })
    };
    let held = match intake.claim(claim).await? {
        Claim::Answered { answer, .. } => return Ok(taken(&answer, Some(true))),
        Claim::New(held) => held,
    };
    let record: IdempotencyRecord = held.record(fingerprint);
    let wish = match settings.wish {
        Wish::Auto => Wish::of_comment(&settings.comment),
        wish => wish,
    };
    let wish_required = settings.wish != Wish::Auto;
    let options =
        DocumentOptions { framing, wish, wish_required, all_or_nothing: false, dry_run: false };
    let mut ingest = intake.ingest(key.0.clone(), options);
    match content {
        FileBytes::Memory(bytes) => ingest.push(&bytes).await?,
        FileBytes::File(reader) => {
            let mut at = 0;
            while at < size {
                let piece = read_piece(reader.clone(), at, size).await?;
                at += piece.len() as u64;
                ingest.push(&piece).await?;
            }
        }
    }
    let (_, body, _) = ingest.finish(Some(record)).await?;
    Ok(taken(&body, None))
}

async fn read_piece(reader: BlockReader, at: u64, size: u64) -> Result<Bytes, IntakeError> {
    let failed = |source| IntakeError::Blob { act: "read", source };
    forebay_base::blocking::spawn(move || reader.read(at, size))
        .await
        .map_err(std::io::Error::other)
        .and_then(|read| read)
        .map_err(failed)
}
