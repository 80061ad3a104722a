//! Publishing of checkpoints outside the store (`docs/formats/event-checkpoint.md`).
//!
//! One who controls the store's directory has its key, so only what is kept elsewhere shows that the
//! store was rolled back or made again.
//!
//! | module | purpose |
//! |---|---|
//! | here | places, what is published, errors |
//! | `files` | places that keep each checkpoint as a file: a directory, a prefix in a bucket |
//! | `publisher` | publishes from time to time, each place on its own thread |
//!
//! Invariants:
//! - Publishing never delays appends or checkpoints: it is tried again later, by each place alone.
//! - The network is not here: the program hands over places that are not directories.

mod files;
mod publisher;

use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use forebay_base::fs::FileSystem;

use super::error::Disk;
use crate::checkpoint::{Checkpoint, VerifierKey};

pub use files::{AnchorFiles, Anchored, Directory, KeptFiles, read_anchor};
pub use publisher::AnchorStatus;
pub(super) use publisher::{Publisher, publishers};

/// Why a checkpoint was not published, or published ones cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnchorError {
    /// The device failed.
    #[error("cannot use the directory of published checkpoints")]
    Io(#[source] Disk),
    /// The network or another server failed.
    #[error("cannot {act} {place}")]
    Remote {
        /// The operation that failed.
        act: &'static str,
        /// The place, without secrets.
        place: String,
        /// Why.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// Another server refused.
    #[error("{place} refuses the checkpoint: {reason}")]
    Refused {
        /// The place, without secrets.
        place: String,
        /// Its reason.
        reason: String,
    },
    /// A file has other contents than this store would write.
    #[error("{place} is not of this store: the store was replaced, or another one publishes there")]
    Foreign {
        /// The file.
        place: String,
    },
    /// A larger checkpoint was published.
    #[error(
        "a checkpoint of {published} events was published in {place}, but the store has {found}: its \
         newest events were removed, or another store publishes there"
    )]
    RolledBack {
        /// The place.
        place: String,
        /// Events in the largest published one.
        published: u64,
        /// Events in the store.
        found: u64,
    },
    /// A file is not a checkpoint or a key, or there are too many.
    #[error("{place} cannot be read: {reason}")]
    Unreadable {
        /// The file or directory.
        place: String,
        /// Why.
        reason: &'static str,
    },
    /// A file has a checkpoint of another size than its name.
    #[error(
        "{place} was overwritten: it has a checkpoint of {found} events, but was published with \
         {published}"
    )]
    Overwritten {
        /// The file.
        place: String,
        /// Events of the checkpoint that was published under this name.
        published: u64,
        /// Events of the one that it has.
        found: u64,
    },
    /// There are no published checkpoints.
    #[error("{place} has no checkpoints: there is nothing to compare the store with")]
    Empty {
        /// The place.
        place: String,
    },
    /// There is no checkpoint to publish.
    #[error("there is no signed checkpoint")]
    NoCheckpoint(#[source] super::ReadError),
}

impl AnchorError {
    /// The network or another server failed.
    pub fn remote(
        act: &'static str,
        place: impl Into<String>,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self::Remote { act, place: place.into(), source: source.into() }
    }
}

/// A checkpoint to be published.
#[derive(Debug, Clone)]
pub struct Publication {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// Its signed note.
    pub note: String,
    /// The key that verifies it.
    pub key: VerifierKey,
    /// Whether none was published in this place since the store was opened.
    pub first: bool,
}

/// A place outside the store that takes published checkpoints.
pub trait AnchorTarget: fmt::Debug + Send + Sync {
    /// Its address, without secrets.
    fn address(&self) -> String;

    /// Publishes a checkpoint. It may block, for a limited time. After a failure it is called again,
    /// with this checkpoint or a later one.
    ///
    /// # Errors
    /// [`AnchorError`].
    fn publish(&self, publication: &Publication) -> Result<(), AnchorError>;
}

/// Where a store publishes its checkpoints.
#[derive(Debug, Clone)]
pub enum AnchorPlace {
    /// A directory, in the file system of the store.
    Directory(PathBuf),
    /// Any other place.
    Target(Arc<dyn AnchorTarget>),
}

impl AnchorPlace {
    fn target(&self, fs: &Arc<dyn FileSystem>) -> Arc<dyn AnchorTarget> {
        match self {
            Self::Directory(path) => {
                Arc::new(KeptFiles(Directory::new(Arc::clone(fs), path.clone())))
            }
            Self::Target(target) => Arc::clone(target),
        }
    }
}
