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
//! Every row has a checksum, and `meta` the count and digest of every table. A row that does not match
//! is an error wherever it is read; a catalogue that does not match is built again from the log at the
//! next start.
//!
//! Invariants: `blobs.refs` is the number of names that refer to the blob; a name's digest always
//! has a row in `blobs`; where `files.first` is set, `files.id` is that blob's `place`; every value that came
//! from outside is bound, never spliced.

mod apply;
mod browse;
mod compare;
mod contents;
mod filter;
mod history;
mod list;
mod namespace;
mod pool;
mod query;
mod report;
mod rows;
mod schema;
mod sorted;
mod state;
mod statistics;
mod verify;
mod versions;

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use forebay_base::rows::RowHasher;
use rusqlite::{Connection, params};

use self::pool::Pool;
use self::rows::{BLOB_COLUMNS, Checked, REQUEST_COLUMNS, REQUESTS, read_blob};
use self::state::{State, StoredState};
use crate::attributes::Attributes;
use crate::classify::Category;
use crate::digest::Digest;
use crate::error::{CatalogueError, CatalogueFault};
use crate::format::IdempotencyRecord;
use crate::names::{FileName, Namespace};
use crate::pending::NameKey;

pub use browse::{Browse, Browsed};
pub(crate) use compare::compare;
pub use filter::FileFilter;
pub use history::{BrowsedStates, NameState, StateMark};
pub use namespace::{NamespaceRecord, Quota, Usage, Versioning};
pub use query::{CatalogueReader, CatalogueTotals, StoredRequest};
pub use report::SharedContent;
pub use sorted::{FileMark, FileOrder, Sorted, SortedPage};
pub(crate) use state::Companions;
pub use statistics::{FileStatistics, FileSums, SizeClass};

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
    /// What else is stored with the name.
    pub attributes: Attributes,
}

/// An earlier state of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionRecord {
    /// The file as it was; of a deletion only the name, the id and the time.
    pub file: FileRecord,
    /// Whether the name was deleted then.
    pub is_deletion: bool,
}

impl VersionRecord {
    /// The deletion of a name by the entry at `id`.
    fn deletion(namespace: &Namespace, name: &FileName, id: u64, deleted_ms: i64) -> Self {
        let file = FileRecord {
            id,
            namespace: namespace.clone(),
            name: name.clone(),
            digest: Digest([0; 32]),
            size: 0,
            mime: Cow::Borrowed(""),
            category: Category::Other,
            comment: String::new(),
            created_ms: deleted_ms,
            attributes: Attributes::default(),
        };
        Self { file, is_deletion: true }
    }
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
        /// Whether what the name referred to is kept as a version.
        keeps: bool,
    },
    /// A name was given to the bytes of another name, which was deleted.
    Move {
        /// The new name.
        file: Arc<FileRecord>,
        /// The name that was deleted.
        from: NameKey,
        /// Whether what the new name referred to is kept as a version.
        keeps: bool,
        /// Whether the old name keeps what it referred to as a version.
        keeps_from: bool,
    },
    /// Versions of a name were erased.
    VersionsErased {
        /// Namespace of the name.
        namespace: Namespace,
        /// The name.
        name: FileName,
        /// Their ids.
        ids: Arc<[u64]>,
    },
    /// The newest state of a name was erased, and the one before it holds again.
    NewestErased {
        /// Namespace of the name.
        namespace: Namespace,
        /// The name.
        name: FileName,
        /// Id of what was erased.
        id: u64,
        /// Id of the file that the name refers to from here on; `None` if it does not exist.
        current: Option<u64>,
        /// That file, of a change that was just decided.
        file: Option<Arc<FileRecord>>,
    },
    /// The attributes of a version were replaced.
    Amended {
        /// Namespace of the name.
        namespace: Namespace,
        /// The name.
        name: FileName,
        /// Id of the version.
        id: u64,
        /// Its attributes from here on.
        attributes: Arc<Attributes>,
        /// The file with them, of a change that was just decided, if the name refers to it.
        file: Option<Arc<FileRecord>>,
    },
    /// A namespace's record was changed at `changed_ms`; `attributes` is `None` if it was removed.
    Namespace {
        /// The namespace.
        namespace: Namespace,
        /// When, in milliseconds since 1970.
        changed_ms: i64,
        /// What it has from here on.
        attributes: Option<Attributes>,
    },
    /// A name was deleted.
    Delete {
        /// Namespace of the name.
        namespace: Namespace,
        /// The name.
        name: FileName,
        /// When it was deleted, if what it referred to is kept as a version.
        kept_ms: Option<i64>,
    },
    /// The entry says what the document database held when documents were about to be erased from
    /// the log.
    Extents {
        /// Documents below this position may have been erased.
        erased: u64,
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

/// Which documents were erased from the log.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Erasures {
    documents_erased: u64,
    documents_bound: u64,
    extents_at: u64,
}

