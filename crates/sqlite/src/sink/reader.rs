//! Reading: documents and rows page by page, counts, schemas, and a check of everything.
//!
//! Invariants: a reader changes nothing; each call sees one committed state and returns its
//! [`Position`]; a page is limited in rows and in bytes; a row that does not match its checksum, or
//! is missing where every id has a row, is an error.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_base::rows::RowHasher;
use forebay_pgcopy::quote_identifier;
use forebay_sink::{
    Identity, NamespaceKind, OpenError, Position, ReadError, StoredDocument, TableSchema,
};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, Row};

use super::changes::{self, ChangePage};
use super::check::{self, Damage, Extent};
use super::fault::{Checked, Fault, open_error, read_error};
use super::history::SchemaHistory;
use super::layout;
use super::rows::{self, at};
use super::state::{self, NamespaceRow};

/// Maximum number of namespaces whose columns are kept between calls.
const SHAPES_MAX: usize = 256;

/// A value read from a column.
#[derive(Debug, Clone, PartialEq)]
pub enum OwnedValue {
    /// NULL: missing, null, or not fitting.
    Null,
    /// A whole number or a boolean (0 or 1).
    Integer(i64),
    /// A double.
    Real(f64),
    /// Text, a decimal or JSON.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
}

/// A stored row.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredRow {
    /// Its id.
    pub id: u64,
    /// When it was received, in milliseconds since the Unix epoch.
    pub received_ms: u64,
    /// The document it was made from, if there was one.
    pub document: Option<Vec<u8>>,
    /// One value for each column of the page's schema.
    pub values: Vec<OwnedValue>,
}

/// Limits of one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageLimits {
    /// Maximum number of documents or rows.
    pub rows_max: usize,
    /// The page ends once the documents have this many bytes together. The first is always
    /// included, whatever its size.
    pub bytes_max: usize,
}

impl Default for PageLimits {
    fn default() -> PageLimits {
        PageLimits { rows_max: 1000, bytes_max: 16 << 20 }
    }
}

/// Documents in the order of their ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentPage {
    /// The position of the state that was read.
    pub position: Option<Position>,
    /// The documents.
    pub documents: Vec<StoredDocument>,
    /// Whether more follow.
    pub more: bool,
}

/// Rows in the order of their ids.
#[derive(Debug, Clone, PartialEq)]
pub struct RowPage {
    /// The position of the state that was read.
    pub position: Option<Position>,
    /// The columns the values belong to.
    pub schema: TableSchema,
    /// The rows.
    pub rows: Vec<StoredRow>,
    /// Whether more follow.
    pub more: bool,
}

/// A namespace and its contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceInfo {
    /// Its name.
    pub name: String,
    /// Its table.
    pub table: String,
    /// With columns or without.
    pub kind: NamespaceKind,
    /// How many rows it has.
    pub row_count: u64,
    /// The largest id in it.
    pub last_id: Option<u64>,
    /// Sum of the checksums of its rows.
    pub digest: u64,
    /// Whether it is still to be decided if it is a table or a collection.
    pub undecided: bool,
    /// Whether all its rows were dropped, and none was written since. Only its last id is remembered.
    pub is_dropped: bool,
    /// Position of the newest change: of a row that was replaced or deleted, or of all being dropped.
    pub changed_at: Option<u64>,
    /// Position at which the newest row was deleted, or all were dropped.
    pub removed_at: Option<u64>,
    /// Position at which all rows were dropped last.
    pub dropped_at: Option<u64>,
}

/// The columns of a namespace, and the statement that reads its rows.
#[derive(Debug)]
struct Shape {
    /// Of the columns; the namespace's row has it as well.
    checksum: u64,
    schema: TableSchema,
    /// Reads the rows with larger ids, in order.
    select: String,
}

/// Reads a sink's database over its own connection, while a sink writes.
///
/// It may be moved between threads, but not shared: open one for each.
#[derive(Debug)]
pub struct SqliteReader {
    connection: Connection,
    path: PathBuf,
    shapes: RefCell<HashMap<String, Arc<Shape>>>,
}

impl SqliteReader {
    /// Opens the database at `path` for reading only.
    ///
    /// # Errors
    /// [`OpenError::Missing`] when there is none, else as [`SqliteSink::open`](super::SqliteSink::open).
    pub fn open(path: &Path) -> Result<SqliteReader, OpenError> {
        if !path.exists() {
            return Err(OpenError::Missing { path: path.to_owned() });
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)
            .map_err(|source| open_error("open the database", path, source))?;
        layout::prepare_reader(&connection, path)?;
        Ok(SqliteReader { connection, path: path.to_owned(), shapes: RefCell::default() })
    }

    /// The identity of the database.
    ///
    /// # Errors
    /// [`ReadError`], like every read.
    pub fn identity(&self) -> Result<Identity, ReadError> {
        self.read("read the identity", |db| Ok(state::state(db)?.identity))
    }

