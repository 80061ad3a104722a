//! Why an archive cannot be read or written.

use std::io;
use std::path::PathBuf;

use forebay_intake::digest::Digest;

/// Why an archive cannot be read or written. Text from an archive is escaped in it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ArchiveError {
    /// The device does not give it.
    #[error("cannot read {path}")]
    Read {
        /// The archive.
        path: PathBuf,
        /// What failed.
        #[source]
        source: io::Error,
    },
    /// The device does not take it.
    #[error("cannot write {path}")]
    Write {
        /// The archive, or where it is written.
        path: PathBuf,
        /// What failed.
        #[source]
        source: io::Error,
    },
    /// There is something under the name already.
    #[error("{path} exists")]
    Exists {
        /// The name.
        path: PathBuf,
    },
    /// It ends too early.
    #[error("the archive was cut: {what}; copy it again, or export the namespace again")]
    Cut {
        /// What is missing.
        what: String,
    },
    /// It is not a tar file.
    #[error("this is not an exported namespace: byte {offset}: {reason}")]
    Tar {
        /// Where.
        offset: u64,
        /// What is wrong.
        reason: String,
    },
    /// A member that an archive cannot have.
    #[error("the archive has the member {name:?}: {reason}")]
    Member {
        /// Its name.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Bytes with another digest.
    #[error("{member} has the SHA-256 {found}, expected {expected}: its bytes are damaged")]
    Digest {
        /// The member.
        member: String,
        /// The digest that was declared.
        expected: Digest,
        /// The digest of the bytes.
        found: Digest,
    },
    /// The manifest cannot be used.
    #[error("manifest.json: {reason}")]
    Manifest {
        /// Why.
        reason: String,
    },
    /// A line cannot be used.
    #[error("line {line} of {member}: {reason}")]
    Line {
        /// The member.
        member: &'static str,
        /// The line, from 1.
        line: u64,
        /// Why.
        reason: String,
    },
    /// A count or sum differs from the one that was declared.
    #[error("{what}: {found} found, expected {expected}")]
    Differs {
        /// What was counted.
        what: String,
        /// The number that was declared.
        expected: u64,
        /// The number that was found.
        found: u64,
    },
    /// There is more than an archive can have.
    #[error("too many {what}: the limit is {limit}")]
    TooMany {
        /// What.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// What was to be written could not be read from its source.
    #[error("cannot fetch {member}")]
    Source {
        /// The member.
        member: String,
        /// What failed.
        #[source]
        source: io::Error,
    },
    /// The user interrupted.
    #[error("interrupted")]
    Interrupted,
}

impl ArchiveError {
    /// Whether the source of a content is to blame, so that another attempt may succeed.
    pub(crate) fn is_of_source(&self) -> bool {
        matches!(self, Self::Source { .. } | Self::Digest { .. } | Self::Differs { .. })
    }
}