/// The only writer of the catalogue.
#[derive(Debug)]
pub struct Catalogue {
    connection: Connection,
    pool: Arc<Pool>,
    /// As it is committed.
    state: State,
    is_current: bool,
    /// SQLite's count of other connections' commits when everything was verified last.
    data_version: i64,
}

impl Catalogue {
    /// Opens the catalogue at `path` and creates its tables if they are missing.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said, or which checksum does not match.
    pub fn open(path: &Path) -> Result<Self, CatalogueError> {
        let failed = |source| CatalogueError::new("open the catalogue", source);
        let connection = schema::open_writer(path)?;
        let (state, is_current) = match State::load(&connection).map_err(failed)? {
            StoredState::State(state) => (state, true),
            StoredState::Other { documents_erased } => {
                let documents_bound = documents_erased;
                (State { documents_erased, documents_bound, ..State::default() }, false)
            }
            StoredState::Nothing => {
                let state = State::default();
                is_empty(&connection)
                    .and_then(|()| Ok(state.save(&connection)?))
                    .map_err(failed)?;
                (state, true)
            }
        };
        let data_version = data_version(&connection).map_err(|source| failed(source.into()))?;
        let pool = Arc::new(Pool::new(path));
        Ok(Self { connection, pool, state, is_current, data_version })
    }

