//! Packed bytes: growing in small steps, and splicing.
//!
//! A small buffer grows by 16 bytes, because most packed collections stay small and an allocator
//! rounds to about that anyway; a larger one by a quarter; a very large one exactly.

/// Above this size a buffer is mostly one large item, and spare room would be waste.
const EXACT_FROM: usize = 64 << 10;

/// Reserves room for `extra` more bytes.
pub(super) fn grow(buf: &mut Vec<u8>, extra: usize) {
    let need = buf.len() + extra;
    if need > buf.capacity() {
        let target = match need {
            ..256 => need.next_multiple_of(16),
            256..EXACT_FROM => (need + need / 4).next_multiple_of(16),
            _ => need,
        };
        buf.reserve_exact(target - buf.len());
    }
}

/// Frees room when most of it is unused.
pub(super) fn shrink(buf: &mut Vec<u8>) {
    if buf.capacity() > buf.len() * 2 + 64 {
        buf.shrink_to(buf.len().next_multiple_of(16));
    }
}

/// Replaces `removed` bytes at `at` by `parts`.
pub(super) fn splice(buf: &mut Vec<u8>, at: usize, removed: usize, parts: &[&[u8]]) {
    let added: usize = parts.iter().map(|part| part.len()).sum();
    let len = buf.len();
    if added > removed {
        grow(buf, added - removed);
        buf.resize(len + added - removed, 0);
    }
    if added != removed {
        buf.copy_within(at + removed..len, at + added);
    }
    if added < removed {
        buf.truncate(len - removed + added);
    }
    let mut at = at;
    for part in parts {
        buf[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
}

/// Memory of an allocation of `len` bytes, rounded as allocators do.
pub(super) const fn allocated(len: usize) -> usize {
    len.next_multiple_of(16)
}

/// The length of an item of at most [`super::packing::ITEM_SIZE_MAX`] bytes, as its prefix.
#[expect(clippy::cast_possible_truncation, reason = "packed items are at most 255 bytes")]
pub(super) const fn prefix(len: usize) -> [u8; 1] {
    debug_assert!(len <= super::packing::ITEM_SIZE_MAX);
    [len as u8]
}

/// Bytes a length may take as a [`Varint`].
const VARINT_SIZE_MAX: usize = 10;

/// A length in 7 bits per byte, the least significant first; every byte but the last has its top
/// bit set.
#[derive(Debug, Clone, Copy)]
pub(super) struct Varint {
    bytes: [u8; VARINT_SIZE_MAX],
    len: usize,
}

impl Varint {
    /// Encodes `value` to be read forwards.
    pub(super) fn new(value: usize) -> Self {
        let mut varint = Self { bytes: [0; VARINT_SIZE_MAX], len: 0 };
        let mut rest = value;
        loop {
            let low = rest.to_le_bytes()[0] & 0x7f;
            rest >>= 7;
            varint.bytes[varint.len] = if rest == 0 { low } else { low | 0x80 };
            varint.len += 1;
            if rest == 0 {
                return varint;
            }
        }
    }

    /// Encodes `value` to be read backwards.
    pub(super) fn reversed(value: usize) -> Self {
        let mut varint = Self::new(value);
        varint.bytes[..varint.len].reverse();
        varint
    }

    /// Its bytes.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Reads the length at the start of `bytes`; returns it and the number of bytes read.
    #[inline]
    pub(super) fn read(bytes: &[u8]) -> (usize, usize) {
        Self::decode(bytes.iter())
    }

    /// Reads the length at the end of `bytes`; returns it and the number of bytes read.
    #[inline]
    pub(super) fn read_back(bytes: &[u8]) -> (usize, usize) {
        Self::decode(bytes.iter().rev())
    }

    #[inline]
    fn decode<'a>(bytes: impl Iterator<Item = &'a u8>) -> (usize, usize) {
        let (mut value, mut len) = (0, 0);
        for byte in bytes.take(VARINT_SIZE_MAX) {
            value |= usize::from(byte & 0x7f) << (7 * len);
            len += 1;
            if byte & 0x80 == 0 {
                break;
            }
        }
        (value, len)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn lengths_read_back_from_both_sides(value in any::<usize>(), shift in 0u32..64) {
            let value = value >> shift;
            let forwards = Varint::new(value);
            prop_assert_eq!(Varint::read(forwards.as_bytes()), (value, forwards.as_bytes().len()));
            let backwards = Varint::reversed(value);
            let read = Varint::read_back(backwards.as_bytes());
            prop_assert_eq!(read, (value, backwards.as_bytes().len()));
        }

        #[test]
        fn splicing_equals_that_of_a_vector(
            bytes in proptest::collection::vec(any::<u8>(), 0..600),
            at: proptest::sample::Index,
            removed: proptest::sample::Index,
            added in proptest::collection::vec(any::<u8>(), 0..90),
        ) {
            let at = at.index(bytes.len() + 1);
            let removed = removed.index(bytes.len() - at + 1);
            let (mut ours, mut theirs) = (bytes.clone(), bytes);
            splice(&mut ours, at, removed, &[&added[..added.len() / 2], &added[added.len() / 2..]]);
            theirs.splice(at..at + removed, added);
            prop_assert_eq!(ours, theirs);
        }
    }
}
