//! Queries of the catalogue, each answered from a pool of read-only connections.

use std::path::{Path, PathBuf};

use forebay_base::rows::RowHasher;
use parking_lot::Mutex;
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Params, params, params_from_iter};

use super::rows::{
    BLOB_COLUMNS, BLOBS, BlobRow, Checked, FILE_COLUMN_COUNT, FILE_COLUMNS, FILES, REQUEST_COLUMNS,
    REQUESTS, Table, read_blob, read_file, read_request,
};
use super::{BlobLocation, BlobRecord, FileRecord, schema};
use crate::classify::Category;
use crate::digest::Digest;
use crate::error::{CatalogueError, CatalogueFault};
use crate::names::{FileName, Namespace};

/// Idle connections kept open.
const IDLE_MAX: usize = 8;

/// Selects the columns that [`read_blob`] reads.
pub(super) const DEAD_BLOBS_IN: &str = "SELECT digest, size, place, refs, checksum FROM blobs
     WHERE refs = 0 AND place >= ?1 AND place < ?2 LIMIT ?3";

/// Which files a listing shows. Every field narrows it.
#[derive(Debug, Clone, Default)]
pub struct FileFilter {
    /// Only this namespace.
    pub namespace: Option<Namespace>,
    /// Only names that begin with this.
    pub prefix: Option<String>,
    /// Only this category.
    pub category: Option<Category>,
    /// Only this media type.
    pub mime: Option<String>,
    /// Only files with these bytes.
    pub digest: Option<Digest>,
    /// Only files of at least this many bytes.
    pub size_min: Option<u64>,
    /// Only files of at most this many bytes.
    pub size_max: Option<u64>,
    /// Only names given at or after this time, in milliseconds since 1970.
    pub created_from_ms: Option<i64>,
    /// Only names given before this time, in milliseconds since 1970.
    pub created_to_ms: Option<i64>,
}

/// A remembered answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRequest {
    /// Fingerprint of the request.
    pub fingerprint: Digest,
    /// HTTP status of the answer.
    pub status: u16,
    /// JSON body of the answer.
    pub answer: Vec<u8>,
    /// When, in milliseconds since 1970.
    pub created_ms: i64,
}

/// Sums over the catalogue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CatalogueTotals {
    /// Names.
    pub files: u64,
    /// Bytes over all names.
    pub file_bytes: u64,
    /// Distinct blobs that a name refers to.
    pub blobs: u64,
    /// Bytes over those blobs.
    pub blob_bytes: u64,
}

/// Reads the catalogue. Cheap to share; safe from any thread.
#[derive(Debug)]
pub struct CatalogueReader {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
}

impl CatalogueReader {
    pub(super) fn open(path: &Path) -> Result<Self, CatalogueError> {
        let first = schema::open_reader(path)?;
        Ok(Self { path: path.to_owned(), idle: Mutex::new(vec![first]) })
    }

    /// The file with this name and the blob it refers to.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said, or which row is damaged.
    pub fn file(
        &self,
        namespace: &Namespace,
        name: &FileName,
    ) -> Result<Option<(FileRecord, BlobRecord)>, CatalogueError> {
        let key = params![namespace.as_str(), name.as_str()];
        self.ask("look up a file", |connection| {
            let mut hasher = RowHasher::default();
            let mut statement = connection.prepare_cached(
                "SELECT f.namespace, f.name, f.id, f.digest, f.size, f.mime, f.category, f.comment,
                   f.created_ms, f.first, f.checksum, b.digest, b.size, b.place, b.refs, b.checksum
                 FROM files f LEFT JOIN blobs b ON b.digest = f.digest
                 WHERE f.namespace = ?1 AND f.name = ?2",
            )?;
            let mut rows = statement.query(key)?;
            let Some(row) = rows.next()? else {
                beside(connection, FILES, FILE_COLUMNS, "(namespace, name)", "(?1, ?2)", key)?;
                return Ok(None);
            };
            let (file, ..) = read_file(&mut hasher, row)?;
            if row.get_ref(FILE_COLUMN_COUNT)? == ValueRef::Null {
                let found = format!("the blob {} has names and no row", file.digest);
                return Err(CatalogueFault::Damaged { found });
            }
            let (blob, _) = read_blob(&mut hasher, row, FILE_COLUMN_COUNT)?;
            Ok(Some((file, blob.blob)))
        })
    }

