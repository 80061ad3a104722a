//! The documents of an archive to a server, in batches.
//!
//! Invariants: a batch is stored once, however often it is sent: while the server remembers its key, and
//! afterwards because documents that are there are found by comparing; documents are never added to others
//! unless that is asked for.

use forebay_base::error_chain::chain;
use serde::Serialize;
use serde_json::Value;
use ureq::SendBody;
use ureq::http::Method;

use super::document_client::{Document, Documents};
use super::export::{PAGE, repeated};
use super::file_client::{Failure, failed, shown};
use super::import::{Import, unreadable};
use crate::archive::DocumentLine;
use crate::exit::{Coded, Exit};

/// Number of documents after which a batch ends.
const BATCH: usize = 1_000;
/// Size with which a batch ends, in bytes.
const BATCH_SIZE: usize = 4 << 20;
/// Maximum size of an answer about a batch, in bytes.
const ANSWER_SIZE_MAX: u64 = 16 << 20;

/// Counts of documents.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Counts {
    /// Documents that were stored.
    pub(super) stored: u64,
    /// Documents that were there.
    pub(super) unchanged: u64,
    /// Whether all documents have the ids of the archive; absent if that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ids_kept: Option<bool>,
}

/// What a comparison found.
#[derive(Debug, Clone, Copy)]
pub(super) struct Compared {
    /// Number of documents of the archive that the server has.
    there: u64,
    /// Whether these have the same ids.
    same_ids: bool,
}

/// Compares the documents of the server with those of the archive, from the first on.
///
/// # Errors
/// The server has others, and `append` is not set.
pub(super) fn compare(import: &Import<'_>, append: bool) -> anyhow::Result<Compared> {
    let mut compared = Compared { there: 0, same_ids: true };
    if import.archive.manifest().documents.count == 0 {
        return Ok(compared);
    }
    let mut lines = import.archive.documents().map_err(unreadable)?;
    let mut pages = Documents::new(import.namespace, None);
    loop {
        let page = match repeated(|| pages.next(import.client, PAGE)) {
            Ok(Some(page)) => page,
            Ok(None) | Err(Failure::Refused { status: 404, .. }) => return Ok(compared),
            Err(failure) => return Err(failed(failure)),
        };
        for known in &page.documents {
            // What the server has after all of the archive was stored later.
            let Some(line) = lines.next().map_err(unreadable)? else { return Ok(compared) };
            let bytes = line.bytes().map_err(|reason| Coded::error(Exit::Failed, reason))?;
            if bytes != known.document.get() {
                if append {
                    return Ok(Compared { there: 0, same_ids: false });
                }
                return Err(others(import, known, &line));
            }
            compared.there += 1;
            compared.same_ids &= line.id == known.id;
        }
    }
}

fn others(import: &Import<'_>, known: &Document, line: &DocumentLine) -> anyhow::Error {
    let namespace = import.namespace;
    let text = format!(
        "nothing was stored: the documents of {namespace} are not those of the archive: {namespace}/{} \
         differs from document {}; choose another --namespace, or add them with --append",
        known.id, line.id
    );
    Coded::error(Exit::Failed, text)
}

/// Documents that are sent together.
#[derive(Debug, Default)]
struct Batch {
    /// Number of documents of the archive before them.
    before: u64,
    /// They as a JSON array, without its end.
    body: Vec<u8>,
    ids: Vec<u64>,
}

impl Batch {
    fn new(before: u64) -> Self {
        Self { before, ..Self::default() }
    }

    fn push(&mut self, id: u64, document: &str) {
        self.body.push(if self.ids.is_empty() { b'[' } else { b',' });
        self.body.extend_from_slice(document.as_bytes());
        self.ids.push(id);
    }
}

