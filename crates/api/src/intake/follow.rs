//! `GET /v1/documents/{namespace}?follow=true`: documents as they are stored, one JSON object a line.
//!
//! ```text
//! {"id":8,"received":"2026-11-25T10:00:00Z","document":{...}}
//! ```
//!
//! Invariants: documents are sent in their order, each once, beginning after the cursor or with those stored
//! after the request; a client that stops can continue with the id of the last line as its cursor; while
//! nothing is stored, an empty line every 15 s shows that the connection is alive; an error aborts the body.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use forebay_intake::documents::query::DocumentQuery;
use forebay_intake::documents::{DocumentChanges, PageLimits, StoredDocument};
use forebay_intake::names::Namespace;
use forebay_intake::{Intake, IntakeError};
use futures_util::stream;
use http::HeaderValue;
use tokio::sync::OwnedSemaphorePermit;

use super::Served;
use super::documents::page_document;
use crate::answer::{self, line};

/// Maximum number of clients that follow documents.
pub(super) const FOLLOWERS_MAX: usize = 256;
/// Documents sent at a time.
const STEP: PageLimits = PageLimits { rows_max: 500, bytes_max: 1 << 20 };
/// Time without documents after which an empty line is sent.
const BEAT_EVERY: Duration = Duration::from_secs(15);

/// Answers with documents after `after`, or with those stored from now on.
pub(super) async fn documents(
    served: &Served,
    namespace: Namespace,
    filter: Option<DocumentQuery>,
    after: Option<u64>,
) -> Result<Response, IntakeError> {
    let permit = Arc::clone(&served.followers)
        .try_acquire_owned()
        .map_err(|_| IntakeError::Busy { what: "too many clients follow documents" })?;
    // Before anything is read, so that no document is between the two.
    let changes = served.intake.document_changes();
    let after = match after {
        Some(after) => after,
        None => {
            let first = PageLimits { rows_max: 1, ..STEP };
            let known = served.intake.documents(&namespace, None, first).await?;
            known.and_then(|page| page.info.last_id).unwrap_or(0)
        }
    };
    let intake = served.intake.clone();
    let follower = Follower { intake, namespace, filter, after, changes, _permit: permit };
    let lines = stream::unfold(Some(follower), |follower| async move {
        let mut follower = follower?;
        match follower.next().await {
            Ok(Some(text)) => Some((Ok(Bytes::from(text)), Some(follower))),
            Ok(None) => None,
            Err(error) => {
                let error = forebay_base::error_chain::chain(&error).to_string();
                tracing::warn!(%error, "a client that follows documents was disconnected");
                Some((Err(io::Error::other("cannot read the documents")), None))
            }
        }
    });
    let mut response = answer::lines(Body::from_stream(lines));
    response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

struct Follower {
    intake: Intake,
    namespace: Namespace,
    filter: Option<DocumentQuery>,
    /// Id of the last document that was looked at.
    after: u64,
    changes: DocumentChanges,
    _permit: OwnedSemaphorePermit,
}

impl Follower {
    /// The next lines; `None` if the server stops.
    async fn next(&mut self) -> Result<Option<String>, IntakeError> {
        loop {
            let (documents, last) = self.step().await?;
            let is_behind = last > self.after;
            self.after = last;
            if !documents.is_empty() {
                let mut text = String::new();
                for document in &documents {
                    text.push_str(&line(&page_document(document)?));
                    text.push('\n');
                }
                return Ok(Some(text));
            }
            if is_behind {
                continue;
            }
            match tokio::time::timeout(BEAT_EVERY, self.changes.changed()).await {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(_) => return Ok(Some("\n".to_owned())),
            }
        }
    }

    /// The next documents, and the id of the last one that was looked at.
    async fn step(&self) -> Result<(Vec<StoredDocument>, u64), IntakeError> {
        let (namespace, after) = (&self.namespace, Some(self.after));
        let page = self.intake.documents(namespace, after, STEP).await?;
        let mut documents = page.map(|page| page.documents).unwrap_or_default();
        let last = documents.last().map_or(self.after, |last| last.id);
        if let Some(filter) = &self.filter {
            let mut passing = Vec::with_capacity(documents.len());
            for document in documents {
                let passes =
                    filter.passes(&document.raw).map_err(|error| IntakeError::Damaged {
                        digest: format!("document {}", document.id),
                        found: error.to_string(),
                    })?;
                if passes {
                    passing.push(document);
                }
            }
            documents = passing;
        }
        Ok((documents, last))
    }
}
