//! The catalogue: names, blobs and remembered requests, as a SQLite view of the log.
//!
//! One thread writes ([`Catalogue`]); any number read ([`CatalogueReader`]). Every transaction
//! stores the log position it reflects, so an entry cannot be applied twice and a lost transaction
//! is applied again. `place` of a blob is 0 for a blob file, otherwise the position of the log
//! entry that holds its bytes. `docs/formats/catalogue.md` describes every table.
//!
//! Names are found by digest without an index over all of them: `files.first` marks the name whose
//! own entry holds the blob's bytes, so it is found by `blobs.place` and that entry. Only further
//! names, and names of blob files, are indexed.
//!
//! Invariants: `blobs.refs` is the number of names that refer to the blob; a name's digest always
//! has a row in `blobs`; where `files.first` is set, `files.id` is that blob's `place`; every value that came from outside is bound, never spliced.

mod query;
mod schema;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension as _, Statement, Transaction, params};

use crate::classify::Category;
use crate::digest::Digest;
use crate::error::CatalogueError;
use crate::format::IdempotencyRecord;
use crate::names::{FileName, Namespace};

pub use query::{CatalogueReader, CatalogueTotals, FileFilter, StoredRequest};

/// Location of a blob's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlobLocation {
    /// In a file named by the digest.
    File,
    /// Inside the log entry at this position.
    Entry(u64),
    /// The entry that held them was erased when no name referred to them any more.
    Erased,
}

impl BlobLocation {
    fn to_sql(self) -> i64 {
        match self {
            Self::File => 0,
            Self::Entry(lsn) => lsn.cast_signed(),
            Self::Erased => -1,
        }
    }

    fn from_sql(value: i64) -> Self {
        match value {
            0 => Self::File,
            -1 => Self::Erased,
            lsn => Self::Entry(lsn.cast_unsigned()),
        }
    }
}

/// A stored blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobRecord {
    /// SHA-256 of its bytes.
    pub digest: Digest,
    /// Number of bytes.
    pub size: u64,
    /// Where the bytes are.
    pub place: BlobLocation,
}

/// A name and the bytes it refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRecord {
    /// Position of the log entry that gave the name; the id that `/v1/files/{id}` takes.
    pub id: u64,
    /// Namespace.
    pub namespace: Namespace,
    /// Name inside it.
    pub name: FileName,
    /// SHA-256 of the bytes.
    pub digest: Digest,
    /// Number of bytes.
    pub size: u64,
    /// Media type.
    pub mime: Cow<'static, str>,
    /// Broad kind.
    pub category: Category,
    /// Comment; empty when there is none.
    pub comment: String,
    /// When the name was given, in milliseconds since 1970.
    pub created_ms: i64,
}

/// One committed change, in the form that the catalogue applies.
#[derive(Debug, Clone)]
pub enum Change {
    /// A name was given to a blob that was newly stored at `stored` or already stored.
    Put {
        /// The name.
        file: Arc<FileRecord>,
        /// Where the entry stored the bytes; `None` if they were already stored.
        stored: Option<BlobLocation>,
    },
    /// A name was deleted.
    Delete {
        /// Namespace of the name.
        namespace: Namespace,
        /// The name.
        name: FileName,
    },
    /// Only a request to remember.
    Nothing,
}

/// An answer to remember under an idempotency key.
#[derive(Debug, Clone)]
pub struct Answered {
    /// Key and fingerprint.
    pub record: IdempotencyRecord,
    /// HTTP status.
    pub status: u16,
    /// JSON body.
    pub answer: Vec<u8>,
    /// When, in milliseconds since 1970.
    pub created_ms: i64,
}

/// A change with the position of its entry and the answer to remember with it.
#[derive(Debug, Clone)]
pub struct AppliedChange {
    /// Position of the entry.
    pub lsn: u64,
    /// What it changed.
    pub change: Change,
    /// The answer to its request.
    pub answered: Option<Arc<Answered>>,
}