    /// Whether the tables have the current version.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.is_current
    }

    /// Verifies every row, count and digest. Reads everything but the log.
    ///
    /// * Returns what does not match, at most `findings_max` findings.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said.
    pub fn verify(&self, findings_max: usize) -> Result<Vec<String>, CatalogueError> {
        verify::verify(&self.connection, &self.state, findings_max, &AtomicBool::new(false))
            .map_err(|source| CatalogueError::new("verify the catalogue", source))
    }

    /// A reader over its own connection.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said.
    pub fn reader(&self) -> Result<CatalogueReader, CatalogueError> {
        CatalogueReader::open(&self.pool)
    }

    /// The log position up to which entries are applied; 0 for a new catalogue.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.state.position
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
        self.change("apply changes to the catalogue", |connection, state| {
            apply::apply(connection, state, changes)?;
            state.position = position;
            Ok(((), true))
        })
    }

    /// Number of names, and of blobs with or without names.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        (self.state.files.count, self.state.blobs.count)
    }

    /// The log position below which all documents have been erased from the log.
    #[must_use]
    pub fn documents_erased(&self) -> u64 {
        self.state.documents_erased
    }

    /// Records that all documents below a log position have been erased from the log.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said.
    pub fn set_documents_erased(&mut self, position: u64) -> Result<(), CatalogueError> {
        self.change("record what was erased", |_, state| {
            state.documents_erased = position;
            state.documents_bound = state.documents_bound.max(position);
            Ok(((), true))
        })
    }

    /// The log position below which documents may have been erased from the log.
    #[must_use]
    pub fn documents_bound(&self) -> u64 {
        self.state.documents_bound
    }

    /// Position of the newest log entry that says what the document database held.
    #[must_use]
    pub fn extents_at(&self) -> Option<u64> {
        Some(self.state.extents_at).filter(|&at| at > 0)
    }

    /// Records the newest log entry that says what the document database held, and below which
    /// position documents may be erased from now on.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said.
    pub fn set_extents(&mut self, at: u64, bound: u64) -> Result<(), CatalogueError> {
        self.change("record what the document database holds", |_, state| {
            state.extents_at = at;
            state.documents_bound = bound;
            Ok(((), true))
        })
    }

    /// What is known of erasures.
    pub(crate) fn erasures(&self) -> Erasures {
        let State { documents_erased, documents_bound, extents_at, .. } = self.state;
        Erasures { documents_erased, documents_bound, extents_at }
    }

    /// Takes over what another catalogue knew of erasures.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said.
    pub(crate) fn set_erasures(&mut self, known: Erasures) -> Result<(), CatalogueError> {
        self.change("record what was erased", |_, state| {
            let Erasures { documents_erased, documents_bound, extents_at } = known;
            *state = State { documents_erased, documents_bound, extents_at, ..*state };
            Ok(((), true))
        })
    }

    /// What it was used with so far.
    pub(crate) fn companions(&self) -> Companions {
        self.state.companions
    }

    /// Records what it is used with.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said.
    pub(crate) fn set_companions(&mut self, companions: Companions) -> Result<(), CatalogueError> {
        self.change("record the log of the catalogue", |_, state| {
            state.companions = companions;
            Ok(((), true))
        })
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
            .map_err(|source| CatalogueError::new("find lost blobs", source))
    }

    /// Deletes the records of requests answered before `before_ms`.
    ///
    /// # Errors
    /// [`CatalogueError`]: nothing was deleted.
    pub fn forget_requests(&mut self, before_ms: i64) -> Result<usize, CatalogueError> {
        self.change("delete old requests", |connection, state| {
            let mut statement = connection.prepare_cached(&format!(
                "DELETE FROM requests WHERE created_ms < ?1 RETURNING {REQUEST_COLUMNS}"
            ))?;
            let mut rows = statement.query([before_ms])?;
            let mut hasher = RowHasher::default();
            let mut deleted = 0;
            while let Some(row) = rows.next()? {
                let checksum = REQUESTS.verify(&mut hasher, row, 0)?;
                if row.get::<_, i64>(4)? >= before_ms {
                    let found = "the index requests_age does not match its table".to_owned();
                    return Err(CatalogueFault::Damaged { found });
                }
                state.requests.remove(checksum);
                deleted += 1;
            }
            Ok((deleted, deleted > 0))
        })
    }

    /// Removes the rows of blobs that no name refers to, once their bytes are gone.
    ///
    /// # Errors
    /// [`CatalogueError`]: no row was removed.
    pub fn forget_blobs(&mut self, dead: &[BlobRecord]) -> Result<(), CatalogueError> {
        self.change("delete dead blobs", |connection, state| {
            let mut statement = connection.prepare_cached(&format!(
                "DELETE FROM blobs WHERE digest = ?1 AND refs = 0 AND place = ?2
                 RETURNING {BLOB_COLUMNS}"
            ))?;
            let mut hasher = RowHasher::default();
            for blob in dead {
                let mut rows = statement.query(params![blob.digest.0, blob.place.to_sql()])?;
                while let Some(row) = rows.next()? {
                    let (_, checksum) = read_blob(&mut hasher, row, 0)?;
                    state.blobs.remove(checksum);
                }
            }
            Ok(((), !dead.is_empty()))
        })
    }

    /// Creates every table again, for a replay from the log's beginning. What was erased from the
    /// log stays recorded: no replay brings it back.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said.
    pub fn clear(&mut self) -> Result<(), CatalogueError> {
        let State { documents_erased, documents_bound, extents_at, .. } = self.state;
        let _writing = self.pool.write();
        schema::recreate(&self.connection)?;
        let kept = State { documents_erased, documents_bound, extents_at, ..State::default() };
        kept.save(&self.connection)
            .map_err(|source| CatalogueError::new("clear the catalogue", source))?;
        self.state = kept;
        self.is_current = true;
        Ok(())
    }

    /// Verifies everything if another program has written to the catalogue.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said, or what is damaged.
    pub(crate) fn watch(&mut self) -> Result<(), CatalogueError> {
        self.verify_others("verify what another program wrote to the catalogue")
    }

    /// Verifies everything if another program has written to the catalogue. A name that it changed is
    /// in a place where no search for the right one looks.
    fn verify_others(&mut self, act: &'static str) -> Result<(), CatalogueError> {
        let failed = |source| CatalogueError::new(act, source);
        let version = data_version(&self.connection).map_err(|error| failed(error.into()))?;
        if version == self.data_version || !self.is_current {
            return Ok(());
        }
        if let Some(found) = self.verify(1)?.pop() {
            let found = format!("{found}; another program has written to the catalogue");
            return Err(failed(CatalogueFault::Damaged { found }));
        }
        self.data_version = version;
        drop(self.pool.write());
        Ok(())
    }

    /// Runs `change` in a transaction and stores the state that it leaves, if it says that there is
    /// something to store.
    fn change<T>(
        &mut self,
        act: &'static str,
        change: impl FnOnce(&Connection, &mut State) -> Checked<(T, bool)>,
    ) -> Result<T, CatalogueError> {
        self.verify_others(act)?;
        let mut state = self.state;
        let changed: Checked<T> = (|| {
            let _writing = self.pool.write();
            let transaction = self.connection.transaction()?;
            let (result, is_changed) = change(&transaction, &mut state)?;
            if is_changed {
                state.save(&transaction)?;
            }
            transaction.commit()?;
            Ok(result)
        })();
        let result = changed.map_err(|source| CatalogueError::new(act, source))?;
        self.state = state;
        Ok(result)
    }
}

fn data_version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))
}

/// Whether every table is empty.
fn is_empty(connection: &Connection) -> Checked<()> {
    let holds: bool = connection.query_row(
        "SELECT EXISTS (SELECT 1 FROM files) OR EXISTS (SELECT 1 FROM blobs)
           OR EXISTS (SELECT 1 FROM requests)",
        [],
        |row| row.get(0),
    )?;
    if holds {
        let found = "the table meta is empty and others are not".to_owned();
        return Err(CatalogueFault::Damaged { found });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
