//! One prefix of an index, and its figures.

use super::{Histograms, Index, IndexError, Numbers, Record};
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

    /// The classes that are not empty, in the order of the index.
    pub fn classes(&self, stats: &Stats) -> Vec<Class<'a>> {
        stats.numbers.iter().filter_map(|(slot, total)| self.class(slot, total, None)).collect()
    }

    fn class(&self, slot: usize, total: Amount, sizes: Option<Sizes>) -> Option<Class<'a>> {
        let slot = self.index.meta.slots.get(slot)?;
        Some(Class { name: &slot.class, noncurrent: slot.noncurrent, total, sizes })
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
