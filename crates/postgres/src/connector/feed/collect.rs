//! The changes of one table, added up or one by one, as the form of the feed asks.
//!
//! Invariant: a change has the position and the time of its commit, which the server sends before the changes, and
//! its number among those of the followed tables.

use std::sync::Arc;

use forebay_sdk::changes::feed::Changes;
use forebay_sdk::changes::{
    BagChanges, ChangeLog, ChangedRow, Commit, Field, LoggedChange, NetChanges, Operation, RowKey,
};
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::settings::FeedForm;

use crate::replication::Lsn;
use crate::replication::envelope::ServerTime;
use crate::replication::pgoutput::{Message, Old, Tuple, Value};

/// The transaction whose changes follow.
pub(super) struct Transaction {
    /// The position of its commit.
    pub(super) position: Lsn,
    commit: Arc<Commit>,
    /// Number of its changes so far.
    count: u64,
}

impl Transaction {
    pub(super) fn new(position: Lsn, time: ServerTime) -> Self {
        let commit = Commit { position: position.to_string(), at_us: time.unix_us() };
        Self { position, commit: Arc::new(commit), count: 0 }
    }

    fn logged(
        &mut self,
        operation: Operation,
        row: Option<ChangedRow>,
        key_before: Option<RowKey>,
    ) -> LoggedChange {
        let number = self.count;
        self.count += 1;
        LoggedChange { operation, commit: Arc::clone(&self.commit), number, key_before, row }
    }
}

/// No changes.
///
/// * `key`: the columns of the key; none: all values name a row.
pub(super) fn empty(form: FeedForm, key: &Arc<[usize]>) -> Changes {
    match form {
        FeedForm::Apply | FeedForm::Mark if key.is_empty() => Changes::Bag(BagChanges::default()),
        FeedForm::Apply => Changes::Net(NetChanges::new(Arc::clone(key))),
        FeedForm::Mark => Changes::Net(NetChanges::keeping(Arc::clone(key))),
        FeedForm::Log => Changes::Log(ChangeLog::default()),
    }
}

/// Adds a change of the table.
///
/// # Errors
/// It cannot follow those before it, or is not one of a table.
pub(super) fn add(
    changes: &mut Changes,
    key: &[usize],
    change: &Message<'_>,
    of: &mut Transaction,
) -> Result<()> {
    match changes {
        Changes::Net(net) => add_up(net, key, change, of.commit.at_us),
        Changes::Bag(bag) => add_to_bag(bag, change),
        Changes::Log(log) => {
            log.push(logged(key, change, of)?);
            Ok(())
        }
    }
}

fn add_up(net: &mut NetChanges, key: &[usize], change: &Message<'_>, at_us: i64) -> Result<()> {
    match change {
        Message::Insert { new, .. } => net.insert(row(new, None)?),
        Message::Update { old, new, .. } => {
            let (before, row) = updated(old.as_ref(), new, key)?;
            net.update(before, row)
        }
        Message::Delete { old: Old::Key(old) | Old::Row(old), .. } => {
            net.delete(key_of(old, key)?, at_us)
        }
        Message::Truncate { .. } => {
            net.truncate(at_us);
            Ok(())
        }
        _ => Err(unexpected("a message inside a transaction")),
    }
}

fn add_to_bag(bag: &mut BagChanges, change: &Message<'_>) -> Result<()> {
    match change {
        Message::Insert { new, .. } => bag.insert(row(new, None)?),
        Message::Update { old: Some(Old::Row(old)), new, .. } => {
            bag.update(row(old, None)?, row(new, Some(old))?)
        }
        Message::Delete { old: Old::Row(old), .. } => bag.delete(row(old, None)?),
        Message::Truncate { .. } => {
            bag.truncate();
            Ok(())
        }
        Message::Update { .. } | Message::Delete { .. } => Err(unexpected(
            "a change of a table without a key that does not have the row before it",
        )),
        _ => Err(unexpected("a message inside a transaction")),
    }
}

fn logged(key: &[usize], change: &Message<'_>, of: &mut Transaction) -> Result<LoggedChange> {
    Ok(match change {
        Message::Insert { new, .. } => of.logged(Operation::Insert, Some(row(new, None)?), None),
        Message::Update { old: Some(Old::Row(old)), new, .. } if key.is_empty() => {
            let before = row(old, None)?.whole_key()?;
            of.logged(Operation::Update, Some(row(new, Some(old))?), Some(before))
        }
        Message::Update { old, new, .. } => {
            let (before, mut row) = updated(old.as_ref(), new, key)?;
            if let Some(before) = &before {
                row = row.with_key(key, before)?;
            }
            let now = row.key(key)?;
            let moved = before.filter(|before| *before != now);
            of.logged(Operation::Update, Some(row), moved)
        }
        Message::Delete { old: Old::Key(old) | Old::Row(old), .. } => {
            of.logged(Operation::Delete, Some(row(old, None)?), None)
        }
        Message::Truncate { .. } => of.logged(Operation::Truncate, None, None),
        _ => return Err(unexpected("a message inside a transaction")),
    })
}

/// The key before an update, if it was sent, and the row after it.
fn updated(
    old: Option<&Old<'_>>,
    new: &Tuple<'_>,
    key: &[usize],
) -> Result<(Option<RowKey>, ChangedRow)> {
    Ok(match old {
        None => (None, row(new, None)?),
        Some(Old::Key(old)) => (Some(key_of(old, key)?), row(new, None)?),
        Some(Old::Row(old)) => (Some(key_of(old, key)?), row(new, Some(old))?),
    })
}

/// The row of a change.
///
/// * `old`: all values before, of which those are taken that were not sent.
fn row(new: &Tuple<'_>, old: Option<&Tuple<'_>>) -> Result<ChangedRow> {
    let mut before = old.map(Tuple::values);
    let fields = new.values().map(|value| {
        let before = before.as_mut().and_then(Iterator::next);
        match (value, before) {
            (Value::Unchanged, Some(before)) => field(before),
            (value, _) => field(value),
        }
    });
    ChangedRow::new(fields.collect::<Result<Vec<_>>>()?)
}

fn key_of(old: &Tuple<'_>, key: &[usize]) -> Result<RowKey> {
    let fields = old.values().map(field).collect::<Result<Vec<_>>>()?;
    ChangedRow::new(fields)?.key(key)
}

fn field(value: Value<'_>) -> Result<Field<'_>> {
    match value {
        Value::Null => Ok(Field::Null),
        Value::Unchanged => Ok(Field::Unchanged),
        Value::Binary(bytes) => Ok(Field::Value(bytes)),
        Value::Text(_) => Err(unexpected("a value that is not in its binary form")),
    }
}

/// A message that does not belong where it is.
pub(super) fn unexpected(what: &str) -> ConnectorError {
    ConnectorError::data("the changes of PostgreSQL", format!("unexpected: {what}"))
}
