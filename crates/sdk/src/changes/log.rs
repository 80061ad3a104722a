//! Changes one by one, as a destination appends them to a log.
//!
//! Invariant: changes of a table are in the order in which the source committed them, and the position and number
//! of a change name it: a source that is read again reports it under the same ones.

use std::sync::Arc;

use super::row::{ChangedRow, RowKey};

/// What a change did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A row was inserted.
    Insert,
    /// A row was updated.
    Update,
    /// A row was deleted.
    Delete,
    /// All rows were deleted.
    Truncate,
}

impl Operation {
    /// Its name in a log.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Truncate => "truncate",
        }
    }
}

/// The transaction of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// The position of its commit, as the source writes it.
    pub position: String,
    /// When the source committed it, in microseconds since 1970.
    pub at_us: i64,
}

/// A change of a row, or of all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedChange {
    /// What it did.
    pub operation: Operation,
    /// Its transaction.
    pub commit: Arc<Commit>,
    /// Its number in the transaction, over all tables of the feed, from 0.
    pub number: u64,
    /// The key before, if an update changed it.
    pub key_before: Option<RowKey>,
    /// The row after an insertion or update, or what is known of it before a deletion.
    pub row: Option<ChangedRow>,
}

/// The changes of one table, in their order.
#[derive(Debug, Default)]
pub struct ChangeLog {
    changes: Vec<LoggedChange>,
    size: usize,
}

impl ChangeLog {
    /// Adds a change.
    pub fn push(&mut self, change: LoggedChange) {
        let key = change.key_before.as_ref().map_or(0, |key| key.as_bytes().len());
        let row = change.row.as_ref().map_or(0, ChangedRow::size);
        self.size += size_of::<LoggedChange>() + key + row;
        self.changes.push(change);
    }

    /// The changes.
    #[must_use]
    pub fn changes(&self) -> &[LoggedChange] {
        &self.changes
    }

    /// Size in memory in bytes, roughly.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }
}
