//! Errors of unfinished uploads, by who has to act on them.

use std::path::PathBuf;

use super::UploadId;
use crate::error::{IntakeError, Shortage};
use crate::space;

/// An operation on an unfinished upload failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UploadError {
    /// There is no such upload: it never existed, was removed, or has expired.
    #[error("there is no upload {id}; it was removed or has expired")]
    NotFound {
        /// The upload.
        id: UploadId,
    },
    /// The stored bytes of the upload differ from what was written. It can only be removed.
    #[error("the stored bytes of upload {id} are damaged: {found}; begin a new upload")]
    Damaged {
        /// The upload.
        id: UploadId,
        /// The difference.
        found: String,
    },
    /// The bytes do not continue the upload where it ends. Nothing was stored.
    #[error("upload {id} continues at offset {expected}, not at {found}")]
    Offset {
        /// The upload.
        id: UploadId,
        /// Number of bytes that it has.
        expected: u64,
        /// Offset that was sent.
        found: u64,
    },
    /// The bytes do not match the checksum that was sent with them. They were thrown away.
    #[error("the {algorithm} checksum does not match the bytes; they were discarded")]
    Checksum {
        /// Name of the algorithm.
        algorithm: &'static str,
    },
    /// A newer request for this upload has taken over. What had arrived is stored.
    #[error("a newer request has taken over upload {id} at offset {offset}")]
    Interrupted {
        /// The upload.
        id: UploadId,
        /// Number of bytes that it has.
        offset: u64,
    },
    /// Another request for this upload did not end in time.
    #[error("another request for upload {id} is still in progress; try again later")]
    InUse {
        /// The upload.
        id: UploadId,
    },
    /// The upload was used already and takes no more bytes.
    #[error("upload {id} is finished")]
    Finished {
        /// The upload.
        id: UploadId,
    },
    /// The upload lacks bytes.
    #[error("upload {id} has {offset} bytes and is not complete")]
    Incomplete {
        /// The upload.
        id: UploadId,
        /// Number of bytes that it has.
        offset: u64,
    },
    /// More bytes were sent than the upload has room for. Those before the limit are stored.
    #[error("upload {id} has a length of {limit} bytes, and more were sent")]
    TooLong {
        /// The upload.
        id: UploadId,
        /// Its length.
        limit: u64,
    },
    /// A length was declared that contradicts what is known.
    #[error("upload {id} cannot have a length of {declared} bytes: {reason}")]
    Length {
        /// The upload.
        id: UploadId,
        /// The length that was declared.
        declared: u64,
        /// Why it cannot.
        reason: &'static str,
    },
    /// An upload would be larger than a file may be.
    #[error("the upload is larger than its limit of {limit} bytes")]
    TooLarge {
        /// The limit in bytes.
        limit: u64,
    },
    /// Attributes or a result exceed their limit.
    #[error("the {what} of an upload have at most {limit} bytes")]
    Attributes {
        /// Which of the two.
        what: &'static str,
        /// The limit in bytes.
        limit: usize,
    },
    /// Too many uploads are unfinished.
    #[error("{limit} {what} are unfinished, which is the limit; finish or remove some first")]
    TooMany {
        /// What is counted.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// The unfinished uploads reserve all the space they may.
    #[error(
        "unfinished uploads have reserved all of the {limit} bytes they may; finish or remove some \
         first"
    )]
    NoRoom {
        /// The limit in bytes.
        limit: u64,
    },
    /// The file system failed. What was acknowledged before is unchanged.
    #[error("could not {act} {path}", path = path.display())]
    Io {
        /// What was attempted.
        act: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The sender failed. What had arrived is stored, unless it was to match a checksum.
    #[error("the bytes of upload {id} ended early; it has {offset} bytes")]
    Source {
        /// The upload.
        id: UploadId,
        /// Number of bytes that it has.
        offset: u64,
        /// What the source said.
        #[source]
        source: Box<IntakeError>,
    },
}

impl UploadError {
    /// Returns what storage lacked, if that is why the operation failed: it may be repeated.
    #[must_use]
    pub fn shortage(&self) -> Option<Shortage> {
        match self {
            Self::Io { source, .. } if space::is_full(source) => Some(Shortage::Space),
            Self::Io { source, .. } if space::passes(source) => Some(Shortage::Passing),
            _ => None,
        }
    }
}
