//! Strings in their stored form, borrowed or held beyond the shard's lock.
//!
//! A string of at least [`SHARED_MIN`] stored bytes is stored separately, with a reference count.
//! So a reader references it under the lock and reads, decompresses or writes it to disk without
//! the lock; a change in the meantime creates a new string. A long string with few stored bytes is
//! copied instead.
//!
//! Invariants: the bytes of a [`SharedText`] never change; [`Texts::bytes`] counts every string
//! that a shard stores here, with its unused room. A string that only a reader still holds is not
//! counted: there are no more of those than threads, each for the duration of one reply. A string that
//! two keys share is counted for both.

use std::borrow::Cow;
use std::sync::Arc;

use super::ahead::{AHEAD_MIN, CopyAhead};
use super::compress;
use super::entry::Form;

/// Stored size in bytes from which a string is stored separately.
pub(super) const SHARED_MIN: usize = 16 << 10;
/// Overhead of a separate string: allocator and counters.
const OVERHEAD: usize = 80;
/// Maximum number of zeros in bytes that are written under the lock between a string and a change
/// beyond its end.
const GAP_MAX: usize = 1 << 20;
/// A growing string gets room for this fraction of its length more: few moves, little waste.
const GROWTH: usize = 8;

/// A string in its stored form, borrowed from its shard.
#[derive(Debug, Clone, Copy)]
pub struct Text<'s> {
    pub(super) form: Form,
    pub(super) stored: &'s [u8],
    pub(super) shared: Option<&'s Arc<Vec<u8>>>,
}

/// A string held beyond its shard's lock; it never changes.
#[derive(Debug, Clone)]
pub struct SharedText {
    form: Form,
    bytes: Arc<Vec<u8>>,
}

impl<'s> Text<'s> {
    /// A string that is not in a shard.
    pub(crate) fn of_plain(plain: &'s [u8]) -> Self {
        Self { form: Form::Plain, stored: plain, shared: None }
    }

    /// Its length.
    #[must_use]
    pub fn len(&self) -> usize {
        compress::plain_len(self.form, self.stored)
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.stored.is_empty()
    }

    /// Its bytes, if they are stored plain.
    #[must_use]
    #[inline]
    pub fn as_plain(&self) -> Option<&'s [u8]> {
        (self.form == Form::Plain).then_some(self.stored)
    }

    /// Its bytes.
    #[must_use]
    pub fn plain(self) -> Cow<'s, [u8]> {
        compress::plain(self.form, self.stored)
    }

    /// Appends a part of its bytes, limited to the existing ones.
    pub fn append_range_to(&self, range: std::ops::Range<usize>, out: &mut Vec<u8>) {
        let end = range.end.min(self.len());
        let start = range.start.min(end);
        if let Some(plain) = self.as_plain() {
            out.extend_from_slice(&plain[start..end]);
            return;
        }
        let from = out.len();
        self.append_to(out);
        out.copy_within(from + start..from + end, from);
        out.truncate(from + end - start);
    }

    /// Appends its bytes.
    pub fn append_to(&self, out: &mut Vec<u8>) {
        compress::append_plain(self.form, self.stored, out);
    }

    /// Whether it is stored separately.
    #[must_use]
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// References it; `None` for a string so short that reading it immediately costs less.
    #[must_use]
    #[inline]
    pub fn share(&self) -> Option<SharedText> {
        if let Some(bytes) = self.shared {
            return Some(SharedText { form: self.form, bytes: Arc::clone(bytes) });
        }
        (self.form != Form::Plain && self.len() >= SHARED_MIN).then(|| self.hold())
    }

    /// References it, or copies its stored bytes if they are few.
    #[must_use]
    pub fn hold(&self) -> SharedText {
        let bytes = self.shared.map_or_else(|| Arc::new(self.stored.to_vec()), Arc::clone);
        SharedText { form: self.form, bytes }
    }
}

impl SharedText {
    /// Borrows the string.
    #[must_use]
    pub fn text(&self) -> Text<'_> {
        Text { form: self.form, stored: &self.bytes, shared: Some(&self.bytes) }
    }

    /// A string in its stored form.
    pub(super) fn new(form: Form, mut stored: Vec<u8>) -> Self {
        stored.shrink_to_fit();
        Self { form, bytes: Arc::new(stored) }
    }

    /// Whether another string is the same. Long strings are compared by their memory, so that the
    /// answer takes no time; it may then be `false` although the bytes are equal.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let is_equal = || self.form == other.form && self.bytes == other.bytes;
        Arc::ptr_eq(&self.bytes, &other.bytes) || self.bytes.len() < SHARED_MIN && is_equal()
    }

    /// Its memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.capacity() + OVERHEAD
    }
}

