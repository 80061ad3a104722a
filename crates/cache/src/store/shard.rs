//! One shard: its entries, their index, their values, and the clients that wait for changes.
//!
//! A shard is used under its lock, one command at a time. An expired key does not exist: the
//! command that finds it removes it, at the command's own time (`now_ms`), so that a command
//! replayed at its original time finds the same keys.
//!
//! Invariants: an entry is in the table exactly once; an object belongs to one entry; a collection
//! is never empty; [`Shard::bytes`] counts all memory of entries, index and objects; every change
//! of a key calls [`Shard::changed`], which notifies its watchers and waiters.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use foldhash::{HashMap, HashMapExt as _};

use super::compress::Codec;
use super::entry::{self, Form, Head};
use super::evict::Eviction;
use super::kept::{Garbage, Objects};
use super::object::{Kind, Object};
use super::slab::{Ref, Slab};
use super::table::Table;
use super::text::{SharedText, Texts};
use super::{Key, Rules};

/// The value at a key has another type than the command needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrongType;

/// The new deadline of a key whose value is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deadline {
    /// No deadline.
    None,
    /// The current deadline.
    Keep,
    /// This time, in milliseconds since 1970.
    At(u64),
}

/// A value outside a shard.
#[derive(Debug, Clone)]
pub enum Value {
    /// A string.
    String(Vec<u8>),
    /// A long string, in its stored form.
    Text(SharedText),
    /// A collection.
    Object(Object),
}

/// The location of a key's entry; valid until the shard is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct At(pub(super) Ref);

/// A shard; see the module.
#[derive(Debug)]
pub struct Shard {
    pub(super) slab: Slab,
    pub(super) table: Table,
    pub(super) objects: Objects,
    /// Long strings.
    pub(super) texts: Texts,
    pub(super) rules: Arc<Rules>,
    pub(super) eviction: Eviction,
    /// Keys with a deadline.
    expiring: usize,
    /// Number of expired keys removed.
    pub(super) expired: u64,
    /// The time at which the current command runs.
    pub(super) now_ms: u64,
    /// Flags to raise when a key changes.
    pub(super) watched: HashMap<Box<[u8]>, Vec<Arc<AtomicBool>>>,
    /// Keys on which commands are blocked, with the number of these commands.
    pub(super) awaited: HashMap<Box<[u8]>, usize>,
    /// Awaited keys that have changed since they were last taken.
    pub(super) ready: Vec<Box<[u8]>>,
    /// Values to free after the lock is released.
    pub(super) garbage: Option<Box<Garbage>>,
    /// Whether a change has begun since the lock was taken.
    pub(super) altered: bool,
    /// Incremented whenever memory outside of slab and table may have changed.
    pub(super) revision: u32,
    /// [`Shard::memory_revision`] when memory was last added to the keyspace's sum.
    pub(super) published_revision: u32,
    /// [`Shard::bytes`] when it was last added to the keyspace's sum.
    pub(super) published: usize,
}

impl Shard {
    pub(super) fn new(rules: Arc<Rules>) -> Self {
        Self {
            slab: Slab::new(),
            table: Table::new(),
            objects: Objects::default(),
            texts: Texts::default(),
            rules,
            eviction: Eviction::default(),
            expiring: 0,
            expired: 0,
            now_ms: 0,
            watched: HashMap::new(),
            awaited: HashMap::new(),
            ready: Vec::new(),
            garbage: None,
            altered: false,
            revision: 0,
            published_revision: 0,
            published: 0,
        }
    }

    /// Number of keys, including expired ones that have not been removed yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there are no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of keys with a deadline.
    #[must_use]
    pub fn expiring(&self) -> usize {
        self.expiring
    }

