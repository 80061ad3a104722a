//! Reading: documents and rows page by page, counts, schemas, and a check of everything.
//!
//! Invariants: a reader changes nothing; each call sees one committed state and returns its
//! [`Position`]; a page is limited in rows and in bytes.

use std::path::{Path, PathBuf};

use forebay_sink::name::quote_identifier;
use forebay_sink::{
    Identity, NamespaceKind, OpenError, Position, ReadError, StoredDocument, TableSchema,
};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row};

use super::layout::{self, open_error, read_error};

/// Maximum number of findings of SQLite's own check.
const FINDINGS_MAX: u32 = 100;

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
}

/// A fault found by [`SqliteReader::check`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Its namespace; `None` for the database as a whole.
    pub namespace: Option<String>,
    /// The fault.
    pub found: String,
}

/// Reads a sink's database over its own connection, while a sink writes.
///
/// It may be moved between threads, but not shared: open one for each.
#[derive(Debug)]
pub struct SqliteReader {
    connection: Connection,
    path: PathBuf,
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
        Ok(SqliteReader { connection, path: path.to_owned() })
    }

    /// The identity of the database.
    ///
    /// # Errors
    /// [`ReadError`], like every read.
    pub fn identity(&self) -> Result<Identity, ReadError> {
        self.read("read the identity", |db| layout::state(db).map(|(identity, _)| identity))
    }

    /// The committed position.
    ///
    /// # Errors
    /// [`ReadError`], like every read.
    pub fn position(&self) -> Result<Option<Position>, ReadError> {
        self.read("read the position", |db| layout::state(db).map(|(_, position)| position))
    }

    /// Every namespace, by name.
    ///
    /// # Errors
    /// [`ReadError`], like every read.
    pub fn namespaces(&self) -> Result<Vec<NamespaceInfo>, ReadError> {
        self.read("list namespaces", |db| {
            let mut statement = db.prepare_cached(
                "SELECT n.namespace, n.table_name, n.row_count, n.last_id, EXISTS (
                   SELECT 1 FROM _forebay_columns c WHERE c.namespace = n.namespace)
                 FROM _forebay_namespaces n ORDER BY n.namespace",
            )?;
            let rows = statement.query_map([], |row| {
                let table: bool = row.get(4)?;
                Ok(NamespaceInfo {
                    name: row.get(0)?,
                    table: row.get(1)?,
                    kind: if table { NamespaceKind::Table } else { NamespaceKind::Collection },
                    row_count: row.get(2)?,
                    last_id: row.get(3)?,
                })
            })?;
            rows.collect()
        })
    }

    /// One namespace, if it exists.
    ///
    /// # Errors
    /// [`ReadError`], like every read.
    pub fn namespace(&self, name: &str) -> Result<Option<NamespaceInfo>, ReadError> {
        self.read("read a namespace", |db| {
            let Some((table, row_count, last_id)) = layout::namespace(db, name)? else {
                return Ok(None);
            };
            let kind = layout::schema(db, name)?.kind();
            Ok(Some(NamespaceInfo { name: name.to_owned(), table, kind, row_count, last_id }))
        })
    }

    /// The number of rows of `namespace`; `None` if it does not exist.
    ///
    /// # Errors
    /// [`ReadError`], like every read.
    pub fn count(&self, namespace: &str) -> Result<u64, ReadError> {
        self.read("count rows", |db| {
            Ok(layout::namespace(db, namespace)?.map_or(0, |(_, count, _)| count))
        })
    }

    /// The columns of `namespace`; `None` when it does not exist.
    ///
    /// # Errors
    /// [`ReadError`], like every read.
    pub fn schema(&self, namespace: &str) -> Result<Option<TableSchema>, ReadError> {
        self.read("read the columns", |db| match layout::namespace(db, namespace)? {
            Some(_) => layout::schema(db, namespace).map(Some),
            None => Ok(None),
        })
    }

    /// The document with `id`.
    ///
    /// # Errors
    /// [`ReadError`], like every read.
    pub fn document(&self, namespace: &str, id: u64) -> Result<Option<StoredDocument>, ReadError> {
        let Ok(id) = i64::try_from(id) else { return Ok(None) };
        self.read("read a document", |db| {
            let Some((table, ..)) = layout::namespace(db, namespace)? else { return Ok(None) };
            let mut statement = db.prepare_cached(&format!(
                "SELECT _id, _received_ms, _document FROM {}
                 WHERE _id = ?1 AND _document IS NOT NULL",
                quote_identifier(&table)
            ))?;
            statement.query_row([id], stored_document).optional()
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
            let (_, position) = layout::state(db)?;
            let mut page = DocumentPage { position, documents: Vec::new(), more: false };
            let Some((table, ..)) = layout::namespace(db, namespace)? else { return Ok(page) };
            let mut statement = db.prepare_cached(&format!(
                "SELECT _id, _received_ms, _document FROM {}
                 WHERE _id > ?1 AND _document IS NOT NULL ORDER BY _id",
                quote_identifier(&table)
            ))?;
            let mut rows = statement.query([after_id(after)])?;
            let mut bytes = 0_usize;
            while let Some(row) = rows.next()? {
                if page.documents.len() >= limits.rows_max
                    || (bytes >= limits.bytes_max && !page.documents.is_empty())
                {
                    page.more = true;
                    break;
                }
                let document = stored_document(row)?;
                bytes = bytes.saturating_add(document.raw.len());
                page.documents.push(document);
            }
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
            let (_, position) = layout::state(db)?;
            let schema = layout::schema(db, namespace)?;
            let mut page = RowPage { position, schema, rows: Vec::new(), more: false };
            let Some((table, ..)) = layout::namespace(db, namespace)? else { return Ok(page) };
            let mut sql = String::from("SELECT _id, _received_ms, _document");
            for column in page.schema.columns() {
                sql.push_str(", ");
                sql.push_str(&quote_identifier(&column.name));
            }
            sql.push_str(&format!(
                " FROM {} WHERE _id > ?1 ORDER BY _id",
                quote_identifier(&table)
            ));
            let mut statement = db.prepare_cached(&sql)?;
            let mut rows = statement.query([after_id(after)])?;
            let mut bytes = 0_usize;
            while let Some(row) = rows.next()? {
                if page.rows.len() >= limits.rows_max
                    || (bytes >= limits.bytes_max && !page.rows.is_empty())
                {
                    page.more = true;
                    break;
                }
                let row = stored_row(row, page.schema.columns().len())?;
                bytes = bytes.saturating_add(row.document.as_ref().map_or(0, Vec::len));
                page.rows.push(row);
            }
            Ok(page)
        })
    }

    /// Checks everything: the file's structure, and that counts and columns match the sink's state.
    /// Reads the whole database.
    ///
    /// # Errors
    /// [`ReadError`] when the file is too damaged even to be checked.
    pub fn check(&self) -> Result<Vec<Damage>, ReadError> {
        self.read("check", |db| {
            let mut damage = Vec::new();
            let mut statement = db.prepare(&format!("PRAGMA integrity_check({FINDINGS_MAX})"))?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                let found: String = row.get(0)?;
                if found != "ok" {
                    damage.push(Damage { namespace: None, found });
                }
            }
            // In a damaged file, further checks would only report the same damage again.
            if damage.is_empty() {
                for (name, namespace) in layout::namespaces(db)? {
                    if let Some(found) = check_namespace(db, &namespace)? {
                        damage.push(Damage { namespace: Some(name), found });
                    }
                }
                damage.sort_by(|a, b| a.namespace.cmp(&b.namespace));
            }
            Ok(damage)
        })
    }

    /// Runs `read` in a transaction, so that it sees one state.
    fn read<T>(
        &self,
        act: &'static str,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, ReadError> {
        let read = || {
            let transaction = self.connection.unchecked_transaction()?;
            let found = read(&transaction)?;
            transaction.commit()?;
            Ok(found)
        };
        read().map_err(|source| read_error(act, &self.path, source))
    }
}

