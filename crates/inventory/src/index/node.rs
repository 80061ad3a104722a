//! One prefix of an index, and its figures.

use super::{Histograms, Index, IndexError, Numbers, Order, Record, SortBy};
use crate::format::histogram::{Amount, Sizes};
use crate::object::Month;

/// A prefix of an index.
#[derive(Debug, Clone, Copy)]
pub struct Node<'a> {
    pub(super) index: &'a Index,
    /// End of its record.
    pub(super) end: u64,
    pub(super) record: Record<'a>,
}

/// The figures of a prefix: everything at or below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stats {
    /// Current objects.
    pub total: Amount,
    /// Noncurrent versions.
    pub noncurrent: Amount,
    /// Delete markers.
    pub delete_markers: u64,
    numbers: Numbers,
}

/// The totals of a prefix: everything at or below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Current objects.
    pub current: Amount,
    /// Noncurrent versions.
    pub noncurrent: Amount,
    /// Delete markers, which have no bytes.
    pub delete_markers: u64,
}

impl Totals {
    /// All versions: what is stored and billed, before the minimum sizes and the overhead of
    /// classes, which only a cost includes.
    #[must_use]
    pub fn billed(&self) -> Amount {
        let mut billed = self.current;
        billed.add(self.noncurrent);
        billed
    }
}

impl Stats {
    /// All versions, current and noncurrent.
    #[must_use]
    pub fn billed(&self) -> Amount {
        self.totals().billed()
    }

    /// The totals, without classes.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let &Self { total: current, noncurrent, delete_markers, .. } = self;
        Totals { current, noncurrent, delete_markers }
    }
}

/// A slot, its totals, and its objects by size.
pub(crate) type SlotSizes = (usize, Amount, Sizes);

/// The totals of one storage class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Class<'a> {
    /// The name of the class.
    pub name: &'a str,
    /// Whether these are noncurrent versions.
    pub noncurrent: bool,
    /// Objects and bytes.
    pub total: Amount,
    /// By size; `None` if they were not requested.
    pub sizes: Option<Sizes>,
}

