//! Making a file of a complete upload: once, whatever happens meanwhile.
//!
//! The put carries an idempotency key made of the upload's id, so that a completion that was interrupted
//! between the put and the record of it gives the same file when it is repeated. It runs in
//! its own task: a client that leaves does not end it.

use std::sync::Arc;

use forebay_base::error_chain::chain;
use forebay_intake::answer::{file_url, put_json};
use forebay_intake::attributes::Attributes;
use forebay_intake::digest::Digest;
use forebay_intake::request::Claim;
use forebay_intake::uploads::{UploadError, UploadId, UploadKind, UploadStatus};
use forebay_intake::{Intake, IntakeError, NewFile};
use tokio::sync::Mutex;

use super::metadata::{Target, parts, target};

/// Completions at the same time.
const TURNS: usize = 16;
/// Uploads that are looked at together after a start.
const PAGE: usize = 100;

/// Completions that run: one of each upload at a time, for as long as everything that completes uploads shares
/// this. Cloning is cheap.
#[derive(Debug, Clone, Default)]
pub struct Completions {
    /// An upload's id chooses one: two requests for the same upload wait for each other.
    turns: Arc<[Mutex<()>; TURNS]>,
}

impl Completions {
    /// Stores a complete upload as a file, unless that was done. Returns the JSON of the file.
    pub(super) async fn complete(
        &self,
        intake: &Intake,
        id: UploadId,
    ) -> Result<Arc<[u8]>, IntakeError> {
        let (all, intake) = (self.clone(), intake.clone());
        let done = tokio::spawn(async move {
            let at = usize::from(id.0.first().copied().unwrap_or_default()) % TURNS;
            let _turn = match all.turns.get(at) {
                Some(turn) => Some(turn.lock().await),
                None => None,
            };
            store(&intake, id).await
        });
        done.await.unwrap_or_else(|error| {
            let source = std::io::Error::other(error);
            Err(IntakeError::Blob { act: "complete an upload in", source })
        })
    }
}

/// Whether an upload is waiting to be stored.
pub(super) fn is_due(status: &UploadStatus) -> bool {
    let becomes_a_file = matches!(status.new.kind, UploadKind::Resumable | UploadKind::Final);
    becomes_a_file && status.is_complete() && status.result.is_none()
}

async fn store(intake: &Intake, id: UploadId) -> Result<Arc<[u8]>, IntakeError> {
    let uploads = intake.uploads();
    let status = uploads.status(id).await?;
    if let Some(result) = status.result {
        return Ok(result);
    }
    if !is_due(&status) {
        return Err(UploadError::Incomplete { id, offset: status.offset }.into());
    }
    let sources = match status.new.kind {
        UploadKind::Final => parts(&status),
        _ => vec![id],
    };
    let result = match intake.claim(Digest::of_parts(&[b"upload", &id.0])).await? {
        // The file was stored by an attempt that ended before it could say so.
        Claim::Answered { answer, .. } => answer,
        Claim::New(held) => {
            let Target { key, comment, condition, is_routed, sender } = target(&status)?;
            let upload = intake.assemble(&sources).await?;
            let classified = upload.classify(&key.1).await;
            let record = held.record(Digest::of_parts(&[b"upload", &id.0]));
            let (idempotency, attributes) = (Some(record), Attributes::default());
            let new = NewFile {
                key,
                comment,
                attributes,
                classified,
                condition,
                idempotency,
                is_routed,
                sender,
            };
            let put = intake.put(new, upload).await?;
            let url = file_url(put.file.namespace.as_str(), put.file.name.as_str());
            put_json(&put.file, put.duplicate, put.replaced, &url)
        }
    };
    let result = uploads.finish(id, &result).await?;
    if status.new.kind == UploadKind::Final {
        for part in sources {
            match uploads.remove(part).await {
                Ok(()) | Err(UploadError::NotFound { .. }) => {}
                // It expires.
                Err(error) => tracing::warn!(error = %chain(&error), "could not remove a part"),
            }
        }
    }
    Ok(result)
}

/// Stores the uploads that were complete when the server was stopped.
///
/// Runs beside the first requests, in a task.
///
/// * `completions`: those of the router. A request for an upload that is being stored then waits for it, and is
///   not refused because its key is in use.
pub fn resume(intake: &Intake, completions: &Completions) {
    let (intake, completions) = (intake.clone(), completions.clone());
    tokio::spawn(async move {
        let mut after = None;
        loop {
            let next = intake.uploads().next_after(after, PAGE);
            let page = match intake.uploads().list(after, PAGE).await {
                Ok(page) => page,
                Err(error) => {
                    tracing::warn!(error = %chain(&error), "could not look for complete uploads");
                    return;
                }
            };
            for status in page.iter().filter(|status| is_due(status)) {
                if let Err(error) = completions.complete(&intake, status.id).await {
                    // The client's next request tries it again.
                    tracing::warn!(
                        upload = %status.id,
                        error = %chain(&error),
                        "could not store a complete upload"
                    );
                }
            }
            match next {
                Some(next) => after = Some(next),
                None => return,
            }
        }
    });
}
