//! The bytes of one entry: its header, its key and its value, or the number of its object or of its
//! long string.
//!
//! ```text
//! flags u8 | key length u8 (255: then u32) | value length u16 | [deadline u64, ms] | [touched u32] | key | value
//! ```
//!
//! Flags: bits 0-2 the form of the value, bit 3 a deadline follows, bit 4 a time of last use
//! follows, bits 5-6 the recent use count (S3-FIFO). The value's length is 65535 if it does not
//! fit: then the value ends with the entry, which has a separate vector. A compressed value begins
//! with its plain length (u32). None of this reaches a disk or the network.
//!
//! Invariant: the bytes come only from [`layout`] and [`write()`], so [`Head::of`] trusts them.

/// The form of an entry's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// A plain string.
    Plain,
    /// A string compressed by LZ4.
    Lz4,
    /// A string compressed into steps.
    Steps,
    /// A string compressed by Zstandard.
    Zstd,
    /// The number of an object: a list, hash, set or sorted set.
    Object,
    /// The number of a separate long string; its form is stored there.
    Shared,
}

const DEADLINE: u8 = 1 << 3;
const TOUCHED: u8 = 1 << 4;
const USES_SHIFT: u32 = 5;
const LONG_KEY: u8 = u8::MAX;
const LONG_VALUE: u16 = u16::MAX;

impl Form {
    fn code(self) -> u8 {
        match self {
            Self::Plain => 0,
            Self::Lz4 => 1,
            Self::Zstd => 2,
            Self::Object => 3,
            Self::Shared => 4,
            Self::Steps => 5,
        }
    }

    fn of(flags: u8) -> Self {
        match flags & 7 {
            0 => Self::Plain,
            1 => Self::Lz4,
            2 => Self::Zstd,
            3 => Self::Object,
            5 => Self::Steps,
            _ => Self::Shared,
        }
    }
}

/// A decoded entry header.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    pub(crate) form: Form,
    value: (usize, usize),
}

/// The layout of an entry to be written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    flags: u8,
    pub(crate) size: usize,
    key_at: usize,
    key_size: usize,
    value_size: usize,
}

/// Computes the layout of an entry.
pub(crate) fn layout(
    key_size: usize,
    value_size: usize,
    form: Form,
    deadline: bool,
    touched: bool,
) -> Layout {
    let key_at = 4
        + if key_size >= usize::from(LONG_KEY) { 4 } else { 0 }
        + if deadline { 8 } else { 0 }
        + if touched { 4 } else { 0 };
    let flags =
        form.code() | if deadline { DEADLINE } else { 0 } | if touched { TOUCHED } else { 0 };
    Layout { flags, size: key_at + key_size + value_size, key_at, key_size, value_size }
}

/// Writes everything except the value; returns the room for the value.
pub(crate) fn write<'e>(
    layout: &Layout,
    entry: &'e mut [u8],
    key: &[u8],
    deadline_ms: Option<u64>,
    touched: u32,
) -> &'e mut [u8] {
    entry[0] = layout.flags;
    let mut at = 4;
    match u8::try_from(layout.key_size) {
        Ok(size) if size < LONG_KEY => entry[1] = size,
        _ => {
            entry[1] = LONG_KEY;
            let size = u32::try_from(layout.key_size).unwrap_or(u32::MAX);
            entry[4..8].copy_from_slice(&size.to_le_bytes());
            at = 8;
        }
    }
    let value_size = u16::try_from(layout.value_size).unwrap_or(LONG_VALUE);
    entry[2..4].copy_from_slice(&value_size.to_le_bytes());
    if let Some(deadline_ms) = deadline_ms {
        entry[at..at + 8].copy_from_slice(&deadline_ms.to_le_bytes());
        at += 8;
    }
    if layout.flags & TOUCHED != 0 {
        entry[at..at + 4].copy_from_slice(&touched.to_le_bytes());
    }
    entry[layout.key_at..layout.key_at + layout.key_size].copy_from_slice(key);
    let value_at = layout.key_at + layout.key_size;
    &mut entry[value_at..value_at + layout.value_size]
}

fn u64_at(entry: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&entry[at..at + 8]);
    u64::from_le_bytes(bytes)
}

fn u32_at(entry: &[u8], at: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&entry[at..at + 4]);
    u32::from_le_bytes(bytes)
}

/// Where an entry's key begins, and its length.
#[inline]
fn key_position(entry: &[u8]) -> (usize, usize) {
    let (mut at, size) = match entry[1] {
        LONG_KEY => (8, u32_at(entry, 4) as usize),
        size => (4, usize::from(size)),
    };
    if entry[0] & DEADLINE != 0 {
        at += 8;
    }
    if entry[0] & TOUCHED != 0 {
        at += 4;
    }
    (at, size)
}