    /// The blob with this digest, whether or not a name refers to it.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said, or which row is damaged.
    pub fn blob(&self, digest: Digest) -> Result<Option<BlobRecord>, CatalogueError> {
        Ok(self.blob_row(digest)?.map(|row| row.blob))
    }

    /// The blob with this digest, if a name refers to it. Only such a blob may gain names, since
    /// the bytes of the others may be about to be removed.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said, or which row is damaged.
    pub fn live_blob(&self, digest: Digest) -> Result<Option<BlobRecord>, CatalogueError> {
        Ok(self.blob_row(digest)?.filter(|row| row.refs > 0).map(|row| row.blob))
    }

    fn blob_row(&self, digest: Digest) -> Result<Option<BlobRow>, CatalogueError> {
        self.ask("look up a blob", |connection| {
            let mut statement = connection
                .prepare_cached(&format!("SELECT {BLOB_COLUMNS} FROM blobs WHERE digest = ?1"))?;
            let mut rows = statement.query([digest.0])?;
            let Some(row) = rows.next()? else {
                beside(connection, BLOBS, BLOB_COLUMNS, "digest", "?1", [digest.0])?;
                return Ok(None);
            };
            Ok(Some(read_blob(&mut RowHasher::default(), row, 0)?.0))
        })
    }

    /// The remembered answer to a request with this key.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said, or which row is damaged.
    pub fn request(&self, key: Digest) -> Result<Option<StoredRequest>, CatalogueError> {
        self.ask("look up a request", |connection| {
            let mut statement = connection.prepare_cached(&format!(
                "SELECT {REQUEST_COLUMNS} FROM requests WHERE key = ?1"
            ))?;
            let mut rows = statement.query([key.0])?;
            let Some(row) = rows.next()? else {
                beside(connection, REQUESTS, REQUEST_COLUMNS, "key", "?1", [key.0])?;
                return Ok(None);
            };
            read_request(&mut RowHasher::default(), row).map(Some)
        })
    }

    /// Up to `limit` files that pass `filter`, by namespace and name, after `after`.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said.
    pub fn list(
        &self,
        filter: &FileFilter,
        after: Option<(&str, &str)>,
        limit: usize,
    ) -> Result<Vec<FileRecord>, CatalogueError> {
        let (condition, mut values) = filter.to_sql(after);
        values.push(Value::Integer(i64::try_from(limit).unwrap_or(i64::MAX)));
        let sql = format!(
            "SELECT {FILE_COLUMNS} FROM files f WHERE {condition}
             ORDER BY f.namespace, f.name LIMIT ?"
        );
        self.files("list files", &sql, &values)
    }

    /// Like [`CatalogueReader::list`] for a filter with a digest, by index: no other name is read.
    ///
    /// * `holder`: the name given by the log entry that holds the bytes, if there is one
    ///   ([`BlobLocation::Entry`]). Whether it still refers to them is looked up.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said.
    pub fn list_by_digest(
        &self,
        filter: &FileFilter,
        holder: Option<&(Namespace, FileName)>,
        after: Option<(&str, &str)>,
        limit: usize,
    ) -> Result<Vec<FileRecord>, CatalogueError> {
        let (sql, mut values) = filter.to_sql_by_digest(holder, after);
        values.push(Value::Integer(i64::try_from(limit).unwrap_or(i64::MAX)));
        self.files("list files by digest", &sql, &values)
    }

    fn files(
        &self,
        act: &'static str,
        sql: &str,
        values: &[Value],
    ) -> Result<Vec<FileRecord>, CatalogueError> {
        self.ask(act, |connection| {
            let mut statement = connection.prepare_cached(sql)?;
            let mut rows = statement.query(params_from_iter(values))?;
            let (mut hasher, mut files) = (RowHasher::default(), Vec::new());
            while let Some(row) = rows.next()? {
                files.push(read_file(&mut hasher, row)?.0);
            }
            Ok(files)
        })
    }

