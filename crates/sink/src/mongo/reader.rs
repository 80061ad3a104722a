//! Reading committed rows page by page.
//!
//! Invariants: a reader changes nothing; a page is limited in rows and bytes, and has no row that
//! is not committed at its position (see the [module](super) for how that is guaranteed without
//! transactions).

use futures_util::TryStreamExt as _;
use mongodb::bson::{Bson, Document, doc};

use super::connect::Link;
use super::json;
use super::layout::{self, long, part_key, parts_name};
use super::settings::Settings;
use crate::book::Namespace;
use crate::column::ColumnType;
use crate::error::{OpenError, ReadError};
use crate::schema::TableSchema;
use crate::server::ServerError;
use crate::sink::{Position, StoredDocument};
use crate::sqlite::{DocumentPage, OwnedValue, PageLimits, RowPage, StoredRow};

/// Maximum number of rows of a page.
const PAGE_ROWS_MAX: usize = 100_000;
/// How often the state is read again because a namespace was committed twice meanwhile.
const TRIES: usize = 100;
const ACT: &str = "read";

/// Reads a sink's database, from any number of threads, while a sink writes.
///
/// Its calls block and must not be made in tasks of a runtime.
#[derive(Debug)]
pub struct MongoReader {
    link: Link,
}

impl MongoReader {
    /// Connects to the server of a sink.
    ///
    /// # Errors
    /// As for [`MongoSink::open`](super::MongoSink::open); [`ServerError::Contents`] if there is no
    /// sink.
    pub fn open(settings: &Settings) -> Result<MongoReader, OpenError> {
        let reader = MongoReader { link: Link::new(settings)? };
        reader.position()?;
        Ok(reader)
    }

    /// The committed position.
    ///
    /// # Errors
    /// The server's, like every read.
    pub fn position(&self) -> Result<Option<Position>, ServerError> {
        let sinks = self.link.database.collection::<Document>(layout::STATE);
        let state = self.link.wait(ACT, sinks.find_one(doc! { "_id": "state" }).into_future())?;
        let state = state.ok_or_else(|| self.odd("there is no sink".to_owned()))?;
        Ok(layout::parse_state(&state).map_err(|found| self.odd(found))?.position)
    }

    fn odd(&self, found: String) -> ServerError {
        self.link.contents(ACT, found)
    }

    /// A namespace as of the position that is committed now.
    fn namespace(&self, name: &str) -> Result<(Option<Position>, Option<Namespace>), ServerError> {
        let namespaces = self.link.database.collection::<Document>(layout::NAMESPACES);
        for _ in 0..TRIES {
            let position = self.position()?;
            let found =
                self.link.wait(ACT, namespaces.find_one(doc! { "_id": name }).into_future())?;
            let Some(found) = found else { return Ok((position, None)) };
            let odd = |found| self.odd(found);
            if let Some(slot) = layout::slot_at(&found, position).map_err(odd)? {
                let namespace = layout::parse_namespace(&found, Some(slot)).map_err(odd)?;
                return Ok((position, Some(namespace)));
            }
            // It was committed twice since the position was read, or never.
            if position == self.position()? {
                return Ok((position, None));
            }
        }
        Err(self.odd(format!("{name} is committed faster than it can be read")))
    }

    /// Documents of `namespace` with ids above `after`; none if it does not exist.
    ///
    /// # Errors
    /// The server's, like every read.
    pub fn documents(
        &self,
        namespace: &str,
        after: Option<u64>,
        limits: PageLimits,
    ) -> Result<DocumentPage, ReadError> {
        let page = self.rows(namespace, after, limits)?;
        let document = |row: StoredRow| {
            let StoredRow { id, received_ms, document, .. } = row;
            document.map(|raw| StoredDocument { id, received_ms, raw })
        };
        let documents = page.rows.into_iter().filter_map(document).collect();
        Ok(DocumentPage { position: page.position, documents, more: page.more })
    }