/// An entry's key.
#[inline]
pub(crate) fn key(entry: &[u8]) -> &[u8] {
    let (at, size) = key_position(entry);
    &entry[at..at + size]
}

impl Head {
    #[inline]
    pub(crate) fn of(entry: &[u8]) -> Self {
        let key = key_position(entry);
        let value_at = key.0 + key.1;
        let value_size = match u16::from_le_bytes([entry[2], entry[3]]) {
            LONG_VALUE => entry.len() - value_at,
            size => usize::from(size),
        };
        Self { form: Form::of(entry[0]), value: (value_at, value_size) }
    }

    #[inline]
    pub(crate) fn value<'e>(&self, entry: &'e [u8]) -> &'e [u8] {
        &entry[self.value.0..self.value.0 + self.value.1]
    }

    /// The number of the entry's object.
    pub(crate) fn object(&self, entry: &[u8]) -> Option<u32> {
        (self.form == Form::Object).then(|| u32_at(entry, self.value.0))
    }

    /// The number of the entry's long string.
    pub(crate) fn shared(&self, entry: &[u8]) -> Option<u32> {
        (self.form == Form::Shared).then(|| u32_at(entry, self.value.0))
    }

    /// The value, for a change in place.
    pub(crate) fn value_mut<'e>(&self, entry: &'e mut [u8]) -> &'e mut [u8] {
        &mut entry[self.value.0..self.value.0 + self.value.1]
    }
}

/// Returns only the deadline.
#[inline]
pub(crate) fn deadline_ms(entry: &[u8]) -> Option<u64> {
    if entry[0] & DEADLINE == 0 {
        return None;
    }
    Some(u64_at(entry, if entry[1] == LONG_KEY { 8 } else { 4 }))
}

/// Changes an existing deadline.
pub(crate) fn move_deadline(entry: &mut [u8], deadline_ms: u64) {
    let at = if entry[1] == LONG_KEY { 8 } else { 4 };
    entry[at..at + 8].copy_from_slice(&deadline_ms.to_le_bytes());
}

/// Marks the value's length as "to the end of the entry", before the entry grows.
pub(crate) fn set_long_value(entry: &mut [u8]) {
    entry[2..4].copy_from_slice(&LONG_VALUE.to_le_bytes());
}

/// The recent use count of the entry: 0 to 3.
#[inline]
pub(crate) fn uses(entry: &[u8]) -> u8 {
    (entry[0] >> USES_SHIFT) & 3
}

#[inline]
pub(crate) fn set_uses(entry: &mut [u8], uses: u8) {
    entry[0] = (entry[0] & !(3 << USES_SHIFT)) | ((uses & 3) << USES_SHIFT);
}

/// When the entry was last used, in the unit of its policy; `None` if that is not recorded.
pub(crate) fn touched(entry: &[u8]) -> Option<u32> {
    touched_at(entry).map(|at| u32_at(entry, at))
}

pub(crate) fn set_touched(entry: &mut [u8], touched: u32) {
    if let Some(at) = touched_at(entry) {
        entry[at..at + 4].copy_from_slice(&touched.to_le_bytes());
    }
}

fn touched_at(entry: &[u8]) -> Option<usize> {
    (entry[0] & TOUCHED != 0).then(|| key_position(entry).0 - 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_in_every_shape() {
        for key_size in [0, 1, 16, 254, 255, 70_000] {
            for value_size in [0, 100, 65_534, 65_535, 200_000] {
                for deadline in [None, Some(1_795_000_000_123)] {
                    for touched in [false, true] {
                        let key = vec![b'k'; key_size];
                        let layout =
                            layout(key_size, value_size, Form::Lz4, deadline.is_some(), touched);
                        let mut entry = vec![0; layout.size];
                        write(&layout, &mut entry, &key, deadline, 77).fill(b'v');
                        let head = Head::of(&entry);
                        assert_eq!(head.form, Form::Lz4);
                        assert_eq!(super::key(&entry), key);
                        assert_eq!(head.value(&entry), vec![b'v'; value_size]);
                        assert_eq!(deadline_ms(&entry), deadline);
                        assert_eq!(super::touched(&entry), touched.then_some(77));
                        set_uses(&mut entry, 3);
                        assert_eq!((uses(&entry), Head::of(&entry).form), (3, Form::Lz4));
                    }
                }
            }
        }
    }
}
