//! What the changes of one table amount to.
//!
//! Changes are added in the order of commits. For each key that a destination may have, at most one effect is
//! left: the row is inserted, updated or deleted. They are applied in the order of [`Effect`]: first the table is
//! emptied if it was truncated, then rows are deleted, then updated, then inserted.
//!
//! ```text
//! insert, update, update         one insertion of the last row
//! update, delete                 one deletion
//! delete, insert                 one update of every column
//! insert, delete                 nothing
//! update that changes the key    one update of the row under its first key
//! ```
//!
//! Where deleted rows are kept ([`NetChanges::keeping`]), a deletion is one more value of the row, its time, so that
//! what was inserted or updated before it is not lost. One whose key another row takes, and gives up again within the
//! same changes, stays.
//!
//! Invariants:
//! - The effects have the same result as the changes one by one, on every destination that has the rows that
//!   these refer to.
//! - A value that was not sent is never taken for NULL: it is merged with what is known, or left as it is.

use std::collections::HashMap;
use std::sync::Arc;

use super::row::{ChangedRow, RowKey};
use crate::error::ConnectorError;

/// What is left of the changes for one row of a destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// The row is deleted.
    Delete {
        /// Its key at the destination.
        key: RowKey,
        /// When, in microseconds since 1970, if it is kept as a deleted one.
        kept_us: Option<i64>,
    },
    /// The row is updated.
    Update {
        /// Its key at the destination.
        key: RowKey,
        /// The row; values that were not sent stay.
        row: ChangedRow,
        /// Whether its key is another one then.
        moves: bool,
        /// When it was deleted after that, if deleted rows are kept.
        deleted_us: Option<i64>,
    },
    /// The row is inserted. No value is missing.
    Insert {
        /// The row.
        row: ChangedRow,
        /// When it was deleted after that, if deleted rows are kept.
        deleted_us: Option<i64>,
    },
}

/// The changes of one table, added up.
#[derive(Debug)]
pub struct NetChanges {
    key: Arc<[usize]>,
    rows: Vec<State>,
    /// The state of the row that has a key now, or had it when it was deleted.
    by_key: HashMap<RowKey, usize>,
    truncated_us: Option<i64>,
    /// Whether deleted rows stay at the destination.
    keeps_deleted: bool,
    /// Whether nothing can be added any more, since rows cannot be found by their keys.
    is_received: bool,
    changes: u64,
    size: usize,
}

