//! A prefix that changed, and its rank among others.

use serde::Serialize;

use crate::format::histogram::Amount;
use crate::index::{SortBy, Totals};

/// Which changes are ranked highest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rank {
    /// The largest change, up or down. By [`SortBy::Billed`], bytes that moved from one class to
    /// another, or became noncurrent, have changed too, although their sum is the same.
    #[default]
    Change,
    /// What grew most.
    Growth,
    /// What shrank most.
    Shrinkage,
}

/// The kind of a change.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, utoipa::ToSchema,
)]
#[serde(rename_all = "lowercase")]
#[schema(as = InventoryChangeStatus)]
pub enum Status {
    /// Only the new index has it.
    Added,
    /// Only the old index has it.
    Removed,
    /// Both have it, with different figures.
    #[default]
    Changed,
}

/// A prefix that changed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Change {
    /// The name of the prefix.
    pub prefix: Vec<u8>,
    /// The kind of change.
    pub status: Status,
    /// Its old figures.
    pub old: Totals,
    /// Its new figures.
    pub new: Totals,
    /// The classes that changed, by name; current and noncurrent versions are separate.
    pub classes: Vec<ClassChange>,
    /// Its old and its new monthly cost, each at the prices of its whole index; `None` without
    /// prices or histograms.
    pub cost: Option<(f64, f64)>,
}

/// A storage class that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassChange {
    /// The name of the class.
    pub class: String,
    /// Whether these are noncurrent versions.
    pub noncurrent: bool,
    /// Its old totals.
    pub old: Amount,
    /// Its new totals.
    pub new: Amount,
}

/// The rank of a change: by the requested figure, then by how much was billed before and after, and
/// by the number of versions.
pub(super) type Key = [i128; 3];

/// Costs are compared in billionths.
const COST_UNITS: f64 = 1e9;

fn delta(old: u64, new: u64) -> i128 {
    i128::from(new) - i128::from(old)
}

impl ClassChange {
    /// Difference in bytes.
    #[must_use]
    pub fn bytes(&self) -> i128 {
        delta(self.old.bytes, self.new.bytes)
    }

    /// Difference in objects.
    #[must_use]
    pub fn objects(&self) -> i128 {
        delta(self.old.objects, self.new.objects)
    }
}

impl Change {
    /// Difference in bytes of the current objects.
    #[must_use]
    pub fn bytes(&self) -> i128 {
        delta(self.old.current.bytes, self.new.current.bytes)
    }

    /// Difference in current objects.
    #[must_use]
    pub fn objects(&self) -> i128 {
        delta(self.old.current.objects, self.new.current.objects)
    }

    /// Difference in bytes of all versions.
    #[must_use]
    pub fn billed(&self) -> i128 {
        delta(self.old.billed().bytes, self.new.billed().bytes)
    }

    /// Difference in bytes of the noncurrent versions.
    #[must_use]
    pub fn noncurrent(&self) -> i128 {
        delta(self.old.noncurrent.bytes, self.new.noncurrent.bytes)
    }

    /// Difference in delete markers.
    #[must_use]
    pub fn delete_markers(&self) -> i128 {
        delta(self.old.delete_markers, self.new.delete_markers)
    }

    /// Its rank; `None` if it is not a change of the requested kind.
    ///
    /// * `classes`: the changed classes that count.
    pub(super) fn key<'c>(
        &self,
        by: SortBy,
        rank: Rank,
        classes: impl Iterator<Item = &'c ClassChange> + Clone,
    ) -> Option<Key> {
        let current = classes.clone().filter(|class| !class.noncurrent);
        let noncurrent = classes.clone().filter(|class| class.noncurrent);
        let billed: i128 = classes.clone().map(ClassChange::bytes).sum();
        let versions: i128 = classes.clone().map(ClassChange::objects).sum();
        let figure = match by {
            SortBy::Billed => billed,
            SortBy::Bytes => current.map(ClassChange::bytes).sum(),
            SortBy::Objects => current.map(ClassChange::objects).sum(),
            SortBy::Noncurrent => noncurrent.map(ClassChange::bytes).sum(),
            SortBy::DeleteMarkers => self.delete_markers(),
            SortBy::Cost => self.cost.map_or(0, |(old, new)| billionths(new - old)),
            SortBy::Name => 0,
        };
        match rank {
            Rank::Change => {
                let up = classes.clone().map(|class| class.bytes().max(0)).sum::<i128>();
                let down = classes.map(|class| (-class.bytes()).max(0)).sum::<i128>();
                // What moved from one class to another counts once.
                let moved = up.max(down);
                let figure = if by == SortBy::Billed { moved } else { figure.abs() };
                let beside = if by == SortBy::Name { [0, 0] } else { [moved, versions.abs()] };
                Some([figure, beside[0], beside[1]])
            }
            Rank::Growth | Rank::Shrinkage => {
                let sign = if rank == Rank::Growth { 1 } else { -1 };
                let key = [figure, billed, versions].map(|figure| figure * sign);
                (key > [0; 3]).then_some(key)
            }
        }
    }
}

/// Whether two costs are the same. A sum of the same amounts in another order differs in its last digits.
pub(super) fn is_same_cost((old, new): (f64, f64)) -> bool {
    billionths(new - old) == 0
}

/// An amount as a whole number, so that it can be compared.
#[expect(clippy::cast_possible_truncation, reason = "beyond the range it is the largest number")]
fn billionths(cost: f64) -> i128 {
    (cost * COST_UNITS).round() as i128
}
