//! Limits up to which a collection is packed.
//!
//! The limits apply to the whole process: they decide how a collection is stored, never what it
//! holds or returns. A change applies to collections that grow afterwards; a packed collection
//! stays packed until its next member is added. Redis' names for the limits:
//! `hash-max-listpack-entries`, ....

use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum size in bytes of a packed item: its length is stored in one byte.
pub const ITEM_SIZE_MAX: usize = 255;
/// Maximum number of members of a packed collection. It is searched linearly, so such a limit is
/// unwise.
pub const LEN_MAX: usize = u32::MAX as usize;
/// Maximum size in bytes of a list's chunk, if bytes limit it.
pub const CHUNK_SIZE_MAX: usize = 64 << 10;

/// A limit that can be changed while collections grow.
#[derive(Debug)]
pub struct Limit {
    value: AtomicUsize,
    max: usize,
}

impl Limit {
    const fn new(value: usize, max: usize) -> Self {
        Self { value: AtomicUsize::new(value), max }
    }

    /// Returns the current value.
    #[must_use]
    #[inline]
    pub fn get(&self) -> usize {
        self.value.load(Ordering::Relaxed)
    }

    /// Returns the maximum value.
    #[must_use]
    pub fn max(&self) -> usize {
        self.max
    }

    /// Sets the value; returns `false`, and changes nothing, above [`Limit::max`].
    pub fn set(&self, value: usize) -> bool {
        let fits = value <= self.max;
        if fits {
            self.value.store(value, Ordering::Relaxed);
        }
        fits
    }
}

/// The limits of one type of collection.
#[derive(Debug)]
pub struct Packing {
    /// Maximum number of members.
    pub len: Limit,
    /// Maximum size in bytes of a field, value or member.
    pub item_size: Limit,
}

impl Packing {
    const fn new() -> Self {
        Self { len: Limit::new(128, LEN_MAX), item_size: Limit::new(64, ITEM_SIZE_MAX) }
    }
}

/// Limits of hashes.
pub static HASH: Packing = Packing::new();
/// Limits of sets.
pub static SET: Packing = Packing::new();
/// Limits of sorted sets.
pub static ZSET: Packing = Packing::new();
/// Maximum number of members of a set stored as sorted integers.
pub static SET_INTEGERS: Limit = Limit::new(512, LEN_MAX);
/// Size in bytes from which a list's chunk accepts no more pushes.
pub static LIST_CHUNK_SIZE: Limit = Limit::new(4 << 10, CHUNK_SIZE_MAX);
/// Only stored and returned: the chunks of a list are not compressed.
pub static LIST_COMPRESS_DEPTH: Limit = Limit::new(0, LEN_MAX);
/// Number of elements from which a chunk accepts no more; 0: only the size decides.
pub static LIST_CHUNK_LEN: Limit = Limit::new(0, LEN_MAX);