/// What is left of the changes for one row: what [`Effect`] has, by reference.
#[derive(Debug, Clone, Copy)]
pub(super) enum Left<'a> {
    Inserted(&'a ChangedRow, Option<i64>),
    Updated(&'a RowKey, &'a ChangedRow, Option<i64>),
    Deleted(&'a RowKey, Option<i64>),
}

/// What became of a row.
#[derive(Debug)]
enum State {
    /// It was inserted by one of the changes, and deleted then if there is a time.
    New(ChangedRow, Option<i64>),
    /// It was there, under this key, and deleted then if there is a time.
    Changed(RowKey, ChangedRow, Option<i64>),
    /// It was there, under this key, and is not any more; it is kept if there is a time.
    Deleted(RowKey, Option<i64>),
    /// It was inserted and deleted again.
    Nothing,
}

impl NetChanges {
    /// No changes.
    ///
    /// * `key`: the columns of the key, in the order of the table.
    #[must_use]
    pub fn new(key: impl Into<Arc<[usize]>>) -> Self {
        Self {
            key: key.into(),
            rows: Vec::new(),
            by_key: HashMap::new(),
            truncated_us: None,
            keeps_deleted: false,
            is_received: false,
            changes: 0,
            size: 0,
        }
    }

    /// Changes that were added up elsewhere. None can be added here.
    ///
    /// * `changes`: number of changes that they are.
    pub(super) fn received(
        empty: Self,
        truncated_us: Option<i64>,
        changes: u64,
        effects: impl Iterator<Item = Result<Effect, ConnectorError>>,
    ) -> Result<Self, ConnectorError> {
        let mut received = Self { truncated_us, changes, is_received: true, ..empty };
        for effect in effects {
            let (state, size) = match effect? {
                Effect::Insert { row, deleted_us } => {
                    let size = row.size();
                    (State::New(row, deleted_us), size)
                }
                Effect::Update { key, row, deleted_us, .. } => {
                    let size = row.size() + key.as_bytes().len();
                    (State::Changed(key, row, deleted_us), size)
                }
                Effect::Delete { key, kept_us } => {
                    let size = key.as_bytes().len();
                    (State::Deleted(key, kept_us), size)
                }
            };
            received.size += size + size_of::<State>();
            received.rows.push(state);
        }
        Ok(received)
    }

    /// What is left of the changes, in no particular order.
    pub(super) fn left(&self) -> impl Iterator<Item = Left<'_>> {
        self.rows.iter().filter_map(|state| match state {
            State::New(row, deleted_us) => Some(Left::Inserted(row, *deleted_us)),
            State::Changed(key, row, deleted_us) => Some(Left::Updated(key, row, *deleted_us)),
            State::Deleted(key, kept_us) => Some(Left::Deleted(key, *kept_us)),
            State::Nothing => None,
        })
    }

    /// Whether deleted rows stay at the destination.
    pub(super) fn keeps_deleted(&self) -> bool {
        self.keeps_deleted
    }

    /// Fails if nothing can be added.
    fn check_open(&self) -> Result<(), ConnectorError> {
        if self.is_received { Err(wrong("it is added to those of another place")) } else { Ok(()) }
    }

    /// No changes, of a table whose deleted rows are kept.
    #[must_use]
    pub fn keeping(key: impl Into<Arc<[usize]>>) -> Self {
        Self { keeps_deleted: true, ..Self::new(key) }
    }

    /// Number of changes that were added.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Size in memory in bytes, roughly.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// When the table was emptied, in microseconds since 1970, if it was: the destination's is, before the effects.
    #[must_use]
    pub fn truncated_us(&self) -> Option<i64> {
        self.truncated_us
    }

    /// Adds an insertion.
    ///
    /// # Errors
    /// The row has no key, misses a value, or its key is there already.
    pub fn insert(&mut self, row: ChangedRow) -> Result<(), ConnectorError> {
        self.check_open()?;
        if row.has_unchanged() {
            return Err(wrong("an inserted row misses a value"));
        }
        let key = row.key(&self.key)?;
        self.count(&row);
        match self.by_key.get(&key).copied() {
            None => self.add(key, State::New(row, None)),
            Some(at) => {
                let state = self.rows.get_mut(at).ok_or_else(lost)?;
                *state = match std::mem::replace(state, State::Nothing) {
                    State::Deleted(first, _) | State::Changed(first, _, Some(_)) => {
                        State::Changed(first, row, None)
                    }
                    State::Nothing | State::New(_, Some(_)) => State::New(row, None),
                    State::New(_, None) | State::Changed(_, _, None) => {
                        return Err(wrong("a row was inserted twice"));
                    }
                };
            }
        }
        Ok(())
    }

    /// Adds an update.
    ///
    /// * `old`: the key of the row before, if it may be another one.
    ///
    /// # Errors
    /// The row has no key, was deleted before, or has the key of another one.
    pub fn update(&mut self, old: Option<RowKey>, row: ChangedRow) -> Result<(), ConnectorError> {
        self.check_open()?;
        // A large value of a key is not sent with the row if it stays, but with the key.
        let row = match &old {
            Some(old) => row.with_key(&self.key, old)?,
            None => row,
        };
        let key = row.key(&self.key)?;
        self.count(&row);
        let before = old.unwrap_or_else(|| key.clone());
        if before != key && self.is_there(&key) {
            return Err(wrong("a row was updated to the key of another"));
        }
        let Some(at) = self.by_key.get(&before).copied() else {
            if let Some(taken) = self.by_key.get(&key).copied() {
                self.supersede(taken)?;
            }
            self.add(key, State::Changed(before, row, None));
            return Ok(());
        };
        let state = self.rows.get_mut(at).ok_or_else(lost)?;
        *state = match std::mem::replace(state, State::Nothing) {
            State::New(earlier, None) => State::New(row.over(&earlier)?, None),
            State::Changed(first, earlier, None) => {
                State::Changed(first, row.over(&earlier)?, None)
            }
            State::Deleted(..) | State::Nothing | State::New(..) | State::Changed(..) => {
                return Err(wrong("a row was updated after its deletion"));
            }
        };
        if before != key {
            self.by_key.remove(&before);
            if let Some(taken) = self.by_key.insert(key, at) {
                self.supersede(taken)?;
            }
        }
        Ok(())
    }

    /// Adds a deletion.
    ///
    /// * `at_us`: when, in microseconds since 1970.
    ///
    /// # Errors
    /// The row was deleted before.
    pub fn delete(&mut self, key: RowKey, at_us: i64) -> Result<(), ConnectorError> {
        self.check_open()?;
        self.changes += 1;
        self.size += key.as_bytes().len() + size_of::<State>();
        let Some(at) = self.by_key.get(&key).copied() else {
            let kept_us = self.keeps_deleted.then_some(at_us);
            self.add(key.clone(), State::Deleted(key, kept_us));
            return Ok(());
        };
        let state = self.rows.get_mut(at).ok_or_else(lost)?;
        let is_elsewhere = matches!(state, State::Changed(first, ..) if *first != key);
        let keeps = self.keeps_deleted;
        *state = match std::mem::replace(state, State::Nothing) {
            State::New(row, None) if keeps => State::New(row, Some(at_us)),
            State::Changed(first, row, None) if keeps => State::Changed(first, row, Some(at_us)),
            State::New(_, None) => State::Nothing,
            State::Changed(first, _, None) => State::Deleted(first, None),
            State::Deleted(..) | State::Nothing | State::New(..) | State::Changed(..) => {
                return Err(wrong("a row was deleted twice"));
            }
        };
        if is_elsewhere && !keeps {
            // What is inserted under this key is another row than the one that is deleted.
            self.by_key.remove(&key);
        }
        Ok(())
    }

    /// Adds a truncation. Of what was added before nothing is left; where deleted rows are kept, all are deleted.
    ///
    /// * `at_us`: when, in microseconds since 1970.
    pub fn truncate(&mut self, at_us: i64) {
        self.changes += 1;
        // Rows of the destination were deleted by the first one.
        self.truncated_us = self.truncated_us.or(Some(at_us));
        if !self.keeps_deleted {
            self.rows.clear();
            self.by_key.clear();
            self.size = 0;
            return;
        }
        for state in &mut self.rows {
            if let State::New(_, deleted @ None) | State::Changed(_, _, deleted @ None) = state {
                *deleted = Some(at_us);
            }
        }
    }

    /// The effects: all deletions, then all updates, then all insertions.
    #[must_use]
    pub fn into_effects(self) -> Vec<Effect> {
        let (mut deleted, mut updated, mut inserted) = (Vec::new(), Vec::new(), Vec::new());
        for state in self.rows {
            match state {
                State::New(row, deleted_us) => inserted.push(Effect::Insert { row, deleted_us }),
                State::Changed(key, row, deleted_us) => {
                    let moves = row.key(&self.key).is_ok_and(|now| now != key);
                    updated.push(Effect::Update { key, row, moves, deleted_us });
                }
                State::Deleted(key, kept_us) => deleted.push(Effect::Delete { key, kept_us }),
                State::Nothing => {}
            }
        }
        deleted.append(&mut updated);
        deleted.append(&mut inserted);
        deleted
    }

    fn add(&mut self, key: RowKey, state: State) {
        self.rows.push(state);
        self.by_key.insert(key, self.rows.len() - 1);
    }

    /// A deleted row is not kept any more, since another one has its key.
    fn supersede(&mut self, at: usize) -> Result<(), ConnectorError> {
        let state = self.rows.get_mut(at).ok_or_else(lost)?;
        *state = match std::mem::replace(state, State::Nothing) {
            State::New(..) | State::Nothing => State::Nothing,
            State::Changed(first, ..) | State::Deleted(first, _) => State::Deleted(first, None),
        };
        Ok(())
    }

    fn count(&mut self, row: &ChangedRow) {
        self.changes += 1;
        self.size += row.size() + size_of::<State>() + size_of::<RowKey>();
    }

    /// Whether one of the changes left a row with this key.
    fn is_there(&self, key: &RowKey) -> bool {
        let state = self.by_key.get(key).and_then(|at| self.rows.get(*at));
        matches!(state, Some(State::New(_, None) | State::Changed(_, _, None)))
    }
}

