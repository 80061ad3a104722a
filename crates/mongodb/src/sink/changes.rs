//! Replacing and removing rows.
//!
//! Without transactions rows cannot change together with the commit. So a transaction keeps its changes in
//! memory, writes them beside the rows when it is committed, and the commit says that they are valid:
//!
//! ```text
//! 1  _forebay_changes: { _id: "<number>:<place>", collection, clear | remove | put, ... }
//! 2  the commit: the state has the position, and `changes: number`
//! 3  each change is made: a row is replaced or removed only if its `_shape` is absent or less than `number`
//! 4  they are removed from _forebay_changes
//! ```
//!
//! A sink that is opened after step 2 makes the changes of that number again; others are removed. `number`
//! is greater with every attempt and is the `_shape` of a row that was replaced, so a row takes neither
//! changes nor values of an earlier attempt.
//!
//! Invariants: no row changes before the commit; made twice, changes have the same effect; what a
//! transaction counts is what its rows will be.

use std::collections::BTreeMap;

use forebay_sink::{ColumnType, Derive, ServerError, SinkError, TableSchema};
use futures_util::TryStreamExt as _;
use mongodb::bson::raw::{CString, RawDocumentBuf};
use mongodb::bson::{Document, doc};

use super::MongoSink;
use super::layout::{CHANGES, long, part_key, parts_after, parts_name};
use super::link::Link;
use super::load::unless_there;
use super::reshape::row_filter;
use super::row::{self, Made};

const ACT: &str = "change rows";

/// The changes of a transaction to a namespace.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Every row up to this id is removed, before the other changes.
    cleared: Option<u64>,
    /// The last change of each other row.
    rows: BTreeMap<u64, Change>,
}

/// A change of a row.
#[derive(Debug)]
struct Change {
    /// Whether the row is in the collection until then.
    is_there: bool,
    /// What takes its place.
    put: Option<Replacement>,
}

/// A row that takes the place of another.
#[derive(Debug)]
pub(super) struct Replacement {
    /// The document it is made from.
    pub(super) raw: Vec<u8>,
    /// When it was received, and the position of its entry.
    pub(super) head: (u64, u64),
    /// What is stored.
    pub(super) made: Made,
}

impl Changes {
    /// Records that a row is removed; returns whether there was one.
    ///
    /// * `is_stored`: whether the collection has it; asked only if that is not known.
    fn remove(
        &mut self,
        id: u64,
        is_stored: impl FnOnce() -> Result<bool, ServerError>,
    ) -> Result<bool, ServerError> {
        if let Some(change) = self.rows.get_mut(&id) {
            return Ok(change.put.take().is_some());
        }
        let is_there = self.cleared.is_none_or(|last| id > last) && is_stored()?;
        self.rows.insert(id, Change { is_there, put: None });
        Ok(is_there)
    }

    /// Records that every row up to an id is removed; returns their number.
    ///
    /// * `stored`: counts the rows of the collection above the first id and up to the second.
    fn clear(
        &mut self,
        last: u64,
        stored: impl FnOnce(Option<u64>, u64) -> Result<u64, ServerError>,
    ) -> Result<u64, ServerError> {
        let mut rows = 0;
        if self.cleared.is_none_or(|cleared| last > cleared) {
            rows = stored(self.cleared, last)?;
        }
        let later = self.rows.split_off(&last.saturating_add(1));
        for change in std::mem::replace(&mut self.rows, later).into_values() {
            rows += u64::from(change.put.is_some());
            rows = rows.saturating_sub(u64::from(change.is_there));
        }
        self.cleared = self.cleared.max(Some(last));
        Ok(rows)
    }

    /// Records what takes the place of a row that was removed.
    pub(super) fn put(&mut self, id: u64, replacement: Replacement) {
        if let Some(change) = self.rows.get_mut(&id) {
            change.put = Some(replacement);
        }
    }