/// The separate strings of a shard, by number.
#[derive(Debug, Default)]
pub(super) struct Texts {
    held: Vec<Option<SharedText>>,
    free: Vec<u32>,
    heap: usize,
    /// Long strings that were copied under the lock.
    #[cfg(test)]
    pub(super) copied: u64,
}

impl Texts {
    /// Memory of all of them in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.heap
            + self.held.capacity() * size_of::<Option<SharedText>>()
            + self.free.capacity() * size_of::<u32>()
    }

    /// Adds a string in its stored form.
    pub(super) fn add(&mut self, form: Form, stored: Vec<u8>) -> u32 {
        self.add_shared(SharedText::new(form, stored))
    }

    /// Adds a string that others may hold too.
    pub(super) fn add_shared(&mut self, text: SharedText) -> u32 {
        self.heap += text.bytes();
        if let Some(number) = self.free.pop() {
            self.held[number as usize] = Some(text);
            return number;
        }
        self.held.push(Some(text));
        u32::try_from(self.held.len() - 1).expect("fewer than 2^32 long strings a shard")
    }

    #[cfg(test)]
    pub(super) fn is_counted_right(&self) -> bool {
        self.held.iter().flatten().map(SharedText::bytes).sum::<usize>() == self.heap
    }

    pub(super) fn get(&self, number: u32) -> Option<&SharedText> {
        self.held.get(number as usize)?.as_ref()
    }

    /// Removes one.
    pub(super) fn take(&mut self, number: u32) -> Option<SharedText> {
        let text = self.held.get_mut(number as usize)?.take()?;
        self.heap -= text.bytes();
        self.free.push(number);
        Some(text)
    }

    /// The copy that must be made before a string is overwritten, if that takes long.
    pub(super) fn copy_ahead(&self, number: u32, offset: usize, size: usize) -> Option<CopyAhead> {
        let text = self.get(number)?;
        let (len, end) = (text.text().len(), offset + size);
        let in_place = text.form == Form::Plain
            && Arc::strong_count(&text.bytes) == 1
            && offset.saturating_sub(len) < GAP_MAX;
        let is_long = len.max(offset) >= AHEAD_MIN;
        (is_long && !in_place).then(|| CopyAhead::new(text.clone(), offset, room_for(len, end)))
    }

    /// Overwrites a string from `offset` on, padded with zeros if it ends earlier; returns the new
    /// length. It stays plain from then on.
    ///
    /// In place, unless it must be decompressed, has no room, or is held by a reader: then it is
    /// copied once, with room to grow, or replaced by the copy that was made ahead.
    pub(super) fn overwrite(
        &mut self,
        number: u32,
        offset: usize,
        bytes: &[u8],
        ahead: Option<&mut CopyAhead>,
    ) -> Option<usize> {
        let text = self.held.get_mut(number as usize)?.as_mut()?;
        let before = text.bytes();
        let len = text.text().len();
        let end = offset + bytes.len();
        let room = room_for(len, end);
        let ahead = ahead.and_then(|ahead| ahead.take(text, offset));
        let own = if text.form == Form::Plain { Arc::get_mut(&mut text.bytes) } else { None };
        let written = match (ahead, own) {
            (None, Some(own)) => {
                if end > own.capacity() {
                    // The memory of a long string is moved by the kernel, without copying.
                    own.reserve_exact(room - own.len());
                }
                write_over(own, offset, bytes)
            }
            (ahead, _) => {
                #[cfg(test)]
                {
                    self.copied += u64::from(ahead.is_none() && len.max(offset) >= AHEAD_MIN);
                }
                let mut own = ahead.unwrap_or_else(|| {
                    let mut own = Vec::with_capacity(room);
                    text.text().append_to(&mut own);
                    own
                });
                let written = write_over(&mut own, offset, bytes);
                *text = SharedText { form: Form::Plain, bytes: Arc::new(own) };
                written
            }
        };
        self.heap = self.heap + text.bytes() - before;
        Some(written)
    }
}

/// Size in bytes of the memory of a string of `len` bytes that is written up to `end`.
fn room_for(len: usize, end: usize) -> usize {
    end.max(len) + if end > len { end / GROWTH } else { 0 }
}

/// Overwrites a vector's bytes from `offset` on, extending it if necessary; returns its new
/// length.
pub(super) fn write_over(value: &mut Vec<u8>, offset: usize, bytes: &[u8]) -> usize {
    if value.len() < offset {
        value.resize(offset, 0);
    }
    let (over, beyond) = bytes.split_at(bytes.len().min(value.len() - offset));
    value[offset..offset + over.len()].copy_from_slice(over);
    value.extend_from_slice(beyond);
    value.len()
}

#[cfg(test)]
mod tests;