impl<'a> Node<'a> {
    /// The last component of the prefix, without the delimiter; empty for the empty prefix.
    #[must_use]
    pub fn name(&self) -> &'a [u8] {
        self.record.name
    }

    /// The whole prefix, given that of its parent.
    #[must_use]
    pub fn prefix(&self, above: &[u8]) -> Vec<u8> {
        [above, self.name(), &[self.index.delimiter]].concat()
    }

    /// Delimiters in the prefix.
    #[must_use]
    pub fn depth(&self) -> u64 {
        self.record.depth
    }

    /// What separates the components of the prefix.
    #[must_use]
    pub fn delimiter(&self) -> u8 {
        self.index.delimiter
    }

    /// Number of prefixes below it, at any depth.
    #[must_use]
    pub fn descendants(&self) -> u64 {
        self.record.subtree.descendants
    }

    /// Number of its direct children.
    #[must_use]
    pub fn child_count(&self) -> u64 {
        self.record.subtree.children
    }

    /// Its figures.
    ///
    /// # Errors
    /// They are damaged.
    pub fn stats(&self) -> Result<Stats, IndexError> {
        let numbers = self.record.numbers().ok_or_else(|| self.index.damaged_node(self.end))?;
        let current = self.index.current;
        Ok(Stats {
            total: numbers.total(current),
            noncurrent: numbers.total(!current),
            delete_markers: numbers.delete_markers,
            numbers,
        })
    }

    /// Its current objects and their bytes.
    ///
    /// # Errors
    /// They are damaged.
    #[inline]
    pub fn total(&self) -> Result<Amount, IndexError> {
        let total = self.record.total(self.index.current);
        total.ok_or_else(|| self.index.damaged_node(self.end))
    }

    /// Its totals: current objects, noncurrent versions and delete markers.
    ///
    /// # Errors
    /// They are damaged.
    #[inline]
    pub fn totals(&self) -> Result<Totals, IndexError> {
        let totals = self.record.totals(self.index.current);
        let (current, noncurrent, delete_markers) =
            totals.ok_or_else(|| self.index.damaged_node(self.end))?;
        Ok(Totals { current, noncurrent, delete_markers })
    }

    /// All versions of the class to which an order is restricted, or of all classes.
    ///
    /// # Errors
    /// They are damaged.
    pub fn billed_in(&self, order: Order<'_>) -> Result<Amount, IndexError> {
        let total = self.record.total(order.slots);
        total.ok_or_else(|| self.index.damaged_node(self.end))
    }

    /// The figure by which an order compares it; [`SortBy::Name`] has that of [`SortBy::Billed`].
    /// Use it for shares: that of a prefix is never less than that of one below it.
    ///
    /// # Errors
    /// The node is damaged, or has no cost.
    pub fn figure(&self, order: Order<'_>) -> Result<f64, IndexError> {
        match order.by {
            SortBy::Cost => Ok(f64::from_bits(self.rank(order)?)),
            SortBy::Name => Ok(self.rank(Order { by: SortBy::Billed, ..order })? as f64),
            _ => Ok(self.rank(order)? as f64),
        }
    }

    /// A number that is larger for a node that comes first; 0 for [`SortBy::Name`]. That of a node
    /// is never less than that of one below it.
    #[inline]
    pub(super) fn rank(&self, order: Order<'_>) -> Result<u64, IndexError> {
        let current = self.index.current;
        let total = |slots| {
            let total = self.record.total(slots & order.slots);
            total.ok_or_else(|| self.index.damaged_node(self.end))
        };
        match order.by {
            SortBy::Billed => Ok(total(u64::MAX)?.bytes),
            SortBy::Bytes => Ok(total(current)?.bytes),
            SortBy::Objects => Ok(total(current)?.objects),
            SortBy::Noncurrent => Ok(total(!current)?.bytes),
            SortBy::DeleteMarkers => {
                let markers = self.record.delete_markers();
                markers.ok_or_else(|| self.index.damaged_node(self.end))
            }
            // Costs are not negative, so their bits have the order of the numbers.
            SortBy::Cost => Ok(order.cost(self)?.to_bits()),
            SortBy::Name => Ok(0),
        }
    }

    /// The classes that are not empty, in the order of the index.
    pub fn classes(&self, stats: &Stats) -> Vec<Class<'a>> {
        stats.numbers.iter().filter_map(|(slot, total)| self.class(slot, total, None)).collect()
    }

    fn class(&self, slot: usize, total: Amount, sizes: Option<Sizes>) -> Option<Class<'a>> {
        let slot = self.index.meta.slots.get(slot)?;
        Some(Class { name: &slot.class, noncurrent: slot.noncurrent, total, sizes })
    }

    /// The sizes in each slot that is not empty, with its totals; `None` if the index has no
    /// histograms.
    pub(crate) fn sizes(&self) -> Result<Option<Vec<SlotSizes>>, IndexError> {
        if !self.index.meta.histograms {
            return Ok(None);
        }
        let damaged = || self.index.damaged_node(self.end);
        let numbers = self.record.numbers().ok_or_else(damaged)?;
        let sizes = self.record.histograms(&numbers).ok_or_else(damaged)?.sizes;
        let totals = numbers.iter().zip(sizes);
        Ok(Some(totals.map(|((slot, total), (_, sizes))| (slot, total, sizes)).collect()))
    }

    /// The totals of each slot that is not empty, and the delete markers.
    pub(crate) fn numbers(&self) -> Result<Numbers, IndexError> {
        self.record.numbers().ok_or_else(|| self.index.damaged_node(self.end))
    }

    /// The classes with their sizes, and the months; `None` if the index has no histograms.
    ///
    /// # Errors
    /// They are damaged.
    #[expect(clippy::type_complexity, reason = "two lists side by side")]
    pub fn histograms(
        &self,
        stats: &Stats,
    ) -> Result<Option<(Vec<Class<'a>>, Vec<(Month, Amount)>)>, IndexError> {
        if !self.index.meta.histograms {
            return Ok(None);
        }
        let damaged = || self.index.damaged_node(self.end);
        let Histograms { sizes, months } =
            self.record.histograms(&stats.numbers).ok_or_else(damaged)?;
        let totals = stats.numbers.iter();
        let classes = totals
            .zip(sizes)
            .filter_map(|((slot, total), (_, sizes))| self.class(slot, total, Some(sizes)));
        Ok(Some((classes.collect(), months)))
    }

    /// The previous sibling, which ends where the records below this one start; `None` for the
    /// first.
    pub(super) fn before(&self) -> Result<u64, IndexError> {
        let before = self.record.start.checked_sub(self.record.subtree.size);
        before.ok_or_else(|| self.index.damaged_node(self.end))
    }

    /// Whether `other` is a direct child of this one.
    #[inline]
    pub(super) fn is_parent_of(&self, other: &Self) -> bool {
        let start = self.record.start;
        let below = start.saturating_sub(self.record.subtree.size);
        other.end > below && other.end <= start && other.record.depth == self.record.depth + 1
    }
}
