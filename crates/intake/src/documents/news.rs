//! What has happened to a namespace's documents since a client looked: those stored, changed, deleted.
//!
//! Documents come in the order of their ids, changes in the order of the log. A client is at an id, up to
//! which it has seen documents, and at a position, up to which it has seen what became of them.
//!
//! Invariants: a change is reported after the document that it changes; of a document the newest change
//! counts, with what the document is then; a change that was seen in part is reported again, never left
//! out.

use forebay_sink::StoredDocument;
use forebay_sqlite::{ChangeKind, ChangePage, PageLimits, SqliteReader};

use crate::Intake;
use crate::error::IntakeError;
use crate::names::Namespace;

/// Changes read at a time.
const CHANGES_MAX: usize = 200;

/// How far a client has followed a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NewsCursor {
    /// Id of the last document seen.
    pub id: u64,
    /// Position up to which changes of documents were seen.
    pub position: u64,
}

/// What happened, one thing at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// A document was stored.
    Stored(StoredDocument),
    /// A document was replaced or merged, and is this one now.
    Replaced(StoredDocument),
    /// The document with this id was deleted.
    Deleted(u64),
    /// All documents up to this id were dropped.
    Dropped(u64),
}

impl Intake {
    /// The cursor of a client that wants what happens from now on; `None` if there is no such
    /// namespace.
    ///
    /// * `after`: id of the last document that it has; `None` for the newest.
    ///
    /// # Errors
    /// [`IntakeError`] if the document database cannot be queried.
    pub async fn news_from_now(
        &self,
        namespace: &Namespace,
        after: Option<u64>,
    ) -> Result<Option<NewsCursor>, IntakeError> {
        self.inner.shown(namespace).await?;
        let namespace = namespace.clone();
        self.ask(move |inner| {
            // The position first: what comes between is reported.
            let page = inner.namespaces.changes(&namespace, u64::MAX, 0)?;
            let info = inner.namespaces.info(&namespace)?.map(|(info, _)| info);
            let position = page.position.map_or(0, |position| position.0);
            Ok(info.filter(|info| !info.is_dropped).map(|info| {
                let id = after.or(info.last_id).unwrap_or(0);
                NewsCursor { id, position }
            }))
        })
        .await
    }

    /// What happened after a cursor, each with the cursor after it, and the cursor after all of it. Not
    /// all of it at once: while there is more, the next call has it.
    ///
    /// # Errors
    /// [`IntakeError`] if the document database cannot be queried.
    pub async fn document_news(
        &self,
        namespace: &Namespace,
        cursor: NewsCursor,
        limits: PageLimits,
    ) -> Result<(Vec<(News, NewsCursor)>, NewsCursor), IntakeError> {
        self.inner.shown(namespace).await?;
        let namespace = namespace.clone();
        self.ask(move |inner| {
            // Changes first: one that comes later is after the position that they are read at.
            let changes = inner.namespaces.changes(&namespace, cursor.position, CHANGES_MAX)?;
            let page = inner.namespaces.documents(&namespace, Some(cursor.id), limits)?;
            let mut at = cursor;
            let mut news = Vec::with_capacity(page.documents.len() + changes.changes.len());
            for stored in page.documents {
                at.id = stored.id;
                news.push((News::Stored(stored), at));
            }
            if page.more {
                return Ok((news, at));
            }
            inner.namespaces.with_reader(|reader| {
                changed(reader, &namespace, cursor.id, &changes, &mut at, &mut news)
            })?;
            Ok((news, at))
        })
        .await
    }
}

/// Adds a page of changes of documents up to the id that was seen before.
fn changed(
    reader: &SqliteReader,
    namespace: &Namespace,
    seen: u64,
    changes: &ChangePage,
    at: &mut NewsCursor,
    news: &mut Vec<(News, NewsCursor)>,
) -> Result<(), forebay_sink::ReadError> {
    if let Some(dropped) = changes.dropped_id.filter(|_| seen > 0) {
        // Changes of later documents follow, all of them after this one.
        at.position = at.position.max(changes.dropped_at.unwrap_or(0));
        news.push((News::Dropped(dropped), *at));
    }
    for change in changes.changes.iter().filter(|change| change.id <= seen) {
        at.position = change.at;
        let one = match change.kind {
            ChangeKind::Deleted => Some(News::Deleted(change.id)),
            // One that was deleted meanwhile is reported with the next changes.
            ChangeKind::Replaced => {
                reader.document(namespace.as_str(), change.id)?.map(News::Replaced)
            }
        };
        news.extend(one.map(|one| (one, *at)));
    }
    let end = match changes.changes.last().filter(|_| changes.more) {
        Some(last) => last.at,
        None => changes.position.map_or(at.position, |position| position.0),
    };
    at.position = at.position.max(end);
    Ok(())
}