/// The only writer of the catalogue.
#[derive(Debug)]
pub struct Catalogue {
    connection: Connection,
    path: PathBuf,
}

impl Catalogue {
    /// Opens the catalogue at `path` and creates its tables if they are missing.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said.
    pub fn open(path: &Path) -> Result<Self, CatalogueError> {
        let connection = schema::open_writer(path)?;
        let catalogue = Self { connection, path: path.to_owned() };
        if catalogue.meta("schema")?.is_none() {
            catalogue.set_meta("schema", schema::SCHEMA_VERSION)?;
        }
        Ok(catalogue)
    }

    /// Whether the tables have the current version.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said.
    pub fn is_current(&self) -> Result<bool, CatalogueError> {
        Ok(self.meta("schema")? == Some(schema::SCHEMA_VERSION))
    }

    /// A reader over its own connection.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said.
    pub fn reader(&self) -> Result<CatalogueReader, CatalogueError> {
        CatalogueReader::open(&self.path)
    }

    /// The log position up to which entries are applied; 0 for a new catalogue.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said.
    pub fn position(&self) -> Result<u64, CatalogueError> {
        Ok(self.meta("position")?.unwrap_or(0).cast_unsigned())
    }

    /// Applies changes in log order as one transaction that ends at `position`.
    ///
    /// The log must be on stable storage up to there, since the stored position promises that.
    ///
    /// # Errors
    /// [`CatalogueError`]: nothing of the batch was applied.
    pub fn apply(
        &mut self,
        changes: &[AppliedChange],
        position: u64,
    ) -> Result<(), CatalogueError> {
        let failed = |source| CatalogueError { act: "apply changes to the catalogue", source };
        let transaction = self.connection.transaction().map_err(failed)?;
        apply_names(&transaction, changes)
            .and_then(|deltas| apply_blobs(&transaction, deltas))
            .map_err(failed)?;
        for answered in changes.iter().filter_map(|change| change.answered.as_ref()) {
            remember(&transaction, answered).map_err(failed)?;
        }
        set_meta(&transaction, "position", position.cast_signed()).map_err(failed)?;
        transaction.commit().map_err(failed)
    }

    /// The log position below which documents have been erased from the log.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said.
    pub fn documents_erased(&self) -> Result<u64, CatalogueError> {
        Ok(self.meta("documents_erased")?.unwrap_or(0).cast_unsigned())
    }

    /// Records that documents below a log position have been erased from the log.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said.
    pub fn set_documents_erased(&self, position: u64) -> Result<(), CatalogueError> {
        self.set_meta("documents_erased", position.cast_signed())
    }

    /// Blobs that names refer to although their bytes were erased. There are none after a complete
    /// replay.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said.
    pub fn lost_blobs(&self) -> Result<Vec<Digest>, CatalogueError> {
        self.connection
            .prepare("SELECT digest FROM blobs WHERE place = -1 AND refs > 0 LIMIT 100")
            .and_then(|mut statement| {
                statement.query_map([], |row| Ok(Digest(row.get(0)?)))?.collect()
            })
            .map_err(|source| CatalogueError { act: "find lost blobs", source })
    }

    /// Deletes the records of requests answered before `before_ms`.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said.
    pub fn forget_requests(&self, before_ms: i64) -> Result<usize, CatalogueError> {
        self.connection
            .prepare_cached("DELETE FROM requests WHERE created_ms < ?1")
            .and_then(|mut statement| statement.execute([before_ms]))
            .map_err(|source| CatalogueError { act: "delete old requests", source })
    }

