//! A shard's strings: read plain, written compressed where that pays, changed in place.
//!
//! A string that is changed in part is kept plain from then on, until it is written whole: it is
//! decompressed once, not with every change.

use std::borrow::Cow;

use super::Key;
use super::compress;
use super::entry::{self, Form, Head};
use super::prepare::{self, Ready};
use super::shard::{At, Deadline, Shard, WrongType};
use super::slab::SLOT_MAX;
use super::text::{SHARED_MIN, Text, write_over};

impl Shard {
    /// The string of an entry, as it is kept.
    ///
    /// # Errors
    /// [`WrongType`]: it is none.
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

    /// The long string of an entry that has one; apart from those of short ones, which are many.
    #[cold]
    fn shared_text(&self, head: Head, held: &[u8]) -> Text<'_> {
        let text = head.shared(held).and_then(|number| self.texts.get(number));
        text.expect("an entry's long string is there").text()
    }

    /// The string at a key, as it is kept; `None` where there is no such key.
    ///
    /// # Errors
    /// [`WrongType`]: the value is no string.
    #[inline]
    pub fn text(&mut self, key: &Key<'_>) -> Result<Option<Text<'_>>, WrongType> {
        match self.find(key) {
            None => Ok(None),
            Some(at) => self.text_at(at).map(Some),
        }
    }

    /// The string of an entry.
    ///
    /// # Errors
    /// [`WrongType`]: it is none.
    #[inline]
    pub fn string_at(&self, at: At) -> Result<Cow<'_, [u8]>, WrongType> {
        self.text_at(at).map(Text::plain)
    }

    /// The string at a key; `None` where there is no such key.
    ///
    /// # Errors
    /// [`WrongType`]: the value is no string.
    #[inline]
    pub fn string(&mut self, key: &Key<'_>) -> Result<Option<Cow<'_, [u8]>>, WrongType> {
        Ok(self.text(key)?.map(Text::plain))
    }

    /// The length of the string at a key, without decompressing it; 0 where there is none.
    ///
    /// # Errors
    /// [`WrongType`]: the value is no string.
    pub fn string_len(&mut self, key: &Key<'_>) -> Result<usize, WrongType> {
        Ok(self.text(key)?.map_or(0, |text| text.len()))
    }

    /// Gives a key a string, whatever it held before.
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

    /// Keeps a long string by itself.
    fn put_text(&mut self, key: &Key<'_>, form: Form, stored: Vec<u8>, deadline: Deadline) -> At {
        self.revision = self.revision.wrapping_add(1);
        let number = self.texts.add(form, stored);
        self.put(key, &number.to_le_bytes(), Form::Shared, deadline)
    }

    /// Lengthens the string at a key, or makes it; returns its length then.
    ///
    /// # Errors
    /// [`WrongType`]: the value is no string.
    pub fn append(&mut self, key: &Key<'_>, tail: &[u8]) -> Result<usize, WrongType> {
        let len = self.string_len(key)?;
        self.overwrite(key, len, tail)
    }

    /// Writes `bytes` over the string at a key from `offset` on, with zeros before them where it ends
    /// earlier, or makes it; returns its length then.
    ///
    /// What it costs is told by `bytes`, not by the string: only one that is compressed, short, or
    /// out of room is copied, and a long one that grows gets room for an eighth more.
    ///
    /// # Errors
    /// [`WrongType`]: the value is no string.
    pub fn overwrite(
        &mut self,
        key: &Key<'_>,
        offset: usize,
        bytes: &[u8],
    ) -> Result<usize, WrongType> {
        let Some(at) = self.find(key) else {
            return Ok(self.put_padded(key, offset, bytes));
        };
        let held = self.slab.get(at.0);
        let head = Head::of(held);
        let value_size = head.value(held).len();
        self.altered = true;
        let len = match head.form {
            Form::Object => return Err(WrongType),
            Form::Shared => {
                self.revision = self.revision.wrapping_add(1);
                let number = head.shared(held).unwrap_or(u32::MAX);
                let len = self.texts.overwrite(number, offset, bytes);
                len.expect("an entry's long string is there")
            }
            Form::Plain if offset + bytes.len() <= value_size => {
                let value = head.value_mut(self.slab.get_mut(at.0));
                value[offset..offset + bytes.len()].copy_from_slice(bytes);
                value_size
            }
            Form::Plain if held.len() > SLOT_MAX && offset + bytes.len() < SHARED_MIN => {
                // A value with a vector of its own grows where it is.
                let start = held.len() - value_size;
                entry::set_long_value(self.slab.get_mut(at.0));
                let grown = self
                    .slab
                    .resize_large(at.0, |entry| write_over(entry, start + offset, bytes) - start);
                grown.expect("it has a vector")
            }
            Form::Plain | Form::Lz4 | Form::Steps | Form::Zstd => {
                let mut value = self.string_at(at)?.into_owned();
                let len = write_over(&mut value, offset, bytes);
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

    /// Makes a string of zeros and `bytes` after them.
    fn put_padded(&mut self, key: &Key<'_>, offset: usize, bytes: &[u8]) -> usize {
        let len = offset + bytes.len();
        if offset == 0 {
            self.put_string(key, bytes, Deadline::None);
            return len;
        }
        let mut value = vec![0; len];
        value[offset..].copy_from_slice(bytes);
        // More of it is going to be written: it is not compressed yet.
        if len < SHARED_MIN {
            self.put(key, &value, Form::Plain, Deadline::None);
        } else {
            self.put_text(key, Form::Plain, value, Deadline::None);
        }
        self.changed(key.bytes);
        len
    }
}
