//! Errors of the intake, by who has to act on them.

use std::path::PathBuf;

use forebay_log::Lsn;
use forebay_sink::ReadError;
use rusqlite::ErrorCode;

use crate::attributes::AttributeError;
use crate::blobs::RemoteError;
use crate::blobs::storage::StorageError;
use crate::documents::forward::MemoryError;
use crate::documents::query::QueryError;
use crate::format::DecodeError;
use crate::names::NameError;
use crate::space;
use crate::uploads::UploadError;

/// Opening an intake's directory failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A directory or file of the intake could not be prepared.
    #[error("could not prepare {path}", path = path.display())]
    Prepare {
        /// What was being prepared.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// Another process has the directory.
    #[error("{path} is in use by another process; stop it or choose another --data", path = path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// The log could not be opened.
    #[error("could not open the intake's log")]
    Log(#[source] forebay_log::OpenError),
    /// The catalogue could not be opened.
    #[error("could not open the catalogue")]
    Catalogue(#[source] CatalogueError),
    /// The document database could not be opened.
    #[error("could not open the document database")]
    Documents(#[source] forebay_sink::OpenError),
    /// The log lacks entries that a view has seen on stable storage.
    #[error(
        "the {view} has applied log entries up to {seen}, which were on stable storage, but the \
         log ends at {end} and no longer holds them: acknowledged entries are missing; \
         restore the log's files, or run `forebay fsck` to see what is left"
    )]
    LogShort {
        /// The view that has applied more.
        view: &'static str,
        /// Where the log ends.
        end: u64,
        /// Position up to which the view has applied entries.
        seen: u64,
    },
    /// The document database does not hold what was written into it.
    #[error(
        "the document database {path} is damaged: {found}; run `forebay fsck`, which says whether \
         the log still has every document: then move the file away, and the next start builds it \
         again; otherwise restore it from a backup",
        path = path.display()
    )]
    DocumentsDamaged {
        /// The database.
        path: PathBuf,
        /// The fault.
        found: String,
    },
    /// The document database was not used with this log.
    #[error(
        "{path} belongs to another data directory; put back the document database of this one, or move \
         the file away if the log still has every document: then the next start builds it again",
        path = path.display()
    )]
    DocumentsForeign {
        /// The database.
        path: PathBuf,
    },
    /// The document database is missing entries that the log no longer holds.
    #[error(
        "the document database ends before the log's oldest entry: it holds entries up to \
         {position}, but the log begins at {oldest}; restore the database from a backup"
    )]
    DocumentsLost {
        /// Position up to which the database holds entries.
        position: u64,
        /// Oldest position in the log.
        oldest: u64,
    },
    /// What the document database holds could not be recorded in the log.
    #[error("could not record in the log what the document database holds")]
    Extents(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The forwarding state could not be read or written.
    #[error("could not resume forwarding to the database")]
    Forward(#[source] MemoryError),
    /// The search index could not be read.
    #[error("could not check the search index")]
    Search(#[source] CatalogueError),
    /// The object storage with blobs cannot be used.
    #[error("cannot use the object storage that has the bytes of files")]
    ObjectStorage(#[source] RemoteError),
    /// Blobs are in a bucket that is not configured any more.
    #[error(
        "the bytes of files are in {url}, which is not configured; set intake.blobs or \
         intake.blobs_from to it"
    )]
    BlobsElsewhere {
        /// Where they are.
        url: String,
    },
    /// The log could not be replayed into the views.
    #[error("could not bring the views up to the log")]
    Replay(#[source] ApplyError),
}

/// An operation on the catalogue's database failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[error("could not {act}")]
pub struct CatalogueError {
    /// What was attempted.
    pub act: &'static str,
    /// Why it failed.
    #[source]
    pub source: CatalogueFault,
}

impl CatalogueError {
    pub(crate) fn new(act: &'static str, source: impl Into<CatalogueFault>) -> Self {
        Self { act, source: source.into() }
    }
}

/// Why an operation on the catalogue's database failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogueFault {
    /// SQLite refused it.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// What is stored is not what was written.
    #[error("{found}")]
    Damaged {
        /// The table or row, and the fault.
        found: String,
    },
}

impl CatalogueFault {
    /// Whether the file is damaged; otherwise the operation failed.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Damaged { .. } => true,
            Self::Sqlite(rusqlite::Error::SqliteFailure(error, message)) => match error.code {
                ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => true,
                // The statements are the catalogue's own: only another schema makes one invalid.
                ErrorCode::Unknown => message.as_deref().is_some_and(|message| {
                    message.contains("no such")
                        || message.contains("no query solution")
                        || message.contains("unsupported file format")
                }),
                _ => false,
            },
            Self::Sqlite(
                rusqlite::Error::SqlInputError { .. }
                | rusqlite::Error::FromSqlConversionFailure(..)
                | rusqlite::Error::IntegralValueOutOfRange(..)
                | rusqlite::Error::InvalidColumnType(..)
                | rusqlite::Error::QueryReturnedNoRows
                | rusqlite::Error::Utf8Error(..),
            ) => true,
            Self::Sqlite(_) => false,
        }
    }
}

