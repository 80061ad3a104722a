//! Objects and their keys in a few large allocations that are reused for every batch.

use super::Object;

/// Maximum size of the keys of a batch.
const KEYS_SIZE_MAX: usize = 1 << 30;

/// Objects with their keys, in the order they were read.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    /// The keys, concatenated.
    keys: Vec<u8>,
    /// End of each key in `keys`; as long as `objects`.
    ends: Vec<u32>,
    objects: Vec<Object>,
}

/// A batch that has no room for another key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a batch holds at most {KEYS_SIZE_MAX} bytes of keys")]
pub struct BatchFull;

impl Batch {
    /// Adds an object.
    ///
    /// # Errors
    /// The keys exceed the capacity of a batch.
    #[inline]
    pub fn push(&mut self, key: &[u8], object: Object) -> Result<(), BatchFull> {
        let end = self.keys.len().checked_add(key.len()).filter(|&end| end <= KEYS_SIZE_MAX);
        let end = end.and_then(|end| u32::try_from(end).ok()).ok_or(BatchFull)?;
        self.keys.extend_from_slice(key);
        self.ends.push(end);
        self.objects.push(object);
        Ok(())
    }

    /// The objects with their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &Object)> {
        let mut start = 0;
        self.ends.iter().zip(&self.objects).map(move |(&end, object)| {
            let key = self.keys.get(start..end as usize).unwrap_or_default();
            start = end as usize;
            (key, object)
        })
    }

    /// Number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Size of its keys in bytes.
    #[must_use]
    pub fn keys_size(&self) -> usize {
        self.keys.len()
    }

    /// Empties it and keeps its allocations.
    pub fn clear(&mut self) {
        self.keys.clear();
        self.ends.clear();
        self.objects.clear();
    }
}