    /// The committed position.
    ///
    /// # Errors
    /// [`ReadError`], like every read.
    pub fn position(&self) -> Result<Option<Position>, ReadError> {
        self.read("read the position", |db| Ok(state::state(db)?.position))
    }

    /// Every namespace, by name.
    ///
    /// # Errors
    /// [`ReadError`], like every read.
    pub fn namespaces(&self) -> Result<Vec<NamespaceInfo>, ReadError> {
        self.read("list namespaces", |db| {
            let state = state::state(db)?;
            let rows = state::namespace_rows(db, state.namespaces)?;
            rows.into_iter().map(|row| Ok(info(&*self.shape(db, &row)?, row))).collect()
        })
    }

    /// One namespace, if it exists.
    ///
    /// # Errors
    /// [`ReadError`], like every read.
    pub fn namespace(&self, name: &str) -> Result<Option<NamespaceInfo>, ReadError> {
        self.read("read a namespace", |db| {
            let row = state::namespace(db, name, &state::state(db)?)?;
            row.map(|row| Ok(info(&*self.shape(db, &row)?, row))).transpose()
        })
    }

    /// The number of rows of `namespace`; 0 if it does not exist.
    ///
    /// # Errors
    /// [`ReadError`], like every read.
    pub fn count(&self, namespace: &str) -> Result<u64, ReadError> {
        self.read("count rows", |db| {
            let row = state::namespace(db, namespace, &state::state(db)?)?;
            Ok(row.map_or(0, |row| row.rows.count))
        })
    }

    /// The columns of `namespace`; `None` when it does not exist.
    ///
    /// # Errors
    /// [`ReadError`], like every read.
    pub fn schema(&self, namespace: &str) -> Result<Option<TableSchema>, ReadError> {
        self.read("read the columns", |db| {
            let row = state::namespace(db, namespace, &state::state(db)?)?;
            row.map(|row| Ok(self.shape(db, &row)?.schema.clone())).transpose()
        })
    }

    /// `namespace`, its columns, and how they became what they are; `None` when it does not exist.
    ///
    /// # Errors
    /// [`ReadError`], like every read.
    pub fn schema_history(
        &self,
        namespace: &str,
    ) -> Result<Option<(NamespaceInfo, SchemaHistory)>, ReadError> {
        self.read("read how the columns changed", |db| {
            let Some(row) = state::namespace(db, namespace, &state::state(db)?)? else {
                return Ok(None);
            };
            let history = state::schema_history(db, &row)?;
            Ok(Some((info(&*self.shape(db, &row)?, row), history)))
        })
    }

    /// The document with `id`.
    ///
    /// # Errors
    /// [`ReadError`], like every read.
    pub fn document(&self, namespace: &str, id: u64) -> Result<Option<StoredDocument>, ReadError> {
        self.read("read a document", |db| {
            let Some(row) = state::namespace(db, namespace, &state::state(db)?)? else {
                return Ok(None);
            };
            // The next row with an id of at least this one: the wanted one, or none.
            let after = id.checked_sub(1);
            let mut document = None;
            let shape = self.shape(db, &row)?;
            scan(db, &row, &shape, after, &mut |found, stored| {
                if found == id {
                    document = stored_document(stored)?;
                }
                Ok(false)
            })?;
            Ok(document)
        })
    }

    /// Documents with ids larger than `after`, smallest first. Rows without a document are skipped.
    ///
    /// # Errors
    /// [`ReadError`], like every read.
    pub fn documents(
        &self,
        namespace: &str,
        after: Option<u64>,
        limits: PageLimits,
    ) -> Result<DocumentPage, ReadError> {
        self.read("read documents", |db| {
            let state = state::state(db)?;
            let (position, documents) = (state.position, Vec::new());
            let mut page = DocumentPage { position, documents, more: false };
            let Some(row) = state::namespace(db, namespace, &state)? else { return Ok(page) };
            let shape = self.shape(db, &row)?;
            let mut room = Room::new(limits);
            scan(db, &row, &shape, after, &mut |_, stored| {
                let Some(document) = stored_document(stored)? else { return Ok(true) };
                if !room.take(document.raw.len()) {
                    page.more = true;
                    return Ok(false);
                }
                page.documents.push(document);
                Ok(true)
            })?;
            Ok(page)
        })
    }

