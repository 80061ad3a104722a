//! The values that entries refer to by number: collections and long strings, freed without the
//! lock.
//!
//! Invariants: an object or a long string belongs to one entry; a collection is never empty; the
//! memory of a change is computed from the previously recorded size, so a change interrupted by a
//! panic leaves a sum that the next change of the same collection corrects.

use super::Key;
use super::entry::{Form, Head};
use super::object::{Collection, Object};
use super::shard::{At, Deadline, Shard, WrongType};
use super::text::SharedText;

/// Size in bytes from which a removed value is freed without the shard's lock.
const GARBAGE_MIN: usize = 64 << 10;

/// Collections by number.
#[derive(Debug, Default)]
pub(super) struct Objects {
    /// Each with the size recorded for it.
    held: Vec<Option<(Object, usize)>>,
    free: Vec<u32>,
    heap: usize,
}

/// Large values that nothing refers to any more.
#[derive(Debug, Default)]
pub(super) struct Garbage {
    objects: Vec<Object>,
    texts: Vec<SharedText>,
}

impl Garbage {
    /// Memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        let objects = self.objects.iter().map(Object::bytes).sum::<usize>();
        objects + self.texts.iter().map(SharedText::bytes).sum::<usize>()
    }
}

impl Objects {
    /// Memory of all of them in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.heap
            + self.held.capacity() * size_of::<Option<(Object, usize)>>()
            + self.free.capacity() * size_of::<u32>()
    }

    pub(super) fn get(&self, number: u32) -> Option<&Object> {
        self.held.get(number as usize)?.as_ref().map(|(object, _)| object)
    }

    fn add(&mut self, object: Object) -> u32 {
        let bytes = object.bytes();
        self.heap += bytes;
        if let Some(number) = self.free.pop() {
            self.held[number as usize] = Some((object, bytes));
            return number;
        }
        self.held.push(Some((object, bytes)));
        u32::try_from(self.held.len() - 1).expect("fewer than 2^32 collections a shard")
    }

    fn take(&mut self, number: u32) -> Option<Object> {
        let (object, bytes) = self.held.get_mut(number as usize)?.take()?;
        self.heap -= bytes;
        self.free.push(number);
        Some(object)
    }

    /// Changes one; returns whether it is empty afterwards.
    fn edit<C: Collection, R>(
        &mut self,
        number: u32,
        change: impl FnOnce(&mut C) -> R,
    ) -> Result<(R, bool), WrongType> {
        let held = self.held.get_mut(number as usize).and_then(Option::as_mut);
        let (object, counted) = held.ok_or(WrongType)?;
        let result = change(C::of_mut(object).ok_or(WrongType)?);
        let bytes = object.bytes();
        self.heap = self.heap + bytes - *counted;
        *counted = bytes;
        Ok((result, object.is_empty()))
    }
}

impl Shard {
    /// The number of the object of an entry.
    pub(super) fn object_number(&self, at: At) -> Option<u32> {
        let held = self.slab.get(at.0);
        Head::of(held).object(held)
    }

    /// The collection of an entry; `None` for a string.
    #[must_use]
    pub fn object_at(&self, at: At) -> Option<&Object> {
        self.objects.get(self.object_number(at)?)
    }

    /// Reads the collection at a key; `None` if there is no such key.
    ///
    /// # Errors
    /// [`WrongType`]: the value has another type.
    pub fn with<C: Collection, R>(
        &mut self,
        key: &Key<'_>,
        look: impl FnOnce(&C) -> R,
    ) -> Result<Option<R>, WrongType> {
        let Some(at) = self.find(key) else { return Ok(None) };
        let object = self.object_at(at).ok_or(WrongType)?;
        C::of(object).map(|held| Some(look(held))).ok_or(WrongType)
    }

