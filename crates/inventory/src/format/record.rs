//! The record of one prefix.
//!
//! The records are in postorder: everything below a prefix precedes it, so a record can be written
//! as soon as everything below it is known, in one pass. A record is identified by its end, and is
//! read from there backwards:
//!
//! `[histograms] body length-of-body checksum`
//!
//! The prefix's last child ends where the record starts; the previous one ends where the last one's
//! subtree starts.

use smallvec::SmallVec;

use super::histogram::{Amount, Sizes, bits, put_months, put_sizes, take_months, take_sizes};
use super::varint::{Backwards, take_back};
use super::{CHECKSUM_SIZE, KEY_SIZE_MAX, SLOTS_MAX, checked, checksum};
use crate::object::Month;

/// Bits of a record's first byte.
const HAS_CHILDREN: u8 = 1;
const HAS_LISTS: u8 = 2;
const HAS_MARKERS: u8 = 4;
const IS_SINGLE: u8 = 8;
const HAS_MONTH: u8 = 16;
const HAS_HISTOGRAMS: u8 = 32;

/// Capacity for the largest body.
const BODY_SIZE_MAX: usize = KEY_SIZE_MAX + SLOTS_MAX * 20 + 128;
const _: () = assert!(BODY_SIZE_MAX < 1 << 14, "the length of a body has at most two bytes");

/// What is below a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Subtree {
    /// Size of the records below, in bytes.
    pub size: u64,
    /// Number of prefixes below, at any depth.
    pub descendants: u64,
    /// Number of direct children.
    pub children: u64,
    /// Offset of the lists of the children in `order`.
    pub lists: Option<u64>,
}

/// The totals of one storage class, at or below a prefix.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SlotTally {
    /// The totals.
    pub total: Amount,
    /// By size; empty if the index has no histograms.
    pub sizes: Sizes,
}

/// The contents of a new record.
#[derive(Debug)]
pub(crate) struct NewRecord<'a> {
    /// The last component of the prefix, without the delimiter.
    pub name: &'a [u8],
    /// Delimiters in the prefix.
    pub depth: u64,
    pub subtree: Subtree,
    pub delete_markers: u64,
    /// Which slots are not empty.
    pub mask: u64,
    pub slots: &'a [SlotTally],
    pub months: &'a [(Month, Amount)],
    pub histograms: bool,
}

/// Encodes records, reusing its buffers.
pub(crate) struct Encoder {
    body: Backwards<BODY_SIZE_MAX>,
    histograms: Vec<u8>,
}

impl Encoder {
    pub(crate) fn new() -> Self {
        Self { body: Backwards::new(), histograms: Vec::new() }
    }

    /// Appends the record; returns its size in bytes.
    pub(crate) fn encode(&mut self, new: &NewRecord<'_>, out: &mut Vec<u8>) -> usize {
        let before = out.len();
        self.histograms.clear();
        let mut objects = 0;
        for slot in bits(new.mask).filter_map(|slot| new.slots.get(slot)) {
            objects += slot.total.objects;
            if new.histograms {
                put_sizes(&mut self.histograms, slot.total, &slot.sizes);
            }
        }
        let single = objects == 1 && new.mask.is_power_of_two();
        if single {
            self.histograms.clear();
        } else if new.histograms {
            put_months(&mut self.histograms, new.months);
        }
        self.put_body(new, single);
        if !self.histograms.is_empty() {
            out.extend_from_slice(&checksum(&self.histograms));
            out.extend_from_slice(&self.histograms);
        }
        let start = out.len();
        let body = self.body.bytes();
        out.extend_from_slice(body);
        // The length is read backwards as well; it has one or two bytes.
        let [low, high, ..] = body.len().to_le_bytes();
        if body.len() < 0x80 {
            out.push(low);
        } else {
            out.extend_from_slice(&[high << 1 | low >> 7, low | 0x80]);
        }
        let sum = checksum(out.get(start..).unwrap_or_default());
        out.extend_from_slice(&sum);
        out.len() - before
    }

