//! Messages of pgoutput become units: the net changes of whole transactions, in the order of commits.
//!
//! Invariants:
//! - A unit ends at a commit, or has a part of a transaction that is too large for one: then it has no position.
//! - A transaction that was applied before the position at which reading began is left out, whole.
//! - Rows with other columns than before begin a unit, which says so.

use std::collections::HashMap;
use std::sync::Arc;

use forebay_sdk::changes::feed::{ChangeUnit, Redefinition, StreamChanges};
use forebay_sdk::changes::{ChangedRow, Field, NetChanges, RowKey};
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;

use super::tables::Followed;
use crate::replication::Lsn;
use crate::replication::envelope::ServerTime;
use crate::replication::pgoutput::{Message, Oid, Old, Relation, Tuple, Value};

/// Assembles units.
pub(super) struct Assembler {
    followed: Vec<Followed>,
    /// Tables by their number; `None`: not followed.
    tables: HashMap<Oid, Option<usize>>,
    unit_size: usize,
    /// Transactions whose commit begins before this are applied.
    from: Lsn,
    state: State,
    pending: Pending,
    /// A table with other columns, which waits until the changes before it are taken.
    redefinition: Option<(usize, Followed, Redefinition)>,
}

/// Where in the stream of transactions it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Between,
    In,
    /// In a transaction that is applied already.
    Skipping,
}

/// The unit that is being assembled.
#[derive(Default)]
struct Pending {
    nets: Vec<Option<NetChanges>>,
    commits: u64,
    /// End and time of the last commit.
    last: Option<(Lsn, ServerTime)>,
    has_changes: bool,
    /// Whether a part of the same transaction was taken before.
    is_continued: bool,
    /// Tables that have other columns from here on.
    redefined: Vec<(usize, Redefinition)>,
}

/// The changes of a table that are added up, and the columns of its key.
struct OfTable<'a> {
    net: &'a mut NetChanges,
    key: Arc<[usize]>,
}

impl Assembler {
    /// * `from`: the recorded position.
    /// * `unit_size`: in bytes.
    pub(super) fn new(followed: Vec<Followed>, from: Lsn, unit_size: usize) -> Self {
        let (tables, pending) = (HashMap::new(), Pending::default());
        let (state, redefinition) = (State::Between, None);
        Self { followed, tables, unit_size, from, state, pending, redefinition }
    }

    /// Whether it waits for the end of a transaction.
    pub(super) fn is_in_transaction(&self) -> bool {
        self.state != State::Between
    }

    /// Whether a unit can be taken that has changes, or ends a transaction that had some.
    pub(super) fn has_unit(&self) -> bool {
        let Pending { commits, has_changes, is_continued, .. } = self.pending;
        let is_whole = commits > 0 && !self.is_in_transaction() && (has_changes || is_continued);
        is_whole || self.is_full()
    }

    /// Whether a unit must be taken before more is added.
    pub(super) fn is_full(&self) -> bool {
        let size = self.pending.nets.iter().flatten().map(NetChanges::size).sum::<usize>();
        self.pending.has_changes && (size >= self.unit_size || self.redefinition.is_some())
    }

    /// The end of the last transaction, if none had changes since the last unit.
    pub(super) fn passed(&self) -> Option<Lsn> {
        let Pending { has_changes, is_continued, .. } = self.pending;
        let is_quiet = !has_changes && !is_continued && !self.is_in_transaction();
        self.pending.last.filter(|_| is_quiet).map(|(end, _)| end)
    }

    /// Takes the unit.
    pub(super) fn take_unit(&mut self) -> Option<ChangeUnit> {
        if !self.has_unit() {
            return None;
        }
        let is_part = self.is_in_transaction();
        let Pending { nets, commits, last, redefined, .. } = std::mem::take(&mut self.pending);
        self.pending.is_continued = is_part;
        if let Some((at, table, redefinition)) = self.redefinition.take() {
            self.install(at, table, redefinition);
        }
        let streams = nets.into_iter().enumerate();
        let streams = streams.filter_map(|(stream, net)| Some(StreamChanges { stream, net: net? }));
        Some(ChangeUnit {
            position: last.filter(|_| !is_part).map(|(end, _)| end.to_string()),
            commits,
            committed_us: last.map(|(_, time)| time.unix_us()),
            redefined,
            streams: streams.collect(),
        })
    }

