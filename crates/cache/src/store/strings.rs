//! A shard's strings: read plain, written compressed where that pays, lengthened in place.

use std::borrow::Cow;

use super::Key;
use super::compress;
use super::entry::{self, Form, Head};
use super::shard::{At, Deadline, Shard, WrongType};

impl Shard {
    /// The string of an entry.
    ///
    /// # Errors
    /// [`WrongType`]: it is none.
    #[inline]
    pub fn string_at(&self, at: At) -> Result<Cow<'_, [u8]>, WrongType> {
        let held = self.slab.get(at.0);
        let head = Head::of(held);
        match head.form {
            Form::Plain => Ok(Cow::Borrowed(head.value(held))),
            Form::Object => Err(WrongType),
            form => Ok(compress::plain(form, head.value(held))),
        }
    }

    /// The string at a key; `None` where there is no such key.
    ///
    /// # Errors
    /// [`WrongType`]: the value is no string.
    #[inline]
    pub fn string(&mut self, key: &Key<'_>) -> Result<Option<Cow<'_, [u8]>>, WrongType> {
        match self.find(key) {
            None => Ok(None),
            Some(at) => self.string_at(at).map(Some),
        }
    }

    /// The length of the string at a key, without decompressing it; 0 where there is none.
    ///
    /// # Errors
    /// [`WrongType`]: the value is no string.
    pub fn string_len(&mut self, key: &Key<'_>) -> Result<usize, WrongType> {
        let Some(at) = self.find(key) else { return Ok(0) };
        let held = self.slab.get(at.0);
        let head = Head::of(held);
        if head.form == Form::Object {
            return Err(WrongType);
        }
        Ok(compress::plain_len(head.form, head.value(held)))
    }

    /// Gives a key a string, whatever it held before.
    pub fn put_string(&mut self, key: &Key<'_>, value: &[u8], deadline: Deadline) {
        let mut scratch = std::mem::take(&mut self.scratch);
        match compress::compress(self.rules.codec_for(key.bytes), value, &mut scratch) {
            Some(form) => self.put(key, &scratch, form, deadline),
            None => self.put(key, value, Form::Plain, deadline),
        };
        // A large value is not worth holding its room for.
        if scratch.capacity() <= 64 << 10 {
            self.scratch = scratch;
        } else {
            self.revision = self.revision.wrapping_add(1);
        }
        self.changed(key.bytes);
    }

    /// Lengthens the string at a key, or makes it; returns its length then.
    ///
    /// # Errors
    /// [`WrongType`]: the value is no string.
    pub fn append(&mut self, key: &Key<'_>, tail: &[u8]) -> Result<usize, WrongType> {
        let Some(at) = self.find(key) else {
            self.put_string(key, tail, Deadline::None);
            return Ok(tail.len());
        };
        let held = self.slab.get_mut(at.0);
        let head = Head::of(held);
        if head.form == Form::Plain && held.len() > super::slab::SLOT_MAX {
            // A large value grows where it is.
            entry::set_long_value(held);
            self.slab.resize_large(at.0, |entry| entry.extend_from_slice(tail));
            self.changed(key.bytes);
            return Ok(head.value(self.slab.get(at.0)).len() + tail.len());
        }
        let mut value = self.string_at(at)?.into_owned();
        value.extend_from_slice(tail);
        self.put_string(key, &value, Deadline::Keep);
        Ok(value.len())
    }
}
