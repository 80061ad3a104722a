//! Deriving the values of rows again when the columns of their namespace change.
//!
//! Without transactions rows cannot change together with the commit. So their new values are written
//! into a collection beside them first (`<collection>:reshaped:<shape>`), the commit says which of
//! these values are valid, and then they are moved into the rows:
//!
//! ```text
//! 1  _forebay_namespaces: reshaping = { shape, names, values }    which values are about to be where
//! 2  <collection>:reshaped:<shape>: { _id, set }                  the values of each row
//! 3  the commit: the state of the namespace has `shape`
//! 4  each row gets `set` and `_shape`, and loses the other names; its entry beside it is removed
//! 5  the collection beside it and `reshaping` are removed
//! ```
//!
//! A sink that is opened after step 3 continues with step 4; before it, what is beside the rows is
//! dropped. `shape` is greater with every attempt, and a row takes no values of a lesser one than its
//! own: so each attempt changes a row at most once, and a late request of a superseded writer none.
//! Each attempt has its own collection: no late insert adds values to another attempt, and a
//! server that was killed while it created a collection, and cannot create it afterwards (FerretDB
//! 1.24 on SQLite), is not asked to again.
//!
//! Invariants: no row changes before the commit; memory is limited whatever the rows and their number.

use std::collections::BTreeSet;

use forebay_sink::column::Fit;
use forebay_sink::{ColumnType, Derive, ServerError, SinkError, TableSchema};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use mongodb::Collection;
use mongodb::bson::raw::RawDocumentBuf;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, Document, doc};
use mongodb::error::Error;

use super::json;
use super::layout::{long, part_key, parts_after, parts_name, reshaped_name};
use super::link::Link;
use super::row::{ROW_SIZE_MAX, VALUE_SIZE_MAX};
use super::{MongoSink, load};

/// Rows read, or changed, at a time.
const PAGE_ROWS_MAX: usize = 500;
/// Bytes after which a page ends; its last row may exceed them.
const PAGE_SIZE_MAX: usize = 8 << 20;
/// Maximum number of concurrent requests.
const REQUESTS_MAX: usize = 8;
/// Attempts between two epochs are counted in this many bits.
const ATTEMPT_BITS: u32 = 20;
/// Values that stand in a row whatever else it has.
const SMALL_VALUE_SIZE: usize = 1 << 10;

/// A change of columns whose values are beside the rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) number: i64,
    /// Names of every column that a row may have until then.
    names: BTreeSet<String>,
    /// The collection of the values.
    values: String,
}

impl Shape {
    fn to_document(&self) -> Document {
        let names: Vec<&String> = self.names.iter().collect();
        doc! { "shape": self.number, "names": names, "values": &self.values }
    }

    /// Parses what a namespace says of the values beside its rows. The error is the fault.
    fn parse(namespace: &Document) -> Result<Option<Self>, String> {
        let Some(found) = namespace.get("reshaping").filter(|found| **found != Bson::Null) else {
            return Ok(None);
        };
        let parsed = found.as_document().and_then(|found| {
            let names = found.get_array("names").ok()?.iter();
            let names = names.map(|name| name.as_str().map(str::to_owned));
            let names = names.collect::<Option<_>>()?;
            let values = match found.get("values") {
                Some(values) => values.as_str()?.to_owned(),
                // Earlier versions had one collection for all attempts.
                None => reshaped_name(namespace.get_str("collection").ok()?, None),
            };
            Some(Self { number: number(found, "shape")?, names, values })
        });
        parsed.map(Some).ok_or_else(|| format!("a change of columns is {found}"))
    }
}

/// The number of the last change of columns in the state of a namespace.
pub(super) fn shape_in(slot: &Document) -> Option<i64> {
    number(slot, "shape")
}

fn number(document: &Document, key: &str) -> Option<i64> {
    match document.get(key)? {
        Bson::Int64(number) => Some(*number),
        Bson::Int32(number) => Some((*number).into()),
        _ => None,
    }
}