    /// Up to `limit` blobs after `after` in digest order; `None` starts at the first.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said.
    pub fn blobs_after(
        &self,
        after: Option<Digest>,
        limit: usize,
    ) -> Result<Vec<(BlobRecord, u64)>, CatalogueError> {
        let after = after.map_or(Vec::new(), |digest| digest.0.to_vec());
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let sql =
            format!("SELECT {BLOB_COLUMNS} FROM blobs WHERE digest > ?1 ORDER BY digest LIMIT ?2");
        let rows = self.blobs("read the blobs", &sql, params![after, limit])?;
        Ok(rows.into_iter().map(|row| (row.blob, row.refs.cast_unsigned())).collect())
    }

    /// Up to `limit` blobs that no name refers to.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said, or which row is damaged.
    pub fn dead_blobs(&self, limit: usize) -> Result<Vec<BlobRecord>, CatalogueError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let sql = format!("SELECT {BLOB_COLUMNS} FROM blobs WHERE refs = 0 LIMIT ?1");
        self.dead(&sql, params![limit])
    }

    /// Up to `limit` blobs that no name refers to and whose bytes are in log entries at these
    /// positions, or in their own files (`None`).
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said, or which row is damaged.
    pub fn dead_blobs_in(
        &self,
        positions: Option<std::ops::Range<u64>>,
        limit: usize,
    ) -> Result<Vec<BlobRecord>, CatalogueError> {
        let (from, to) = match positions {
            Some(positions) => (positions.start.cast_signed(), positions.end.cast_signed()),
            None => (BlobLocation::Erased.to_sql(), BlobLocation::File.to_sql() + 1),
        };
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.dead(DEAD_BLOBS_IN, params![from, to, limit])
    }

    /// Their bytes are about to be removed: what an index says is not enough.
    fn dead(&self, sql: &str, values: impl Params) -> Result<Vec<BlobRecord>, CatalogueError> {
        let act = "find dead blobs";
        let rows = self.blobs(act, sql, values)?;
        if let Some(row) = rows.iter().find(|row| row.refs != 0) {
            let digest = row.blob.digest;
            let found = format!("an index says that the blob {digest} has no names, but it has");
            return Err(CatalogueError::new(act, CatalogueFault::Damaged { found }));
        }
        Ok(rows.into_iter().map(|row| row.blob).collect())
    }

    fn blobs(
        &self,
        act: &'static str,
        sql: &str,
        values: impl Params,
    ) -> Result<Vec<BlobRow>, CatalogueError> {
        self.ask(act, |connection| {
            let mut statement = connection.prepare_cached(sql)?;
            let mut rows = statement.query(values)?;
            let (mut hasher, mut blobs) = (RowHasher::default(), Vec::new());
            while let Some(row) = rows.next()? {
                blobs.push(read_blob(&mut hasher, row, 0)?.0);
            }
            Ok(blobs)
        })
    }

    /// Calls `each` with every name and digest, in name order, without holding them all.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said.
    pub fn for_each_name(
        &self,
        mut each: impl FnMut(&str, &str, Digest),
    ) -> Result<(), CatalogueError> {
        self.ask("read the names", |connection| {
            let mut statement = connection
                .prepare("SELECT namespace, name, digest FROM files ORDER BY namespace, name")?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                let digest = Digest(row.get(2)?);
                let text = |at: usize| row.get_ref(at)?.as_str().map_err(rusqlite::Error::from);
                each(text(0)?, text(1)?, digest);
            }
            Ok(())
        })
    }

    /// Blobs whose reference count differs from their number of names: digest, count, names.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said.
    pub fn wrong_counts(&self) -> Result<Vec<(Digest, u64, u64)>, CatalogueError> {
        self.ask("count the names of blobs", |connection| {
            connection
                .prepare(
                    "SELECT b.digest, b.refs, coalesce(n.names, 0) FROM blobs b
                     LEFT JOIN (SELECT digest, count(*) AS names FROM files GROUP BY digest) n
                       ON n.digest = b.digest
                     WHERE b.refs <> coalesce(n.names, 0) LIMIT 100",
                )?
                .query_map([], |row| {
                    let count = |index| row.get::<_, i64>(index).map(i64::cast_unsigned);
                    Ok((Digest(row.get(0)?), count(1)?, count(2)?))
                })?
                .collect::<rusqlite::Result<_>>()
                .map_err(CatalogueFault::from)
        })
    }

    /// Totals over everything.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said.
    pub fn totals(&self) -> Result<CatalogueTotals, CatalogueError> {
        self.ask("compute the catalogue's totals", |connection| {
            let pair = |sql: &str| -> rusqlite::Result<(u64, u64)> {
                connection.prepare_cached(sql)?.query_row([], |row| {
                    Ok((
                        row.get::<_, i64>(0)?.cast_unsigned(),
                        row.get::<_, i64>(1)?.cast_unsigned(),
                    ))
                })
            };
            let (files, file_bytes) = pair("SELECT count(*), coalesce(sum(size), 0) FROM files")?;
            let (blobs, blob_bytes) =
                pair("SELECT count(*), coalesce(sum(size), 0) FROM blobs WHERE refs > 0")?;
            Ok(CatalogueTotals { files, file_bytes, blobs, blob_bytes })
        })
    }

    /// SQLite's own check of the database file; empty if it is sound.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said.
    pub fn integrity(&self) -> Result<Vec<String>, CatalogueError> {
        self.ask("check the catalogue's database", |connection| {
            let lines: Vec<String> = connection
                .prepare("PRAGMA integrity_check(20)")?
                .query_map([], |row| row.get(0))?
                .collect::<rusqlite::Result<_>>()?;
            Ok(lines.into_iter().filter(|line| line != "ok").collect())
        })
    }

    /// SQLite's plan for a statement.
    #[cfg(test)]
    pub(super) fn explain(&self, sql: &str, values: &[i64]) -> Result<Vec<String>, CatalogueError> {
        self.ask("explain", |connection| {
            connection
                .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))?
                .query_map(params_from_iter(values), |row| row.get(3))?
                .collect::<rusqlite::Result<_>>()
                .map_err(CatalogueFault::from)
        })
    }

    /// SQLite's plan for a listing by digest.
    #[cfg(test)]
    pub(super) fn explain_by_digest(
        &self,
        filter: &FileFilter,
        holder: Option<&(Namespace, FileName)>,
        after: Option<(&str, &str)>,
    ) -> Result<Vec<String>, CatalogueError> {
        let (sql, mut values) = filter.to_sql_by_digest(holder, after);
        values.push(Value::Integer(1));
        self.ask("explain", |connection| {
            connection
                .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))?
                .query_map(params_from_iter(&values), |row| row.get(3))?
                .collect::<rusqlite::Result<_>>()
                .map_err(CatalogueFault::from)
        })
    }

    fn ask<T>(
        &self,
        act: &'static str,
        question: impl FnOnce(&Connection) -> Checked<T>,
    ) -> Result<T, CatalogueError> {
        let idle = self.idle.lock().pop();
        let connection = match idle {
            Some(connection) => connection,
            None => schema::open_reader(&self.path)?,
        };
        let answer = question(&connection).map_err(|source| CatalogueError::new(act, source));
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_MAX {
            idle.push(connection);
        }
        answer
    }
}

