//! The cells of the size histogram: powers of two.
//!
//! Cell 0 has the empty objects, cell `n` those of `2^(n-1)` to `2^n - 1` bytes; sizes are below 2^63,
//! so there are 64 cells.

/// How many cells there are.
pub const CELLS: usize = 64;

/// The cell a size is in.
#[must_use]
#[inline]
pub fn cell(size: u64) -> usize {
    ((u64::BITS - size.leading_zeros()) as usize).min(CELLS - 1)
}

/// The smallest size in a cell.
#[must_use]
pub fn floor(cell: usize) -> u64 {
    match cell {
        0 => 0,
        cell => 1 << (cell.min(CELLS - 1) - 1),
    }
}

/// Beyond the largest size in a cell.
#[must_use]
pub fn ceiling(cell: usize) -> u64 {
    1 << cell.min(CELLS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_is_within_its_cell() {
        let sizes = (0..63).flat_map(|bit| [1_u64 << bit, (1_u64 << bit) - 1, (1_u64 << bit) + 1]);
        for size in sizes.filter(|&size| size < 1 << 63) {
            assert!((floor(cell(size))..ceiling(cell(size))).contains(&size), "{size}");
        }
        assert_eq!((cell(0), cell(1), cell(128 << 10), cell((128 << 10) - 1)), (0, 1, 18, 17));
    }
}
