//! What the changes of a table without a key amount to.
//!
//! Such a table is a bag: rows are named by all their values, and of several that are the same any one is meant. An
//! update removes one row with the values before, and adds one with those after it. Removing and adding commute, so
//! the order of changes matters only in that a row which one of them has made may be meant by a later one: that
//! row is changed in its effect then.
//!
//! ```text
//! insert, update, update         one insertion of the last row
//! update, delete                 one deletion of the first row
//! insert, delete                 nothing
//! ```
//!
//! Invariants:
//! - The effects have the same result as the changes one by one, on every destination that has the rows.
//! - What effects refer to are rows of the destination, each effect another one.

use std::collections::HashMap;

use super::row::ChangedRow;
use crate::error::ConnectorError;

/// What is left of the changes for one row of a destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BagEffect {
    /// One row with these values is deleted.
    Delete(ChangedRow),
    /// One row with these values is updated.
    Update {
        /// Its values at the destination.
        before: ChangedRow,
        /// Its values then.
        after: ChangedRow,
    },
    /// A row is inserted.
    Insert(ChangedRow),
}

/// The changes of a table without a key, added up.
#[derive(Debug, Default)]
pub struct BagChanges {
    /// What became of each row; `None`: nothing.
    effects: Vec<Option<BagEffect>>,
    /// The effects that leave a row, by the row.
    left: HashMap<ChangedRow, Vec<usize>>,
    is_truncated: bool,
    /// Whether nothing can be added any more, since rows cannot be found by their values.
    is_received: bool,
    changes: u64,
    size: usize,
}

impl BagChanges {
    /// Changes that were added up elsewhere. None can be added here.
    ///
    /// * `changes`: number of changes that they are.
    pub(super) fn received(
        is_truncated: bool,
        changes: u64,
        effects: impl Iterator<Item = Result<BagEffect, ConnectorError>>,
    ) -> Result<Self, ConnectorError> {
        let mut received = Self { is_truncated, changes, is_received: true, ..Self::default() };
        for effect in effects {
            let effect = effect?;
            received.size += size_of::<BagEffect>()
                + match &effect {
                    BagEffect::Delete(row) | BagEffect::Insert(row) => row.size(),
                    BagEffect::Update { before, after } => before.size() + after.size(),
                };
            received.effects.push(Some(effect));
        }
        Ok(received)
    }

    /// What is left of the changes, in the order in which it was added.
    pub(super) fn left(&self) -> impl Iterator<Item = &BagEffect> {
        self.effects.iter().flatten()
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

    /// Whether the table was emptied: the destination's is, before the effects.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        self.is_truncated
    }

    /// Adds an insertion.
    ///
    /// # Errors
    /// The row misses a value.
    pub fn insert(&mut self, row: ChangedRow) -> Result<(), ConnectorError> {
        self.count(&[&row])?;
        self.leave(row.clone(), BagEffect::Insert(row));
        Ok(())
    }

    /// Adds an update.
    ///
    /// # Errors
    /// A row misses a value.
    pub fn update(&mut self, before: ChangedRow, after: ChangedRow) -> Result<(), ConnectorError> {
        self.count(&[&before, &after])?;
        let effect = match self.take(&before) {
            Some(BagEffect::Insert(_)) => BagEffect::Insert(after.clone()),
            Some(BagEffect::Update { before, .. }) => {
                BagEffect::Update { before, after: after.clone() }
            }
            Some(BagEffect::Delete(_)) | None => BagEffect::Update { before, after: after.clone() },
        };
        self.leave(after, effect);
        Ok(())
    }

    /// Adds a deletion.
    ///
    /// # Errors
    /// The row misses a value.
    pub fn delete(&mut self, row: ChangedRow) -> Result<(), ConnectorError> {
        self.count(&[&row])?;
        match self.take(&row) {
            Some(BagEffect::Insert(_)) => {}
            Some(BagEffect::Update { before, .. }) => {
                self.effects.push(Some(BagEffect::Delete(before)));
            }
            Some(BagEffect::Delete(_)) | None => self.effects.push(Some(BagEffect::Delete(row))),
        }
        Ok(())
    }

    /// Adds a truncation. Of what was added before nothing is left.
    pub fn truncate(&mut self) {
        self.changes += 1;
        self.is_truncated = true;
        self.effects.clear();
        self.left.clear();
        self.size = 0;
    }

    /// The effects.
    #[must_use]
    pub fn into_effects(self) -> Vec<BagEffect> {
        self.effects.into_iter().flatten().collect()
    }

