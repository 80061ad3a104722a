//! The store: sixteen databases of 64 shards each, every shard under its own lock.
//!
//! A command locks the shards of its keys, in the order of their numbers, for as long as it runs;
//! commands on other shards run in parallel. Nothing here knows commands, sockets or files.
//!
//! Invariants: shards are locked in ascending order only; a key's hash alone determines its shard;
//! the sum in [`Keyspace::used`] includes every shard when its lock is released through [`Held`].
//!
//! A panic under a shard's lock releases the lock like any other end. If it interrupts a change,
//! which [`Shard`] marks, the data is *torn* ([`Keyspace::is_torn`]) from before the lock is
//! released until the process ends. Torn data is neither logged nor put into a snapshot: what is on
//! disk stays as it was before that command.

mod ahead;
mod compress;
mod entry;
mod evict;
mod kept;
mod object;
mod prepare;
mod reaper;
mod rules;
mod scan;
mod shard;
mod slab;
mod strings;
mod table;
mod text;
mod watching;

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};
use reaper::{Discarded, Reaper};

pub(crate) use ahead::AHEAD_MIN;
pub use ahead::{CopyAhead, Overwritten};
pub use compress::Codec;
#[cfg(any(test, feature = "fuzzing"))]
pub use compress::fuzzing::compressed;
pub use object::{Collection, Kind, Object};
pub use prepare::Prepared;
pub(crate) use prepare::{Preparation, source};
pub use rules::{Policy, Rules};
pub use scan::ScanPosition;
pub use shard::{At, Deadline, Shard, Value, WrongType};
pub use text::{SharedText, Text};

/// Number of databases that a client may select.
pub const DATABASES: usize = 16;
/// Number of shards of a database.
pub const SHARDS: usize = 64;

/// A key and its hash.
#[derive(Debug, Clone, Copy)]
pub struct Key<'k> {
    /// Its bytes.
    pub bytes: &'k [u8],
    /// [`Rules::hash`] of them.
    pub hash: u64,
}

impl Key<'_> {
    /// The number of the key's shard in its database.
    #[must_use]
    pub fn shard(&self) -> usize {
        shard_of(self.hash)
    }
}

/// The shard of a hash: bits that neither choose a segment nor a bucket in it.
#[must_use]
#[inline]
pub fn shard_of(hash: u64) -> usize {
    (hash >> 14) as usize & (SHARDS - 1)
}

/// A shard, and its figures that are readable without locking: as of the last release of its lock.
#[derive(Debug)]
#[repr(align(128))]
struct Slot {
    shard: Mutex<Shard>,
    keys: AtomicUsize,
    expiring: AtomicUsize,
    expired: AtomicU64,
}

/// All databases.
#[derive(Debug)]
pub struct Keyspace {
    rules: Arc<Rules>,
    databases: [OnceLock<Box<[Slot]>>; DATABASES],
    used: AtomicI64,
    torn: AtomicBool,
    reaper: Reaper,
}

/// A locked shard; see [`Keyspace::lock`].
#[derive(Debug)]
pub struct Held<'k> {
    guard: MutexGuard<'k, Shard>,
    slot: &'k Slot,
    used: &'k AtomicI64,
    torn: &'k AtomicBool,
    /// Removed values; after the guard, so that they are freed without the lock.
    discarded: Discarded<'k>,
}

impl Held<'_> {
    /// Lets other threads that wait for the shard run first, and locks it again afterwards; does
    /// nothing if no thread waits.
    pub fn give_way(&mut self) {
        MutexGuard::bump(&mut self.guard);
    }
}

impl std::ops::Deref for Held<'_> {
    type Target = Shard;

    #[inline]
    fn deref(&self) -> &Shard {
        &self.guard
    }
}