impl MongoSink {
    /// Writes the values that the rows of a namespace are to have beside them.
    ///
    /// * `before`: the columns that they have.
    /// * `ordinals`: the new column of each field.
    pub(super) fn stage(
        &mut self,
        index: usize,
        before: &TableSchema,
        ordinals: &[Option<usize>],
        derive: &mut Derive<'_>,
    ) -> Result<(), SinkError> {
        let shape = self.next_shape(index, before)?;
        let Some(namespace) = self.book.namespaces.get(index) else { return Ok(()) };
        let link = &self.link;
        if let Some(earlier) = self.shapes.get(&namespace.name) {
            remove(link, &earlier.values)?;
        }
        let mark = doc! { "$set": { "reshaping": shape.to_document(), "epoch": self.epoch } };
        if !self.mark(&namespace.name, mark)? {
            return Err(self.superseded("change columns"));
        }
        let staged = link.database.collection::<Document>(&shape.values);
        let columns = namespace.schema.columns();
        let mut after = -1;
        loop {
            let page = page(link, &namespace.table, after)?;
            let Some((last, _)) = page.last() else { break };
            after = *last;
            let mut values = Vec::with_capacity(page.len());
            for (id, row) in &page {
                let document = original(link, &namespace.table, *id, row)?;
                let mut found: Vec<Option<Bson>> = vec![None; columns.len()];
                derive(&document, &mut |field, value| {
                    let Some(ordinal) = ordinals.get(field).copied().flatten() else { return };
                    if let Some((column, place)) = columns.get(ordinal).zip(found.get_mut(ordinal))
                    {
                        *place = bson(column.ty, column.ty.fit(value));
                    }
                });
                let names = columns.iter().map(|column| column.name.clone());
                let set = limited(names.zip(found), row.as_bytes().len());
                values.push(doc! { "_id": *id, "set": set });
            }
            let inserts = staged.insert_many(values).ordered(false);
            link.wait("write changed values", inserts.into_future())?;
        }
        self.shapes.insert(namespace.name.clone(), shape);
        Ok(())
    }

    /// A number above all before.
    pub(super) fn next_number(&mut self) -> Result<i64, SinkError> {
        self.attempts += 1;
        if self.attempts >> ATTEMPT_BITS != 0 {
            // The next roll-back begins another epoch.
            return Err(SinkError::RolledBack);
        }
        Ok((self.epoch << ATTEMPT_BITS) | self.attempts)
    }

    /// A number above all before, and the names of all columns that rows may have.
    fn next_shape(&mut self, index: usize, before: &TableSchema) -> Result<Shape, SinkError> {
        let number = self.next_number()?;
        let (mut names, mut values) = (BTreeSet::new(), String::new());
        if let Some(namespace) = self.book.namespaces.get(index) {
            values = reshaped_name(&namespace.table, Some(number));
            let earlier = self.shapes.get(&namespace.name);
            names.extend(earlier.into_iter().flat_map(|shape| shape.names.iter().cloned()));
            let columns = before.columns().iter().chain(namespace.schema.columns());
            names.extend(columns.map(|column| column.name.clone()));
        }
        Ok(Shape { number, names, values })
    }

    /// Updates the document of a namespace; returns `false` if it belongs to another writer.
    fn mark(&self, name: &str, update: Document) -> Result<bool, ServerError> {
        let mine = doc! { "_id": name, "epoch": { "$lte": self.epoch } };
        load::update_all(&self.link, "record a change of columns", vec![(mine, update)])
    }

    /// Moves the values beside the rows of a namespace into them. They are committed.
    pub(super) fn fill(&self, name: &str, table: &str, shape: &Shape) -> Result<(), ServerError> {
        const ACT: &str = "change the values of rows";
        let link = &self.link;
        let rows = link.database.collection::<Document>(table);
        let staged = link.database.collection::<Document>(&shape.values);
        loop {
            let page = page(link, &shape.values, -1)?;
            let Some((last, _)) = page.last() else { break };
            let last = *last;
            let mut updates = Vec::with_capacity(page.len());
            for (id, values) in page {
                let odd = |found: String| link.contents(ACT, format!("values of {id}: {found}"));
                let values = Document::try_from(values).map_err(|error| odd(error.to_string()))?;
                let set = values.get_document("set").map_err(|error| odd(error.to_string()))?;
                updates.push((row_filter(id, shape.number), row_update(set, shape)));
            }
            link.wait(ACT, change(&rows, updates))?;
            let done = staged.delete_many(doc! { "_id": { "$lte": last } });
            link.wait(ACT, done.into_future())?;
        }
        self.forget(name, shape)
    }

    /// Removes what is beside the rows of a namespace.
    fn forget(&self, name: &str, shape: &Shape) -> Result<(), ServerError> {
        remove(&self.link, &shape.values)?;
        // Where it belongs to another writer, that does the same.
        self.mark(name, doc! { "$unset": { "reshaping": "" } })?;
        Ok(())
    }