    /// Rows with ids larger than `after`, smallest first, with the values of their columns.
    ///
    /// # Errors
    /// [`ReadError`], like every read.
    pub fn rows(
        &self,
        namespace: &str,
        after: Option<u64>,
        limits: PageLimits,
    ) -> Result<RowPage, ReadError> {
        self.read("read rows", |db| {
            let state = state::state(db)?;
            let (position, schema) = (state.position, TableSchema::default());
            let mut page = RowPage { position, schema, rows: Vec::new(), more: false };
            let Some(row) = state::namespace(db, namespace, &state)? else { return Ok(page) };
            let shape = self.shape(db, &row)?;
            page.schema = shape.schema.clone();
            let mut room = Room::new(limits);
            scan(db, &row, &shape, after, &mut |_, stored| {
                let stored = stored_row(stored, shape.schema.columns().len())?;
                if !room.take(stored.document.as_ref().map_or(0, Vec::len)) {
                    page.more = true;
                    return Ok(false);
                }
                page.rows.push(stored);
                Ok(true)
            })?;
            Ok(page)
        })
    }

    /// Position of the newest change of a row: it was replaced or deleted, or all were dropped.
    ///
    /// # Errors
    /// [`ReadError`], like every read.
    pub fn newest_change(&self, namespace: &str, id: u64) -> Result<Option<u64>, ReadError> {
        self.read("read a change", |db| {
            let Some(row) = state::namespace(db, namespace, &state::state(db)?)? else {
                return Ok(None);
            };
            changes::newest(db, &row, id)
        })
    }

    /// Changes of a namespace after a position, in the order of their positions: of each row the newest.
    ///
    /// * `after`: position, and id of the last change seen at it.
    ///
    /// # Errors
    /// [`ReadError`], like every read.
    pub fn changes(
        &self,
        namespace: &str,
        after: u64,
        changes_max: usize,
    ) -> Result<ChangePage, ReadError> {
        self.read("read changes", |db| {
            let state = state::state(db)?;
            match state::namespace(db, namespace, &state)? {
                Some(row) => changes::page(db, &row, state.position, after, changes_max),
                None => Ok(ChangePage { position: state.position, ..ChangePage::default() }),
            }
        })
    }

    /// Checks everything: the file's structure, and that every row, count, digest and column is what
    /// was stored. Reads the whole database.
    ///
    /// # Errors
    /// [`ReadError`] when the file is too damaged even to be checked.
    pub fn check(&self) -> Result<Vec<Damage>, ReadError> {
        self.check_against(&[], Position(0))
    }

    /// As [`SqliteReader::check`]; also checks that what each namespace held at an earlier time is
    /// there.
    ///
    /// * `at`: the position of that time.
    ///
    /// # Errors
    /// As [`SqliteReader::check`].
    pub fn check_against(
        &self,
        extents: &[Extent],
        at: Position,
    ) -> Result<Vec<Damage>, ReadError> {
        self.read("check", |db| check::check(db, extents, at.0))
    }

    /// Whether the column of an integer holds one that no double is exactly, as far as its size
    /// shows: beyond 2^53. Reads the whole column, if there is one.
    ///
    /// # Errors
    /// [`ReadError`], like every read.
    pub fn exceeds_doubles(&self, namespace: &str, column: &str) -> Result<bool, ReadError> {
        self.read("examine a column", |db| {
            let Some(row) = state::namespace(db, namespace, &state::state(db)?)? else {
                return Ok(false);
            };
            let shape = self.shape(db, &row)?;
            if !shape.schema.columns().iter().any(|known| known.name == column) {
                return Ok(false);
            }
            let (table, column) = (quote_identifier(&row.table), quote_identifier(column));
            let sql = format!(
                "SELECT EXISTS (SELECT 1 FROM {table} WHERE {column} NOT BETWEEN ?1 AND ?2)"
            );
            let limit = 1_i64 << 53;
            Ok(db.query_row(&sql, [-limit, limit], |row| row.get(0))?)
        })
    }

    /// The columns of a namespace. They are read and verified again when they have changed.
    fn shape(&self, db: &Connection, row: &NamespaceRow) -> Checked<Arc<Shape>> {
        let mut shapes = self.shapes.borrow_mut();
        let known = shapes.get(&row.name).filter(|shape| shape.checksum == row.schema_checksum);
        if let Some(shape) = known {
            return Ok(Arc::clone(shape));
        }
        let schema = state::schema(db, row)?;
        let select = format!("{} WHERE _id > ?1 ORDER BY _id", rows::select(&row.table, &schema));
        let shape = Arc::new(Shape { checksum: row.schema_checksum, schema, select });
        if shapes.len() >= SHAPES_MAX {
            shapes.clear();
        }
        shapes.insert(row.name.clone(), Arc::clone(&shape));
        Ok(shape)
    }

    /// Runs `read` in a transaction, so that it sees one state.
    fn read<T>(
        &self,
        act: &'static str,
        read: impl FnOnce(&Connection) -> Checked<T>,
    ) -> Result<T, ReadError> {
        let read = || -> Checked<T> {
            let transaction = self.connection.unchecked_transaction()?;
            let found = read(&transaction)?;
            transaction.commit()?;
            Ok(found)
        };
        read().map_err(|source| read_error(act, &self.path, source))
    }
}

