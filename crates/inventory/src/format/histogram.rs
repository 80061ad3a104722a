//! The part of a record with the histograms: sizes for each class, and months.
//!
//! A class with one object needs no cells, since its bytes determine the cell. The last cell of a
//! class, and the last month, are the difference to the totals.

use super::cells::{CELLS, cell};
use super::varint::{put, take};
use crate::object::Month;

/// Objects and bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Amount {
    /// How many objects.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Amount {
    /// Adds another, if the sum does not exceed 64 bits.
    #[inline]
    #[must_use]
    pub fn checked_add(self, more: Self) -> Option<Self> {
        Some(Self {
            objects: self.objects.checked_add(more.objects)?,
            bytes: self.bytes.checked_add(more.bytes)?,
        })
    }

    /// Adds another part of a whole that is known not to exceed 64 bits, such as all objects of an
    /// index: a build fails if their sum does.
    #[inline]
    pub fn add(&mut self, more: Self) {
        self.objects = self.objects.saturating_add(more.objects);
        self.bytes = self.bytes.saturating_add(more.bytes);
    }

    fn less(self, part: Self) -> Option<Self> {
        Some(Self {
            objects: self.objects.checked_sub(part.objects)?,
            bytes: self.bytes.checked_sub(part.bytes)?,
        })
    }
}

/// The size histogram of one class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sizes {
    /// Which cells are not empty.
    pub mask: u64,
    /// Their counts.
    pub cells: [Amount; CELLS],
}

impl Default for Sizes {
    fn default() -> Self {
        Self { mask: 0, cells: [Amount::default(); CELLS] }
    }
}

impl Sizes {
    /// Adds to a cell.
    #[inline]
    pub fn add(&mut self, cell: usize, amount: Amount) {
        self.mask |= 1 << cell;
        self.cells[cell].add(amount);
    }

    /// The cells that are not empty.
    pub fn iter(&self) -> impl Iterator<Item = (usize, Amount)> + '_ {
        bits(self.mask).map(|cell| (cell, self.cells[cell]))
    }

    /// Empties it.
    #[inline]
    pub(crate) fn clear(&mut self) {
        for cell in bits(self.mask) {
            self.cells[cell] = Amount::default();
        }
        self.mask = 0;
    }
}

/// The indexes of the bits that are set, from the lowest.
#[inline]
pub(crate) fn bits(mask: u64) -> impl Iterator<Item = usize> {
    let mut rest = mask;
    std::iter::from_fn(move || {
        let bit = (rest != 0).then(|| rest.trailing_zeros() as usize)?;
        rest &= rest - 1;
        Some(bit)
    })
}

/// Appends the cells of a class, unless it has one object.
pub(crate) fn put_sizes(out: &mut Vec<u8>, total: Amount, sizes: &Sizes) {
    if total.objects == 1 {
        return;
    }
    let first = sizes.mask.trailing_zeros();
    put(out, u64::from(first));
    put(out, sizes.mask.checked_shr(first).unwrap_or(0));
    let last = 63 - sizes.mask.leading_zeros().min(63) as usize;
    for (cell, amount) in sizes.iter().filter(|&(cell, _)| cell != last) {
        put(out, amount.objects);
        // An empty object has no bytes.
        if cell != 0 {
            put(out, amount.bytes);
        }
    }
}

/// Reads the cells of a class with these totals from the front of `data`.
pub(crate) fn take_sizes(data: &mut &[u8], total: Amount) -> Option<Sizes> {
    let mut sizes = Sizes::default();
    if total.objects == 1 {
        sizes.add(cell(total.bytes), total);
        return Some(sizes);
    }
    let first = u32::try_from(take(data)?).ok().filter(|&first| first < u64::BITS)?;
    let shifted = take(data)?;
    let mask = shifted.checked_shl(first).filter(|mask| mask >> first == shifted)?;
    let last = 63_usize.checked_sub(mask.leading_zeros() as usize)?;
    let mut left = total;
    for cell in bits(mask) {
        let amount = if cell == last {
            left
        } else {
            let objects = take(data)?;
            Amount { objects, bytes: if cell == 0 { 0 } else { take(data)? } }
        };
        left = left.less(amount)?;
        sizes.add(cell, amount);
    }
    Some(sizes)
}

/// Appends the months, which are in order and add up to the total.
pub(crate) fn put_months(out: &mut Vec<u8>, months: &[(Month, Amount)]) {
    put(out, months.len() as u64);
    let mut before = 0;
    for (i, (month, amount)) in months.iter().enumerate() {
        put(out, u64::from(month.number() - before));
        before = month.number();
        if i + 1 < months.len() {
            put(out, amount.objects);
            put(out, amount.bytes);
        }
    }
}

/// Reads the months from the front of `data`.
pub(crate) fn take_months(data: &mut &[u8], total: Amount) -> Option<Vec<(Month, Amount)>> {
    let count = usize::try_from(take(data)?).ok().filter(|&count| count <= data.len())?;
    let mut months = Vec::with_capacity(count);
    let mut left = total;
    let mut number = 0_u16;
    for i in 0..count {
        number = number.checked_add(u16::try_from(take(data)?).ok()?)?;
        let amount =
            if i + 1 < count { Amount { objects: take(data)?, bytes: take(data)? } } else { left };
        left = left.less(amount)?;
        months.push((Month::from_number(number), amount));
    }
    Some(months)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_months_come_back() {
        let mut sizes = Sizes::default();
        let mut total = Amount::default();
        for (at, bytes) in [(0, 0), (1, 1), (5, 17), (5, 18), (40, 1 << 39), (63, 1 << 62)] {
            let amount = Amount { objects: 1, bytes };
            sizes.add(at, amount);
            total.add(amount);
        }
        let months = [(0, 1, 17), (640, 3, 18), (700, 2, total.bytes - 35)]
            .map(|(month, objects, bytes)| (Month::from_number(month), Amount { objects, bytes }));
        let mut out = Vec::new();
        put_sizes(&mut out, total, &sizes);
        put_months(&mut out, &months);
        let mut rest = out.as_slice();
        assert_eq!(take_sizes(&mut rest, total), Some(sizes));
        assert_eq!(take_months(&mut rest, total), Some(months.to_vec()));
        assert!(rest.is_empty());
        for cut in 0..out.len() {
            let mut rest = &out[..cut];
            let cut_short = take_sizes(&mut rest, total)
                .is_none_or(|_| take_months(&mut rest, total).is_none());
            assert!(cut_short);
        }
    }

    #[test]
    fn one_object_needs_no_cells() {
        let total = Amount { objects: 1, bytes: 1000 };
        let mut sizes = Sizes::default();
        sizes.add(cell(1000), total);
        let mut out = Vec::new();
        put_sizes(&mut out, total, &sizes);
        assert!(out.is_empty());
        assert_eq!(take_sizes(&mut out.as_slice(), total), Some(sizes));
    }
}
