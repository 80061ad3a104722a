//! The lists of a prefix with many children: the largest by bytes, the largest by objects, the
//! largest by the bytes of all versions, and a sample of all in the order of their names.
//!
//! Every list is a sequence of positions in `nodes` after a checksum; the lists of one prefix
//! follow their lengths. The list by the bytes of all versions is missing where it would be that by
//! bytes: where no child has noncurrent versions. Version 1 of the format never has it.

use super::{
    CHECKSUM_SIZE, LISTED_MAX, POSITION_SIZE, checked, checksum, position, position_bytes,
};

/// Size of the lengths and their checksum.
const HEAD_SIZE: usize = CHECKSUM_SIZE + 3 * 4;
/// The same in version 1 of the format.
const HEAD_SIZE_1: usize = CHECKSUM_SIZE + 2 * 4;

/// The lists of one prefix.
#[derive(Debug, Clone, Copy)]
pub struct Lists<'a> {
    by_bytes: &'a [u8],
    by_objects: &'a [u8],
    /// Empty if it is the list by bytes.
    by_billed: &'a [u8],
    by_name: &'a [u8],
    version: u32,
}

/// Appends the lists of a prefix. `by_bytes` and `by_objects` have the same length; `by_billed`
/// has it, too, or is empty.
pub(crate) fn put(
    out: &mut Vec<u8>,
    by_bytes: &[u64],
    by_objects: &[u64],
    by_billed: &[u64],
    by_name: &[u64],
) {
    let head = [length(by_bytes), length(by_billed), length(by_name)].concat();
    out.extend_from_slice(&checksum(&head));
    out.extend_from_slice(&head);
    let billed = (!by_billed.is_empty()).then_some(by_billed);
    for list in [Some(by_bytes), Some(by_objects), billed, Some(by_name)].into_iter().flatten() {
        let start = out.len();
        out.extend_from_slice(&[0; CHECKSUM_SIZE]);
        list.iter().for_each(|&at| out.extend_from_slice(&position_bytes(at)));
        let (head, positions) = out.split_at_mut(start + CHECKSUM_SIZE);
        if let Some(sum) = head.last_chunk_mut::<CHECKSUM_SIZE>() {
            *sum = checksum(positions);
        }
    }
}

fn length(list: &[u64]) -> [u8; 4] {
    u32::try_from(list.len()).unwrap_or(u32::MAX).to_le_bytes()
}

impl<'a> Lists<'a> {
    /// The lists that start at the beginning of `order`; `None` if their lengths are damaged.
    ///
    /// * `version`: that of the format.
    #[must_use]
    pub fn read(order: &'a [u8], version: u32) -> Option<Self> {
        let head_size = if version == 1 { HEAD_SIZE_1 } else { HEAD_SIZE };
        let (head, rest) = order.split_at_checked(head_size)?;
        let (lengths, _) = checked(head)?.as_chunks::<4>();
        let length = |at: usize| Some(u32::from_le_bytes(*lengths.get(at)?) as usize);
        let listed = length(0)?;
        let billed = if version == 1 { 0 } else { length(1)? };
        let named = length(lengths.len() - 1)?;
        if listed > LISTED_MAX || (billed != 0 && billed != listed) {
            return None;
        }
        let size = |count: usize| CHECKSUM_SIZE + count * POSITION_SIZE;
        let (by_bytes, rest) = rest.split_at_checked(size(listed))?;
        let (by_objects, rest) = rest.split_at_checked(size(listed))?;
        let (by_billed, rest) = rest.split_at_checked(if billed > 0 { size(billed) } else { 0 })?;
        let by_name = rest.get(..size(named))?;
        Some(Self { by_bytes, by_objects, by_billed, by_name, version })
    }

    /// Whether it is known which children have the most bytes of all versions, even if some have
    /// noncurrent ones.
    #[must_use]
    pub fn has_billed(&self) -> bool {
        self.version > 1
    }

    /// The children with the most bytes of all versions, the largest first; `None` if the list is
    /// damaged. Without [`Lists::has_billed`] it is right only if there are no noncurrent versions.
    pub fn by_billed(&self) -> Option<impl ExactSizeIterator<Item = u64> + Clone + 'a> {
        positions(if self.by_billed.is_empty() { self.by_bytes } else { self.by_billed })
    }

    /// The children with the most bytes, the largest first; `None` if the list is damaged.
    pub fn by_bytes(&self) -> Option<impl ExactSizeIterator<Item = u64> + Clone + 'a> {
        positions(self.by_bytes)
    }

    /// The children with the most objects, the largest first; `None` if the list is damaged.
    pub fn by_objects(&self) -> Option<impl ExactSizeIterator<Item = u64> + Clone + 'a> {
        positions(self.by_objects)
    }

    /// Every [`super::NAMES_STRIDE`]th child in the order of names; `None` if the list is damaged.
    pub fn by_name(&self) -> Option<impl ExactSizeIterator<Item = u64> + Clone + 'a> {
        positions(self.by_name)
    }

    /// Total size in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        let head_size = if self.version == 1 { HEAD_SIZE_1 } else { HEAD_SIZE };
        let lists = [self.by_bytes, self.by_objects, self.by_billed, self.by_name];
        head_size + lists.iter().map(|list| list.len()).sum::<usize>()
    }
}

fn positions(list: &[u8]) -> Option<impl ExactSizeIterator<Item = u64> + Clone + '_> {
    let (positions, _) = checked(list)?.as_chunks::<POSITION_SIZE>();
    Some(positions.iter().map(|bytes| position(*bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Option<[Vec<u64>; 4]> {
        let lists = Lists::read(bytes, 2)?;
        assert_eq!(lists.size(), bytes.len());
        Some([
            lists.by_bytes()?.collect(),
            lists.by_objects()?.collect(),
            lists.by_billed()?.collect(),
            lists.by_name()?.collect(),
        ])
    }

    #[test]
    fn lists_come_back_and_a_changed_byte_is_noticed() {
        for (billed, expected_billed) in [(&[5, 9][..], vec![5, 9]), (&[], vec![9, 5])] {
            let mut out = Vec::new();
            put(&mut out, &[9, 5], &[5, 1 << 39], billed, &[1, 5, 9]);
            let expected = [vec![9, 5], vec![5, 1 << 39], expected_billed, vec![1, 5, 9]];
            assert_eq!(read(&out), Some(expected));
            for byte in 0..out.len() {
                let mut changed = out.clone();
                changed[byte] ^= 0x10;
                assert_eq!(read(&changed), None, "{byte}");
                assert_eq!(read(&out[..byte]), None);
            }
        }
    }
}