impl FileFilter {
    /// The `WHERE` condition and the values bound to it; only fixed text is ever spliced.
    fn to_sql(&self, after: Option<(&str, &str)>) -> (String, Vec<Value>) {
        let mut terms: Vec<&'static str> = vec!["1"];
        let mut values = Vec::new();
        let mut term = |sql: &'static str, value: Value| {
            terms.push(sql);
            values.push(value);
        };
        if let Some(namespace) = &self.namespace {
            term("f.namespace = ?", Value::Text(namespace.as_str().to_owned()));
        }
        if let Some(prefix) = &self.prefix {
            term("f.name >= ?", Value::Text(prefix.clone()));
            if let Some(end) = prefix_end(prefix) {
                term("f.name < ?", Value::Text(end));
            }
        }
        if let Some(category) = self.category {
            term("f.category = ?", Value::Integer((category as u8).into()));
        }
        if let Some(mime) = &self.mime {
            term("f.mime = ?", Value::Text(mime.clone()));
        }
        if let Some(digest) = self.digest {
            term("f.digest = ?", Value::Blob(digest.0.to_vec()));
        }
        let integer = |value: u64| Value::Integer(i64::try_from(value).unwrap_or(i64::MAX));
        if let Some(size) = self.size_min {
            term("f.size >= ?", integer(size));
        }
        if let Some(size) = self.size_max {
            term("f.size <= ?", integer(size));
        }
        if let Some(ms) = self.created_from_ms {
            term("f.created_ms >= ?", Value::Integer(ms));
        }
        if let Some(ms) = self.created_to_ms {
            term("f.created_ms < ?", Value::Integer(ms));
        }
        if let Some((namespace, name)) = after {
            terms.push("(f.namespace, f.name) > (?, ?)");
            values.push(Value::Text(namespace.to_owned()));
            values.push(Value::Text(name.to_owned()));
        }
        (terms.join(" AND "), values)
    }

    /// The complete statement that lists by digest, except the limit.
    fn to_sql_by_digest(
        &self,
        holder: Option<&(Namespace, FileName)>,
        after: Option<(&str, &str)>,
    ) -> (String, Vec<Value>) {
        let (condition, mut values) = self.to_sql(after);
        let mut sql = format!(
            "SELECT {FILE_COLUMNS} FROM files f INDEXED BY files_by_digest
             WHERE f.first = 0 AND {condition}"
        );
        if let Some((namespace, name)) = holder {
            sql.push_str(&format!(
                " UNION ALL SELECT {FILE_COLUMNS} FROM files f
                 WHERE f.first = 1 AND {condition} AND f.namespace = ? AND f.name = ?"
            ));
            values.extend_from_within(..);
            values.push(Value::Text(namespace.as_str().to_owned()));
            values.push(Value::Text(name.as_str().to_owned()));
        }
        sql.push_str(" ORDER BY 1, 2 LIMIT ?");
        (sql, values)
    }
}

