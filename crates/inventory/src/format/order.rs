//! The lists of a prefix with many children: the largest by bytes, the largest by objects, and a
//! sample of all in the order of their names.
//!
//! Every list is a sequence of positions in `nodes` after a checksum; the lists of one prefix
//! follow their lengths.

use super::{
    CHECKSUM_SIZE, LISTED_MAX, POSITION_SIZE, checked, checksum, position, position_bytes,
};

/// Size of the lengths and their checksum.
const HEAD_SIZE: usize = CHECKSUM_SIZE + 2 * 4;

/// The lists of one prefix.
#[derive(Debug, Clone, Copy)]
pub struct Lists<'a> {
    by_bytes: &'a [u8],
    by_objects: &'a [u8],
    by_name: &'a [u8],
}

/// Appends the lists of a prefix. `by_bytes` and `by_objects` have the same length.
pub(crate) fn put(out: &mut Vec<u8>, by_bytes: &[u64], by_objects: &[u64], by_name: &[u64]) {
    let mut head = [0; 8];
    let (listed, named) = head.split_at_mut(4);
    listed.copy_from_slice(&length(by_bytes));
    named.copy_from_slice(&length(by_name));
    out.extend_from_slice(&checksum(&head));
    out.extend_from_slice(&head);
    for list in [by_bytes, by_objects, by_name] {
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
    #[must_use]
    pub fn read(order: &'a [u8]) -> Option<Self> {
        let (head, rest) = order.split_at_checked(HEAD_SIZE)?;
        let (listed, named) = checked(head)?.split_first_chunk::<4>()?;
        let listed = u32::from_le_bytes(*listed) as usize;
        let named = u32::from_le_bytes(*named.first_chunk::<4>()?) as usize;
        if listed > LISTED_MAX {
            return None;
        }
        let size = |count: usize| CHECKSUM_SIZE + count * POSITION_SIZE;
        let (by_bytes, rest) = rest.split_at_checked(size(listed))?;
        let (by_objects, rest) = rest.split_at_checked(size(listed))?;
        let by_name = rest.get(..size(named))?;
        Some(Self { by_bytes, by_objects, by_name })
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
        HEAD_SIZE + self.by_bytes.len() + self.by_objects.len() + self.by_name.len()
    }
}

fn positions(list: &[u8]) -> Option<impl ExactSizeIterator<Item = u64> + Clone + '_> {
    let (positions, _) = checked(list)?.as_chunks::<POSITION_SIZE>();
    Some(positions.iter().map(|bytes| position(*bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_come_back_and_a_changed_byte_is_noticed() {
        let mut out = Vec::new();
        put(&mut out, &[9, 5], &[5, 1 << 39], &[1, 5, 9]);
        let read = |bytes: &[u8]| {
            let lists = Lists::read(bytes)?;
            let all: [Vec<u64>; 3] = [
                lists.by_bytes()?.collect(),
                lists.by_objects()?.collect(),
                lists.by_name()?.collect(),
            ];
            assert_eq!(lists.size(), bytes.len());
            Some(all)
        };
        let expected = [vec![9, 5], vec![5, 1 << 39], vec![1, 5, 9]];
        assert_eq!(read(&out), Some(expected));
        for byte in 0..out.len() {
            let mut changed = out.clone();
            changed[byte] ^= 0x10;
            assert_eq!(read(&changed), None, "{byte}");
            assert_eq!(read(&out[..byte]), None);
        }
    }
}