    /// Continues a change of columns that was committed and not completed, and drops others.
    ///
    /// * `slot`: the state of the namespace that is valid.
    pub(super) fn resume(
        &self,
        namespace: &Document,
        slot: Option<&Document>,
    ) -> Result<(), ServerError> {
        const ACT: &str = "read the namespaces";
        let shape = Shape::parse(namespace).map_err(|found| self.link.contents(ACT, found))?;
        let Some(shape) = shape else { return Ok(()) };
        let text = |key: &str| {
            namespace.get_str(key).map_err(|error| self.link.contents(ACT, error.to_string()))
        };
        let (name, table) = (text("_id")?, text("collection")?);
        if slot.and_then(shape_in) == Some(shape.number) {
            return self.fill(name, table, &shape);
        }
        self.forget(name, &shape)
    }
}

/// Removes the values of an attempt.
fn remove(link: &Link, values: &str) -> Result<(), ServerError> {
    let staged = link.database.collection::<Document>(values);
    link.wait("remove changed values", staged.drop().into_future())
}

/// A row whose values are older than an attempt.
pub(super) fn row_filter(id: i64, shape: i64) -> Document {
    let older = [doc! { "_shape": { "$exists": false } }, doc! { "_shape": { "$lt": shape } }];
    doc! { "_id": id, "$or": older.to_vec() }
}

fn row_update(set: &Document, shape: &Shape) -> Document {
    let mut set = set.clone();
    let gone = shape.names.iter().filter(|name| !set.contains_key(name.as_str()));
    let gone: Document = gone.map(|name| (name.clone(), Bson::String(String::new()))).collect();
    set.insert("_shape", shape.number);
    let mut update = doc! { "$set": set };
    // Some servers refuse to remove nothing.
    if !gone.is_empty() {
        update.insert("$unset", gone);
    }
    update
}

async fn change(
    rows: &Collection<Document>,
    updates: Vec<(Document, Document)>,
) -> Result<(), Error> {
    let requests = updates
        .into_iter()
        .map(async |(filter, update)| rows.update_one(filter, update).await.map(|_| ()));
    stream::iter(requests).buffer_unordered(REQUESTS_MAX).try_collect().await
}

/// Documents of a collection above an id, in the order of ids, up to a limit of number and size.
fn page(
    link: &Link,
    collection: &str,
    after: i64,
) -> Result<Vec<(i64, RawDocumentBuf)>, ServerError> {
    const ACT: &str = "read rows";
    let collection = link.database.collection::<RawDocumentBuf>(collection);
    let rows = link.wait(ACT, async {
        let found = collection.find(doc! { "_id": { "$gt": after } }).sort(doc! { "_id": 1 });
        let mut found = found.limit(i64::try_from(PAGE_ROWS_MAX).unwrap_or(i64::MAX)).await?;
        let (mut rows, mut size) = (Vec::new(), 0);
        while size < PAGE_SIZE_MAX
            && let Some(row) = found.try_next().await?
        {
            size += row.as_bytes().len();
            rows.push(row);
        }
        Ok(rows)
    })?;
    rows.into_iter()
        .map(|row| match row.get("_id").ok().flatten().map(Bson::try_from) {
            Some(Ok(Bson::Int64(id))) => Ok((id, row)),
            Some(Ok(Bson::Int32(id))) => Ok((id.into(), row)),
            found => Err(link.contents(ACT, format!("the key of a row is {found:?}"))),
        })
        .collect()
}

/// The document of a row, byte for byte.
fn original(
    link: &Link,
    table: &str,
    id: i64,
    row: &RawDocumentBuf,
) -> Result<Vec<u8>, ServerError> {
    const ACT: &str = "read a document";
    let odd = |found: String| link.contents(ACT, format!("the row {id} of {table}: {found}"));
    let found = row.get("_document").map_err(|error| odd(error.to_string()))?;
    match found.map(Bson::try_from).transpose().map_err(|error| odd(error.to_string()))? {
        Some(Bson::Document(object)) => json::print(&object)
            .ok_or_else(|| odd("its document has what is never stored there".to_owned())),
        Some(Bson::String(text)) => Ok(text.into_bytes()),
        Some(Bson::Binary(binary)) => Ok(binary.bytes),
        Some(other) => Err(odd(format!("its document is {:?}", other.element_type()))),
        None => {
            let id = id.cast_unsigned();
            let mine = doc! { "_id": { "$gte": part_key(id, 0), "$lt": parts_after(Some(id)) } };
            let parts = link.database.collection::<Document>(&parts_name(table));
            let parts: Vec<Document> = link.wait(ACT, async {
                parts.find(mine).sort(doc! { "_id": 1 }).await?.try_collect().await
            })?;
            let expected = row.get("_parts").ok().flatten().and_then(|count| count.as_i64());
            if expected != Some(long(parts.len() as u64)) {
                return Err(odd(format!("it has {} parts, not {expected:?}", parts.len())));
            }
            let mut document = Vec::new();
            for part in &parts {
                let bytes = part.get_binary_generic("bytes");
                document.extend_from_slice(bytes.map_err(|error| odd(error.to_string()))?);
            }
            Ok(document)
        }
    }
}

