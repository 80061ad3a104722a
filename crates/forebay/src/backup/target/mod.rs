//! What holds backups: a directory, or a prefix in a bucket of S3.
//!
//! A target keeps items, which are bytes with a name such as `chunks/ab/ab…`; what they mean is the business of
//! `store`. So everything that is done with backups is written once.
//!
//! Invariants: an item exists whole or not at all; what a `sync` or a `publish` has covered survives a power cut; no
//! name of an item comes from outside unchecked.

mod directory;
mod lease;
mod s3;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::Read;

pub(crate) use directory::Directory;
pub(crate) use s3::S3;

/// What a target is held for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Adding a backup.
    Backup,
    /// Removing backups.
    Prune,
}

/// A target that is held. Dropping it releases the target.
pub(crate) trait Hold: std::fmt::Debug + Send + Sync {
    /// Fails if the target may be held by others by now.
    ///
    /// # Errors
    /// The hold was lost, or whether it was cannot be found out.
    fn check(&self) -> anyhow::Result<()>;

    /// Whether no one else can be adding a backup.
    fn is_exclusive(&self) -> bool;
}

/// What holds backups. Every error names the item.
pub(crate) trait Target: std::fmt::Debug + Send + Sync {
    /// The name of an item in messages; that of the target if `name` is empty.
    fn shown(&self, name: &str) -> String;

    /// How many threads may use it at a time with an advantage.
    fn workers(&self) -> usize;

    /// Whether it compares what it receives with a checksum before the item exists. Then an item of the right size is
    /// believed, and what was written is not read back.
    fn is_checked(&self) -> bool;

    /// Whether it holds nothing but what an interrupted command may have left before it made its first item.
    fn is_empty(&self) -> anyhow::Result<bool>;

    /// Holds the target. What interrupted commands left unfinished is removed.
    ///
    /// # Errors
    /// Others hold it, or it cannot be written.
    fn hold(&self, purpose: Purpose) -> anyhow::Result<Box<dyn Hold>>;

    /// Reads an item; `None` if there is none.
    ///
    /// * `size_max`: of a larger one at most one byte more than this is read, or an error is returned.
    /// * `from_device`: not from memory, as far as that can be asked for.
    fn read(
        &self,
        name: &str,
        size_max: usize,
        from_device: bool,
    ) -> anyhow::Result<Option<Vec<u8>>>;

    /// Reads an item piece by piece; `None` if there is none.
    fn open(&self, name: &str) -> anyhow::Result<Option<Box<dyn Read + '_>>>;

    /// Returns the size of an item; `None` if there is none.
    fn size(&self, name: &str) -> anyhow::Result<Option<u64>>;

    /// Calls `each` with name and size of every item below a name.
    fn list(
        &self,
        below: &str,
        each: &mut dyn FnMut(&str, u64) -> anyhow::Result<()>,
    ) -> anyhow::Result<()>;

    /// Writes an item, replacing what has its name. It may be lost in a power cut before `sync`.
    fn write(&self, name: &str, bytes: &[u8]) -> anyhow::Result<()>;

    /// Puts everything that was written or removed on stable storage.
    fn sync(&self) -> anyhow::Result<()>;

    /// Creates a file that will be published. One at a time.
    fn scratch(&self) -> anyhow::Result<File>;

    /// Makes the file of `scratch`, which is synced, an item. It replaces none, and is on stable storage then.
    ///
    /// # Errors
    /// The item may exist nevertheless.
    fn publish(&self, name: &str, file: File) -> anyhow::Result<()>;

    /// Removes items, on stable storage. That one does not exist is no error.
    fn remove(&self, names: &[String]) -> anyhow::Result<()>;
}
