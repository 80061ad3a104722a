//! The interface between a destination of files and the location it writes to.
//!
//! Invariants:
//! * A staged file is not among the shown files before it is published. A published one is complete
//!   and durable.
//! * The ledger is replaced as a whole, and is durable on return. If another run replaced it in the
//!   meantime, the call fails.

use async_trait::async_trait;
use forebay_sdk::error::ConnectorError;

/// A version of the ledger in a bucket. A disk, which has locks, has none.
pub(super) use crate::Version;

use super::location::{Listed, Location};

type Result<T> = std::result::Result<T, ConnectorError>;

/// The directory of a stream, and its auxiliary directories.
#[async_trait]
pub(super) trait Store: Send + Sync {
    /// Where the files of a room are.
    fn place(&self, room: Room) -> Location;

    /// The name of a file in messages.
    fn display(&self, room: Room, name: &str) -> String;

    /// Ensures that no one else writes here, until the result is dropped.
    async fn claim(&self) -> Result<Box<dyn std::any::Any + Send + Sync>>;

    /// The ledger, if there is one, and its version.
    async fn ledger(&self) -> Result<Option<(Vec<u8>, Version)>>;

    /// Replaces the ledger of this version, or creates it if there is none.
    async fn put_ledger(&self, bytes: Vec<u8>, was: Option<&Version>) -> Result<Version>;

    /// Starts a file.
    async fn stage(&self, room: Room, name: &str) -> Result<Box<dyn Staged>>;

    /// The files of a room.
    async fn list(&self, room: Room) -> Result<Vec<Listed>>;

    /// Removes files of a room. Missing ones are skipped.
    async fn remove(&self, room: Room, names: Vec<String>) -> Result<()>;

    /// Replaces the shown files by those of the next room. Each of `names` is in one of the two;
    /// other shown files may stay. May be called again after an interruption.
    async fn switch(&self, names: Vec<String>) -> Result<()>;
}

/// Where a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// Where readers look.
    Shown,
    /// The files of a load that replaces all others.
    Next,
    /// Dead letters.
    Dead,
    /// Files that are being written.
    Staging,
    /// Parts of the ledger of a feed.
    Segments,
    /// Lists of files that a table has no longer.
    Removed,
}

/// A file that is being written. If it is dropped before it is published, it is removed.
#[async_trait]
pub(super) trait Staged: Send {
    /// Adds bytes and leaves `bytes` empty.
    async fn write(&mut self, bytes: &mut Vec<u8>) -> Result<()>;

    /// Publishes the complete file, durable; a file of the same name is replaced. Returns its size.
    async fn publish(self: Box<Self>) -> Result<u64>;
}