/// What a column stores; `None` where that is NULL.
fn bson(ty: ColumnType, fit: Fit<'_>) -> Option<Bson> {
    Some(match fit {
        Fit::Null | Fit::Conflict => return None,
        Fit::Integer(value) if ty == ColumnType::Boolean => Bson::Boolean(value != 0),
        Fit::Integer(value) => Bson::Int64(value),
        Fit::Real(value) => Bson::Double(value),
        Fit::Text(text) => Bson::String(text.into_owned()),
        Fit::Bytes(bytes) => {
            Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: bytes.to_vec() })
        }
    })
}

/// The values that fit into a row of this size beside what it has.
fn limited(values: impl Iterator<Item = (String, Option<Bson>)>, row_size: usize) -> Document {
    let size = |value: &Bson| match value {
        Bson::String(text) => text.len(),
        Bson::Binary(binary) => binary.bytes.len(),
        _ => 8,
    };
    let values: Vec<_> = values.filter_map(|(name, value)| Some((name, value?))).collect();
    let room = ROW_SIZE_MAX.saturating_sub(row_size);
    for value_size_max in [ROW_SIZE_MAX, VALUE_SIZE_MAX] {
        let kept = values.iter().filter(|(_, value)| size(value) <= value_size_max);
        // A field costs its name and a few bytes more.
        if kept.clone().map(|(name, value)| name.len() + size(value) + 16).sum::<usize>() <= room {
            return kept.cloned().collect();
        }
    }
    values.into_iter().filter(|(_, value)| size(value) <= SMALL_VALUE_SIZE).collect()
}

impl MongoSink {
    /// Fills the rows of every namespace whose change of columns was committed just now.
    pub(super) fn fill_all(&mut self) -> Result<(), ServerError> {
        for (name, shape) in std::mem::take(&mut self.shapes) {
            let table = self.book.find(&name).and_then(|index| self.book.namespaces.get(index));
            if let Some(namespace) = table {
                self.fill(&name, &namespace.table, &shape)?;
            }
        }
        Ok(())
    }

    /// The number of the last change of columns in the state that a commit saves.
    pub(super) fn shape_of(&self, name: &str) -> Option<i64> {
        let staged = self.shapes.get(name).map(|shape| shape.number);
        staged.or_else(|| self.slots.get(name).and_then(shape_in))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_columns_reads_back_and_others_are_refused() {
        let names = ["a", "b"].map(str::to_owned).into();
        let mut shape = Shape { number: 71, names, values: "n:reshaped:47".to_owned() };
        let mut document = shape.to_document();
        let namespace = |reshaping: &Document| {
            Shape::parse(&doc! { "_id": "n", "collection": "c", "reshaping": reshaping })
        };
        assert_eq!(namespace(&document), Ok(Some(shape.clone())));
        document.remove("values");
        shape.values = "c:reshaped".to_owned();
        assert_eq!(namespace(&document), Ok(Some(shape)));
        assert_eq!(Shape::parse(&doc! { "_id": "n" }), Ok(None));
        for odd in [doc! {}, doc! { "shape": "x", "names": [] }, doc! { "shape": 1, "names": [1] }]
        {
            assert!(Shape::parse(&doc! { "reshaping": odd }).is_err());
        }
    }

    #[test]
    fn values_are_left_out_where_they_would_make_a_row_too_large() {
        let text = |size: usize| Some(Bson::String("x".repeat(size)));
        let values = |sizes: &[usize]| {
            let named = sizes.iter().enumerate();
            named.map(|(at, size)| (format!("c{at}"), text(*size))).collect::<Vec<_>>()
        };
        assert_eq!(limited(values(&[5, 1 << 20]).into_iter(), 100).len(), 2);
        assert_eq!(limited(values(&[5, 16 << 20, 60_000]).into_iter(), 100).len(), 2);
        assert_eq!(limited(values(&[5, 60_000, 900]).into_iter(), ROW_SIZE_MAX).len(), 2);
        assert!(limited([("c".to_owned(), None)].into_iter(), 100).is_empty());
    }
}