    /// Memory in bytes: entries, index, objects.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.slab.bytes()
            + self.table.bytes()
            + self.objects.bytes()
            + self.texts.bytes()
            + self.eviction.bytes()
    }

    /// Changes whenever [`Shard::bytes`] does.
    #[inline]
    pub(super) fn memory_revision(&self) -> u32 {
        self.revision.wrapping_add(self.slab.revision).wrapping_add(self.table.revision())
    }

    /// Memory of the index in bytes.
    #[must_use]
    pub fn index_bytes(&self) -> usize {
        self.table.bytes()
    }

    /// The time at which the current command runs.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Sets the time of the current command to `now_ms`, if that is later than that of earlier
    /// commands.
    #[inline]
    pub fn advance(&mut self, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
    }

    /// Finds a key and records its use; an expired key is removed instead.
    #[inline]
    pub fn find(&mut self, key: &Key<'_>) -> Option<At> {
        let at = self.look_at(key)?;
        self.note_use(at);
        Some(at)
    }

    /// Finds a key without recording its use: for queries about the key, not about its value.
    #[inline]
    pub fn look_at(&mut self, key: &Key<'_>) -> Option<At> {
        let at = self.peek(key)?;
        if entry::deadline_ms(self.slab.get(at.0)).is_some_and(|deadline| deadline <= self.now_ms) {
            self.expire(key.hash, at);
            self.changed(key.bytes);
            return None;
        }
        Some(at)
    }

    /// Finds a key without recording its use, even if it has expired.
    #[inline]
    fn peek(&self, key: &Key<'_>) -> Option<At> {
        let slab = &self.slab;
        self.table.find(key.hash, |at| entry::key(slab.get(at)) == key.bytes).map(At)
    }

    fn note_use(&mut self, at: At) {
        if !self.rules.notes_uses() {
            return;
        }
        let held = self.slab.get_mut(at.0);
        self.rules.note_use(held, self.now_ms);
    }

    fn expire(&mut self, hash: u64, at: At) {
        self.expired += 1;
        self.drop_entry(hash, at);
    }

    /// The key of an entry.
    #[must_use]
    pub fn key(&self, at: At) -> &[u8] {
        entry::key(self.slab.get(at.0))
    }

    /// The type of an entry's value.
    #[must_use]
    pub fn kind(&self, at: At) -> Kind {
        let held = self.slab.get(at.0);
        match Head::of(held).object(held) {
            None => Kind::String,
            Some(number) => self.objects.get(number).map_or(Kind::String, Object::kind),
        }
    }

    /// When an entry's key expires, in milliseconds since 1970.
    #[must_use]
    pub fn deadline_ms(&self, at: At) -> Option<u64> {
        entry::deadline_ms(self.slab.get(at.0))
    }

    /// Milliseconds since an entry was last used, if the eviction policy records that.
    #[must_use]
    pub fn idle_ms(&self, at: At) -> Option<u64> {
        self.rules.idle_ms(self.slab.get(at.0), self.now_ms)
    }

    /// The recent use count of an entry, as the eviction policy counts it.
    #[must_use]
    pub fn frequency(&self, at: At) -> u8 {
        self.rules.frequency(self.slab.get(at.0))
    }

    /// Memory of an entry and its value in bytes, without its share of the index.
    #[must_use]
    pub fn usage(&self, at: At) -> usize {
        let held = self.slab.get(at.0);
        let head = Head::of(held);
        let object = head.object(held).and_then(|number| self.objects.get(number));
        let text = head.shared(held).and_then(|number| self.texts.get(number));
        self.slab.size(at.0) + object.map_or(0, Object::bytes) + text.map_or(0, SharedText::bytes)
    }

    /// The codec of a string, and its stored size in bytes.
    #[must_use]
    pub fn stored_len(&self, at: At) -> (Codec, usize) {
        let Ok(text) = self.text_at(at) else { return (Codec::None, 0) };
        let codec = match text.form {
            Form::Lz4 | Form::Steps => Codec::Lz4,
            Form::Zstd => Codec::Zstd,
            Form::Plain | Form::Object | Form::Shared => Codec::None,
        };
        (codec, text.stored.len())
    }

    /// Stores a value at a key, replacing any value; an empty collection removes the key.
    pub fn put_value(&mut self, key: &Key<'_>, value: Value, deadline: Deadline) {
        match value {
            Value::String(text) => self.put_string(key, &text, deadline),
            Value::Text(text) => self.put_shared(key, text, deadline),
            Value::Object(object) => {
                let before = self.find(key);
                let deadline_ms = match deadline {
                    Deadline::None => None,
                    Deadline::At(ms) => Some(ms),
                    Deadline::Keep => before.and_then(|at| self.deadline_ms(at)),
                };
                if let Some(at) = before {
                    self.drop_entry(key.hash, at);
                }
                if !object.is_empty() {
                    self.put_new_object(key, object, deadline_ms);
                }
                self.changed(key.bytes);
            }
        }
    }

    /// A copy of the value at a key.
    pub fn value(&mut self, key: &Key<'_>) -> Option<Value> {
        let at = self.find(key)?;
        Some(match self.object_at(at) {
            Some(object) => Value::Object(object.clone()),
            None => self.string_value(at),
        })
    }

    /// The string of an entry: a long one is referenced, not copied.
    fn string_value(&self, at: At) -> Value {
        match self.text_at(at) {
            Ok(text) if text.is_shared() => Value::Text(text.hold()),
            Ok(text) => Value::String(text.plain().into_owned()),
            Err(WrongType) => Value::String(Vec::new()),
        }
    }

    /// Removes a key and returns its value and deadline.
    pub fn take(&mut self, key: &Key<'_>) -> Option<(Value, Option<u64>)> {
        let at = self.find(key)?;
        let deadline_ms = self.deadline_ms(at);
        let value = match self.object_number(at) {
            Some(number) => {
                self.altered = true;
                let object = self.take_object(number)?;
                self.drop_slot(key.hash, at);
                Value::Object(object)
            }
            None => {
                let value = self.string_value(at);
                self.drop_entry(key.hash, at);
                value
            }
        };
        self.changed(key.bytes);
        Some((value, deadline_ms))
    }

    /// Removes a key; returns whether it existed.
    pub fn remove(&mut self, key: &Key<'_>) -> bool {
        let Some(at) = self.find(key) else { return false };
        self.drop_entry(key.hash, at);
        self.changed(key.bytes);
        true
    }

    /// Sets or removes a key's deadline; returns whether the key exists.
    pub fn set_deadline(&mut self, key: &Key<'_>, deadline_ms: Option<u64>) -> bool {
        let Some(at) = self.find(key) else { return false };
        let before = self.deadline_ms(at);
        self.altered = true;
        match (before, deadline_ms) {
            (None, None) => {}
            (Some(_), Some(ms)) => entry::move_deadline(self.slab.get_mut(at.0), ms),
            _ => {
                let held = self.slab.get(at.0);
                let head = Head::of(held);
                let (form, stored) = (head.form, head.value(held).to_vec());
                let deadline = deadline_ms.map_or(Deadline::None, Deadline::At);
                self.put(key, &stored, form, deadline);
            }
        }
        self.changed(key.bytes);
        true
    }

    /// Removes every key; returns their memory, to be freed without the lock.
    pub fn clear(&mut self) -> Self {
        self.altered = true;
        let watched = std::mem::take(&mut self.watched);
        for (bytes, flags) in &watched {
            // A key that does not exist does not change, and is still watched.
            if self.peek(&Key { bytes, hash: self.rules.hash(bytes) }).is_some() {
                flags.iter().for_each(|flag| flag.store(true, Ordering::Release));
            }
        }
        let fresh = Self::new(self.rules.clone());
        let awaited = std::mem::take(&mut self.awaited);
        let (expired, now_ms, published) = (self.expired, self.now_ms, self.published);
        let revision = self.memory_revision().wrapping_add(1);
        let published_revision = self.published_revision;
        let fresh = Self { watched, awaited, expired, now_ms, published, altered: true, ..fresh };
        std::mem::replace(self, Self { revision, published_revision, ..fresh })
    }

    /// Writes an entry for a key, replacing an existing one.
    ///
    /// The object of the previous entry is dropped, unless the new entry has the same object.
    pub(super) fn put(
        &mut self,
        key: &Key<'_>,
        stored: &[u8],
        form: Form,
        deadline: Deadline,
    ) -> At {
        self.altered = true;
        let mut before = self.peek(key);
        if let Some(at) = before
            && self.deadline_ms(at).is_some_and(|ms| ms <= self.now_ms)
        {
            self.expire(key.hash, at);
            before = None;
        }
        let deadline_ms = match deadline {
            Deadline::None => None,
            Deadline::At(ms) => Some(ms),
            Deadline::Keep => before.and_then(|at| self.deadline_ms(at)),
        };
        let touch = self.rules.touch(self.now_ms);
        let layout = entry::layout(
            key.bytes.len(),
            stored.len(),
            form,
            deadline_ms.is_some(),
            touch.is_some(),
        );
        if let Some(at) = before {
            self.leave(at, stored, form);
            self.expiring -= usize::from(self.deadline_ms(at).is_some());
            let size = self.slab.get(at.0).len();
            let fits = layout.size <= super::slab::SLOT_MAX && layout.size.div_ceil(8) * 8 == size;
            if fits {
                let held = self.slab.get_mut(at.0);
                let uses = entry::uses(held);
                entry::write(&layout, held, key.bytes, deadline_ms, touch.unwrap_or(0))
                    .copy_from_slice(stored);
                entry::set_uses(held, uses);
                self.expiring += usize::from(deadline_ms.is_some());
                self.note_use(at);
                return at;
            }
        }
        let (at, held) = self.slab.insert(layout.size);
        entry::write(&layout, held, key.bytes, deadline_ms, touch.unwrap_or(0))
            .copy_from_slice(stored);
        self.expiring += usize::from(deadline_ms.is_some());
        match before {
            Some(before) => {
                let uses = entry::uses(self.slab.get(before.0));
                entry::set_uses(self.slab.get_mut(at), uses);
                self.table.replace(key.hash, before.0, at);
                self.slab.remove(before.0);
            }
            None => {
                let (slab, rules) = (&self.slab, &self.rules);
                let hash_of = |at: Ref| rules.hash(entry::key(slab.get(at)));
                self.table.insert(key.hash, at, &hash_of);
            }
        }
        if self.rules.keeps_queues() {
            self.eviction.inserted(at, key.hash, before.is_some());
            self.revision = self.revision.wrapping_add(1);
        }
        At(at)
    }

    /// Removes an entry and its value.
    pub(super) fn drop_entry(&mut self, hash: u64, at: At) {
        self.altered = true;
        self.drop_kept(at);
        self.drop_slot(hash, at);
    }

    pub(super) fn drop_slot(&mut self, hash: u64, at: At) {
        self.expiring -= usize::from(self.deadline_ms(at).is_some());
        self.table.remove(hash, at.0);
        self.slab.remove(at.0);
    }
}