    fn put_body(&mut self, new: &NewRecord<'_>, single: bool) {
        let body = &mut self.body;
        body.clear();
        let has_children = new.subtree.children > 0;
        let month = if single && new.histograms { new.months.first() } else { None };
        let mut shape = 0;
        let mut flag = |bit, is| shape |= if is { bit } else { 0 };
        flag(HAS_CHILDREN, has_children);
        flag(HAS_LISTS, new.subtree.lists.is_some());
        flag(HAS_MARKERS, new.delete_markers > 0);
        flag(IS_SINGLE, single);
        flag(HAS_MONTH, month.is_some());
        flag(HAS_HISTOGRAMS, !self.histograms.is_empty());
        body.put_byte(shape);
        body.put(new.depth);
        body.put(new.name.len() as u64);
        body.put_slice(new.name);
        if has_children {
            body.put(new.subtree.size);
            body.put(new.subtree.descendants);
            body.put(new.subtree.children);
            if let Some(lists) = new.subtree.lists {
                body.put(lists);
            }
        }
        if !self.histograms.is_empty() {
            body.put((CHECKSUM_SIZE + self.histograms.len()) as u64);
        }
        if new.delete_markers > 0 {
            body.put(new.delete_markers);
        }
        if single {
            body.put(u64::from(new.mask.trailing_zeros()));
        } else {
            body.put(new.mask);
        }
        for slot in bits(new.mask).filter_map(|slot| new.slots.get(slot)) {
            if !single {
                body.put(slot.total.objects);
            }
            body.put(slot.total.bytes);
        }
        if let Some((month, _)) = month {
            body.put(u64::from(month.number()));
        }
    }
}

/// A parsed record.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// The last component of the prefix, without the delimiter.
    pub name: &'a [u8],
    /// Delimiters in the prefix.
    pub depth: u64,
    /// What is below.
    pub subtree: Subtree,
    /// Start of the record: the records below end here.
    pub start: u64,
    shape: u8,
    /// The histograms, unchecked.
    histograms: &'a [u8],
    /// The rest of the body: markers, slots, month.
    numbers: &'a [u8],
}

impl<'a> Record<'a> {
    /// The record that ends at the end of `nodes`; `None` if it is damaged.
    #[inline]
    #[must_use]
    pub fn read(nodes: &'a [u8]) -> Option<Self> {
        let (front, stored) = nodes.split_last_chunk::<CHECKSUM_SIZE>()?;
        let mut rest = front;
        let body_len = usize::try_from(take_back(&mut rest)?).ok()?;
        let body_start = rest.len().checked_sub(body_len).filter(|_| body_len <= BODY_SIZE_MAX)?;
        if checksum(front.get(body_start..)?) != *stored {
            return None;
        }
        let (before, mut body) = rest.split_at_checked(body_start)?;
        let (&shape, front) = body.split_last()?;
        body = front;
        let depth = take_back(&mut body)?;
        let name_len = usize::try_from(take_back(&mut body)?).ok()?;
        let (front, name) = body.split_at_checked(body.len().checked_sub(name_len)?)?;
        body = front;
        let mut subtree = Subtree::default();
        if shape & HAS_CHILDREN != 0 {
            subtree.size = take_back(&mut body)?;
            subtree.descendants = take_back(&mut body)?;
            subtree.children = take_back(&mut body)?;
            if shape & HAS_LISTS != 0 {
                subtree.lists = Some(take_back(&mut body)?);
            }
        }
        let mut histograms = &[][..];
        let mut start = body_start;
        if shape & HAS_HISTOGRAMS != 0 {
            let len = usize::try_from(take_back(&mut body)?).ok()?;
            start = body_start.checked_sub(len)?;
            histograms = before.get(start..)?;
        }
        let start = start as u64;
        if subtree.size > start {
            return None;
        }
        Some(Self { name, depth, subtree, start, shape, histograms, numbers: body })
    }

    /// The figures of the prefix, without histograms; `None` if they are invalid.
    #[must_use]
    pub fn numbers(&self) -> Option<Numbers> {
        let mut rest = self.numbers;
        let delete_markers = if self.shape & HAS_MARKERS != 0 { take_back(&mut rest)? } else { 0 };
        let mut slots = SmallVec::new();
        let single = self.shape & IS_SINGLE != 0;
        let mask = if single {
            let slot = u32::try_from(take_back(&mut rest)?).ok()?;
            1_u64.checked_shl(slot)?
        } else {
            take_back(&mut rest)?
        };
        let mut total = Amount::default();
        for slot in bits(mask) {
            let objects = if single { 1 } else { take_back(&mut rest)? };
            let amount = Amount { objects, bytes: take_back(&mut rest)? };
            total = total.checked_add(amount)?;
            slots.push((slot, amount));
        }
        let month = if self.shape & HAS_MONTH != 0 {
            Some(Month::from_number(u16::try_from(take_back(&mut rest)?).ok()?))
        } else {
            None
        };
        rest.is_empty().then_some(Numbers { delete_markers, slots, month })
    }

