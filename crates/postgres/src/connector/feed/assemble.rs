//! Messages of pgoutput become units: the changes of whole transactions, in the order of commits.
//!
//! Invariants:
//! - A unit ends at a commit, or has a part of a transaction that is too large for one: then it has no position.
//! - A transaction that was applied before the position at which reading began is left out, whole.
//! - Rows with other columns than before begin a unit, which says so.

use std::collections::HashMap;
use std::sync::Arc;

use forebay_sdk::changes::feed::{ChangeUnit, Changes, Redefinition, StreamChanges};
use forebay_sdk::connector::Result;
use forebay_sdk::settings::FeedForm;

use super::collect::{self, Transaction, unexpected};
use super::tables::Followed;
use crate::replication::Lsn;
use crate::replication::envelope::ServerTime;
use crate::replication::pgoutput::{Message, Oid, Relation};

/// Assembles units.
pub(super) struct Assembler {
    followed: Vec<Followed>,
    /// Tables by their number; `None`: not followed.
    tables: HashMap<Oid, Option<usize>>,
    unit_size: usize,
    form: FeedForm,
    /// Transactions whose commit begins before this are applied.
    from: Lsn,
    state: State,
    transaction: Option<Transaction>,
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
    /// Changes by the index of their table.
    tables: Vec<Option<Changes>>,
    commits: u64,
    /// End and time of the last commit.
    last: Option<(Lsn, ServerTime)>,
    has_changes: bool,
    /// Whether a part of the same transaction was taken before.
    is_continued: bool,
    /// Tables that have other columns from here on.
    redefined: Vec<(usize, Redefinition)>,
}

impl Assembler {
    /// * `from`: the recorded position.
    /// * `unit_size`: in bytes.
    /// * `form`: in which the destination takes changes.
    pub(super) fn new(
        followed: Vec<Followed>,
        from: Lsn,
        unit_size: usize,
        form: FeedForm,
    ) -> Self {
        Self {
            followed,
            tables: HashMap::new(),
            unit_size,
            form,
            from,
            state: State::Between,
            transaction: None,
            pending: Pending::default(),
            redefinition: None,
        }
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
        let size = self.pending.tables.iter().flatten().map(Changes::size).sum::<usize>();
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
        let Pending { tables, commits, last, redefined, .. } = std::mem::take(&mut self.pending);
        self.pending.is_continued = is_part;
        if let Some((at, table, redefinition)) = self.redefinition.take() {
            self.install(at, table, redefinition);
        }
        let streams = tables.into_iter().enumerate();
        let streams = streams
            .filter_map(|(stream, changes)| Some(StreamChanges { stream, changes: changes? }));
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
            (Message::Begin { commit, time, .. }, State::Between) => {
                self.state = if *commit < self.from { State::Skipping } else { State::In };
                self.transaction = Some(Transaction::new(*commit, *time));
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

    /// The table that a relation describes; `None`: it is not followed, or not yet.
    pub(super) fn described(&self, relation: &Relation) -> Option<&Followed> {
        // The copy has the columns that a table got before it.
        let followed = self.followed.get(self.place(relation)?);
        followed.filter(|table| !self.is_before(table))
    }

    /// Whether the changes of the transaction are in the copy of a table.
    fn is_before(&self, table: &Followed) -> bool {
        self.transaction.as_ref().is_some_and(|transaction| transaction.position < table.from)
    }

    /// A table has other names while it is renamed, and other tables may have its name.
    fn place(&self, relation: &Relation) -> Option<usize> {
        self.followed.iter().position(|table| table.oid == relation.oid)
    }

    /// Whether another table has the name of one that is followed.
    pub(super) fn is_namesake(&self, relation: &Relation) -> bool {
        self.followed.iter().any(|table| {
            table.name.schema == relation.schema
                && table.name.table == relation.name
                && table.oid != relation.oid
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
        let table = table.redefined(&redefinition)?;
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
            Message::Insert { relation, .. }
            | Message::Update { relation, .. }
            | Message::Delete { relation, .. } => self.add_to(*relation, change),
            Message::Truncate { relations, .. } => {
                relations.iter().try_for_each(|relation| self.add_to(*relation, change))
            }
            _ => Err(unexpected("a message inside a transaction")),
        }
    }

    /// Adds a change to those of a table, if it is followed.
    fn add_to(&mut self, relation: Oid, change: &Message<'_>) -> Result<()> {
        let at = self.tables.get(&relation).copied();
        let at = at.ok_or_else(|| unexpected("a change of a table that was not described"))?;
        let Some(at) = at else { return Ok(()) };
        if self.followed.get(at).is_some_and(|table| self.is_before(table)) {
            return Ok(());
        }
        let key = self.followed.get(at).map(|table| Arc::clone(&table.key)).unwrap_or_default();
        self.pending.has_changes = true;
        let tables = &mut self.pending.tables;
        if tables.len() <= at {
            tables.resize_with(at + 1, || None);
        }
        let changes = tables.get_mut(at).ok_or_else(|| unexpected("a table"))?;
        let changes = changes.get_or_insert_with(|| collect::empty(self.form, &key));
        let transaction = self.transaction.as_mut();
        let transaction = transaction.ok_or_else(|| unexpected("a change without a beginning"))?;
        collect::add(changes, &key, change, transaction)
    }
}
