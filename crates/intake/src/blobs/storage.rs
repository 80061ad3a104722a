//! What the intake needs of an object store. The binary implements it; tests have one in memory.
//!
//! Calls block, and end: an implementation limits the time of each request and of its retries. Names are
//! parts of letters, digits, `.` and `-`, separated by `/`, below a prefix that the implementation knows.
//!
//! Invariants every implementation keeps: an object appears as a whole or not at all; what was written is on
//! stable storage there, and seen by every later read and listing, when the call returns; a failed write may
//! still take effect later.

use std::fmt::Debug;
use std::io;
use std::ops::Range;

use bytes::Bytes;

/// A prefix in an object store.
pub trait ObjectStorage: Debug + Send + Sync {
    /// Where it is, for messages and to recognise it: `s3://BUCKET/PREFIX`.
    fn url(&self) -> String;

    /// Writes an object as a whole, whatever was there.
    ///
    /// # Errors
    /// [`StorageError`]: it is as it was, or is written now or later.
    fn put(&self, name: &str, bytes: Bytes) -> Result<(), StorageError>;

    /// Writes a large object in parts.
    ///
    /// * `size`: number of all its bytes.
    /// * `next`: returns the next ones; `None` at the end.
    ///
    /// # Errors
    /// As [`put`](Self::put), or [`StorageError::Source`]. What was sent is given up.
    fn upload(
        &self,
        name: &str,
        size: u64,
        next: &mut dyn FnMut() -> io::Result<Option<Bytes>>,
    ) -> Result<(), StorageError>;

    /// Reads a range of an object that has all of it.
    ///
    /// # Errors
    /// [`StorageError::Missing`]: there is no such object. Others: the request failed.
    fn read(&self, name: &str, range: Range<u64>) -> Result<Bytes, StorageError>;

    /// Reads a small object with its version; `None` if it does not exist.
    ///
    /// # Errors
    /// [`StorageError`]: the request failed, or it has more than `size_max` bytes.
    fn load(&self, name: &str, size_max: u64) -> Result<Option<(Bytes, Tag)>, StorageError>;

    /// Replaces an object of this version, or creates it if there was none. One that has exactly these bytes
    /// counts as replaced: the answer to an earlier attempt may have been lost.
    ///
    /// # Errors
    /// [`StorageError::Conflict`]: it is of another version; it is unchanged. Others: it may be replaced.
    fn replace(&self, name: &str, bytes: Bytes, was: Option<&Tag>) -> Result<Tag, StorageError>;

    /// Lists the objects below a name, with their sizes, in no promised order.
    ///
    /// # Errors
    /// [`StorageError`]: some may have been listed.
    fn list(&self, below: &str, each: &mut dyn FnMut(&str, u64)) -> Result<(), StorageError>;

    /// Removes an object. That it does not exist is no error.
    ///
    /// # Errors
    /// [`StorageError`]: it may be removed now or later.
    fn remove(&self, name: &str) -> Result<(), StorageError>;
}

/// A version of an object, as the store names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tag {
    /// Its entity tag.
    pub tag: Option<String>,
    /// Its version, where several are kept.
    pub version: Option<String>,
}

/// A request to an object store failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// It cannot be reached, or is overloaded. The same may succeed later.
    #[error("{reason}")]
    Away {
        /// What the network or the store said.
        reason: String,
    },
    /// It refused. The same does not succeed until someone changes its settings.
    #[error("{reason}")]
    Refused {
        /// What it said.
        reason: String,
    },
    /// There is no such object.
    #[error("there is no such object")]
    Missing,
    /// The object is of another version.
    #[error("the object was changed by another process")]
    Conflict,
    /// What was to be uploaded could not be read.
    #[error("could not read what is uploaded")]
    Source(#[source] io::Error),
}

impl StorageError {
    /// Whether the same may succeed later: the store did not answer, was overloaded, or refused what its operator
    /// can permit.
    pub(crate) fn passes(error: &io::Error) -> bool {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Self>());
        matches!(inner, Some(Self::Away { .. } | Self::Refused { .. }))
    }

    /// The same for another of several that waited for one request.
    pub(crate) fn again(&self) -> Self {
        match self {
            Self::Away { reason } => Self::Away { reason: reason.clone() },
            Self::Refused { reason } => Self::Refused { reason: reason.clone() },
            Self::Missing => Self::Missing,
            Self::Conflict => Self::Conflict,
            Self::Source(error) => Self::Source(io::Error::new(error.kind(), error.to_string())),
        }
    }
}

impl From<StorageError> for io::Error {
    fn from(error: StorageError) -> Self {
        let kind = match &error {
            StorageError::Away { .. } => io::ErrorKind::TimedOut,
            StorageError::Missing => io::ErrorKind::NotFound,
            StorageError::Source(source) => source.kind(),
            StorageError::Refused { .. } | StorageError::Conflict => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}