    fn count(&mut self, rows: &[&ChangedRow]) -> Result<(), ConnectorError> {
        if self.is_received {
            let found = "a change is added to those of another place".to_owned();
            return Err(ConnectorError::data("the changes of a table", found));
        }
        if rows.iter().any(|row| row.has_unchanged()) {
            let found = "a row of a table without a key misses a value".to_owned();
            return Err(ConnectorError::data("the changes of a table", found));
        }
        self.changes += 1;
        // Each is kept twice: in its effect, and to be found.
        self.size += rows.iter().map(|row| 2 * row.size()).sum::<usize>() + size_of::<BagEffect>();
        Ok(())
    }

    /// Adds an effect that leaves a row.
    fn leave(&mut self, row: ChangedRow, effect: BagEffect) {
        self.left.entry(row).or_default().push(self.effects.len());
        self.effects.push(Some(effect));
    }

    /// Takes an effect that has left a row.
    fn take(&mut self, row: &ChangedRow) -> Option<BagEffect> {
        let places = self.left.get_mut(row)?;
        let place = places.pop();
        if places.is_empty() {
            self.left.remove(row);
        }
        self.effects.get_mut(place?)?.take()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::row::Field;
    use super::*;

    fn row(value: u8) -> ChangedRow {
        let bytes = [value];
        // One of the values is NULL, which is the same as NULL here.
        let field = if value == 0 { Field::Null } else { Field::Value(&bytes) };
        ChangedRow::new([field, Field::Value(b"x")]).unwrap()
    }

    /// Applies effects as a destination does: all that is removed is there before.
    fn apply(rows: &mut Vec<ChangedRow>, changes: BagChanges) {
        if changes.is_truncated() {
            rows.clear();
        }
        let mut added = Vec::new();
        for effect in changes.into_effects() {
            let (removed, new) = match effect {
                BagEffect::Delete(before) => (Some(before), None),
                BagEffect::Update { before, after } => (Some(before), Some(after)),
                BagEffect::Insert(after) => (None, Some(after)),
            };
            if let Some(removed) = removed {
                let at = rows.iter().position(|row| *row == removed);
                rows.swap_remove(at.expect("a row that is there"));
            }
            added.extend(new);
        }
        rows.append(&mut added);
    }

    fn sorted(rows: &[ChangedRow]) -> Vec<String> {
        let mut shown: Vec<String> = rows.iter().map(|row| format!("{row:?}")).collect();
        shown.sort_unstable();
        shown
    }

    proptest! {
        #[test]
        fn the_effects_have_the_result_of_the_changes(
            first in proptest::collection::vec(0u8..4, 0..8),
            steps in proptest::collection::vec((0u8..20, 0u8..4, 0u8..4), 0..40),
        ) {
            let start: Vec<ChangedRow> = first.into_iter().map(row).collect();
            let (mut rows, mut changes) = (start.clone(), BagChanges::default());
            for (what, of, to) in steps {
                let at = rows.iter().position(|known| *known == row(of));
                match (what, at) {
                    (0, _) => {
                        rows.clear();
                        changes.truncate();
                    }
                    (1..7, _) => {
                        rows.push(row(of));
                        changes.insert(row(of)).unwrap();
                    }
                    (7..12, Some(at)) => {
                        rows.swap_remove(at);
                        changes.delete(row(of)).unwrap();
                    }
                    (12.., Some(at)) => {
                        rows[at] = row(to);
                        changes.update(row(of), row(to)).unwrap();
                    }
                    _ => {}
                }
            }
            let mut found = start;
            apply(&mut found, changes);
            prop_assert_eq!(sorted(&found), sorted(&rows));
        }
    }

    #[test]
    fn a_row_that_misses_a_value_is_refused() {
        let part = ChangedRow::new([Field::Unchanged, Field::Value(b"x")]).unwrap();
        let mut changes = BagChanges::default();
        changes.insert(part.clone()).unwrap_err();
        changes.update(part.clone(), row(1)).unwrap_err();
        changes.delete(part).unwrap_err();
        assert_eq!((changes.changes(), changes.into_effects()), (0, Vec::new()));
    }

    #[test]
    fn of_a_chain_of_changes_the_ends_are_left() {
        let mut changes = BagChanges::default();
        changes.update(row(1), row(2)).unwrap();
        changes.update(row(2), row(3)).unwrap();
        changes.insert(row(1)).unwrap();
        changes.delete(row(1)).unwrap();
        changes.delete(row(1)).unwrap();
        assert_eq!(changes.changes(), 5);
        assert_eq!(
            changes.into_effects(),
            [BagEffect::Update { before: row(1), after: row(3) }, BagEffect::Delete(row(1)),]
        );
    }
}