    /// Changes the collection at a key; `None` if there is no such key. It is removed if it becomes
    /// empty.
    ///
    /// # Errors
    /// [`WrongType`]: the value has another type; nothing was changed.
    pub fn edit<C: Collection, R>(
        &mut self,
        key: &Key<'_>,
        change: impl FnOnce(&mut C) -> R,
    ) -> Result<Option<R>, WrongType> {
        let Some(at) = self.find(key) else { return Ok(None) };
        self.edit_at(key, at, change).map(Some)
    }

    /// Changes the collection at a key, creating it if necessary. It is removed if it becomes
    /// empty.
    ///
    /// # Errors
    /// [`WrongType`]: the value has another type; nothing was changed.
    pub fn edit_or_new<C: Collection, R>(
        &mut self,
        key: &Key<'_>,
        change: impl FnOnce(&mut C) -> R,
    ) -> Result<R, WrongType> {
        let at = match self.find(key) {
            Some(at) => at,
            None => self.put_new_object(key, C::default().into_object(), None),
        };
        self.edit_at(key, at, change)
    }

    fn edit_at<C: Collection, R>(
        &mut self,
        key: &Key<'_>,
        at: At,
        change: impl FnOnce(&mut C) -> R,
    ) -> Result<R, WrongType> {
        let number = self.object_number(at).ok_or(WrongType)?;
        self.altered = true;
        self.revision = self.revision.wrapping_add(1);
        let (result, empty) = self.objects.edit(number, change)?;
        if empty {
            self.drop_entry(key.hash, at);
        }
        self.changed(key.bytes);
        Ok(result)
    }

    pub(super) fn put_new_object(
        &mut self,
        key: &Key<'_>,
        object: Object,
        deadline_ms: Option<u64>,
    ) -> At {
        self.revision = self.revision.wrapping_add(1);
        let number = self.objects.add(object);
        let deadline = deadline_ms.map_or(Deadline::None, Deadline::At);
        self.put(key, &number.to_le_bytes(), Form::Object, deadline)
    }

    pub(super) fn take_object(&mut self, number: u32) -> Option<Object> {
        self.revision = self.revision.wrapping_add(1);
        self.objects.take(number)
    }

    /// Drops the value of an entry before it is overwritten, unless the new entry refers to the
    /// same value.
    pub(super) fn leave(&mut self, at: At, stored: &[u8], form: Form) {
        let held = self.slab.get(at.0);
        let head = Head::of(held);
        let kept = matches!(head.form, Form::Object | Form::Shared);
        if kept && (head.form != form || head.value(held) != stored) {
            self.drop_kept(at);
        }
    }

    /// Frees a part of a collection that was removed: immediately if that is fast, otherwise after the
    /// lock is released.
    pub fn discard(&mut self, part: Object) {
        if part.bytes() >= GARBAGE_MIN {
            self.garbage.get_or_insert_default().objects.push(part);
        }
    }

    /// Drops the value of an entry. It is freed immediately if that is fast, otherwise after the
    /// lock is released.
    pub(super) fn drop_kept(&mut self, at: At) {
        let held = self.slab.get(at.0);
        let head = Head::of(held);
        if let Some(number) = head.object(held) {
            let object = self.take_object(number);
            let large = object.filter(|object| object.bytes() >= GARBAGE_MIN);
            if let Some(large) = large {
                self.garbage.get_or_insert_default().objects.push(large);
            }
        } else if let Some(number) = head.shared(held) {
            self.revision = self.revision.wrapping_add(1);
            let text = self.texts.take(number);
            let large = text.filter(|text| text.bytes() >= GARBAGE_MIN);
            if let Some(large) = large {
                self.garbage.get_or_insert_default().texts.push(large);
            }
        }
    }
}

#[cfg(test)]
impl Shard {
    /// Whether the recorded sizes of collections and long strings are correct.
    pub(crate) fn is_counted_right(&self) -> bool {
        let objects: usize = self.objects.held.iter().flatten().map(|(held, _)| held.bytes()).sum();
        objects == self.objects.heap && self.texts.is_counted_right()
    }

    /// Number of long strings that were copied under the lock before a change.
    pub(crate) fn copied_locked(&self) -> u64 {
        self.texts.copied
    }
}