    /// Makes the rows again for other columns.
    ///
    /// * `columns`: for each field its column's name and type.
    fn reshape(&mut self, columns: &[Option<(CString, ColumnType)>], derive: &mut Derive<'_>) {
        for (id, change) in &mut self.rows {
            let Some(put) = &mut change.put else { continue };
            let (received_ms, at) = put.head;
            put.made = row::make((*id, received_ms, at), &put.raw, |maker| {
                derive(&put.raw, &mut |field, value| {
                    if let Some(Some((name, ty))) = columns.get(field) {
                        maker.put(name, *ty, value);
                    }
                });
            });
        }
    }

    /// What is written beside the rows.
    fn entries(&self, collection: &str) -> Result<Vec<Document>, String> {
        let mut entries = Vec::new();
        if let Some(last) = self.cleared {
            entries.push(doc! { "collection": collection, "clear": long(last) });
        }
        for (id, change) in &self.rows {
            let id = long(*id);
            let Some(put) = &change.put else {
                // One that was never stored, or is cleared, is removed already.
                if change.is_there {
                    entries.push(doc! { "collection": collection, "remove": id });
                }
                continue;
            };
            for part in &put.made.parts {
                let part = read(part)?;
                entries.push(doc! { "collection": collection, "part": part });
            }
            let row = read(&put.made.row)?;
            let is_new = !change.is_there;
            entries.push(doc! { "collection": collection, "put": id, "new": is_new, "row": row });
        }
        Ok(entries)
    }
}

fn read(row: &RawDocumentBuf) -> Result<Document, String> {
    Document::try_from(row.clone()).map_err(|error| error.to_string())
}

impl MongoSink {
    /// Records that a row is removed; returns the number of rows.
    pub(super) fn take_row(&mut self, index: usize, id: u64) -> Result<u64, SinkError> {
        self.load.flush_all(&self.link, &self.book)?;
        let Some(namespace) = self.book.namespaces.get_mut(index) else { return Ok(0) };
        let (link, table) = (&self.link, &namespace.table);
        let stored = || Ok(count(link, table, doc! { "_id": long(id) })? > 0);
        let rows = u64::from(self.changes.entry(index).or_default().remove(id, stored)?);
        namespace.removed(rows);
        Ok(rows)
    }

    /// Records that all rows up to an id are removed, and the columns if no others remain; returns the
    /// number of rows.
    pub(super) fn take_rows(&mut self, index: usize, last: u64) -> Result<u64, SinkError> {
        self.load.flush_all(&self.link, &self.book)?;
        let Some(namespace) = self.book.namespaces.get_mut(index) else { return Ok(0) };
        // What is above the last id was never committed.
        let Some(last) = namespace.last_id.map(|id| id.min(last)) else { return Ok(0) };
        let (link, table) = (&self.link, &namespace.table);
        let stored = |above: Option<u64>, last| {
            let range = doc! { "$gt": above.map_or(-1, long), "$lte": long(last) };
            count(link, table, doc! { "_id": range })
        };
        let rows = self.changes.entry(index).or_default().clear(last, stored)?;
        namespace.removed(rows);
        if namespace.row_count == 0 {
            namespace.schema = TableSchema::default();
        }
        Ok(rows)
    }

    /// Makes the rows of the open transaction that replace others again for changed columns.
    pub(super) fn reshape_changes(
        &mut self,
        index: usize,
        ordinals: &[Option<usize>],
        derive: &mut Derive<'_>,
    ) {
        let namespace = self.book.namespaces.get(index);
        let Some((changes, namespace)) = self.changes.get_mut(&index).zip(namespace) else {
            return;
        };
        let columns = namespace.schema.columns();
        let column = |ordinal: &Option<usize>| {
            let column = columns.get((*ordinal)?)?;
            Some((column.name.as_str().try_into().ok()?, column.ty))
        };
        let columns: Vec<_> = ordinals.iter().map(column).collect();
        changes.reshape(&columns, derive);
    }