fn check_namespace(
    db: &Connection,
    namespace: &layout::Namespace,
) -> rusqlite::Result<Option<String>> {
    let table = quote_identifier(&namespace.table);
    let mut statement = db.prepare("SELECT count(*) FROM pragma_table_info(?1)")?;
    let columns: usize = statement.query_row([&namespace.table], |row| row.get(0))?;
    let expected = namespace.schema.columns().len() + 3;
    if columns == 0 {
        return Ok(Some("the table is missing".to_owned()));
    }
    if columns < expected {
        return Ok(Some(format!("{columns} columns, expected {expected}")));
    }
    let (count, last): (u64, Option<u64>) =
        db.query_row(&format!("SELECT count(*), max(_id) FROM {table}"), [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
    if count != namespace.row_count {
        return Ok(Some(format!("{count} rows, expected {}", namespace.row_count)));
    }
    if last != namespace.last_id {
        let expected = namespace.last_id;
        return Ok(Some(format!("largest id {last:?}, expected {expected:?}")));
    }
    Ok(None)
}

/// Ids are 0 or larger, so everything comes after -1.
fn after_id(after: Option<u64>) -> i64 {
    after.map_or(-1, |id| i64::try_from(id).unwrap_or(i64::MAX))
}

fn stored_document(row: &Row<'_>) -> rusqlite::Result<StoredDocument> {
    let raw = bytes(row, 2)?.unwrap_or_default();
    Ok(StoredDocument { id: row.get(0)?, received_ms: row.get(1)?, raw })
}

fn stored_row(row: &Row<'_>, columns: usize) -> rusqlite::Result<StoredRow> {
    let document = bytes(row, 2)?;
    let values = (3..3 + columns).map(|at| {
        Ok(match row.get_ref(at)? {
            ValueRef::Null => OwnedValue::Null,
            ValueRef::Integer(value) => OwnedValue::Integer(value),
            ValueRef::Real(value) => OwnedValue::Real(value),
            ValueRef::Text(text) => OwnedValue::Text(String::from_utf8_lossy(text).into_owned()),
            ValueRef::Blob(bytes) => OwnedValue::Bytes(bytes.to_owned()),
        })
    });
    let values = values.collect::<rusqlite::Result<_>>()?;
    Ok(StoredRow { id: row.get(0)?, received_ms: row.get(1)?, document, values })
}

fn bytes(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<Vec<u8>>> {
    Ok(match row.get_ref(at)? {
        ValueRef::Text(raw) | ValueRef::Blob(raw) => Some(raw.to_owned()),
        _ => None,
    })
}
