//! `GET /v1/documents/{namespace}?follow=true`: documents as they are stored, changed and deleted, one JSON
//! object a line.
//!
//! ```text
//! {"id":8,"received":"2026-11-25T10:00:00Z","document":{...},"cursor":"8.4711"}
//! {"id":3,"change":"replaced","received":"...","document":{...},"cursor":"8.4800"}
//! {"id":5,"change":"deleted","cursor":"8.4850"}
//! ```
//!
//! Invariants: documents are sent in their order, each once, beginning after the cursor or with those stored
//! after the request; a document that changes after it was sent is sent again, or its end; a client that stops
//! can continue with the cursor of the last line, and before the first one with that of the header; while
//! nothing happens, an empty line every 2 s shows that the connection is alive; an error aborts the body.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use forebay_intake::documents::news::{News, NewsCursor};
use forebay_intake::documents::query::DocumentQuery;
use forebay_intake::documents::{DocumentChanges, PageLimits, StoredDocument};
use forebay_intake::names::Namespace;
use forebay_intake::{Intake, IntakeError};
use futures_util::stream;
use http::HeaderValue;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::OwnedSemaphorePermit;

use super::Served;
use super::documents::{NEXT_CURSOR, page_document};
use crate::answer::{self, line};
use crate::serve::Endless;

/// Maximum number of clients that follow documents.
pub(super) const FOLLOWERS_MAX: usize = 256;
/// Documents sent at a time.
const STEP: PageLimits = PageLimits { rows_max: 500, bytes_max: 1 << 20 };
/// Time without documents after which an empty line is sent.
const BEAT_EVERY: Duration = Duration::from_secs(2);

/// One line.
#[derive(Debug, Serialize)]
struct Line<'a> {
    id: u64,
    /// Absent of a document that was stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    received: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    document: Option<&'a RawValue>,
    cursor: String,
}

/// Where a client continues: `ID` or `ID.POSITION`.
pub(super) fn parse_cursor(text: &str) -> Option<(u64, Option<u64>)> {
    match text.split_once('.') {
        None => Some((text.parse().ok()?, None)),
        Some((id, position)) => Some((id.parse().ok()?, Some(position.parse().ok()?))),
    }
}

/// Answers with what happens after a cursor, or from now on. Without a position, the namespace must
/// exist.
pub(super) async fn documents(
    served: &Served,
    namespace: Namespace,
    filter: Option<DocumentQuery>,
    after: Option<(u64, Option<u64>)>,
) -> Result<Response, IntakeError> {
    let permit = Arc::clone(&served.followers)
        .try_acquire_owned()
        .map_err(|_| IntakeError::Busy { what: "too many clients follow documents" })?;
    // Before anything is read, so that no document is between the two.
    let changes = served.intake.document_changes();
    let after = match after {
        // The namespace may have been dropped since, which is reported too.
        Some((id, Some(position))) => NewsCursor { id, position },
        // Without a position, changes are reported from now on.
        other => {
            let found = served.intake.news_from_now(&namespace, other.map(|(id, _)| id)).await?;
            let what = || format!("document namespace {namespace}");
            found.ok_or_else(|| IntakeError::NotFound { what: what() })?
        }
    };
    let intake = served.intake.clone();
    let start = cursor(after);
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
    response.extensions_mut().insert(Endless);
    let headers = response.headers_mut();
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    if let Ok(start) = start.try_into() {
        headers.insert(NEXT_CURSOR, start);
    }
    Ok(response)
}

/// A cursor as clients see it.
fn cursor(cursor: NewsCursor) -> String {
    format!("{}.{}", cursor.id, cursor.position)
}

struct Follower {
    intake: Intake,
    namespace: Namespace,
    filter: Option<DocumentQuery>,
    /// What was looked at.
    after: NewsCursor,
    changes: DocumentChanges,
    _permit: OwnedSemaphorePermit,
}

impl Follower {
    /// The next lines; `None` if the server stops.
    async fn next(&mut self) -> Result<Option<String>, IntakeError> {
        loop {
            let (news, last) = self.intake.document_news(&self.namespace, self.after, STEP).await?;
            let is_behind = !news.is_empty();
            self.after = last;
            let mut text = String::new();
            for (news, cursor) in &news {
                if let Some(one) = self.line(news, *cursor)? {
                    text.push_str(&one);
                    text.push('\n');
                }
            }
            if !text.is_empty() {
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

    /// A line, unless the client does not want it.
    fn line(&self, news: &News, after: NewsCursor) -> Result<Option<String>, IntakeError> {
        let cursor = cursor(after);
        let gone = |id, change| {
            let (change, received, document) = (Some(change), None, None);
            Line { id, change, received, document, cursor: cursor.clone() }
        };
        let (stored, change) = match news {
            News::Stored(stored) => (stored, None),
            News::Replaced(stored) => (stored, Some("replaced")),
            News::Deleted(id) => return Ok(Some(line(&gone(*id, "deleted")))),
            News::Dropped(id) => return Ok(Some(line(&gone(*id, "dropped")))),
        };
        if !self.passes(stored)? {
            // It may have passed before.
            return Ok(change.map(|_| line(&gone(stored.id, "excluded"))));
        }
        let page = page_document(stored)?;
        let (id, received, document) = (page.id, Some(page.received), Some(page.document));
        Ok(Some(line(&Line { id, change, received, document, cursor: cursor.clone() })))
    }

    fn passes(&self, stored: &StoredDocument) -> Result<bool, IntakeError> {
        let Some(filter) = &self.filter else { return Ok(true) };
        filter.passes(&stored.raw).map_err(|error| IntakeError::Damaged {
            digest: format!("document {}", stored.id),
            found: error.to_string(),
        })
    }
}
