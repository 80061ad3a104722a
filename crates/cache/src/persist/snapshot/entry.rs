//! Entries of a range, and other parts of a snapshot that consist of numbers and bytes.
//!
//! ```text
//! entry = type and whether a deadline follows (1), [deadline (8)], key, value
//! ```
//!
//! Key and value are a length (varint) and that many bytes. Pure: nothing here reads or writes
//! files.

use super::format::{SnapshotFault, malformed, u64_at};
use crate::persist::ops::{number, put_number};
use crate::store::Kind;

const DEADLINE: u8 = 0x80;

/// Appends what precedes a value.
pub(crate) fn put_head(out: &mut Vec<u8>, kind: Kind, deadline_ms: Option<u64>, key: &[u8]) {
    let code = match kind {
        Kind::String => 0,
        Kind::List => 1,
        Kind::Hash => 2,
        Kind::Set => 3,
        Kind::ZSet => 4,
    };
    out.push(code | if deadline_ms.is_some() { DEADLINE } else { 0 });
    if let Some(deadline_ms) = deadline_ms {
        out.extend_from_slice(&deadline_ms.to_le_bytes());
    }
    put_bytes(out, key);
}

/// Appends a length and that many bytes.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// A key of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) kind: Kind,
    pub(crate) deadline_ms: Option<u64>,
    /// The bytes of a string, or the elements of a collection.
    pub(crate) value: &'a [u8],
}

/// Reads entries, and other parts that consist of numbers and bytes.
#[derive(Debug)]
pub(crate) struct EntryReader<'a> {
    pub(crate) bytes: &'a [u8],
}

impl<'a> EntryReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// The next entry, `None` after the last.
    pub(crate) fn next(&mut self) -> Result<Option<Entry<'a>>, SnapshotFault> {
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let (kind, deadline_ms, key) = self.head()?;
        let value = self.sized().ok_or(malformed("value"))?;
        Ok(Some(Entry { key, kind, deadline_ms, value }))
    }

    pub(super) fn head(&mut self) -> Result<(Kind, Option<u64>, &'a [u8]), SnapshotFault> {
        let flags = self.take(1).and_then(|byte| byte.first().copied());
        let flags = flags.ok_or(malformed("entry"))?;
        let kind = match flags & !DEADLINE {
            0 => Kind::String,
            1 => Kind::List,
            2 => Kind::Hash,
            3 => Kind::Set,
            4 => Kind::ZSet,
            _ => return Err(malformed("type of a value")),
        };
        let deadline_ms = if flags & DEADLINE == 0 {
            None
        } else {
            Some(u64_at(self.take(8).ok_or(malformed("deadline"))?, 0))
        };
        Ok((kind, deadline_ms, self.sized().ok_or(malformed("key"))?))
    }

    /// A length and that many bytes.
    pub(crate) fn sized(&mut self) -> Option<&'a [u8]> {
        let (size, taken) = number(self.bytes)?;
        let rest = self.bytes.get(taken..)?;
        let (bytes, rest) = rest.split_at_checked(usize::try_from(size).ok()?)?;
        self.bytes = rest;
        Some(bytes)
    }

    /// Returns the next `count` bytes.
    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(count)?;
        self.bytes = rest;
        Some(taken)
    }
}
