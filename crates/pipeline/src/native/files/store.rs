//! What a destination of files needs of the place it writes to.
//!
//! Invariants:
//! * What is staged is not among the shown files before it is published; what is published is whole and
//!   durable.
//! * The ledger is replaced as a whole, and durable when that returns; where somebody else replaced it
//!   in the meantime, it is not.

use async_trait::async_trait;

use super::place::{Listed, Place};
use crate::error::ConnectorError;

type Result<T> = std::result::Result<T, ConnectorError>;

/// A directory of a stream, and what belongs to it.
#[async_trait]
pub(super) trait Store: Send + Sync {
    /// Where the files of a room are.
    fn place(&self, room: Room) -> Place;

    /// What is called what in messages.
    fn display(&self, room: Room, name: &str) -> String;

    /// Makes sure that nobody else writes here, until what it gives is dropped.
    async fn claim(&self) -> Result<Box<dyn std::any::Any + Send + Sync>>;

    /// The ledger, if there is one, and which version of it that is.
    async fn ledger(&self) -> Result<Option<(Vec<u8>, Version)>>;

    /// Puts a ledger in the place of the one of this version, or where none is.
    async fn put_ledger(&self, bytes: Vec<u8>, was: Option<&Version>) -> Result<Version>;

    /// Begins a file.
    async fn stage(&self, room: Room, name: &str) -> Result<Box<dyn Staged>>;

    /// The files of a room.
    async fn list(&self, room: Room) -> Result<Vec<Listed>>;

    /// Removes files of a room. Those that are not there are passed over.
    async fn remove(&self, room: Room, names: Vec<String>) -> Result<()>;

    /// Puts the files of the next room in the place of those that are shown. All of `names` are in one of
    /// the two; what else is shown may stay. May be called again after it was interrupted.
    async fn switch(&self, names: Vec<String>) -> Result<()>;
}

/// A version of the ledger, as the store tells them apart; a disk, which has locks, does not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Version {
    pub(super) tag: Option<String>,
    pub(super) version: Option<String>,
}

/// Where a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// Where readers look.
    Shown,
    /// Where the files of a load that replaces all others wait.
    Next,
    /// Dead letters.
    Dead,
    /// Files that are being written.
    Staging,
}

/// A file that is being written. Dropped before it is published, it is removed.
#[async_trait]
pub(super) trait Staged: Send {
    /// Adds bytes and leaves `bytes` empty.
    async fn write(&mut self, bytes: &mut Vec<u8>) -> Result<()>;

    /// Puts the whole file, durable, where it belongs; one of the same name is replaced. Returns its size.
    async fn publish(self: Box<Self>) -> Result<u64>;
}