    /// Adds a message.
    ///
    /// # Errors
    /// A table has changed, or the message does not belong here.
    pub(super) fn add(&mut self, message: &Message<'_>) -> Result<()> {
        match (message, self.state) {
            (Message::Begin { commit, .. }, State::Between) => {
                self.state = if *commit < self.from { State::Skipping } else { State::In };
            }
            (Message::Commit { end, time, .. }, State::In) => {
                self.state = State::Between;
                self.pending.commits += 1;
                self.pending.last = Some((*end, *time));
            }
            (Message::Commit { .. }, State::Skipping) => self.state = State::Between,
            // The caller looks up its types, and calls `relate`.
            (Message::Relation(_), _) => {}
            (Message::Origin { .. } | Message::Type { .. } | Message::Logical { .. }, _) => {}
            (_, State::Skipping) => {}
            (change, State::In) => self.change(change)?,
            (_, State::Between) => return Err(unexpected("a change outside of a transaction")),
        }
        Ok(())
    }

    /// The table that a relation describes; `None`: it is not followed.
    pub(super) fn described(&self, relation: &Relation) -> Option<&Followed> {
        self.followed.get(self.place(relation)?)
    }

    fn place(&self, relation: &Relation) -> Option<usize> {
        self.followed.iter().position(|table| {
            table.name.schema == relation.schema && table.name.table == relation.name
        })
    }

    /// Takes over how a table is.
    ///
    /// * `redefinition`: its columns, if they are others than before.
    ///
    /// # Errors
    /// It has another key.
    pub(super) fn relate(
        &mut self,
        relation: &Relation,
        redefinition: Option<Redefinition>,
    ) -> Result<()> {
        let at = self.place(relation);
        self.tables.insert(relation.oid, at);
        let (Some(at), Some(redefinition)) = (at, redefinition) else { return Ok(()) };
        let Some(table) = self.followed.get(at) else { return Ok(()) };
        let table = table.redefined(redefinition.columns.clone())?;
        if self.pending.has_changes {
            self.redefinition = Some((at, table, redefinition));
        } else {
            self.install(at, table, redefinition);
        }
        Ok(())
    }

    fn install(&mut self, at: usize, table: Followed, redefinition: Redefinition) {
        if let Some(known) = self.followed.get_mut(at) {
            *known = table;
            self.pending.redefined.push((at, redefinition));
        }
    }

    fn change(&mut self, change: &Message<'_>) -> Result<()> {
        match change {
            Message::Insert { relation, new } => {
                let Some(OfTable { net, .. }) = self.net(*relation)? else { return Ok(()) };
                net.insert(row(new, None)?)?;
            }
            Message::Update { relation, old, new } => {
                let Some(OfTable { net, key }) = self.net(*relation)? else { return Ok(()) };
                let (before, row) = match old {
                    None => (None, row(new, None)?),
                    Some(Old::Key(old)) => (Some(key_of(old, &key)?), row(new, None)?),
                    Some(Old::Row(old)) => (Some(key_of(old, &key)?), row(new, Some(old))?),
                };
                net.update(before, row)?;
            }
            Message::Delete { relation, old } => {
                let Some(OfTable { net, key }) = self.net(*relation)? else { return Ok(()) };
                let (Old::Key(old) | Old::Row(old)) = old;
                net.delete(key_of(old, &key)?)?;
            }
            Message::Truncate { relations, .. } => {
                for relation in relations {
                    if let Some(OfTable { net, .. }) = self.net(*relation)? {
                        net.truncate();
                    }
                }
            }
            _ => return Err(unexpected("a message inside a transaction")),
        }
        Ok(())
    }

    /// The changes of a table; `None` if it is not followed.
    fn net(&mut self, relation: Oid) -> Result<Option<OfTable<'_>>> {
        let at = self.tables.get(&relation).copied();
        let at = at.ok_or_else(|| unexpected("a change of a table that was not described"))?;
        let Some(at) = at else { return Ok(None) };
        let key = self.followed.get(at).map(|table| Arc::clone(&table.key)).unwrap_or_default();
        self.pending.has_changes = true;
        let nets = &mut self.pending.nets;
        if nets.len() <= at {
            nets.resize_with(at + 1, || None);
        }
        let net = nets.get_mut(at).ok_or_else(|| unexpected("a table"))?;
        let net = net.get_or_insert_with(|| NetChanges::new(Arc::clone(&key)));
        Ok(Some(OfTable { net, key }))
    }
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

fn unexpected(what: &str) -> ConnectorError {
    ConnectorError::data("the changes of PostgreSQL", format!("unexpected: {what}"))
}
