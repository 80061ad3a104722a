//! Up to where a collection is packed.
//!
//! The limits hold for the process, as an allocator's settings do: they decide how a collection is
//! kept, never what it holds or answers. A change is for what grows from then on; what is packed
//! already stays so until its next member. Redis' names for them: `hash-max-listpack-entries`, ....

use std::sync::atomic::{AtomicUsize, Ordering};

/// Most bytes of anything packed: its length is kept in a byte.
pub const ITEM_SIZE_MAX: usize = 255;
/// Most members of anything packed; it is searched from its start, so such a limit is no good one.
pub const LEN_MAX: usize = u32::MAX as usize;
/// Most bytes of a list's chunk, when bytes bound it.
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

    /// What it is.
    #[must_use]
    #[inline]
    pub fn get(&self) -> usize {
        self.value.load(Ordering::Relaxed)
    }

    /// The most it can be set to.
    #[must_use]
    pub fn max(&self) -> usize {
        self.max
    }

    /// Sets it; `false`, and nothing is changed, above [`Limit::max`].
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
    /// Most members.
    pub len: Limit,
    /// Most bytes of a field, value or member.
    pub item_size: Limit,
}

impl Packing {
    const fn new() -> Self {
        Self { len: Limit::new(128, LEN_MAX), item_size: Limit::new(64, ITEM_SIZE_MAX) }
    }
}

/// Of hashes.
pub static HASH: Packing = Packing::new();
/// Of sets.
pub static SET: Packing = Packing::new();
/// Of sorted sets.
pub static ZSET: Packing = Packing::new();
/// Most members of a set kept as sorted integers.
pub static SET_INTEGERS: Limit = Limit::new(512, LEN_MAX);
/// Bytes from which a list's chunk takes no more pushes.
pub static LIST_CHUNK_SIZE: Limit = Limit::new(4 << 10, CHUNK_SIZE_MAX);
/// Told back, and nothing else: the chunks of a list are not compressed.
pub static LIST_COMPRESS_DEPTH: Limit = Limit::new(0, LEN_MAX);
/// Elements from which it takes none; 0: bytes alone decide.
pub static LIST_CHUNK_LEN: Limit = Limit::new(0, LEN_MAX);
