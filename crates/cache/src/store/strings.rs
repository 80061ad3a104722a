//! A shard's strings: read plain, stored compressed where that saves memory, changed in place.
//!
//! A string that is changed in part stays plain until it is replaced: it is decompressed once, not
//! with every change.

use std::borrow::Cow;

use super::Key;
use super::ahead::{CopyAhead, Overwritten};
use super::compress;
use super::entry::{self, Form, Head};
use super::prepare::{self, Ready};
use super::shard::{At, Deadline, Shard, WrongType};
use super::slab::SLOT_MAX;
use super::text::{SHARED_MIN, SharedText, Text, write_over};

impl Shard {
    /// Returns the string of an entry in its stored form.
    ///
    /// # Errors
    /// [`WrongType`]: the value is not a string.
    #[inline]
    pub fn text_at(&self, at: At) -> Result<Text<'_>, WrongType> {
        let held = self.slab.get(at.0);
        let head = Head::of(held);
        match head.form {
            Form::Object => Err(WrongType),
            Form::Shared => Ok(self.shared_text(head, held)),
            form => Ok(Text { form, stored: head.value(held), shared: None }),
        }
    }

    /// The separate long string of an entry; apart from the code for short ones, which are
    /// frequent.
    #[cold]
    fn shared_text(&self, head: Head, held: &[u8]) -> Text<'_> {
        let text = head.shared(held).and_then(|number| self.texts.get(number));
        text.expect("an entry's long string is there").text()
    }

    /// Returns the string at a key in its stored form; `None` if there is no such key.
    ///
    /// # Errors
    /// [`WrongType`]: the value is not a string.
    #[inline]
    pub fn text(&mut self, key: &Key<'_>) -> Result<Option<Text<'_>>, WrongType> {
        match self.find(key) {
            None => Ok(None),
            Some(at) => self.text_at(at).map(Some),
        }
    }

    /// Returns the string of an entry.
    ///
    /// # Errors
    /// [`WrongType`]: the value is not a string.
    #[inline]
    pub fn string_at(&self, at: At) -> Result<Cow<'_, [u8]>, WrongType> {
        self.text_at(at).map(Text::plain)
    }

    /// Returns the string at a key; `None` if there is no such key.
    ///
    /// # Errors
    /// [`WrongType`]: the value is not a string.
    #[inline]
    pub fn string(&mut self, key: &Key<'_>) -> Result<Option<Cow<'_, [u8]>>, WrongType> {
        Ok(self.text(key)?.map(Text::plain))
    }

    /// Returns the length of the string at a key, without decompressing it; 0 if there is none.
    ///
    /// # Errors
    /// [`WrongType`]: the value is not a string.
    pub fn string_len(&mut self, key: &Key<'_>) -> Result<usize, WrongType> {
        Ok(self.text(key)?.map_or(0, |text| text.len()))
    }

    /// Stores a string at a key, replacing any value.
    pub fn put_string(&mut self, key: &Key<'_>, value: &[u8], deadline: Deadline) {
        let codec = self.rules.codec_for(key.bytes);
        if value.len() >= SHARED_MIN {
            let ready = prepare::take(value, codec);
            let Ready { form, stored, .. } = ready.unwrap_or_else(|| Ready::new(value, codec));
            if stored.len() < SHARED_MIN {
                self.put(key, &stored, form, deadline);
            } else {
                self.put_text(key, form, stored, deadline);
            }
        } else {
            compress::in_scratch(codec, value, |form, stored| {
                self.put(key, stored, form, deadline);
            });
        }
        self.changed(key.bytes);
    }

    /// Stores a string that is in its stored form already, without copying a long one.
    pub(super) fn put_shared(&mut self, key: &Key<'_>, text: SharedText, deadline: Deadline) {
        if text.text().stored.len() < SHARED_MIN {
            let Text { form, stored, .. } = text.text();
            self.put(key, stored, form, deadline);
        } else {
            self.revision = self.revision.wrapping_add(1);
            let number = self.texts.add_shared(text);
            self.put(key, &number.to_le_bytes(), Form::Shared, deadline);
        }
        self.changed(key.bytes);
    }

    /// Stores a long string separately.
    fn put_text(&mut self, key: &Key<'_>, form: Form, stored: Vec<u8>, deadline: Deadline) -> At {
        self.revision = self.revision.wrapping_add(1);
        let number = self.texts.add(form, stored);
        self.put(key, &number.to_le_bytes(), Form::Shared, deadline)
    }

    /// Appends to the string at a key, or creates it; returns the new length.
    ///
    /// # Errors
    /// [`WrongType`]: the value is not a string.
    pub fn append(&mut self, key: &Key<'_>, tail: &[u8]) -> Result<usize, WrongType> {
        let len = self.string_len(key)?;
        self.overwrite(key, len, tail)
    }

    /// Overwrites the string at a key from `offset` on, padded with zeros if it ends earlier, or
    /// creates it; returns the new length.
    ///
    /// The cost depends on `bytes`, not on the string: the string is copied only if it is
    /// compressed, short, referenced elsewhere, or out of room, and a long one that grows gets room
    /// for an eighth more.
    ///
    /// # Errors
    /// [`WrongType`]: the value is not a string.
    pub fn overwrite(
        &mut self,
        key: &Key<'_>,
        offset: usize,
        bytes: &[u8],
    ) -> Result<usize, WrongType> {
        let Some(at) = self.find(key) else {
            return Ok(self.put_padded(key, offset, bytes));
        };
        self.overwrite_at(key, at, (offset, bytes), None)
    }

    /// As [`Shard::overwrite`], but changes nothing if a long string must be copied first: the
    /// caller makes the copy without the lock and calls this again with it.
    ///
    /// * `ahead`: the copy. It is used unless the string was changed since; then another one is
    ///   requested.
    ///
    /// # Errors
    /// [`WrongType`]: the value is not a string.
    pub fn overwrite_ahead(
        &mut self,
        key: &Key<'_>,
        offset: usize,
        bytes: &[u8],
        ahead: Option<&mut CopyAhead>,
    ) -> Result<Overwritten, WrongType> {
        let Some(at) = self.find(key) else {
            return Ok(Overwritten::Done(self.put_padded(key, offset, bytes)));
        };
        if let Some(number) = self.text_number(at)
            && let Some(text) = self.texts.get(number)
            && ahead.as_ref().is_none_or(|ahead| !ahead.fits(text, offset))
            && let Some(copy) = self.texts.copy_ahead(number, offset, bytes.len())
        {
            return Ok(Overwritten::CopyFirst(copy));
        }
        self.overwrite_at(key, at, (offset, bytes), ahead).map(Overwritten::Done)
    }

    /// The number of the long string of an entry.
    fn text_number(&self, at: At) -> Option<u32> {
        let held = self.slab.get(at.0);
        Head::of(held).shared(held)
    }

    fn overwrite_at(
        &mut self,
        key: &Key<'_>,
        at: At,
        (offset, bytes): (usize, &[u8]),
        ahead: Option<&mut CopyAhead>,
    ) -> Result<usize, WrongType> {
        let held = self.slab.get(at.0);
        let head = Head::of(held);
        let value_size = head.value(held).len();
        self.altered = true;
        let len = match head.form {
            Form::Object => return Err(WrongType),
            Form::Shared => {
                self.revision = self.revision.wrapping_add(1);
                let number = head.shared(held).unwrap_or(u32::MAX);
                let len = self.texts.overwrite(number, offset, bytes, ahead);
                len.expect("an entry's long string is there")
            }
            Form::Plain if offset + bytes.len() <= value_size => {
                let value = head.value_mut(self.slab.get_mut(at.0));
                value[offset..offset + bytes.len()].copy_from_slice(bytes);
                value_size
            }
            Form::Plain if held.len() > SLOT_MAX && offset + bytes.len() < SHARED_MIN => {
                // A value with a separate vector grows in place.
                let start = held.len() - value_size;
                entry::set_long_value(self.slab.get_mut(at.0));
                let grown = self
                    .slab
                    .resize_large(at.0, |entry| write_over(entry, start + offset, bytes) - start);
                grown.expect("it has a vector")
            }
            Form::Plain | Form::Lz4 | Form::Steps | Form::Zstd => {
                let text = self.text_at(at)?;
                let len = text.len().max(offset + bytes.len());
                let mut value = Vec::new();
                if offset <= text.len() {
                    value.reserve_exact(len);
                    text.append_to(&mut value);
                } else {
                    // The system's memory is zeroed already: a long gap takes no time.
                    value = vec![0; len];
                    value[..text.len()].copy_from_slice(&text.plain());
                }
                write_over(&mut value, offset, bytes);
                if len < SHARED_MIN {
                    self.put(key, &value, Form::Plain, Deadline::Keep);
                } else {
                    self.put_text(key, Form::Plain, value, Deadline::Keep);
                }
                len
            }
        };
        self.changed(key.bytes);
        Ok(len)
    }

    /// Creates a string of zeros followed by `bytes`.
    fn put_padded(&mut self, key: &Key<'_>, offset: usize, bytes: &[u8]) -> usize {
        let len = offset + bytes.len();
        if offset == 0 {
            self.put_string(key, bytes, Deadline::None);
            return len;
        }
        let mut value = vec![0; len];
        value[offset..].copy_from_slice(bytes);
        // More of it will be written: it is not compressed yet.
        if len < SHARED_MIN {
            self.put(key, &value, Form::Plain, Deadline::None);
        } else {
            self.put_text(key, Form::Plain, value, Deadline::None);
        }
        self.changed(key.bytes);
        len
    }
}