/// Stores the documents that the server does not have.
pub(super) fn run(import: &Import<'_>, compared: Compared) -> anyhow::Result<Counts> {
    let mut counts = Counts { unchanged: compared.there, ..Counts::default() };
    let total = import.archive.manifest().documents.count;
    if import.dry_run || total == compared.there {
        counts.stored = total - compared.there;
        counts.ids_kept = (total > 0 && !import.dry_run).then_some(compared.same_ids);
        return Ok(counts);
    }
    let mut same_ids = compared.same_ids;
    let mut lines = import.archive.documents().map_err(unreadable)?;
    let (mut index, mut batch) = (0, Batch::new(compared.there));
    // The size of a batch counts from where it begins in the archive, so that batches end at the same
    // documents whatever the server has.
    let (mut batch_count, mut batch_size) = (0, 0);
    while let Some(line) = lines.next().map_err(unreadable)? {
        let bytes = line.bytes().map_err(|reason| Coded::error(Exit::Failed, reason))?;
        (batch_count, batch_size) = (batch_count + 1, batch_size + bytes.len());
        if index >= compared.there {
            batch.push(line.id, bytes);
        }
        index += 1;
        if batch_count >= BATCH || batch_size >= BATCH_SIZE {
            (batch_count, batch_size) = (0, 0);
            if !batch.ids.is_empty() {
                same_ids &= send(import, batch)?;
                counts.stored = index - compared.there;
                batch = Batch::new(index);
                import.bar.set_message(format!("{} documents stored", counts.stored));
            }
        }
    }
    if !batch.ids.is_empty() {
        same_ids &= send(import, batch)?;
    }
    counts.stored = index - compared.there;
    counts.ids_kept = Some(same_ids);
    Ok(counts)
}

/// Stores a batch; returns whether its documents got their ids.
fn send(import: &Import<'_>, mut batch: Batch) -> anyhow::Result<bool> {
    batch.body.push(b']');
    let (namespace, digest) = (import.namespace, import.archive.digest());
    let mut path = format!("/v1/documents/{namespace}?on_error=reject");
    if let Some(target) = import.archive.manifest().documents.target {
        path.push_str(&format!("&target={}", target.as_str()));
    }
    let key = format!("forebay-import-{namespace}-{digest}-{}", batch.before);
    let stored: Value = repeated(|| {
        let request = import
            .client
            .request(Method::POST, &path)
            .header("content-type", "application/json")
            .header("content-length", batch.body.len())
            .header("idempotency-key", &key);
        let answer =
            import.client.send_for_any(request, SendBody::from_reader(&mut &*batch.body))?;
        match answer.status().as_u16() {
            // All were refused, or the request was: the body says which.
            200..=299 | 422 => import.client.read(answer, ANSWER_SIZE_MAX),
            _ => Err(import.client.refusal(answer)),
        }
    })
    .map_err(|failure| stopped(&batch, &chain(&failure).to_string()))?;
    if stored["accepted"].as_u64() != Some(batch.ids.len() as u64) {
        return Err(stopped(&batch, &reason(&stored, &batch)));
    }
    let first = stored["first_id"].as_u64();
    let mut ids = (0..).zip(&batch.ids);
    Ok(first.is_some_and(|first| ids.all(|(n, id)| first.checked_add(n) == Some(*id))))
}

/// Why a batch was refused.
fn reason(stored: &Value, batch: &Batch) -> String {
    if let Some(message) = stored["error"]["message"].as_str() {
        return message.to_owned();
    }
    let Some(refused) = stored["errors"].get(0) else {
        return format!("the server accepted {}", stored["accepted"]);
    };
    let index = refused["index"].as_u64().and_then(|index| usize::try_from(index).ok());
    let id = index.and_then(|index| batch.ids.get(index)).copied().unwrap_or_default();
    format!("document {id}: {}", refused["reason"].as_str().unwrap_or_default())
}

fn stopped(batch: &Batch, reason: &str) -> anyhow::Error {
    let (first, last) = (batch.ids.first(), batch.ids.last());
    let text = format!(
        "documents {} to {} of the archive, and those after them, were not stored: {}",
        first.copied().unwrap_or_default(),
        last.copied().unwrap_or_default(),
        shown(reason)
    );
    Coded::error(Exit::Failed, text)
}