/// Bringing a view up to the log failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// An entry could not be read back from the log.
    #[error("could not read the log at {lsn}")]
    Read {
        /// Position of the entry.
        lsn: u64,
        /// What the log said.
        #[source]
        source: forebay_log::ReadError,
    },
    /// The log could not make an entry durable, so no view may show it.
    #[error("could not make the entry at {lsn} durable")]
    Commit {
        /// Position of the entry.
        lsn: u64,
        /// What the log said.
        #[source]
        source: forebay_log::CommitError,
    },
    /// The bytes of an entry are invalid although its checksum matches.
    #[error("the log entry at {lsn} cannot be decoded")]
    Decode {
        /// Position of the entry.
        lsn: u64,
        /// The field at fault.
        #[source]
        source: DecodeError,
    },
    /// A commit names an entry as a chunk that is not one.
    #[error("the commit at {lsn} names the entry at {chunk}, which is not a chunk of its request")]
    Chunk {
        /// Position of the commit.
        lsn: u64,
        /// Position it names.
        chunk: u64,
    },
    /// Documents between those of the database and the next ones in the log are in neither.
    #[error(
        "the document database has the documents of {namespace} up to {last}, and the next ones in \
         the log begin at {first}: those between have left the log; restore the database from a \
         backup"
    )]
    Gap {
        /// The namespace.
        namespace: String,
        /// Id of the last document in the database; 0 if there is none.
        last: u64,
        /// Id of the first document of the commit.
        first: u64,
    },
    /// An entry changes a document that is not in the database.
    #[error(
        "the entry at {lsn} changes the document {id} of {namespace}, which the document database \
         does not have; restore the database from a backup"
    )]
    NoDocument {
        /// Position of the entry.
        lsn: u64,
        /// The namespace.
        namespace: String,
        /// Id of the document.
        id: u64,
    },
    /// The catalogue names an entry of extents that is not one.
    #[error("the entry at {lsn} does not say what the document database held")]
    NotExtents {
        /// Position of the entry.
        lsn: u64,
    },
    /// A commit holds another number of documents than it declares.
    #[error("the commit at {lsn} declares {expected} documents, but holds {found}")]
    Count {
        /// Position of the commit.
        lsn: u64,
        /// The declared number.
        expected: u64,
        /// The number that its entries hold.
        found: u64,
    },
    /// The catalogue failed.
    #[error("could not apply to the catalogue")]
    Catalogue(#[from] CatalogueError),
    /// A name refers to a blob whose bytes no entry holds.
    #[error("names refer to a blob, {digest}, that no entry up to {lsn} stores")]
    UnknownBlob {
        /// How far the log was read.
        lsn: u64,
        /// Digest it names.
        digest: String,
    },
    /// The document sink failed.
    #[error("could not apply to the document database")]
    Sink(#[source] forebay_sink::SinkError),
}

/// A request to the intake failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IntakeError {
    /// A name breaks the rules.
    #[error(transparent)]
    Name(#[from] NameError),
    /// What is stored beside the bytes breaks a rule.
    #[error(transparent)]
    Attributes(#[from] AttributeError),
    /// An expression over documents is not valid.
    #[error("where: {0}")]
    Query(#[from] QueryError),
    /// The request itself is wrong. The message says where, and what would be right.
    #[error("{message}")]
    Rejected {
        /// A stable identifier for programs.
        code: &'static str,
        /// What is wrong, where, and how to correct it.
        message: String,
    },
    /// The name or id does not exist.
    #[error("there is no {what}")]
    NotFound {
        /// What was looked for.
        what: String,
    },
    /// Something is larger than its limit.
    #[error("{what} is larger than its limit of {limit} bytes")]
    TooLarge {
        /// What was measured.
        what: &'static str,
        /// The limit in bytes.
        limit: u64,
    },
    /// The same idempotency key was used for another request.
    #[error(
        "this Idempotency-Key was used for a different request; use a new key for a new request"
    )]
    KeyReused,
    /// A request with the same idempotency key is in progress.
    #[error("a request with this Idempotency-Key is still in progress; try again later")]
    KeyInUse,
    /// A condition of the request does not hold.
    #[error("{message}")]
    Precondition {
        /// Which condition, and the actual state.
        message: String,
    },
    /// Too many operations are in progress.
    #[error("{what}; try again later")]
    Busy {
        /// Which limit was reached.
        what: &'static str,
    },
    /// The external database is too far behind for more documents to be accepted.
    #[error(
        "{kept} bytes of log wait for the database that documents are forwarded to ({state}), more \
         than {kept_max}, the limit set by intake.database.log_max; repeat the request when the \
         database has caught up"
    )]
    DatabaseBehind {
        /// State of the database.
        state: &'static str,
        /// Bytes that wait.
        kept: u64,
        /// Maximum number of bytes that may wait.
        kept_max: u64,
    },
    /// No space or no file descriptor is left. Nothing of the request was stored.
    #[error(
        "nothing was stored, because the disk is full or too many files are open; repeat the \
         request when space or descriptors are available"
    )]
    Full {
        /// What failed.
        #[source]
        source: std::sync::Arc<forebay_log::DiskError>,
    },
    /// A view waits for space, so recent writes cannot be listed yet.
    #[error("a view of the log waits for disk space: {reason}; try again later")]
    ViewWaiting {
        /// Why it waits.
        reason: String,
    },
    /// The sender is too slow or has disconnected.
    #[error("{message}")]
    Body {
        /// What happened, and after how many bytes.
        message: String,
        /// Whether the sender was too slow and not disconnected.
        slow: bool,
    },
    /// The log refused the entry. Nothing was acknowledged.
    #[error("could not write to the log")]
    Append(#[source] forebay_log::AppendError),
    /// The log could not make the entry durable; it is closed until restart.
    #[error("could not make the change durable")]
    Commit(#[source] forebay_log::CommitError),
    /// Stored bytes could not be read back.
    #[error("could not read what is stored at {lsn}", lsn = lsn.0)]
    Read {
        /// Position of the entry that holds them.
        lsn: Lsn,
        /// What the log said.
        #[source]
        source: forebay_log::ReadError,
    },
    /// Stored bytes differ from what was written.
    #[error("the stored bytes of {digest} are damaged: {found}; run `forebay fsck`")]
    Damaged {
        /// Digest they should have.
        digest: String,
        /// The difference.
        found: String,
    },
    /// A blob file could not be used.
    #[error("could not {act} a blob file")]
    Blob {
        /// What was attempted.
        act: &'static str,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A view does not hold what was stored. The log has it, or a backup.
    #[error("{view} is damaged: {found}; {remedy}")]
    ViewDamaged {
        /// Which of the two.
        view: &'static str,
        /// The row, and the fault.
        found: String,
        /// What the operator has to do.
        remedy: &'static str,
    },
    /// A query of the catalogue failed.
    #[error("could not query the catalogue")]
    Catalogue(#[source] CatalogueError),
    /// A query of the search index failed.
    #[error("could not search")]
    Search(#[source] CatalogueError),
    /// The document database could not be opened for reading.
    #[error("could not open the document database for reading")]
    OpenDocuments(#[source] forebay_sink::OpenError),
    /// The packs in object storage could not be kept up.
    #[error("could not free space in object storage")]
    ObjectStorage(#[source] RemoteError),
    /// Another process uses the object storage with a copy of this directory.
    #[error("no files can be stored: {reason}; stop one of the two")]
    Fenced {
        /// Where.
        reason: String,
    },
    /// A query of the document database failed.
    #[error("could not query the document database")]
    Ask(#[source] forebay_sink::ReadError),
    /// An unfinished upload could not be used.
    #[error(transparent)]
    Upload(#[from] UploadError),
    /// A background view has stopped, so recent writes cannot be shown.
    #[error("a view of the log has stopped: {reason}; restart the server")]
    ViewStopped {
        /// Why it stopped.
        reason: String,
    },
}

/// What storage lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shortage {
    /// Space on the disk.
    Space,
    /// Something that will be there again soon, such as a file descriptor.
    Passing,
}

impl From<CatalogueError> for IntakeError {
    fn from(error: CatalogueError) -> Self {
        if !error.source.is_damage() {
            return Self::Catalogue(error);
        }
        Self::catalogue_damaged(error.source.to_string())
    }
}

impl IntakeError {
    /// The catalogue does not hold what was stored.
    pub(crate) fn catalogue_damaged(found: String) -> Self {
        Self::ViewDamaged {
            view: "the catalogue",
            found,
            remedy: "restart the server, which builds it again from the log",
        }
    }

    /// A failed query of the document database.
    pub(crate) fn documents(error: ReadError) -> Self {
        match error {
            ReadError::Corrupt { found, .. } => Self::documents_damaged(found),
            other => Self::Ask(other),
        }
    }

    /// The document database could not be opened for a query.
    pub(crate) fn open_documents(error: forebay_sink::OpenError) -> Self {
        match error {
            forebay_sink::OpenError::Corrupt { found, .. } => Self::documents_damaged(found),
            other => Self::OpenDocuments(other),
        }
    }

    fn documents_damaged(found: String) -> Self {
        Self::ViewDamaged {
            view: "the document database",
            found,
            remedy: "stop the server and run `forebay fsck`, which says what the log still has",
        }
    }

    /// A request that is wrong in itself.
    ///
    /// * `code`: an identifier for programs that does not change.
    #[must_use]
    pub fn rejected(code: &'static str, message: impl Into<String>) -> Self {
        Self::Rejected { code, message: message.into() }
    }

    /// Returns what storage lacked, if that is why the request failed: it may be repeated.
    #[must_use]
    pub fn shortage(&self) -> Option<Shortage> {
        let of = |is_full| if is_full { Shortage::Space } else { Shortage::Passing };
        match self {
            Self::Commit(forebay_log::CommitError::Stalled { source }) | Self::Full { source } => {
                Some(of(space::is_full(&source.source)))
            }
            Self::ViewWaiting { .. } => Some(Shortage::Space),
            Self::Catalogue(CatalogueError { source, .. })
            | Self::Search(CatalogueError { source, .. })
                if space::catalogue_passes(source) =>
            {
                Some(Shortage::Passing)
            }
            Self::Blob { source, .. } if space::is_full(source) => Some(Shortage::Space),
            Self::Blob { source, .. } if space::passes(source) => Some(Shortage::Passing),
            Self::Blob { source, .. } if StorageError::passes(source) => Some(Shortage::Passing),
            Self::Upload(error) => error.shortage(),
            _ => None,
        }
    }

    /// Returns whether something was larger than its limit.
    #[must_use]
    pub fn is_too_large(&self) -> bool {
        matches!(
            self,
            Self::TooLarge { .. } | Self::Append(forebay_log::AppendError::TooLarge { .. })
        )
    }
}