    /// Removes the rows of blobs that no name refers to, once their bytes are gone.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said.
    pub fn forget_blobs(&mut self, dead: &[BlobRecord]) -> Result<(), CatalogueError> {
        let failed = |source| CatalogueError { act: "delete dead blobs", source };
        let transaction = self.connection.transaction().map_err(failed)?;
        for blob in dead {
            transaction
                .prepare_cached("DELETE FROM blobs WHERE digest = ?1 AND refs = 0 AND place = ?2")
                .and_then(|mut statement| {
                    statement.execute(params![blob.digest.0, blob.place.to_sql()])
                })
                .map_err(failed)?;
        }
        transaction.commit().map_err(failed)
    }

    /// Creates every table again, for a replay from the log's beginning. What was erased from the
    /// log stays recorded: no replay brings it back.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said.
    pub fn clear(&mut self) -> Result<(), CatalogueError> {
        let erased = self.documents_erased()?;
        schema::recreate(&self.connection)?;
        self.set_documents_erased(erased)?;
        self.set_meta("schema", schema::SCHEMA_VERSION)
    }

    fn meta(&self, key: &str) -> Result<Option<i64>, CatalogueError> {
        self.connection
            .query_row("SELECT value FROM meta WHERE key = ?1", [key], |row| row.get(0))
            .optional()
            .map_err(|source| CatalogueError { act: "read the catalogue's position", source })
    }

    fn set_meta(&self, key: &str, value: i64) -> Result<(), CatalogueError> {
        set_meta(&self.connection, key, value)
            .map_err(|source| CatalogueError { act: "set the catalogue's position", source })
    }
}

fn set_meta(connection: &Connection, key: &str, value: i64) -> rusqlite::Result<()> {
    connection
        .prepare_cached("INSERT OR REPLACE INTO meta (key, value) VALUES (?1, ?2)")?
        .execute(params![key, value])?;
    Ok(())
}

/// The effect of a batch on one blob.
#[derive(Debug, Default)]
struct BlobDelta<'a> {
    /// Names gained minus names lost.
    refs: i64,
    /// The first copy of the bytes that the batch stored, and their size.
    stored: Option<(BlobLocation, u64)>,
    /// The name that copy was given.
    first: Option<&'a FileRecord>,
    size: u64,
}

/// Applies the changes to names, and returns their effect on blobs.
///
/// Only the order of changes to the same name matters, so names are taken in the order of their
/// table: a batch then touches each of its pages once.
fn apply_names<'a>(
    transaction: &Transaction<'_>,
    changes: &'a [AppliedChange],
) -> rusqlite::Result<BTreeMap<Digest, BlobDelta<'a>>> {
    let mut deltas: BTreeMap<Digest, BlobDelta<'a>> = BTreeMap::new();
    let mut by_name: Vec<(&Namespace, &FileName, &Change, bool)> =
        Vec::with_capacity(changes.len());
    for AppliedChange { change, .. } in changes {
        match change {
            Change::Put { file, stored } => {
                let delta = deltas.entry(file.digest).or_default();
                delta.refs += 1;
                delta.size = file.size;
                let mut first = false;
                if let (None, Some(place)) = (delta.stored, *stored) {
                    delta.stored = Some((place, file.size));
                    delta.first = Some(file);
                    first = place == BlobLocation::Entry(file.id);
                }
                by_name.push((&file.namespace, &file.name, change, first));
            }
            Change::Delete { namespace, name } => by_name.push((namespace, name, change, false)),
            Change::Nothing => {}
        }
    }
    by_name.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)));
    let mut insert = transaction.prepare_cached(INSERT_FILE)?;
    for (namespace, name, change, first) in by_name {
        let mut lost = None;
        match change {
            Change::Put { file, .. } => {
                if !insert_file(&mut insert, file, first)? {
                    lost = delete(transaction, namespace, name)?;
                    insert_file(&mut insert, file, first)?;
                }
            }
            Change::Delete { .. } => lost = delete(transaction, namespace, name)?,
            Change::Nothing => {}
        }
        if let Some((digest, size)) = lost {
            let delta = deltas.entry(digest).or_default();
            delta.refs -= 1;
            delta.size = size;
        }
    }
    Ok(deltas)
}

