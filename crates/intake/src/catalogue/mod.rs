//! The catalogue: names, blobs and remembered requests, as a SQLite view of the log.
//!
//! One thread writes ([`Catalogue`]); any number read ([`CatalogueReader`]). Every transaction
//! stores the log position it reflects, so applying an entry twice is impossible and a lost
//! transaction is simply applied again. `place` of a blob is 0 for a blob file, otherwise the
//! position of the log entry that holds its bytes.
//!
//! Invariants: `blobs.refs` is the number of names that refer to the blob; a name's digest always
//! has a row in `blobs`; every value that came from outside is bound, never spliced.

mod query;
mod schema;

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension as _, Transaction, params};

use crate::classify::Category;
use crate::digest::Digest;
use crate::error::{ApplyError, CatalogueError};
use crate::format::IdempotencyRecord;
use crate::names::{FileName, Namespace};

pub use query::{CatalogueReader, CatalogueTotals, FileFilter, StoredRequest};

/// Where a blob's bytes are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In a file named by the digest.
    File,
    /// Inside the log entry at this position.
    Entry(u64),
    /// Nowhere: the entry that held them was erased when no name referred to them any more.
    Erased,
}

impl Place {
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
    /// Where they are.
    pub place: Place,
}

/// A name and what it stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRecord {
    /// Position of the log entry that gave the name; what `/v1/files/{id}` takes.
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

/// One committed change, in the form the catalogue takes.
#[derive(Debug, Clone)]
pub enum Change {
    /// A name was given to a blob, newly stored at `stored` or already there.
    Put {
        /// The name.
        file: Arc<FileRecord>,
        /// Where the entry stored the bytes; `None` where it found them stored.
        stored: Option<Place>,
    },
    /// A name was taken away.
    Delete {
        /// Namespace of the name.
        namespace: Namespace,
        /// The name.
        name: FileName,
    },
    /// Nothing but a request to remember.
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
    /// What its request was answered.
    pub answered: Option<Arc<Answered>>,
}

/// The catalogue's one writer.
#[derive(Debug)]
pub struct Catalogue {
    connection: Connection,
    path: PathBuf,
}

impl Catalogue {
    /// Opens the catalogue at `path`, making its tables where there are none.
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

    /// Whether the tables are of this version.
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

    /// The log position known to be on stable storage when the last change was applied.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said.
    pub fn position_synced(&self) -> Result<u64, CatalogueError> {
        Ok(self.meta("position_synced")?.unwrap_or(0).cast_unsigned())
    }

    /// Applies changes in log order as one transaction that ends at `position`.
    ///
    /// # Errors
    /// [`ApplyError`]: nothing of the batch was applied.
    pub fn apply(
        &mut self,
        changes: &[AppliedChange],
        position: u64,
        position_synced: u64,
    ) -> Result<(), ApplyError> {
        let failed = |source| CatalogueError { act: "apply changes to the catalogue", source };
        let transaction = self.connection.transaction().map_err(failed)?;
        for AppliedChange { lsn, change, answered } in changes {
            match change {
                Change::Put { file, stored } => put(&transaction, *lsn, file, *stored)?,
                Change::Delete { namespace, name } => {
                    delete(&transaction, namespace, name).map_err(failed)?;
                }
                Change::Nothing => {}
            }
            if let Some(answered) = answered {
                remember(&transaction, answered).map_err(failed)?;
            }
        }
        set_meta(&transaction, "position", position.cast_signed()).map_err(failed)?;
        set_meta(&transaction, "position_synced", position_synced.cast_signed()).map_err(failed)?;
        transaction.commit().map_err(failed)?;
        Ok(())
    }

    /// Forgets requests answered before `before_ms`.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said.
    pub fn forget_requests(&self, before_ms: i64) -> Result<usize, CatalogueError> {
        self.connection
            .prepare_cached("DELETE FROM requests WHERE created_ms < ?1")
            .and_then(|mut statement| statement.execute([before_ms]))
            .map_err(|source| CatalogueError { act: "forget old requests", source })
    }

    /// Removes the rows of blobs that no name refers to, once their bytes are gone.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said.
    pub fn forget_blobs(&mut self, dead: &[BlobRecord]) -> Result<(), CatalogueError> {
        let failed = |source| CatalogueError { act: "forget dead blobs", source };
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

    /// Empties every table, for a replay from the log's beginning.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said.
    pub fn clear(&mut self) -> Result<(), CatalogueError> {
        self.connection
            .execute_batch(
                "BEGIN; DELETE FROM files; DELETE FROM blobs; DELETE FROM requests; \
                 DELETE FROM meta; COMMIT",
            )
            .map_err(|source| CatalogueError { act: "empty the catalogue", source })?;
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

/// Gives a name to a blob; the name may have stood for another before.
fn put(
    transaction: &Transaction<'_>,
    lsn: u64,
    file: &FileRecord,
    stored: Option<Place>,
) -> Result<(), ApplyError> {
    let failed = |source| CatalogueError { act: "give a name to a blob", source };
    match stored {
        Some(place) => {
            // A blob row without names may point at bytes about to be reclaimed: the new copy wins.
            transaction
                .prepare_cached(
                    "INSERT INTO blobs (digest, size, place, refs) VALUES (?1, ?2, ?3, 1)
                     ON CONFLICT (digest) DO UPDATE SET refs = refs + 1,
                       place = CASE WHEN refs = 0 THEN excluded.place ELSE place END",
                )
                .and_then(|mut statement| {
                    let size = file.size.cast_signed();
                    statement.execute(params![file.digest.0, size, place.to_sql()])
                })
                .map_err(failed)?;
        }
        None => {
            let known = transaction
                .prepare_cached("UPDATE blobs SET refs = refs + 1 WHERE digest = ?1")
                .and_then(|mut statement| statement.execute([file.digest.0]))
                .map_err(failed)?;
            if known == 0 {
                return Err(ApplyError::UnknownBlob { lsn, digest: file.digest.to_hex() });
            }
        }
    }
    if !insert_file(transaction, file).map_err(failed)? {
        delete(transaction, &file.namespace, &file.name).map_err(failed)?;
        insert_file(transaction, file).map_err(failed)?;
    }
    Ok(())
}

/// Inserts a name; `false` where it is taken.
fn insert_file(transaction: &Transaction<'_>, file: &FileRecord) -> rusqlite::Result<bool> {
    let inserted = transaction
        .prepare_cached(
            "INSERT OR IGNORE INTO files
               (namespace, name, id, digest, size, mime, category, comment, created_ms)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )?
        .execute(params![
            file.namespace.as_str(),
            file.name.as_str(),
            file.id.cast_signed(),
            file.digest.0,
            file.size.cast_signed(),
            file.mime,
            file.category as u8,
            file.comment,
            file.created_ms,
        ])?;
    Ok(inserted == 1)
}

/// Takes a name away; nothing happens where there is none.
fn delete(
    transaction: &Transaction<'_>,
    namespace: &Namespace,
    name: &FileName,
) -> rusqlite::Result<()> {
    let digest: Option<[u8; 32]> = transaction
        .prepare_cached("DELETE FROM files WHERE namespace = ?1 AND name = ?2 RETURNING digest")?
        .query_row(params![namespace.as_str(), name.as_str()], |row| row.get(0))
        .optional()?;
    if let Some(digest) = digest {
        transaction
            .prepare_cached("UPDATE blobs SET refs = refs - 1 WHERE digest = ?1")?
            .execute([digest])?;
    }
    Ok(())
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
