//! Sending rows to the server and removing them.
//!
//! Rows wait in memory, by namespace, until there are enough of them or the transaction is
//! committed; then they are sent by unordered inserts, several at a time over the pool's
//! connections. The driver splits each at the server's limits (usually 48 MB and 100,000
//! documents).
//!
//! Invariant: waiting rows have at most [`WAITING_SIZE_MAX`] bytes, except for the last one.

use std::collections::HashMap;

use forebay_sink::server::book::{Book, Namespace};
use forebay_sink::{ServerError, SinkError};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use mongodb::Database;
use mongodb::bson::raw::RawDocumentBuf;
use mongodb::bson::{Document, doc};
use mongodb::error::{Error, ErrorKind};

use super::layout::{long, parts_after, parts_name};
use super::link::Link;
use super::row::Made;
use crate::error::{DUPLICATE_KEY, is_duplicate};

/// Bytes that wait together before they are sent.
const WAITING_SIZE_MAX: usize = 16 << 20;
/// Bytes and rows of one insert.
const INSERT_SIZE_MAX: usize = 4 << 20;
const INSERT_ROWS_MAX: usize = 10_000;
/// Maximum number of concurrent requests.
const REQUESTS_MAX: usize = 8;

/// Rows of a namespace that wait.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    rows: Vec<RawDocumentBuf>,
    parts: Vec<RawDocumentBuf>,
    size: usize,
}

impl Buffer {
    pub(super) fn push(&mut self, made: Made) {
        let all = made.parts.iter().chain([&made.row]);
        self.size += all.map(|row| row.as_bytes().len()).sum::<usize>();
        self.rows.push(made.row);
        self.parts.extend(made.parts);
    }
}

/// What waits.
#[derive(Debug, Default)]
pub(super) struct Load {
    /// By the namespaces' places in the book.
    waiting: HashMap<usize, Buffer>,
    size: usize,
}

impl Load {
    /// Drops everything that waits.
    pub(super) fn forget(&mut self) {
        self.waiting.clear();
        self.size = 0;
    }

    /// The rows that wait for this namespace, to add to them.
    pub(super) fn take(&mut self, index: usize) -> Buffer {
        let buffer = self.waiting.remove(&index).unwrap_or_default();
        self.size -= buffer.size;
        buffer
    }

    /// Sends rows on the way, as soon as there are enough of them.
    pub(super) fn pass(
        link: &Link,
        namespace: &Namespace,
        buffer: &mut Buffer,
    ) -> Result<(), SinkError> {
        if buffer.size < WAITING_SIZE_MAX {
            return Ok(());
        }
        Ok(send(link, vec![(namespace, std::mem::take(buffer))])?)
    }

    /// Takes back the rows of a namespace when a write to it ends.
    pub(super) fn put_back(
        &mut self,
        link: &Link,
        book: &Book,
        index: usize,
        buffer: Buffer,
    ) -> Result<(), SinkError> {
        self.size += buffer.size;
        self.waiting.insert(index, buffer);
        if self.size < WAITING_SIZE_MAX { Ok(()) } else { self.flush_all(link, book) }
    }

    /// Sends everything that waits.
    pub(super) fn flush_all(&mut self, link: &Link, book: &Book) -> Result<(), SinkError> {
        self.size = 0;
        let waiting = self.waiting.drain();
        let waiting = waiting
            .filter_map(|(index, buffer)| Some((book.namespaces.get(index)?, buffer)))
            .collect();
        Ok(send(link, waiting)?)
    }
}

/// Inserts these rows. Parts are inserted first: a row is never there without its parts.
fn send(link: &Link, waiting: Vec<(&Namespace, Buffer)>) -> Result<(), ServerError> {
    let (mut parts, mut rows) = (Vec::new(), Vec::new());
    for (namespace, buffer) in waiting {
        cut(buffer.parts).for_each(|some| parts.push((parts_name(&namespace.table), some)));
        cut(buffer.rows).for_each(|some| rows.push((namespace.table.clone(), some)));
    }
    for inserts in [parts, rows] {
        let requests = inserts.into_iter().map(|(name, some)| insert(&link.database, name, some));
        let requests = stream::iter(requests).buffer_unordered(REQUESTS_MAX);
        link.wait("insert rows", requests.try_collect::<()>())?;
    }
    Ok(())
}

/// Rows in pieces of one insert each.
fn cut(rows: Vec<RawDocumentBuf>) -> impl Iterator<Item = Vec<RawDocumentBuf>> {
    let mut rows = rows.into_iter().peekable();
    std::iter::from_fn(move || {
        rows.peek()?;
        let (mut piece, mut size) = (Vec::new(), 0);
        while let Some(row) = rows.next_if(|row| {
            let fits = size + row.as_bytes().len() <= INSERT_SIZE_MAX;
            piece.is_empty() || (fits && piece.len() < INSERT_ROWS_MAX)
        }) {
            size += row.as_bytes().len();
            piece.push(row);
        }
        Some(piece)
    })
}

/// Inserts rows in any order. A duplicate key means that the row is already there.
async fn insert(
    database: &Database,
    collection: String,
    rows: Vec<RawDocumentBuf>,
) -> Result<(), Error> {
    let collection = database.collection::<RawDocumentBuf>(&collection);
    match collection.insert_many(&rows).ordered(false).await {
        Ok(_) => Ok(()),
        Err(error) => match error.kind.as_ref() {
            ErrorKind::InsertMany(failed)
                if failed.write_concern_error.is_none()
                    && failed.write_errors.iter().flatten().all(|it| it.code == DUPLICATE_KEY) =>
            {
                Ok(())
            }
            _ => Err(error),
        },
    }
}

/// Returns an insert's result, ignoring duplicate keys.
pub(super) fn unless_there<T>(inserted: Result<T, Error>) -> Result<(), Error> {
    match inserted {
        Ok(_) => Ok(()),
        Err(error) if is_duplicate(&error) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Every document of a collection of the sink's own.
pub(super) fn all(link: &Link, act: &str, collection: &str) -> Result<Vec<Document>, ServerError> {
    let collection = link.database.collection::<Document>(collection);
    link.wait(act, async { collection.find(doc! {}).await?.try_collect().await })
}

/// Removes the rows above the last id of each collection.
pub(super) fn sweep(
    link: &Link,
    collections: Vec<(String, Option<u64>)>,
) -> Result<(), ServerError> {
    let deletes = collections.into_iter().map(async |(name, last)| {
        let rows = link.database.collection::<Document>(&name);
        // Ids begin at 0.
        rows.delete_many(doc! { "_id": { "$gt": last.map_or(-1, long) } }).await?;
        let parts = link.database.collection::<Document>(&parts_name(&name));
        parts.delete_many(doc! { "_id": { "$gt": parts_after(last) } }).await?;
        Ok(())
    });
    let deletes = stream::iter(deletes).buffer_unordered(REQUESTS_MAX);
    link.wait("remove rows that were not committed", deletes.try_collect::<()>())
}

/// Updates namespaces; returns `false` if one of them does not exist, or belongs to another writer.
pub(super) fn update_all(
    link: &Link,
    act: &str,
    updates: Vec<(Document, Document)>,
) -> Result<bool, ServerError> {
    let collection = link.database.collection::<Document>(super::layout::NAMESPACES);
    let requests = updates.into_iter().map(async |(filter, update)| {
        Ok(collection.update_one(filter, update).await?.matched_count > 0)
    });
    let requests = stream::iter(requests).buffer_unordered(REQUESTS_MAX);
    link.wait(act, requests.try_fold(true, async |all, one| Ok(all && one)))
}
