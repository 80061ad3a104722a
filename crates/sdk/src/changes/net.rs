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
    },
    /// The row is updated.
    Update {
        /// Its key at the destination.
        key: RowKey,
        /// The row; values that were not sent stay.
        row: ChangedRow,
        /// Whether its key is another one then.
        moves: bool,
    },
    /// The row is inserted. No value is missing.
    Insert {
        /// The row.
        row: ChangedRow,
    },
}

/// The changes of one table, added up.
#[derive(Debug)]
pub struct NetChanges {
    key: Arc<[usize]>,
    rows: Vec<State>,
    /// The state of the row that has a key now, or had it when it was deleted.
    by_key: HashMap<RowKey, usize>,
    is_truncated: bool,
    changes: u64,
    size: usize,
}

/// What became of a row.
#[derive(Debug)]
enum State {
    /// It was inserted by one of the changes.
    New(ChangedRow),
    /// It was there, under this key.
    Changed(RowKey, ChangedRow),
    /// It was there, under this key, and is not any more.
    Deleted(RowKey),
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
            is_truncated: false,
            changes: 0,
            size: 0,
        }
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

    /// Whether the destination's table is emptied first.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        self.is_truncated
    }

    /// Adds an insertion.
    ///
    /// # Errors
    /// The row has no key, misses a value, or its key is there already.
    pub fn insert(&mut self, row: ChangedRow) -> Result<(), ConnectorError> {
        if row.has_unchanged() {
            return Err(wrong("an inserted row misses a value"));
        }
        let key = row.key(&self.key)?;
        self.count(&row);
        match self.by_key.get(&key).copied() {
            None => self.add(key, State::New(row)),
            Some(at) => {
                let state = self.rows.get_mut(at).ok_or_else(lost)?;
                *state = match std::mem::replace(state, State::Nothing) {
                    State::Deleted(first) => State::Changed(first, row),
                    State::Nothing => State::New(row),
                    State::New(_) | State::Changed(..) => {
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
            self.add(key, State::Changed(before, row));
            return Ok(());
        };
        let state = self.rows.get_mut(at).ok_or_else(lost)?;
        *state = match std::mem::replace(state, State::Nothing) {
            State::New(earlier) => State::New(row.over(&earlier)?),
            State::Changed(first, earlier) => State::Changed(first, row.over(&earlier)?),
            State::Deleted(_) | State::Nothing => {
                return Err(wrong("a row was updated after its deletion"));
            }
        };
        if before != key {
            self.by_key.remove(&before);
            self.by_key.insert(key, at);
        }
        Ok(())
    }

    /// Adds a deletion.
    ///
    /// # Errors
    /// The row was deleted before.
    pub fn delete(&mut self, key: RowKey) -> Result<(), ConnectorError> {
        self.changes += 1;
        self.size += key.as_bytes().len() + size_of::<State>();
        let Some(at) = self.by_key.get(&key).copied() else {
            self.add(key.clone(), State::Deleted(key));
            return Ok(());
        };
        let state = self.rows.get_mut(at).ok_or_else(lost)?;
        let is_elsewhere = matches!(state, State::Changed(first, _) if *first != key);
        *state = match std::mem::replace(state, State::Nothing) {
            State::New(_) => State::Nothing,
            State::Changed(first, _) => State::Deleted(first),
            State::Deleted(_) | State::Nothing => return Err(wrong("a row was deleted twice")),
        };
        if is_elsewhere {
            // What is inserted under this key is another row than the one that is deleted.
            self.by_key.remove(&key);
        }
        Ok(())
    }

    /// Adds a truncation: of what was added before nothing is left.
    pub fn truncate(&mut self) {
        self.rows.clear();
        self.by_key.clear();
        self.changes += 1;
        self.size = 0;
        self.is_truncated = true;
    }

    /// The effects: all deletions, then all updates, then all insertions.
    #[must_use]
    pub fn into_effects(self) -> Vec<Effect> {
        let (mut deleted, mut updated, mut inserted) = (Vec::new(), Vec::new(), Vec::new());
        for state in self.rows {
            match state {
                State::New(row) => inserted.push(Effect::Insert { row }),
                State::Changed(key, row) => {
                    let moves = row.key(&self.key).is_ok_and(|now| now != key);
                    updated.push(Effect::Update { key, row, moves });
                }
                State::Deleted(key) => deleted.push(Effect::Delete { key }),
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

    fn count(&mut self, row: &ChangedRow) {
        self.changes += 1;
        self.size += row.size() + size_of::<State>() + size_of::<RowKey>();
    }

    /// Whether one of the changes left a row with this key.
    fn is_there(&self, key: &RowKey) -> bool {
        let state = self.by_key.get(key).and_then(|at| self.rows.get(*at));
        matches!(state, Some(State::New(_) | State::Changed(..)))
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
    use std::collections::BTreeMap;

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

    /// Applies effects as a destination does: each step to all rows before the next.
    fn apply(rows: &mut BTreeMap<u8, Plain>, changes: NetChanges) {
        if changes.is_truncated() {
            rows.clear();
        }
        let of = |key: &RowKey| key.as_bytes()[4];
        let mut rewritten = Vec::new();
        for effect in changes.into_effects() {
            match effect {
                Effect::Delete { key } => assert!(rows.remove(&of(&key)).is_some(), "{key:?}"),
                Effect::Update { key, row, moves } => {
                    let before = rows.remove(&of(&key)).unwrap();
                    let after = plain(&row, Some(&before));
                    assert_eq!(moves, after.0 != before.0);
                    rewritten.push(after);
                }
                Effect::Insert { row } => rewritten.push(plain(&row, None)),
            }
        }
        for row in rewritten {
            assert!(rows.insert(row.0, row).is_none(), "a key is there twice");
        }
    }

    proptest! {
        #[test]
        fn the_effects_have_the_result_of_the_changes(
            first in proptest::collection::btree_map(0u8..6, any::<u8>(), 0..6),
            steps in proptest::collection::vec((0u8..20, 0u8..6, 0u8..6, any::<u8>()), 0..40),
        ) {
            let start: BTreeMap<u8, Plain> =
                first.into_iter().map(|(key, seed)| (key, (key, vec![seed; 9], seed))).collect();
            let (mut rows, mut net) = (start.clone(), NetChanges::new(vec![0]));
            let mut changes = 0;
            for (what, at, to, seed) in steps {
                let known = rows.get(&at).cloned();
                match (what, known) {
                    (0, _) => {
                        rows.clear();
                        net.truncate();
                    }
                    (1..8, None) => {
                        rows.insert(at, (at, vec![seed; 5], seed));
                        net.insert(row(at, Some(&[seed; 5]), seed)).unwrap();
                    }
                    (8..13, Some(before)) => {
                        rows.remove(&at);
                        let old = (seed % 2 == 0).then(|| key(before.0));
                        net.delete(old.unwrap_or_else(|| key(at))).unwrap();
                    }
                    (13..17, Some(before)) => {
                        let large = (seed % 3 == 0).then(|| vec![seed; 7]);
                        net.update(None, row(at, large.as_deref(), seed)).unwrap();
                        rows.insert(at, (at, large.unwrap_or(before.1), seed));
                    }
                    (17.., Some(before)) if !rows.contains_key(&to) || to == at => {
                        rows.remove(&at);
                        net.update(Some(key(at)), row(to, None, seed)).unwrap();
                        rows.insert(to, (to, before.1, seed));
                    }
                    _ => continue,
                }
                changes += 1;
            }
            prop_assert_eq!(net.changes(), changes);
            let mut found = start;
            apply(&mut found, net);
            prop_assert_eq!(found, rows);
        }
    }

    #[test]
    fn changes_that_cannot_follow_each_other_are_refused() {
        let mut net = NetChanges::new(vec![0]);
        net.insert(row(1, Some(b"a"), 1)).unwrap();
        net.insert(row(1, Some(b"a"), 1)).unwrap_err();
        net.insert(row(2, None, 1)).unwrap_err();
        net.delete(key(3)).unwrap();
        net.delete(key(3)).unwrap_err();
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
        assert_eq!(net.into_effects(), [Effect::Update { key: old, row, moves: true }]);
    }
}
