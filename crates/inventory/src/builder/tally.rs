//! The counts of one prefix while the index is being built.
//!
//! Most prefixes have one object; such a tally is three numbers, and becomes a full one, with its
//! cells, when a second object is added.

use crate::format::cells::cell;
use crate::format::histogram::{Amount, bits};
use crate::format::record::SlotTally;
use crate::object::Month;

/// One object, in counted form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counted {
    /// The slot of its class.
    pub(crate) slot: usize,
    pub(crate) size: u64,
    pub(crate) month: Month,
}

/// The counts of a prefix.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Number of objects, including noncurrent ones.
    objects: u64,
    /// The object, if there is only one.
    single: Counted,
    /// Which of `slots` are not empty, if there are several objects.
    pub(crate) mask: u64,
    pub(crate) slots: Vec<SlotTally>,
    /// In order.
    pub(crate) months: Vec<(Month, Amount)>,
    pub(crate) delete_markers: u64,
}

impl Tally {
    /// Empties it and keeps its allocations.
    pub(crate) fn clear(&mut self) {
        for slot in bits(self.mask) {
            self.slots[slot].total = Amount::default();
            self.slots[slot].sizes.clear();
        }
        self.months.clear();
        (self.objects, self.mask, self.delete_markers) = (0, 0, 0);
    }

    /// Counts an object.
    #[inline]
    pub(crate) fn add(&mut self, object: Counted, histograms: bool) {
        self.objects += 1;
        if self.objects == 1 {
            self.single = object;
            return;
        }
        if self.objects == 2 {
            self.spread(self.single, histograms);
        }
        self.spread(object, histograms);
    }

    /// Adds the counts of another prefix.
    #[inline]
    pub(crate) fn add_all(&mut self, other: &Self, histograms: bool) {
        self.delete_markers += other.delete_markers;
        match other.objects {
            0 => return,
            1 => return self.add(other.single, histograms),
            _ => {}
        }
        if self.objects == 1 {
            self.spread(self.single, histograms);
        }
        self.objects += other.objects;
        for at in bits(other.mask) {
            let more = &other.slots[at];
            let slot = self.slot(at);
            slot.total.add(more.total);
            for (cell, amount) in more.sizes.iter() {
                slot.sizes.add(cell, amount);
            }
        }
        for &(month, amount) in &other.months {
            self.add_month(month, amount);
        }
    }

    /// Moves the one object of a tally to the slots, so that it can be written.
    pub(crate) fn spread_single(&mut self, histograms: bool) {
        if self.objects == 1 {
            self.spread(self.single, histograms);
        }
    }

    fn spread(&mut self, object: Counted, histograms: bool) {
        let amount = Amount { objects: 1, bytes: object.size };
        let slot = self.slot(object.slot);
        slot.total.add(amount);
        if histograms {
            slot.sizes.add(cell(object.size), amount);
            self.add_month(object.month, amount);
        }
    }

    #[inline]
    fn slot(&mut self, at: usize) -> &mut SlotTally {
        if self.slots.len() <= at {
            self.slots.resize_with(at + 1, SlotTally::default);
        }
        self.mask |= 1 << at;
        &mut self.slots[at]
    }

    #[inline]
    fn add_month(&mut self, month: Month, amount: Amount) {
        match self.months.binary_search_by_key(&month, |&(month, _)| month) {
            Ok(at) => self.months[at].1.add(amount),
            Err(at) => self.months.insert(at, (month, amount)),
        }
    }

    /// Whether it has objects in one of the slots of `wanted`.
    pub(crate) fn has(&self, wanted: u64) -> bool {
        match self.objects {
            0 => false,
            1 => wanted >> self.single.slot & 1 != 0,
            _ => self.mask & wanted != 0,
        }
    }

    /// The total of the slots of `wanted`.
    pub(crate) fn total(&self, wanted: u64) -> Amount {
        match self.objects {
            0 => Amount::default(),
            1 if wanted >> self.single.slot & 1 != 0 => {
                Amount { objects: 1, bytes: self.single.size }
            }
            1 => Amount::default(),
            _ => {
                let mut total = Amount::default();
                bits(self.mask & wanted).for_each(|slot| total.add(self.slots[slot].total));
                total
            }
        }
    }
}