    /// Rows of `namespace` with ids above `after`; none if it does not exist.
    ///
    /// # Errors
    /// The server's, like every read.
    pub fn rows(
        &self,
        namespace: &str,
        after: Option<u64>,
        limits: PageLimits,
    ) -> Result<RowPage, ReadError> {
        let (position, found) = self.namespace(namespace)?;
        let schema = TableSchema::default();
        let mut page = RowPage { position, schema, rows: Vec::new(), more: false };
        let Some(found) = found else { return Ok(page) };
        // Ids begin at 0; above the last one nothing is committed.
        let between = doc! {
            "$gt": after.map_or(-1, long),
            "$lte": found.last_id.map_or(-1, long),
        };
        let rows_max = limits.rows_max.clamp(1, PAGE_ROWS_MAX);
        let collection = self.link.database.collection::<Document>(&found.table);
        let read = async {
            let find = collection.find(doc! { "_id": between }).sort(doc! { "_id": 1 });
            let mut cursor = find.limit(long(rows_max as u64 + 1)).await?;
            let (mut rows, mut size, mut more) = (Vec::new(), 0, false);
            while let Some(mut row) = cursor.try_next().await? {
                if rows.len() >= rows_max || (size >= limits.bytes_max && !rows.is_empty()) {
                    more = true;
                    break;
                }
                self.join(&found.table, &mut row).await?;
                let row = row_of(&found, &row);
                size += row.as_ref().map_or(0, |row| row.document.as_ref().map_or(0, Vec::len));
                rows.push(row);
            }
            Ok((rows, more))
        };
        let (rows, more) = self.link.wait(ACT, read)?;
        let rows: Result<Vec<StoredRow>, String> = rows.into_iter().collect();
        page.rows = rows.map_err(|found| self.odd(found))?;
        page.more = more;
        page.schema = found.schema;
        Ok(page)
    }

    /// Puts the parts of a long document together.
    async fn join(
        &self,
        collection: &str,
        row: &mut Document,
    ) -> Result<(), mongodb::error::Error> {
        let (Ok(count), Ok(id)) = (row.get_i64("_parts"), row.get_i64("_id")) else {
            return Ok(());
        };
        let id = id.cast_unsigned();
        let parts = self.link.database.collection::<Document>(&parts_name(collection));
        let between = doc! { "$gte": part_key(id, 0), "$lt": layout::parts_after(Some(id)) };
        let mut cursor = parts.find(doc! { "_id": between }).sort(doc! { "_id": 1 }).await?;
        let (mut bytes, mut found) = (Vec::new(), 0);
        while let Some(part) = cursor.try_next().await? {
            if let Ok(part) = part.get_binary_generic("bytes") {
                bytes.extend_from_slice(part);
                found += 1;
            }
        }
        // If one is missing the row has no document, which `row_of` reports.
        if found == count {
            row.insert("_document", layout::binary(&bytes));
        }
        Ok(())
    }
}

/// Parses a stored row. The error is the fault.
fn row_of(namespace: &Namespace, row: &Document) -> Result<StoredRow, String> {
    let odd = |what: &str| format!("{what} in {}", namespace.table);
    let id = layout::number(row, "_id")?.ok_or_else(|| odd("there is a row without an id"))?;
    let received_ms =
        layout::number(row, "_received_ms")?.ok_or_else(|| odd("there is a row without a time"))?;
    let document = match row.get("_document") {
        Some(Bson::String(text)) => text.as_bytes().to_vec(),
        Some(Bson::Binary(binary)) => binary.bytes.clone(),
        Some(Bson::Document(object)) => {
            json::print(object).ok_or_else(|| odd(&format!("row {id} has an invalid document")))?
        }
        _ => return Err(odd(&format!("row {id} has no document"))),
    };
    let columns = namespace.schema.columns().iter();
    let values = columns.map(|column| {
        let value = value(column.ty, row.get(&column.name));
        value.ok_or_else(|| odd(&format!("there is an invalid value of {}", column.name)))
    });
    let values = values.collect::<Result<Vec<OwnedValue>, String>>()?;
    Ok(StoredRow { id, received_ms, document: Some(document), values })
}

/// A column's value; `None` if it is not of this type.
fn value(ty: ColumnType, value: Option<&Bson>) -> Option<OwnedValue> {
    Some(match (ty, value) {
        (_, None | Some(Bson::Null)) => OwnedValue::Null,
        (ColumnType::Boolean, Some(Bson::Boolean(value))) => OwnedValue::Integer((*value).into()),
        (ColumnType::Integer, Some(Bson::Int64(value))) => OwnedValue::Integer(*value),
        (ColumnType::Real, Some(Bson::Double(value))) => OwnedValue::Real(*value),
        (ColumnType::Decimal | ColumnType::Text | ColumnType::Json, Some(Bson::String(text))) => {
            OwnedValue::Text(text.clone())
        }
        (ColumnType::Bytes, Some(Bson::Binary(binary))) => OwnedValue::Bytes(binary.bytes.clone()),
        _ => return None,
    })
}
