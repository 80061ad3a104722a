//! What can go wrong in the intake, by who has to act on it.

use std::path::PathBuf;

use forebay_log::Lsn;

use crate::documents::forward::MemoryError;
use crate::format::DecodeError;
use crate::names::NameError;

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
    /// The log has lost what a view has seen on stable storage.
    #[error(
        "the {view} has applied entries that were on stable storage in the log up to {seen}, and the \
         log, which ends at {end}, does not hold them any more: acknowledged entries are missing; \
         restore the log's files, or run `forebay fsck` to see what is left"
    )]
    LogShort {
        /// The view that knows more.
        view: &'static str,
        /// Where the log ends.
        end: u64,
        /// What the view has seen.
        seen: u64,
    },
    /// The document database went missing while the log no longer holds what was in it.
    #[error(
        "the document database is behind the log's oldest entry: it holds entries up to {position}, \
         the log begins at {oldest}; restore it from a copy"
    )]
    DocumentsLost {
        /// What the database has.
        position: u64,
        /// What the log still has.
        oldest: u64,
    },
    /// What is remembered of the database elsewhere could not be read or kept.
    #[error("could not take up forwarding to the database")]
    Forward(#[source] MemoryError),
    /// Replaying the log into the views failed.
    #[error("could not bring the views up to the log")]
    Replay(#[source] ApplyError),
}

/// Using the catalogue's database failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[error("{act}")]
pub struct CatalogueError {
    /// What was attempted.
    pub act: &'static str,
    /// What SQLite said.
    #[source]
    pub source: rusqlite::Error,
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
    /// An entry's bytes make no sense although its checksum holds.
    #[error("the log entry at {lsn} cannot be decoded")]
    Decode {
        /// Position of the entry.
        lsn: u64,
        /// The field at fault.
        #[source]
        source: DecodeError,
    },
    /// A commit names a chunk that is something else.
    #[error("the commit at {lsn} names {chunk} as a chunk of its request, which it is not")]
    Chunk {
        /// Position of the commit.
        lsn: u64,
        /// Position it names.
        chunk: u64,
    },
    /// A commit has not the documents it says it has.
    #[error("the commit at {lsn} is of {expected} documents, {found} were found")]
    Count {
        /// Position of the commit.
        lsn: u64,
        /// What it says.
        expected: u64,
        /// What its entries hold.
        found: u64,
    },
    /// The catalogue refused.
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
    /// The document sink refused.
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
    /// The request itself is wrong: the message says where and what would be right.
    #[error("{message}")]
    Rejected {
        /// A stable word for programs.
        code: &'static str,
        /// What was wrong, where, and the way out.
        message: String,
    },
    /// Nothing has that name or id.
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
    /// The same idempotency key came with another request.
    #[error(
        "this Idempotency-Key was used for a different request; use a new key for a new request"
    )]
    KeyReused,
    /// The same idempotency key is being worked on right now.
    #[error("a request with this Idempotency-Key is still under way; repeat it later")]
    KeyInUse,
    /// What the request made a condition does not hold.
    #[error("{message}")]
    Precondition {
        /// Which condition, and what was found.
        message: String,
    },
    /// Too much is under way.
    #[error("{what}; repeat the request later")]
    Busy {
        /// Which bound was met.
        what: &'static str,
    },
    /// The database elsewhere is too far behind for more documents to be taken.
    #[error(
        "{kept} bytes of log wait for the database documents are forwarded to ({state}), more than the \
         {kept_max} of intake.database.log_max; repeat the request when it has caught up"
    )]
    DatabaseBehind {
        /// How the database is.
        state: &'static str,
        /// Bytes that wait.
        kept: u64,
        /// The most there may be.
        kept_max: u64,
    },
    /// The sender is too slow or has gone.
    #[error("{message}")]
    Body {
        /// What happened, and after how many bytes.
        message: String,
        /// Whether the sender was too slow rather than gone.
        slow: bool,
    },
    /// The log refused the entry; nothing was acknowledged.
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
    /// Stored bytes are not what was stored.
    #[error("the stored bytes of {digest} are damaged: {found}; run `forebay fsck`")]
    Damaged {
        /// Digest they should have.
        digest: String,
        /// What was found.
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
    /// The catalogue could not answer.
    #[error("could not ask the catalogue")]
    Catalogue(#[from] CatalogueError),
    /// The document database could not be opened for reading.
    #[error("could not open the document database for reading")]
    OpenDocuments(#[source] forebay_sink::OpenError),
    /// The document database could not answer.
    #[error("could not ask the document database")]
    Ask(#[source] forebay_sink::ReadError),
    /// A background view stopped, so what was written cannot be shown.
    #[error("a view of the log has stopped: {reason}; restart the server")]
    ViewStopped {
        /// Why it stopped.
        reason: String,
    },
}

impl IntakeError {
    pub(crate) fn rejected(code: &'static str, message: impl Into<String>) -> Self {
        Self::Rejected { code, message: message.into() }
    }
}