/// Applies a batch's effect on blobs, in the order of their table.
fn apply_blobs(
    transaction: &Transaction<'_>,
    deltas: BTreeMap<Digest, BlobDelta<'_>>,
) -> rusqlite::Result<()> {
    // A row without names may point at bytes about to be reclaimed, and one read during a replay
    // may refer to bytes that were erased: a new copy replaces both.
    let mut store = transaction.prepare_cached(
        "INSERT INTO blobs (digest, size, place, refs) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (digest) DO UPDATE SET refs = refs + ?4, place = excluded.place
           WHERE refs = 0 OR place = -1",
    )?;
    let mut count =
        transaction.prepare_cached("UPDATE blobs SET refs = refs + ?2 WHERE digest = ?1")?;
    for (digest, delta) in deltas {
        if let Some((place, size)) = delta.stored {
            let size = size.cast_signed();
            let stored = store.execute(params![digest.0, size, place.to_sql(), delta.refs])?;
            if stored == 0 {
                count.execute(params![digest.0, delta.refs])?;
                if let Some(file) = delta.first {
                    not_first(transaction, file)?;
                }
            }
        } else if delta.refs != 0 && count.execute(params![digest.0, delta.refs])? == 0 {
            // Reached only by a replay over entries whose bytes were erased later: later entries
            // delete the names that refer to them, which `lost_blobs` checks at the end.
            let size = delta.size.cast_signed();
            store.execute(params![digest.0, size, BlobLocation::Erased.to_sql(), delta.refs])?;
        }
    }
    Ok(())
}

const INSERT_FILE: &str = "INSERT OR IGNORE INTO files
       (namespace, name, id, digest, size, mime, category, comment, created_ms, first)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";

/// Records that the blob's place is another copy than the one stored with this name.
fn not_first(transaction: &Transaction<'_>, file: &FileRecord) -> rusqlite::Result<()> {
    transaction
        .prepare_cached(
            "UPDATE files SET first = 0 WHERE namespace = ?1 AND name = ?2 AND id = ?3",
        )?
        .execute(params![file.namespace.as_str(), file.name.as_str(), file.id.cast_signed()])?;
    Ok(())
}

/// Inserts a name with [`INSERT_FILE`]; returns `false` if it exists.
fn insert_file(
    insert: &mut Statement<'_>,
    file: &FileRecord,
    first: bool,
) -> rusqlite::Result<bool> {
    let inserted = insert.execute(params![
        file.namespace.as_str(),
        file.name.as_str(),
        file.id.cast_signed(),
        file.digest.0,
        file.size.cast_signed(),
        file.mime,
        file.category as u8,
        file.comment,
        file.created_ms,
        first,
    ])?;
    Ok(inserted == 1)
}

/// Deletes a name and returns the bytes it referred to. Does nothing if it does not exist.
fn delete(
    transaction: &Transaction<'_>,
    namespace: &Namespace,
    name: &FileName,
) -> rusqlite::Result<Option<(Digest, u64)>> {
    transaction
        .prepare_cached(
            "DELETE FROM files WHERE namespace = ?1 AND name = ?2 RETURNING digest, size",
        )?
        .query_row(params![namespace.as_str(), name.as_str()], |row| {
            Ok((Digest(row.get(0)?), row.get::<_, i64>(1)?.cast_unsigned()))
        })
        .optional()
}

fn remember(transaction: &Transaction<'_>, answered: &Answered) -> rusqlite::Result<()> {
    transaction
        .prepare_cached(
            "INSERT OR REPLACE INTO requests (key, fingerprint, status, answer, created_ms)
             VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute(params![
            answered.record.key.0,
            answered.record.fingerprint.0,
            answered.status,
            answered.answer,
            answered.created_ms,
        ])?;
    Ok(())
}

#[cfg(test)]
mod tests;