    /// Writes the changes of the open transaction beside the rows, and returns their number for the commit;
    /// `None` if there are none.
    pub(super) fn stage_changes(&mut self) -> Result<Option<i64>, SinkError> {
        let entries = self.entries().map_err(|found| self.link.contents(ACT, found))?;
        if entries.is_empty() {
            return Ok(None);
        }
        let number = self.next_number()?;
        let named = entries.into_iter().zip(0u32..).map(|(mut entry, place)| {
            entry.insert("_id", key(number, place));
            entry
        });
        let staged = self.link.database.collection::<Document>(CHANGES);
        // One after another: each may be as large as a request.
        for entry in named {
            let made = async { unless_there(staged.insert_one(entry).await) };
            self.link.wait(ACT, made)?;
        }
        Ok(Some(number))
    }

    fn entries(&self) -> Result<Vec<Document>, String> {
        let mut entries = Vec::new();
        for (index, changes) in &self.changes {
            if let Some(namespace) = self.book.namespaces.get(*index) {
                entries.extend(changes.entries(&namespace.table)?);
            }
        }
        Ok(entries)
    }
}

/// Makes the changes that the state says are valid, and removes all others.
pub(super) fn resume(link: &Link, number: Option<i64>) -> Result<(), ServerError> {
    let staged = link.database.collection::<Document>(CHANGES);
    if let Some(number) = number {
        make(link, number)?;
    }
    link.wait(ACT, async { staged.delete_many(doc! {}).await.map(drop) })
}

/// Makes the changes of a commit, in their order, and removes them then.
pub(super) fn make(link: &Link, number: i64) -> Result<(), ServerError> {
    let staged = link.database.collection::<Document>(CHANGES);
    let mine = doc! { "_id": { "$gte": key(number, 0), "$lte": key(number, u32::MAX) } };
    let mut parts = Vec::new();
    let mut after = None;
    loop {
        // One at a time: each may be as large as a request.
        let from = after.as_ref().map_or_else(|| key(number, 0), |after: &String| after.clone());
        let above = if after.is_some() { "$gt" } else { "$gte" };
        let next = doc! { "_id": { above: from, "$lte": key(number, u32::MAX) } };
        let found = link.wait(ACT, async {
            staged.find(next).sort(doc! { "_id": 1 }).limit(1).await?.try_next().await
        })?;
        let Some(entry) = found else { break };
        let odd = |found: String| link.contents(ACT, format!("a change of rows: {found}"));
        after = Some(entry.get_str("_id").map_err(|error| odd(error.to_string()))?.to_owned());
        let collection = entry.get_str("collection").map_err(|error| odd(error.to_string()))?;
        if let Ok(part) = entry.get_document("part") {
            parts.push(part.clone());
        } else if let Ok(last) = entry.get_i64("clear") {
            clear(link, collection, last, number)?;
        } else if let Ok(id) = entry.get_i64("remove") {
            remove(link, collection, id, number)?;
        } else {
            let id = entry.get_i64("put").map_err(|error| odd(error.to_string()))?;
            let is_new = entry.get_bool("new").map_err(|error| odd(error.to_string()))?;
            let row = entry.get_document("row").map_err(|error| odd(error.to_string()))?;
            let mut row = row.clone();
            row.insert("_shape", number);
            put(link, collection, (id, is_new, row, std::mem::take(&mut parts)), number)?;
        }
    }
    link.wait(ACT, async { staged.delete_many(mine).await.map(drop) })
}

/// Rows of a collection.
fn count(link: &Link, table: &str, filter: Document) -> Result<u64, ServerError> {
    let rows = link.database.collection::<Document>(table);
    link.wait("count rows", async { rows.count_documents(filter).await })
}

fn clear(link: &Link, table: &str, last: i64, number: i64) -> Result<(), ServerError> {
    let rows = link.database.collection::<Document>(table);
    let mut filter = row_filter(last, number);
    filter.insert("_id", doc! { "$lte": last });
    link.wait(ACT, async { rows.delete_many(filter).await.map(drop) })?;
    let after = parts_after(Some(last.cast_unsigned()));
    remove_parts(link, table, doc! { "_id": { "$lt": after } })
}

