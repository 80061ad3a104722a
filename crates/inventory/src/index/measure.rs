//! What prefixes are ranked and filtered by.
//!
//! Invariant: by every key but the name, no prefix ranks above one that contains it. Searches for
//! the largest, and filters, rely on it to skip what is below a prefix.

use std::str::FromStr;

use super::{Index, IndexError, Node};
use crate::cost::{CostError, Pricer};

/// The key of an order of prefixes; all but the name in descending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum SortBy {
    /// Bytes of all versions, current and noncurrent: what is stored and billed.
    #[default]
    Billed,
    /// Bytes of the current objects.
    Bytes,
    /// Number of current objects.
    Objects,
    /// Bytes of the noncurrent versions.
    Noncurrent,
    /// Number of delete markers.
    DeleteMarkers,
    /// Monthly cost; only of an [`Order`] with prices.
    Cost,
    /// By name, byte by byte, in ascending order.
    Name,
}

impl SortBy {
    /// Every key with its name.
    pub const ALL: [(&str, Self); 7] = [
        ("billed", Self::Billed),
        ("bytes", Self::Bytes),
        ("objects", Self::Objects),
        ("noncurrent", Self::Noncurrent),
        ("delete-markers", Self::DeleteMarkers),
        ("cost", Self::Cost),
        ("name", Self::Name),
    ];

    /// Its name.
    #[must_use]
    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(_, by)| *by == self).map_or("", |(word, _)| word)
    }
}

/// No key has this name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected billed, bytes, objects, noncurrent, delete-markers, cost or name")]
pub struct UnknownKey;

impl FromStr for SortBy {
    type Err = UnknownKey;

    fn from_str(text: &str) -> Result<Self, UnknownKey> {
        let known = Self::ALL.iter().find(|(word, _)| *word == text);
        known.map(|(_, by)| *by).ok_or(UnknownKey)
    }
}

/// The slots of one storage class of an index: current and noncurrent versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassSlots(pub(super) u64);

/// An order of prefixes: a key, of all objects or those of one class, and prices if it needs them.
#[derive(Debug, Clone, Copy)]
pub struct Order<'p> {
    pub(super) by: SortBy,
    pub(super) slots: u64,
    pub(super) pricer: Option<&'p Pricer<'p>>,
}

impl From<SortBy> for Order<'_> {
    fn from(by: SortBy) -> Self {
        Self { by, slots: u64::MAX, pricer: None }
    }
}

impl<'p> Order<'p> {
    /// The same, with prices for [`SortBy::Cost`].
    #[must_use]
    pub fn priced(self, pricer: Option<&'p Pricer<'p>>) -> Self {
        Self { pricer, ..self }
    }

    /// The same, of the objects of one class only. Delete markers have no class, so their number
    /// remains that of all.
    #[must_use]
    pub fn in_class(self, class: ClassSlots) -> Self {
        Self { slots: class.0, ..self }
    }

    /// The same by another key.
    #[must_use]
    pub fn sorted_by(self, by: SortBy) -> Self {
        Self { by, ..self }
    }

    /// Its key.
    #[must_use]
    pub fn by(&self) -> SortBy {
        self.by
    }

    /// Whether it is of the objects of one class.
    #[must_use]
    pub fn is_in_class(&self) -> bool {
        self.slots != u64::MAX
    }

    pub(super) fn cost(&self, node: &Node<'_>) -> Result<f64, IndexError> {
        let pricer = self.pricer.ok_or(IndexError::Cost("there are no prices"))?;
        pricer.total(node, self.slots).map_err(|error| match error {
            CostError::Index(error) => error,
            CostError::NoHistograms => IndexError::Cost("the index has no histograms"),
            CostError::TooLarge => IndexError::Cost("the billed bytes exceed 64 bits"),
        })
    }
}

/// What a prefix must have to be part of a walk. With a class, only objects of that class count, and
/// there must be at least one.
#[derive(Debug, Clone, Copy, Default)]
pub struct Filter<'p> {
    /// Maximum depth below the start, in components.
    pub depth: Option<u64>,
    /// Minimum bytes of all versions.
    pub min_billed: u64,
    /// Minimum bytes of the current objects.
    pub min_bytes: u64,
    /// Minimum number of current objects.
    pub min_objects: u64,
    /// Minimum bytes of the noncurrent versions.
    pub min_noncurrent: u64,
    /// Minimum number of delete markers.
    pub min_delete_markers: u64,
    /// Minimum monthly cost, by these prices.
    pub min_cost: Option<(f64, &'p Pricer<'p>)>,
    /// The class that counts; all of them without one.
    pub class: Option<ClassSlots>,
}

impl Filter<'_> {
    /// Whether a prefix passes; if not, none below it does.
    pub(super) fn passes(&self, node: &Node<'_>) -> Result<bool, IndexError> {
        let order = |by| {
            let order = Order::from(by);
            self.class.map_or(order, |class| order.in_class(class))
        };
        for (by, least) in [
            (SortBy::Billed, self.min_billed),
            (SortBy::Bytes, self.min_bytes),
            (SortBy::Objects, self.min_objects),
            (SortBy::Noncurrent, self.min_noncurrent),
            (SortBy::DeleteMarkers, self.min_delete_markers),
        ] {
            if least > 0 && node.rank(order(by))? < least {
                return Ok(false);
            }
        }
        if self.class.is_some() && node.billed_in(order(SortBy::Billed))?.objects == 0 {
            return Ok(false);
        }
        match self.min_cost {
            Some((least, pricer)) => {
                Ok(node.figure(order(SortBy::Cost).priced(Some(pricer)))? >= least)
            }
            None => Ok(true),
        }
    }
}

impl Index {
    /// The slots of a storage class by its name; `None` if no object of the index has it.
    #[must_use]
    pub fn class(&self, name: &str) -> Option<ClassSlots> {
        let slots = self.meta.slots.iter().enumerate().filter(|(_, slot)| slot.class == name);
        let bit = |at: usize| {
            let at = u32::try_from(at).unwrap_or(u64::BITS);
            1_u64.checked_shl(at).unwrap_or(0)
        };
        let mask = slots.fold(0, |mask, (at, _)| mask | bit(at));
        (mask != 0).then_some(ClassSlots(mask))
    }

    /// The names of the storage classes, without repetition.
    #[must_use]
    pub fn class_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.meta.slots.iter().map(|slot| slot.class.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_found_by_its_name() {
        for (word, by) in SortBy::ALL {
            assert_eq!((word.parse(), by.word()), (Ok(by), word));
            assert!(UnknownKey.to_string().contains(word));
        }
        assert_eq!("size".parse::<SortBy>(), Err(UnknownKey));
        assert_eq!(SortBy::default(), SortBy::Billed);
    }
}
