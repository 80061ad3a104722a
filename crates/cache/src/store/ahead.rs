//! Copies of long strings, made before the lock under which the strings are changed.
//!
//! A string must be copied before a part of it is changed if it is referenced elsewhere (by a
//! reader, a snapshot or another key) or is compressed, and a gap is filled with zeros if the
//! change begins far beyond its end. Copying 100 MB takes
//! some 30 ms, too long to block others from a shard. So [`Shard::overwrite_ahead`] first refuses
//! such a change; the caller releases the lock, makes the copy, and calls it again.
//!
//! Invariants: a copy is used only in place of the string it was made from. It references that
//! string while it exists, so the string cannot be changed in place meanwhile. The copy is not
//! counted until it is stored: there are at most two more of them than threads.
//!
//! [`Shard::overwrite_ahead`]: super::Shard::overwrite_ahead

use super::text::{SharedText, Text};

/// Size in bytes from which a string is copied ahead: fewer are copied in less time than it takes
/// to look the key up again.
pub(crate) const AHEAD_MIN: usize = 128 << 10;

/// A copy of a long string, made or yet to be made, with room for a change; see the module.
#[derive(Debug)]
pub struct CopyAhead {
    source: SharedText,
    /// Where the change begins: the copy has zeros up to there.
    offset: usize,
    /// Size in bytes of the memory to reserve.
    room: usize,
    made: Option<Vec<u8>>,
}

/// The result of [`Shard::overwrite_ahead`](super::Shard::overwrite_ahead).
#[derive(Debug)]
pub enum Overwritten {
    /// The change was made; the new length.
    Done(usize),
    /// Nothing was changed: the copy must be made first.
    CopyFirst(CopyAhead),
}

impl CopyAhead {
    pub(super) fn new(source: SharedText, offset: usize, room: usize) -> Self {
        Self { source, offset, room, made: None }
    }

    /// The copy that a change of a separate long string at `offset` needs, unless the string is
    /// short.
    pub(crate) fn of(text: Text<'_>, offset: usize) -> Option<Self> {
        let room = text.len().max(offset + 1);
        (text.is_shared() && text.len() >= AHEAD_MIN).then(|| Self::new(text.hold(), offset, room))
    }

    /// The copy, if it was made from this string.
    pub(crate) fn plain_of(&self, text: Text<'_>) -> Option<&[u8]> {
        self.made.as_deref().filter(|_| text.is_shared() && self.source.is_same(&text.hold()))
    }

    /// Bytes to copy.
    pub(crate) fn size(&self) -> usize {
        self.source.text().len()
    }

    /// Makes the copy; must be called without a lock.
    pub fn make(&mut self) {
        let text = self.source.text();
        let mut made;
        if self.offset <= text.len() {
            made = Vec::with_capacity(self.room);
            text.append_to(&mut made);
        } else {
            // The system's memory is zeroed already: a long gap takes no time.
            made = vec![0; self.room];
            made.truncate(self.offset);
            made[..text.len()].copy_from_slice(&text.plain());
        }
        self.made = Some(made);
    }

    /// Whether it was made from this string, for a change there.
    pub(super) fn fits(&self, text: &SharedText, offset: usize) -> bool {
        self.made.is_some() && self.offset == offset && self.source.is_same(text)
    }

    /// Takes the copy, if it fits.
    pub(super) fn take(&mut self, text: &SharedText, offset: usize) -> Option<Vec<u8>> {
        if self.fits(text, offset) { self.made.take() } else { None }
    }
}

#[cfg(test)]
mod tests;