fn wrong(found: &str) -> ConnectorError {
    ConnectorError::data("the changes of a table", found.to_owned())
}

fn lost() -> ConnectorError {
    wrong("a row is unknown")
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::super::row::Field;
    use super::*;

    /// A row of three columns: key, large value, number.
    type Plain = (u8, Vec<u8>, u8);

    fn row(key: u8, large: Option<&[u8]>, number: u8) -> ChangedRow {
        let (key, number) = ([key], [number]);
        let large = large.map_or(Field::Unchanged, Field::Value);
        ChangedRow::new([Field::Value(&key), large, Field::Value(&number)]).unwrap()
    }

    fn key(key: u8) -> RowKey {
        row(key, None, 0).key(&[0]).unwrap()
    }

    fn plain(row: &ChangedRow, before: Option<&Plain>) -> Plain {
        let fields: Vec<_> = row.fields().collect();
        let value = |at: usize| match fields[at] {
            Field::Value(value) => value.to_vec(),
            _ => before.unwrap().1.clone(),
        };
        (value(0)[0], value(1), value(2)[0])
    }

    /// Rows by their keys, with the time of their deletion if they are kept after it.
    type Rows = BTreeMap<u8, (Plain, Option<i64>)>;

    /// Applies effects as a destination does: each step to all rows before the next.
    fn apply(rows: &mut Rows, changes: NetChanges) {
        let truncated_us = changes.truncated_us();
        match truncated_us {
            Some(at_us) if changes.keeps_deleted => {
                rows.values_mut().for_each(|(_, deleted)| *deleted = deleted.or(Some(at_us)));
            }
            Some(_) => rows.clear(),
            None => {}
        }
        let of = |key: &RowKey| key.as_bytes()[4];
        let is_live = |deleted: Option<i64>| deleted.is_none() || truncated_us.is_some();
        let mut rewritten = Vec::new();
        for effect in changes.into_effects() {
            match effect {
                Effect::Delete { key, kept_us: Some(at_us) } => {
                    let (_, deleted) = rows.get_mut(&of(&key)).unwrap();
                    assert!(is_live(*deleted));
                    *deleted = Some(at_us);
                }
                Effect::Delete { key, kept_us: None } => {
                    assert!(is_live(rows.remove(&of(&key)).unwrap().1));
                }
                Effect::Update { key, row, moves, deleted_us } => {
                    let (before, deleted) = rows.remove(&of(&key)).unwrap();
                    assert!(is_live(deleted));
                    let after = plain(&row, Some(&before));
                    assert_eq!(moves, after.0 != before.0);
                    rewritten.push((after, deleted_us));
                }
                Effect::Insert { row, deleted_us } => {
                    rewritten.push((plain(&row, None), deleted_us));
                }
            }
        }
        for (row, _) in &rewritten {
            if rows.get(&row.0).is_some_and(|(_, deleted)| deleted.is_some()) {
                rows.remove(&row.0);
            }
        }
        for (row, deleted) in rewritten {
            assert!(rows.insert(row.0, (row, deleted)).is_none(), "a key is there twice");
        }
    }

    proptest! {
        #[test]
        fn the_effects_have_the_result_of_the_changes(
            keeps in any::<bool>(),
            first in proptest::collection::btree_map(0u8..6, (any::<u8>(), any::<bool>()), 0..6),
            steps in proptest::collection::vec((0u8..20, 0u8..6, 0u8..6, any::<u8>()), 0..40),
        ) {
            let first = first.into_iter().filter(|(_, (_, is_live))| keeps || *is_live);
            let start: Rows = first
                .map(|(key, (seed, is_live))| {
                    (key, ((key, vec![seed; 9], seed), (!is_live).then_some(-1)))
                })
                .collect();
            let of_key = vec![0];
            let mut net =
                if keeps { NetChanges::keeping(of_key) } else { NetChanges::new(of_key) };
            let (mut rows, mut changes) = (start.clone(), 0);
            // Keys that a row took and gave up again.
            let (mut taken, mut passed) = (BTreeSet::new(), BTreeSet::new());
            for (at_us, (what, at, to, seed)) in (0..).zip(steps) {
                let live = |at| rows.get(&at).filter(|(_, deleted)| deleted.is_none());
                let (known, is_free) = (live(at).cloned(), live(to).is_none());
                let known = known.map(|(row, _)| row);
                match (what, known) {
                    (0, _) => {
                        let kept = rows.values_mut();
                        kept.for_each(|(_, deleted)| *deleted = deleted.or(Some(at_us)));
                        net.truncate(at_us);
                    }
                    (1..8, None) => {
                        rows.insert(at, ((at, vec![seed; 5], seed), None));
                        taken.insert(at);
                        net.insert(row(at, Some(&[seed; 5]), seed)).unwrap();
                    }
                    (8..13, Some(before)) => {
                        let old = (seed % 2 == 0).then(|| key(before.0));
                        rows.insert(at, (before, Some(at_us)));
                        net.delete(old.unwrap_or_else(|| key(at)), at_us).unwrap();
                    }
                    (13..17, Some(before)) => {
                        let large = (seed % 3 == 0).then(|| vec![seed; 7]);
                        net.update(None, row(at, large.as_deref(), seed)).unwrap();
                        rows.insert(at, ((at, large.unwrap_or(before.1), seed), None));
                    }
                    (17.., Some(before)) if is_free || to == at => {
                        rows.remove(&at);
                        passed.extend(taken.take(&at));
                        taken.insert(to);
                        net.update(Some(key(at)), row(to, None, seed)).unwrap();
                        rows.insert(to, ((to, before.1, seed), None));
                    }
                    _ => continue,
                }
                if !keeps {
                    rows.retain(|_, (_, deleted)| deleted.is_none());
                }
                changes += 1;
            }
            prop_assert_eq!(net.changes(), changes);
            let mut found = start;
            apply(&mut found, net);
            for rows in [&mut found, &mut rows] {
                rows.retain(|key, (_, deleted)| deleted.is_none() || !passed.contains(key));
            }
            prop_assert_eq!(found, rows);
        }
    }

    #[test]
    fn changes_that_cannot_follow_each_other_are_refused() {
        let mut net = NetChanges::new(vec![0]);
        net.insert(row(1, Some(b"a"), 1)).unwrap();
        net.insert(row(1, Some(b"a"), 1)).unwrap_err();
        net.insert(row(2, None, 1)).unwrap_err();
        net.delete(key(3), 0).unwrap();
        net.delete(key(3), 0).unwrap_err();
        net.update(None, row(3, None, 1)).unwrap_err();
    }

    #[test]
    fn a_large_value_of_a_key_that_is_not_sent_is_taken_from_the_old_key() {
        let of = |large: Field<'static>, number: &'static [u8]| {
            ChangedRow::new([large, Field::Value(number), Field::Null]).unwrap()
        };
        let large = Field::Value(b"large");
        let old = of(large, b"1").key(&[0, 1]).unwrap();
        let mut net = NetChanges::new(vec![0, 1]);
        net.update(Some(old.clone()), of(Field::Unchanged, b"2")).unwrap();
        let row = of(large, b"2");
        assert_eq!(
            net.into_effects(),
            [Effect::Update { key: old, row, moves: true, deleted_us: None }]
        );
    }
}