fn remove(link: &Link, table: &str, id: i64, number: i64) -> Result<(), ServerError> {
    let rows = link.database.collection::<Document>(table);
    link.wait(ACT, async { rows.delete_one(row_filter(id, number)).await.map(drop) })?;
    remove_parts(link, table, parts_of(id))
}

/// Puts a row in the place of another. Its parts are there before it is.
fn put(
    link: &Link,
    table: &str,
    (id, is_new, row, parts): (i64, bool, Document, Vec<Document>),
    number: i64,
) -> Result<(), ServerError> {
    let rows = link.database.collection::<Document>(table);
    let beside = link.database.collection::<Document>(&parts_name(table));
    let has_parts = !parts.is_empty();
    if has_parts {
        remove_parts(link, table, parts_of(id))?;
        for part in parts {
            link.wait(ACT, async { unless_there(beside.insert_one(part).await) })?;
        }
    }
    if is_new {
        link.wait(ACT, async { unless_there(rows.insert_one(row.clone()).await) })?;
    }
    // One that was changed by a later attempt stays.
    let replaced = async { rows.replace_one(row_filter(id, number), row).await.map(drop) };
    link.wait(ACT, replaced)?;
    if has_parts { Ok(()) } else { remove_parts(link, table, parts_of(id)) }
}

fn parts_of(id: i64) -> Document {
    let id = id.cast_unsigned();
    doc! { "_id": { "$gte": part_key(id, 0), "$lt": parts_after(Some(id)) } }
}

fn remove_parts(link: &Link, table: &str, filter: Document) -> Result<(), ServerError> {
    let parts = link.database.collection::<Document>(&parts_name(table));
    link.wait(ACT, async { parts.delete_many(filter).await.map(drop) })
}

/// The key of a change. Keys are ordered by number, then by place.
fn key(number: i64, place: u32) -> String {
    format!("{number:016x}:{place:08x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replacement() -> Replacement {
        let made = row::make((1, 2, 3), b"{}", |_| {});
        Replacement { raw: b"{}".to_vec(), head: (2, 3), made }
    }

    #[test]
    fn what_a_transaction_counts_is_what_its_rows_will_be() {
        let mut changes = Changes::default();
        assert!(changes.remove(5, || Ok(true)).unwrap());
        assert!(!changes.remove(5, || panic!("it is known")).unwrap());
        changes.put(5, replacement());
        assert!(!changes.remove(7, || Ok(false)).unwrap());
        // Of rows 1 to 6 the collection has five, one of which is replaced.
        assert_eq!(
            changes
                .clear(6, |above, last| {
                    assert_eq!((above, last), (None, 6));
                    Ok(5)
                })
                .unwrap(),
            5
        );
        assert_eq!(changes.clear(4, |_, _| panic!("it is cleared")).unwrap(), 0);
        assert!(!changes.remove(3, || panic!("it is cleared")).unwrap());
        changes.put(3, replacement());
        assert_eq!(
            changes
                .clear(8, |above, last| {
                    assert_eq!((above, last), (Some(6), 8));
                    Ok(2)
                })
                .unwrap(),
            3
        );
        assert!(changes.rows.is_empty());
    }

    #[test]
    fn a_removed_row_is_an_entry_only_if_there_is_one_to_remove() {
        let mut changes = Changes::default();
        changes.remove(1, || Ok(true)).unwrap();
        changes.remove(2, || Ok(false)).unwrap();
        changes.remove(3, || Ok(true)).unwrap();
        changes.put(3, replacement());
        let entries = changes.entries("c").unwrap();
        assert_eq!(entries.len(), 2);
        assert_eq!(entries[0].get_i64("remove").unwrap(), 1);
        assert_eq!(entries[1].get_i64("put").unwrap(), 3);
        assert!(!entries[1].get_bool("new").unwrap());
    }
}
