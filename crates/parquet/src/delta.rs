//! Lengths that are kept as differences, looked at before a decoder makes room for them.
//!
//! A few bytes can declare any number of equal lengths, and a text that is kept as what it does not share
//! with the one before it can be long again and again. Format:
//! <https://parquet.apache.org/docs/file-format/data-pages/encodings/>, `DELTA_BINARY_PACKED`.

use crate::compact::{Compact, Unfit};

/// Bits of a difference at most: lengths are numbers of 32 bits.
const WIDTH_MAX: u32 = 32;

/// Lengths at the front of some bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lengths<'a> {
    bytes: &'a [u8],
    /// How many there are said to be.
    pub(crate) count: u64,
    first: i32,
    mini_blocks: usize,
    of_mini_block: usize,
}

impl<'a> Lengths<'a> {
    /// Reads what stands before the differences.
    pub(crate) fn new(bytes: &'a [u8]) -> Result<Self, Unfit> {
        let mut head = Compact::new(bytes);
        let block = usize::try_from(head.varint()?).map_err(|_| Unfit::Wrong)?;
        let mini_blocks = usize::try_from(head.varint()?).map_err(|_| Unfit::Wrong)?;
        let count = head.varint()?;
        let first = i32::try_from(head.signed()?).map_err(|_| Unfit::Wrong)?;
        let of_mini_block = block.checked_div(mini_blocks).unwrap_or(0);
        let fits = block % 128 == 0 && of_mini_block > 0 && of_mini_block % 32 == 0;
        if !fits || block % mini_blocks != 0 {
            return Err(Unfit::Wrong);
        }
        let bytes = bytes.get(bytes.len() - head.left()..).unwrap_or_default();
        Ok(Self { bytes, count, first, mini_blocks, of_mini_block })
    }

    /// Adds up all lengths, and says what follows them.
    pub(crate) fn sum(&self) -> Result<(u64, &'a [u8]), Unfit> {
        let mut length = self.first;
        let mut rest = self.bytes;
        if self.count == 0 {
            return Ok((0, rest));
        }
        let mut sum = u64::try_from(length).map_err(|_| Unfit::Wrong)?;
        let mut left = self.count - 1;
        while left > 0 {
            let mut head = Compact::new(rest);
            let least = i32::try_from(head.signed()?).map_err(|_| Unfit::Wrong)?;
            rest = rest.get(rest.len() - head.left()..).unwrap_or_default();
            let (widths, after) = rest.split_at_checked(self.mini_blocks).ok_or(Unfit::Short)?;
            rest = after;
            for &width in widths {
                if left == 0 {
                    break;
                }
                let width = u32::from(width);
                if width > WIDTH_MAX {
                    return Err(Unfit::Wrong);
                }
                let count = left.min(self.of_mini_block as u64);
                for at in 0..count {
                    let difference = bits(rest, at * u64::from(width), width)?;
                    length = length.wrapping_add(least).wrapping_add(difference.cast_signed());
                    sum += u64::try_from(length).map_err(|_| Unfit::Wrong)?;
                }
                left -= count;
                let size = (self.of_mini_block / 8).saturating_mul(width as usize);
                // The last ones may be cut short behind what is needed of them.
                rest = rest.get(size..).unwrap_or_default();
            }
        }
        Ok((sum, rest))
    }
}

/// `width` bits from a place on, the lowest first.
fn bits(bytes: &[u8], at: u64, width: u32) -> Result<u32, Unfit> {
    if width == 0 {
        return Ok(0);
    }
    let from = usize::try_from(at / 8).map_err(|_| Unfit::Wrong)?;
    let to = usize::try_from((at + u64::from(width)).div_ceil(8)).map_err(|_| Unfit::Wrong)?;
    let bytes = bytes.get(from..to).ok_or(Unfit::Short)?;
    let all = bytes.iter().rev().fold(0_u64, |all, &byte| all << 8 | u64::from(byte));
    let mask = (1_u64 << width) - 1;
    u32::try_from((all >> (at % 8)) & mask).map_err(|_| Unfit::Wrong)
}
