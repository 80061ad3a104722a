//! Long strings prepared before the shard that will hold them is locked.
//!
//! Compressing 85 KB takes some 140 us, a megabyte two milliseconds: too long to block others from
//! a shard. So a thread that is about to lock it compresses or copies the value first; under the
//! lock [`Shard::put_string`](super::Shard::put_string) finds the result. Nothing else depends on
//! it: a value that was not prepared is compressed there.
//!
//! Invariant: a prepared result belongs to its value for as long as the value is lent to
//! [`Prepared`], and is dropped with it, so a reused address never leads to another value's bytes.

use std::cell::RefCell;
use std::marker::PhantomData;

use super::compress::{self, Codec};
use super::entry::Form;
use super::text::{SHARED_MIN, SharedText};
use super::{Keyspace, Value};

/// A value in its stored form.
#[derive(Debug)]
pub(super) struct Ready {
    /// Address and length of the plain value.
    source: (usize, usize),
    codec: Codec,
    pub(super) form: Form,
    pub(super) stored: Vec<u8>,
}

impl Ready {
    /// Compresses a value, or copies it if that does not pay off.
    pub(super) fn new(value: &[u8], codec: Codec) -> Self {
        let (form, stored) = if value.len() <= compress::SCRATCH_MAX {
            compress::in_scratch(codec, value, |form, stored| (form, stored.to_vec()))
        } else {
            let mut stored = Vec::new();
            let form = compress::compress(codec, value, &mut stored).unwrap_or_else(|| {
                stored = value.to_vec();
                Form::Plain
            });
            stored.shrink_to_fit();
            (form, stored)
        };
        Self { source: source(value), codec, form, stored }
    }
}

thread_local! {
    /// The values of one command, the first one last.
    static READY: RefCell<Vec<Ready>> = const { RefCell::new(Vec::new()) };
}

/// Values that are prepared for as long as this lives.
#[derive(Debug)]
#[must_use = "what was prepared is forgotten with it"]
pub struct Prepared<'v>(PhantomData<(&'v [u8], *const ())>);

impl Drop for Prepared<'_> {
    fn drop(&mut self) {
        READY.take();
    }
}

/// Long values that another thread prepares: it is lent the buffer that they are in.
#[derive(Debug)]
pub(crate) struct Preparation {
    buffer: Vec<u8>,
    /// Address and length of each value in the buffer.
    values: Vec<(usize, usize)>,
    codec: Codec,
    ready: Vec<Ready>,
}

impl Preparation {
    /// * `values`: parts of `buffer`.
    pub(crate) fn new(buffer: Vec<u8>, values: Vec<(usize, usize)>, codec: Codec) -> Self {
        Self { buffer, values, codec, ready: Vec::new() }
    }

    /// Bytes of the values.
    pub(crate) fn size(&self) -> usize {
        self.values.iter().map(|(_, len)| len).sum()
    }

    /// Prepares the values, unless the buffer was returned.
    pub(crate) fn run(&mut self) {
        let (buffer, start) = (&self.buffer, self.buffer.as_ptr().addr());
        let value = |&(address, len): &(usize, usize)| {
            let at = address.checked_sub(start)?;
            buffer.get(at..at.checked_add(len)?)
        };
        // As [`Keyspace::prepare`] does it.
        let values = self.values.iter().rev().filter_map(value);
        self.ready = values.map(|value| Ready::new(value, self.codec)).collect();
    }

    /// Returns the buffer.
    pub(crate) fn give_back(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.buffer)
    }

    /// Uses the results for the same values, which may be at another place by now.
    pub(crate) fn install<'v>(
        &mut self,
        values: Option<impl DoubleEndedIterator<Item = &'v [u8]>>,
    ) -> Option<Prepared<'v>> {
        let places: Vec<_> = values?.rev().map(source).collect();
        let lengths = |places: &[(usize, usize)]| places.iter().map(|it| it.1).collect::<Vec<_>>();
        let ready: Vec<_> = self.ready.iter().map(|ready| ready.source).collect();
        if ready.is_empty() || lengths(&ready) != lengths(&places) {
            return None;
        }
        for (ready, place) in self.ready.iter_mut().zip(places) {
            ready.source = place;
        }
        READY.set(std::mem::take(&mut self.ready));
        Some(Prepared(PhantomData))
    }
}

impl Keyspace {
    /// Prepares the long ones of those values, in order, to be stored by this thread. Must be
    /// called without a lock.
    pub fn prepare<'v>(
        &self,
        values: impl DoubleEndedIterator<Item = &'v [u8]>,
    ) -> Option<Prepared<'v>> {
        let codec = self.rules().codec();
        let long = values.rev().filter(|value| value.len() >= SHARED_MIN);
        let ready: Vec<Ready> = long.map(|value| Ready::new(value, codec)).collect();
        if ready.is_empty() {
            return None;
        }
        READY.set(ready);
        Some(Prepared(PhantomData))
    }
}

