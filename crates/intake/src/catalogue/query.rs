//! Queries of the catalogue, each answered from one state of it by a pool of read-only connections.
//!
//! Invariants: an answer contains only rows that were verified; damage that a query meets is remembered
//! for as long as the reader exists, since what a damaged catalogue does not have may exist.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use forebay_base::rows::RowHasher;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Params, params};

use super::pool::Pool;
use super::rows::{
    BLOB_COLUMNS, BLOBS, BlobRow, Checked, FILE_COLUMN_COUNT, FILE_COLUMNS, FILES, REQUEST_COLUMNS,
    REQUESTS, Table, read_blob, read_file, read_request,
};
use super::state::{State, StoredState};
use super::{BlobLocation, BlobRecord, FileRecord, schema, verify};
use crate::digest::Digest;
use crate::error::{CatalogueError, CatalogueFault};
use crate::names::{FileName, Namespace};

/// Selects the columns that [`read_blob`] reads.
const BLOB: &str = "SELECT digest, size, place, refs, checksum FROM blobs WHERE digest = ?1";
/// Selects the same columns.
pub(super) const DEAD_BLOBS_IN: &str = "SELECT digest, size, place, refs, checksum FROM blobs
     WHERE refs = 0 AND place >= ?1 AND place < ?2 LIMIT ?3";

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
    pool: Arc<Pool>,
    /// The first damage that a query has met.
    damage: OnceLock<Arc<str>>,
}

impl CatalogueReader {
    pub(super) fn open(pool: &Arc<Pool>) -> Result<Self, CatalogueError> {
        pool.prepare()?;
        Ok(Self { pool: Arc::clone(pool), damage: OnceLock::new() })
    }

    /// The first damage that any query has met; `None` if none has.
    #[must_use]
    pub fn damage(&self) -> Option<&Arc<str>> {
        self.damage.get()
    }

    /// Verifies every row, count and digest, as of one moment, beside whatever else happens.
    ///
    /// * `stop`: makes it return soon, without having verified everything.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said, or what is damaged.
    pub fn verify(&self, stop: &AtomicBool) -> Result<(), CatalogueError> {
        // The connections of the pool have pages in memory. What the disk holds is looked at here.
        let connection = schema::open_reader(self.pool.path())?;
        let verified = (|| {
            let transaction = connection.unchecked_transaction()?;
            let state = current(&transaction)?;
            match verify::verify(&transaction, &state, 1, stop)?.pop() {
                Some(found) => Err(CatalogueFault::Damaged { found }),
                None => Ok(()),
            }
        })();
        self.noted("verify the catalogue", verified)
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
                   f.created_ms, f.attributes, f.first, f.checksum, b.digest, b.size, b.place, b.refs, b.checksum
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
            let mut statement = connection.prepare_cached(BLOB)?;
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
                     LEFT JOIN (SELECT digest, count(*) AS names FROM (
                         SELECT digest FROM files UNION ALL
                         SELECT digest FROM versions WHERE digest IS NOT NULL
                       ) GROUP BY digest) n
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

    /// Totals over everything. Reads and verifies every row of a name or a blob.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said, or what is damaged.
    pub fn totals(&self) -> Result<CatalogueTotals, CatalogueError> {
        self.ask("compute the catalogue's totals", |connection| {
            let state = current(connection)?;
            verify::totals(connection, &state)
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

    /// Makes the next query see what another program has written.
    #[cfg(test)]
    pub(super) fn look_again(&self) {
        drop(self.pool.write());
    }

    /// SQLite's plan for a statement.
    #[cfg(test)]
    pub(super) fn explain(
        &self,
        sql: &str,
        values: impl Params,
    ) -> Result<Vec<String>, CatalogueError> {
        self.ask("explain", |connection| {
            connection
                .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))?
                .query_map(values, |row| row.get(3))?
                .collect::<rusqlite::Result<_>>()
                .map_err(CatalogueFault::from)
        })
    }

    /// Answers from one state of the catalogue.
    pub(super) fn ask<T>(
        &self,
        act: &'static str,
        question: impl FnOnce(&Connection) -> Checked<T>,
    ) -> Result<T, CatalogueError> {
        let answer = self.pool.ask(question)?;
        self.noted(act, answer)
    }

    /// Remembers damage.
    fn noted<T>(&self, act: &'static str, answer: Checked<T>) -> Result<T, CatalogueError> {
        if let Err(fault) = &answer
            && fault.is_damage()
        {
            self.damage.get_or_init(|| {
                let found: Arc<str> = fault.to_string().into();
                tracing::error!(%found, "the catalogue is damaged; a restart builds it again");
                found
            });
        }
        answer.map_err(|source| CatalogueError::new(act, source))
    }
}

/// What the catalogue holds in all, in the state that the connection sees.
fn current(connection: &Connection) -> Checked<State> {
    match State::load(connection)? {
        StoredState::State(state) => Ok(state),
        StoredState::Nothing | StoredState::Other { .. } => {
            let found = "the table meta is not as the server has written it".to_owned();
            Err(CatalogueFault::Damaged { found })
        }
    }
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
