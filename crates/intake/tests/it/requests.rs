//! Requests as the routes make them, with their results.

use bytes::Bytes;
use forebay_intake::answer::put_json;
use forebay_intake::attributes::Attributes;
use forebay_intake::catalogue::{FileFilter, FileRecord};
use forebay_intake::documents::PageLimits;
use forebay_intake::documents::decide::Wish;
use forebay_intake::documents::frame::Framing;
use forebay_intake::documents::ingest::DocumentOptions;
use forebay_intake::format::IdempotencyRecord;
use forebay_intake::names::Namespace;
use forebay_intake::request::{Claim, Fingerprint, RequestKey};
use forebay_intake::rules::Sender;
use forebay_intake::upload::{FileBytes, Source, Upload};
use forebay_intake::{
    Condition, DocumentPage, Intake, IntakeError, NameKey, NewFile, Put, StoredFile,
};

/// Files and documents that are read at once.
const ALL: usize = 1_000;

/// The answer to a request, which may be a repetition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) json: Vec<u8>,
    /// Whether it is the answer to an earlier request with the same key.
    pub(crate) is_replay: bool,
}

impl Reply {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.json).unwrap()
    }
}

struct Whole(Option<Bytes>);

impl Source for Whole {
    async fn next(&mut self) -> Result<Option<Bytes>, IntakeError> {
        Ok(self.0.take())
    }
}

pub(crate) async fn receive(intake: &Intake, bytes: &[u8]) -> Result<Upload, IntakeError> {
    let size = bytes.len() as u64;
    intake.receive(&mut Whole(Some(Bytes::copy_from_slice(bytes))), Some(size)).await
}

async fn store(
    intake: &Intake,
    key: &NameKey,
    upload: Upload,
    condition: Condition,
    idempotency: Option<IdempotencyRecord>,
) -> Result<Put, IntakeError> {
    let classified = upload.classify(&key.1).await;
    let (key, comment) = (key.clone(), String::new());
    let attributes = Attributes::default();
    let is_routed = false;
    let sender = Sender::default();
    let new =
        NewFile { key, comment, attributes, classified, condition, idempotency, is_routed, sender };
    intake.put(new, upload).await
}

/// Stores a file if a condition holds.
pub(crate) async fn put_if(
    intake: &Intake,
    key: &NameKey,
    bytes: &[u8],
    condition: Condition,
) -> Result<Put, IntakeError> {
    let upload = receive(intake, bytes).await?;
    store(intake, key, upload, condition, None).await
}

/// Stores a file.
pub(crate) async fn put(intake: &Intake, key: &NameKey, bytes: &[u8]) -> Result<Put, IntakeError> {
    put_if(intake, key, bytes, Condition::None).await
}

/// Stores a file under an idempotency key.
pub(crate) async fn put_once(
    intake: &Intake,
    key: &NameKey,
    bytes: &[u8],
    request: &str,
) -> Result<Reply, IntakeError> {
    let claim = claim(intake, request).await?;
    let upload = receive(intake, bytes).await?;
    let parts: [&[u8]; 3] = [b"PUT", key.1.as_str().as_bytes(), &upload.digest().0];
    let print = Fingerprint::of(&parts).finish();
    let held = match claim {
        Claim::New(held) => held,
        Claim::Answered { fingerprint, status, answer } => {
            return replay(fingerprint == print, status, answer);
        }
    };
    let put = store(intake, key, upload, Condition::None, Some(held.record(print))).await?;
    let json = put_json(&put.file, put.duplicate, put.replaced, "");
    Ok(Reply { status: put.status(), json, is_replay: false })
}

async fn claim(intake: &Intake, request: &str) -> Result<Claim, IntakeError> {
    intake.claim(RequestKey::parse(request.as_bytes())?.digest()).await
}

fn replay(is_same: bool, status: u16, json: Vec<u8>) -> Result<Reply, IntakeError> {
    if is_same { Ok(Reply { status, json, is_replay: true }) } else { Err(IntakeError::KeyReused) }
}

/// Deletes a file; `false` if it does not exist.
pub(crate) async fn delete(intake: &Intake, key: &NameKey) -> Result<bool, IntakeError> {
    intake.delete(key, Condition::None, None).await.map(|deleted| deleted.is_some())
}

/// Stores documents, under an idempotency key if there is one.
pub(crate) async fn post(
    intake: &Intake,
    namespace: &Namespace,
    request: Option<&str>,
    body: &str,
) -> Result<Reply, IntakeError> {
    let parts: [&[u8]; 3] = [b"POST", namespace.as_str().as_bytes(), body.as_bytes()];
    let print = Fingerprint::of(&parts).finish();
    let held = match request {
        None => None,
        Some(request) => match claim(intake, request).await? {
            Claim::New(held) => Some(held),
            Claim::Answered { fingerprint, status, answer } => {
                return replay(fingerprint == print, status, answer);
            }
        },
    };
    let options = DocumentOptions {
        framing: Framing::of(body.as_bytes()),
        wish: Wish::Auto,
        wish_required: false,
        all_or_nothing: false,
        dry_run: false,
    };
    let mut ingest = intake.ingest(namespace.clone(), options);
    ingest.push(body.as_bytes()).await?;
    let record = held.as_ref().map(|held| held.record(print));
    let (status, json, _) = ingest.finish(record).await?;
    Ok(Reply { status, json, is_replay: false })
}

/// The bytes of a file; `None` if it does not exist.
pub(crate) async fn bytes_of(
    intake: &Intake,
    key: &NameKey,
) -> Result<Option<Vec<u8>>, IntakeError> {
    let Some(file) = intake.find(key).await? else { return Ok(None) };
    let size = file.record.size;
    let bytes = range(intake, &file, 0, size)?;
    assert_eq!(bytes.len() as u64, size, "{key:?}");
    Ok(Some(bytes))
}

/// The bytes of a file from `start` on, up to `end` or the end of the file.
pub(crate) fn range(
    intake: &Intake,
    file: &StoredFile,
    start: u64,
    end: u64,
) -> Result<Vec<u8>, IntakeError> {
    let reader = match intake.read(file)? {
        FileBytes::Memory(bytes) => {
            let to = |at: u64| usize::try_from(at).unwrap().min(bytes.len());
            return Ok(bytes[to(start)..to(end)].to_vec());
        }
        FileBytes::File(reader) => reader,
    };
    let mut read = Vec::new();
    loop {
        let piece = reader
            .read(start + read.len() as u64, end)
            .map_err(|source| IntakeError::Blob { act: "read", source })?;
        if piece.is_empty() {
            return Ok(read);
        }
        read.extend_from_slice(&piece);
    }
}

/// All files, by namespace and name.
pub(crate) async fn files(intake: &Intake) -> Result<Vec<FileRecord>, IntakeError> {
    let files = intake.list(FileFilter::default(), None, ALL).await?;
    assert!(files.len() < ALL, "there may be more");
    Ok(files)
}

/// All documents of a namespace; `None` if it does not exist.
pub(crate) async fn documents(
    intake: &Intake,
    namespace: &Namespace,
) -> Result<Option<DocumentPage>, IntakeError> {
    let limits = PageLimits { rows_max: ALL, bytes_max: 8 << 20 };
    let page = intake.documents(namespace, None, limits).await?;
    assert!(page.as_ref().is_none_or(|page| !page.more), "there are more");
    Ok(page)
}