impl Value {
    /// A string as it will be stored, compressed with `codec` if that pays off. Must be called
    /// without a lock.
    pub(crate) fn compressed(codec: Codec, value: Vec<u8>) -> Self {
        if value.len() < SHARED_MIN {
            return Self::String(value);
        }
        let mut stored = Vec::new();
        match compress::compress(codec, &value, &mut stored) {
            Some(form) => Self::Text(SharedText::new(form, stored)),
            None => Self::plain(value),
        }
    }

    /// A long string that is stored as it is.
    pub(crate) fn plain(value: Vec<u8>) -> Self {
        Self::Text(SharedText::new(Form::Plain, value))
    }
}

/// Address and length of a value.
pub(crate) fn source(value: &[u8]) -> (usize, usize) {
    (value.as_ptr().addr(), value.len())
}

/// Takes the prepared result of a value, if it was prepared for this codec.
pub(super) fn take(value: &[u8], codec: Codec) -> Option<Ready> {
    READY.with_borrow_mut(|ready| {
        let at = ready.iter().rposition(|ready| ready.source == source(value))?;
        Some(ready.remove(at)).filter(|ready| ready.codec == codec)
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{get, keyspace, on};
    use super::super::{Deadline, Key, Shard};
    use super::*;

    fn values() -> [Vec<u8>; 2] {
        let text = br#"{"id":1,"name":"basin","tags":["water","power"]},"#.repeat(9_000);
        let mut state = 7u64;
        let mut byte = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.to_le_bytes()[5]
        };
        [text, (0..90_000).map(|_| byte()).collect()]
    }

    #[test]
    fn what_was_prepared_is_what_is_kept_and_it_is_kept_once() {
        for value in values() {
            let space = keyspace();
            let prepared = space.prepare([&value[..]].into_iter());
            let place = READY.with_borrow(|ready| ready[0].stored.as_ptr());
            let put = |shard: &mut Shard, key: &Key<'_>| {
                shard.put_string(key, &value, Deadline::None);
                let at = shard.find(key).unwrap();
                shard.text_at(at).unwrap().stored.as_ptr() == place
            };
            let long = on(&space, b"first", 1, put);
            assert!(long || value[0] == b'{', "{} bytes were copied", value.len());
            assert!(READY.with_borrow(Vec::is_empty) && !on(&space, b"second", 1, put));
            drop(prepared);
            assert_eq!(get(&space, b"first", 1).unwrap(), value);
            assert_eq!(get(&space, b"second", 1).unwrap(), value);
        }
    }

    #[test]
    fn what_was_prepared_has_no_spare_room() {
        for value in values() {
            for codec in [Codec::None, Codec::Lz4, Codec::Zstd] {
                let Ready { stored, form, .. } = Ready::new(&value, codec);
                let (size, room) = (stored.len(), stored.capacity());
                // The allocator may round up.
                assert!(room <= size + 64, "{form:?} of {} bytes: {room} for {size}", value.len());
            }
        }
    }

    #[test]
    fn of_many_values_each_is_taken_once_in_any_order() {
        let space = keyspace();
        let [text, noise] = values();
        let short = b"short".to_vec();
        let all = [&text[..], &short, &noise, &text[..50_000]];
        let prepared = space.prepare(all.into_iter());
        assert_eq!(READY.with_borrow(Vec::len), 3);
        for at in [2, 1, 0, 3] {
            let key = format!("key {at}");
            on(&space, key.as_bytes(), 1, |shard, key| {
                shard.put_string(key, all[at], Deadline::None);
            });
            assert_eq!(get(&space, key.as_bytes(), 1).unwrap(), all[at]);
        }
        assert!(READY.with_borrow(Vec::is_empty));
        drop(prepared);
    }

    #[test]
    fn nothing_is_left_of_a_value_that_was_not_put_or_is_another() {
        let space = keyspace();
        let [text, mut noise] = values();
        assert!(space.prepare([&b"short"[..]].into_iter()).is_none());
        let prepared = space.prepare([&noise[..]].into_iter());
        on(&space, b"k", 1, |shard, key| shard.put_string(key, &text, Deadline::None));
        assert_eq!(get(&space, b"k", 1).unwrap(), text);
        drop(prepared);
        noise[5] ^= 1;
        on(&space, b"k", 1, |shard, key| shard.put_string(key, &noise, Deadline::None));
        assert_eq!(get(&space, b"k", 1).unwrap(), noise);
    }

    #[test]
    fn a_key_whose_values_are_left_alone_gets_a_plain_one() {
        let space = keyspace();
        space.rules().set_plain_keys(vec![b"plain:*"[..].into()]);
        let [text, _] = values();
        let _prepared = space.prepare([&text[..]].into_iter());
        let codec = on(&space, b"plain:1", 1, |shard, key| {
            shard.put_string(key, &text, Deadline::None);
            let at = shard.find(key).unwrap();
            shard.stored_len(at).0
        });
        assert_eq!(codec, Codec::None);
    }
}