/// The smallest text greater than every text that begins with `prefix`.
fn prefix_end(prefix: &str) -> Option<String> {
    let mut characters: Vec<char> = prefix.chars().collect();
    while let Some(last) = characters.pop() {
        let next = match last {
            '\u{D7FF}' => Some('\u{E000}'),
            other => char::from_u32(u32::from(other) + 1),
        };
        if let Some(next) = next {
            characters.push(next);
            return Some(characters.into_iter().collect());
        }
    }
    None
}

/// Verifies the rows on both sides of a key that was not found.
///
/// A row whose key was altered is where it was before, so a search for what it was ends beside it:
/// then it is not certain that there is no such row.
fn beside(
    connection: &Connection,
    table: Table,
    columns: &str,
    key: &str,
    value: &str,
    values: impl Params + Copy,
) -> Checked<()> {
    let mut hasher = RowHasher::default();
    for (than, order) in [(">", "ASC"), ("<", "DESC")] {
        let ordered: Vec<String> = key
            .trim_matches(['(', ')'])
            .split(", ")
            .map(|column| format!("{column} {order}"))
            .collect();
        let mut statement = connection.prepare_cached(&format!(
            "SELECT {columns} FROM {} WHERE {key} {than} {value} ORDER BY {} LIMIT 1",
            table.name,
            ordered.join(", ")
        ))?;
        let mut rows = statement.query(values)?;
        if let Some(row) = rows.next()? {
            table.verify(&mut hasher, row, 0)?;
        }
    }
    Ok(())
}