    /// Objects and bytes in the slots of `mask`, without storing each: the figures by which
    /// children are compared. `None` if they are invalid.
    #[inline]
    #[must_use]
    pub fn total(&self, wanted: u64) -> Option<Amount> {
        let mut rest = self.numbers;
        if self.shape & HAS_MARKERS != 0 {
            take_back(&mut rest)?;
        }
        if self.shape & IS_SINGLE != 0 {
            let slot = u32::try_from(take_back(&mut rest)?).ok()?;
            let bytes = take_back(&mut rest)?;
            let is_wanted = wanted.checked_shr(slot)? & 1 != 0;
            return Some(if is_wanted { Amount { objects: 1, bytes } } else { Amount::default() });
        }
        let mut total = Amount::default();
        for slot in bits(take_back(&mut rest)?) {
            let amount = Amount { objects: take_back(&mut rest)?, bytes: take_back(&mut rest)? };
            if wanted >> slot & 1 != 0 {
                total = total.checked_add(amount)?;
            }
        }
        Some(total)
    }

    /// The totals of the slots of `wanted` and of all others, and the delete markers. `None` if they
    /// are invalid.
    #[inline]
    #[must_use]
    pub fn totals(&self, wanted: u64) -> Option<(Amount, Amount, u64)> {
        let mut rest = self.numbers;
        let markers = if self.shape & HAS_MARKERS != 0 { take_back(&mut rest)? } else { 0 };
        let (mut inside, mut outside) = (Amount::default(), Amount::default());
        if self.shape & IS_SINGLE != 0 {
            let slot = u32::try_from(take_back(&mut rest)?).ok()?;
            let single = Amount { objects: 1, bytes: take_back(&mut rest)? };
            if wanted.checked_shr(slot)? & 1 != 0 {
                inside = single
            } else {
                outside = single
            }
            return Some((inside, outside, markers));
        }
        for slot in bits(take_back(&mut rest)?) {
            let amount = Amount { objects: take_back(&mut rest)?, bytes: take_back(&mut rest)? };
            let sum = if wanted >> slot & 1 != 0 { &mut inside } else { &mut outside };
            *sum = sum.checked_add(amount)?;
        }
        // Their sum is that of all versions.
        inside.checked_add(outside)?;
        Some((inside, outside, markers))
    }

    /// The number of delete markers; `None` if it is invalid.
    #[inline]
    #[must_use]
    pub fn delete_markers(&self) -> Option<u64> {
        let mut rest = self.numbers;
        if self.shape & HAS_MARKERS != 0 { take_back(&mut rest) } else { Some(0) }
    }

    /// The histograms of the prefix, for its `numbers`; `None` if they are damaged.
    #[must_use]
    pub fn histograms(&self, numbers: &Numbers) -> Option<Histograms> {
        let total = numbers.total(u64::MAX);
        if self.shape & HAS_HISTOGRAMS == 0 {
            let sizes = numbers
                .iter()
                .map(|(slot, amount)| Some((slot, take_sizes(&mut &[][..], amount)?)))
                .collect::<Option<_>>()?;
            let months = numbers.month.map(|month| (month, total)).into_iter().collect();
            return Some(Histograms { sizes, months });
        }
        let mut rest = checked(self.histograms)?;
        let sizes = numbers
            .iter()
            .map(|(slot, amount)| Some((slot, take_sizes(&mut rest, amount)?)))
            .collect::<Option<_>>()?;
        let months = take_months(&mut rest, total)?;
        rest.is_empty().then_some(Histograms { sizes, months })
    }
}

/// The figures of a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Numbers {
    /// Delete markers at or below it.
    pub delete_markers: u64,
    slots: SmallVec<[(usize, Amount); 6]>,
    month: Option<Month>,
}

impl Numbers {
    /// The totals of each slot that is not empty.
    pub fn iter(&self) -> impl Iterator<Item = (usize, Amount)> + '_ {
        self.slots.iter().copied()
    }

    /// The total of the slots of `wanted`.
    #[must_use]
    pub fn total(&self, wanted: u64) -> Amount {
        let mut total = Amount::default();
        for &(slot, amount) in &self.slots {
            if wanted >> slot & 1 != 0 {
                total.add(amount);
            }
        }
        total
    }
}

/// The histograms of a prefix.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Histograms {
    /// By size, for each slot that is not empty.
    pub sizes: Vec<(usize, Sizes)>,
    /// By the month of the last change, all slots together.
    pub months: Vec<(Month, Amount)>,
}
