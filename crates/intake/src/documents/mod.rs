//! JSON documents: accepted as a stream, decided on, committed together, and returned.
//!
//! ```text
//! body -> frame (documents) -> flatten (leaves) -> profile (what they share)
//!      -> chunks in the log -> decide (table or collection) -> commit in the log -> view (sink)
//! ```
//!
//! Invariants: a request's documents become valid together, by its commit entry; the commit names
//! table or collection and the columns it adds, so the view never decides anything; documents are
//! stored byte for byte.

pub mod change;
pub mod decide;
pub mod flatten;
pub mod forward;
pub mod frame;
pub mod history;
pub mod ingest;
pub mod merge;
pub(crate) mod namespaces;
pub mod news;
pub(crate) mod prepared;
pub mod profile;
pub mod query;
pub mod redecide;
mod search;
pub(crate) mod view;
pub(crate) mod work;
pub(crate) mod write;

pub use forebay_sink::{NamespaceKind, StoredDocument, TableSchema};
pub use forebay_sqlite::{ChangeKind, NamespaceInfo, PageLimits};
pub use search::{DocumentChanges, FoundDocuments};

use forebay_sink::ColumnType;

/// Why a document, or a body of documents, was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DocumentError {
    /// Not UTF-8.
    #[error("invalid UTF-8 at byte {byte} of the document")]
    Utf8 {
        /// First byte that is not.
        byte: usize,
    },
    /// JSON, but not an object; or not JSON at all.
    #[error("a document must be a JSON object, but this is {found}")]
    NotAnObject {
        /// What it is instead.
        found: &'static str,
    },
    /// Not JSON.
    #[error("{what} at line {line}, column {column} of the document")]
    Syntax {
        /// What the parser said.
        what: String,
        /// Line inside the document.
        line: usize,
        /// Column in that line.
        column: usize,
    },
    /// Nested too deep.
    #[error("nested deeper than {depth_max} levels")]
    TooDeep {
        /// The limit.
        depth_max: usize,
    },
    /// A key is too long.
    #[error("a key is {size} bytes long; the limit is {size_max}")]
    KeyTooLong {
        /// Its size in bytes.
        size: usize,
        /// The limit.
        size_max: usize,
    },
    /// The document is too large.
    #[error("larger than the limit of {size_max} bytes")]
    TooLarge {
        /// The limit.
        size_max: usize,
    },
    /// The body is not a JSON text, so the documents after this position cannot be separated.
    #[error("{what}, at line {line}, byte {byte} of the body")]
    Broken {
        /// The fault.
        what: &'static str,
        /// Line of the body.
        line: u64,
        /// Byte of the body.
        byte: u64,
    },
}

/// The code a column type has in the log.
#[must_use]
pub fn column_code(ty: ColumnType) -> u8 {
    match ty {
        ColumnType::Boolean => 1,
        ColumnType::Integer => 2,
        ColumnType::Real => 3,
        ColumnType::Decimal => 4,
        ColumnType::Text => 5,
        ColumnType::Bytes => 6,
        ColumnType::Json => 7,
        ColumnType::Timestamp => 8,
        ColumnType::Date => 9,
    }
}

/// The column type of a code in the log.
#[must_use]
pub fn column_type(code: u8) -> Option<ColumnType> {
    ColumnType::ALL.into_iter().find(|ty| column_code(*ty) == code)
}