impl std::ops::DerefMut for Held<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Shard {
        &mut self.guard
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.guard.altered && std::thread::panicking() {
            self.torn.store(true, Ordering::Release);
        }
        if self.guard.garbage.is_some() {
            self.discarded.garbage = self.guard.garbage.take();
        }
        // The lock is held, so no other thread writes these.
        self.slot.keys.store(self.guard.len(), Ordering::Relaxed);
        self.slot.expiring.store(self.guard.expiring(), Ordering::Relaxed);
        self.slot.expired.store(self.guard.expired, Ordering::Relaxed);
        let revision = self.guard.memory_revision();
        if revision == self.guard.published_revision {
            return;
        }
        self.guard.published_revision = revision;
        let bytes = self.guard.bytes();
        let before = std::mem::replace(&mut self.guard.published, bytes);
        if bytes != before {
            let change = bytes.cast_signed() as i64 - before.cast_signed() as i64;
            self.used.fetch_add(change, Ordering::Relaxed);
        }
    }
}

impl Keyspace {
    /// Returns an empty store with these rules.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        let rules = Arc::new(rules);
        Self {
            rules,
            databases: [const { OnceLock::new() }; DATABASES],
            used: AtomicI64::new(0),
            torn: AtomicBool::new(false),
            reaper: Reaper::default(),
        }
    }

    /// Its rules.
    #[must_use]
    pub fn rules(&self) -> &Arc<Rules> {
        &self.rules
    }

    /// A key with its hash.
    #[must_use]
    #[inline]
    pub fn key<'k>(&self, bytes: &'k [u8]) -> Key<'k> {
        Key { bytes, hash: self.rules.hash(bytes) }
    }

    /// Memory of all shards in bytes.
    #[must_use]
    pub fn used(&self) -> usize {
        usize::try_from(self.used.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Whether a command panicked during a change: a bug, after which nothing is persisted any
    /// more.
    ///
    /// If called with a shard locked, the result covers everything that happened to that shard
    /// before.
    #[must_use]
    #[inline]
    pub fn is_torn(&self) -> bool {
        self.torn.load(Ordering::Acquire)
    }

    /// Whether a database was ever written to.
    #[must_use]
    pub fn is_made(&self, database: usize) -> bool {
        self.databases.get(database).is_some_and(|made| made.get().is_some())
    }

    /// Locks a shard for a command that runs at `now_ms`, or at the latest time of any command on
    /// this shard, if that is later (see [`Shard::now_ms`]): a key that has expired is never seen
    /// again by a command with an earlier time.
    ///
    /// A thread that holds several locks takes them in ascending order of (database, shard).
    ///
    /// # Panics
    /// If there is no such database or shard: the numbers come from internal tables.
    #[must_use]
    #[inline]
    pub fn lock(&self, database: usize, shard: usize, now_ms: u64) -> Held<'_> {
        let shards = self.databases[database].get_or_init(|| {
            let slot = || Slot {
                shard: Mutex::new(Shard::new(self.rules.clone())),
                keys: AtomicUsize::new(0),
                expiring: AtomicUsize::new(0),
                expired: AtomicU64::new(0),
            };
            (0..SHARDS).map(|_| slot()).collect()
        });
        let slot = &shards[shard];
        let mut guard = slot.shard.lock();
        guard.advance(now_ms);
        guard.altered = false;
        let discarded = Discarded { garbage: None, reaper: &self.reaper };
        Held { guard, slot, used: &self.used, torn: &self.torn, discarded }
    }

    /// Number of keys of a database, and of those with a deadline. Takes no lock.
    #[must_use]
    pub fn count(&self, database: usize) -> (usize, usize) {
        let made = self.databases.get(database).and_then(OnceLock::get);
        made.into_iter().flatten().fold((0, 0), |(keys, expiring), slot| {
            let count = |count: &AtomicUsize| count.load(Ordering::Relaxed);
            (keys + count(&slot.keys), expiring + count(&slot.expiring))
        })
    }

    /// Number of expired keys removed, in all databases. Takes no lock.
    #[must_use]
    pub fn expired(&self) -> u64 {
        let made = self.databases.iter().filter_map(OnceLock::get).flatten();
        made.map(|slot| slot.expired.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests;