/// How much more a page may take.
struct Room {
    limits: PageLimits,
    rows: usize,
    bytes: usize,
}

impl Room {
    fn new(limits: PageLimits) -> Room {
        Room { limits, rows: 0, bytes: 0 }
    }

    /// Whether the page takes another row. The first is always taken.
    fn take(&mut self, bytes: usize) -> bool {
        let full = self.rows >= self.limits.rows_max
            || (self.bytes >= self.limits.bytes_max && self.rows > 0);
        if !full {
            self.rows += 1;
            self.bytes = self.bytes.saturating_add(bytes);
        }
        !full
    }
}

/// Called with a row's id and the row; returns whether to continue.
type Each<'e> = dyn FnMut(u64, &Row<'_>) -> rusqlite::Result<bool> + 'e;

/// Calls `each` with the rows after an id, each verified, until it returns `false`. Where every id
/// of the namespace has a row, one that is missing is an error.
fn scan(
    db: &Connection,
    row: &NamespaceRow,
    shape: &Shape,
    after: Option<u64>,
    each: &mut Each<'_>,
) -> Checked<()> {
    let dense = row.dense();
    let from = after.map_or(0, |after| after.saturating_add(1));
    let mut next = dense.map(|(first, _)| first.max(from));
    let mut statement = db.prepare_cached(&shape.select)?;
    let mut stored = statement.query([after_id(after)])?;
    let mut hasher = RowHasher::default();
    while let Some(stored) = stored.next()? {
        let (id, _) = rows::verify(&mut hasher, &row.name, stored, shape.schema.columns().len())?;
        if row.last_id.is_none_or(|last| id > last) || next.is_some_and(|next| id < next) {
            return Err(missing(row, next.unwrap_or(id)));
        }
        if let Some(next) = next.filter(|next| *next < id)
            && !changes::are_deleted(db, row, next..id)?
        {
            return Err(missing(row, next));
        }
        next = next.map(|_| id.saturating_add(1));
        if !each(id, stored)? {
            return Ok(());
        }
    }
    match (next, dense) {
        (Some(next), Some((_, last)))
            if next <= last && !changes::are_deleted(db, row, next..last + 1)? =>
        {
            Err(missing(row, next))
        }
        _ => Ok(()),
    }
}

fn missing(row: &NamespaceRow, id: u64) -> Fault {
    Fault::Damaged(format!(
        "the rows of the namespace {} are not in order at id {id}, where there must be one",
        row.name
    ))
}

fn info(shape: &Shape, row: NamespaceRow) -> NamespaceInfo {
    let is_dropped = row.is_dropped();
    NamespaceInfo {
        name: row.name,
        table: row.table,
        kind: shape.schema.kind(),
        row_count: row.rows.count,
        last_id: row.last_id,
        digest: row.rows.digest,
        undecided: row.undecided,
        is_dropped,
        changed_at: row.changed.changed_at,
        removed_at: row.changed.removed_at,
        dropped_at: row.changed.dropped.map(|dropped| dropped.at),
    }
}

/// Ids are 0 or larger, so everything comes after -1.
fn after_id(after: Option<u64>) -> i64 {
    after.map_or(-1, |id| i64::try_from(id).unwrap_or(i64::MAX))
}

fn stored_document(row: &Row<'_>) -> rusqlite::Result<Option<StoredDocument>> {
    let Some(raw) = bytes(row, at::DOCUMENT)? else { return Ok(None) };
    let (id, received_ms) = (row.get(at::ID)?, row.get(at::RECEIVED)?);
    Ok(Some(StoredDocument { id, received_ms, raw }))
}

fn stored_row(row: &Row<'_>, columns: usize) -> rusqlite::Result<StoredRow> {
    let document = bytes(row, at::DOCUMENT)?;
    let values = (at::COLUMNS..at::COLUMNS + columns).map(|at| {
        Ok(match row.get_ref(at)? {
            ValueRef::Null => OwnedValue::Null,
            ValueRef::Integer(value) => OwnedValue::Integer(value),
            ValueRef::Real(value) => OwnedValue::Real(value),
            ValueRef::Text(text) => OwnedValue::Text(String::from_utf8_lossy(text).into_owned()),
            ValueRef::Blob(bytes) => OwnedValue::Bytes(bytes.to_owned()),
        })
    });
    let values = values.collect::<rusqlite::Result<_>>()?;
    Ok(StoredRow { id: row.get(at::ID)?, received_ms: row.get(at::RECEIVED)?, document, values })
}

fn bytes(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<Vec<u8>>> {
    Ok(match row.get_ref(at)? {
        ValueRef::Text(raw) | ValueRef::Blob(raw) => Some(raw.to_owned()),
        _ => None,
    })
}
