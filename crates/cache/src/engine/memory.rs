//! The memory limit, and eviction and expiration in the background.
//!
//! Invariant: under a policy that evicts, data and index
//! ([`Keyspace::used`](crate::store::Keyspace::used)) are within the limit whenever no command
//! runs. The memory of connections does not count towards it but has a separate limit (`clients`),
//! so that no client can push out data. A command is admitted if what its words can add fits; what
//! it adds beyond that (a page, a part of the index, room to grow) is evicted before its reply is
//! sent. Under `noeviction` that excess stays, and no command that needs memory is admitted until
//! the excess is gone.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Engine;
use crate::command::{STRING_SIZE_MAX, Spec};
use crate::number;
use crate::store::{DATABASES, Prepared, SHARDS, source};

/// Keys evicted from one shard before the next one is used: more than a page holds for most sizes,
/// so that pages become empty, and no shard bears the whole load.
const EVICT_STEP: usize = 64;
/// Maximum number of keys evicted for one command; the remainder is evicted for later commands.
const EVICT_MAX: usize = 65_536;
/// Memory that a command may need beyond its words: a page and a segment of the index.
const NEED_MIN: usize = 9 << 10;

/// Size in bytes from which a value is considered for compression in advance.
const PREPARE_MIN: usize = 16 << 10;
/// Size in bytes from which another thread prepares a value: compressing it takes some 10 ms.
const LENT_MIN: usize = 8 << 20;

/// Bytes that a command may add: its words and, if one of them extends a string, that extension.
fn need_of(spec: &Spec, args: &[&[u8]]) -> usize {
    let words: usize = args.iter().map(|word| word.len()).sum();
    let reach = |at: usize| {
        let reach = args.get(at).and_then(|word| number::parse_u64(word));
        reach.and_then(|reach| usize::try_from(reach).ok()).unwrap_or(0)
    };
    let reach = match spec.name {
        "setrange" => reach(2),
        "setbit" => reach(2) / 8,
        _ => 0,
    };
    // A length above the maximum of a string is refused by the command itself, with a better
    // reason.
    words + NEED_MIN + if reach <= STRING_SIZE_MAX { reach } else { 0 }
}

/// The long values that a command will store.
pub(super) fn values_of<'v>(
    spec: &Spec,
    args: &[&'v [u8]],
) -> Option<impl DoubleEndedIterator<Item = &'v [u8]>> {
    let values = match spec.name {
        "set" | "setnx" | "getset" => args.get(2..3)?,
        "setex" | "psetex" => args.get(3..4)?,
        "mset" | "msetnx" => args.get(2..)?,
        _ => return None,
    };
    Some(values.iter().step_by(2).copied().filter(|value| value.len() >= PREPARE_MIN))
}

impl Engine {
    /// Bytes of data, index and all that clients hold.
    #[must_use]
    pub fn used_memory(&self) -> usize {
        self.keyspace().used().saturating_add(self.clients_memory())
    }

    /// Bytes missing for `need` more to fit; 0 if they fit.
    #[inline]
    fn missing(&self, need: usize) -> usize {
        match self.keyspace().rules().max_memory() {
            0 => 0,
            max => self.keyspace().used().saturating_add(need).saturating_sub(max),
        }
    }

    /// Whether there is memory for a command, after eviction if possible.
    #[inline]
    pub(super) fn has_memory_for(&self, spec: &Spec, args: &[&[u8]]) -> bool {
        self.keyspace().rules().max_memory() == 0 || self.evict_for(need_of(spec, args))
    }

    /// Compresses the long values that a command will store, before their shards are locked.
    #[inline]
    pub(super) fn prepare<'v>(&self, spec: &Spec, args: &[&'v [u8]]) -> Option<Prepared<'v>> {
        if args.iter().all(|word| word.len() < PREPARE_MIN) {
            return None;
        }
        self.keyspace().prepare(values_of(spec, args)?)
    }

    /// Returns where the values are that a command will store, if they are so long that another thread
    /// should prepare them.
    #[inline]
    pub(super) fn long_values(&self, spec: &Spec, args: &[&[u8]]) -> Option<Vec<(usize, usize)>> {
        if args.iter().all(|word| word.len() < LENT_MIN) {
            return None;
        }
        Some(values_of(spec, args)?.map(source).collect())
    }

    /// Whether there is memory for a command with few words.
    #[inline]
    pub(super) fn has_memory(&self) -> bool {
        self.missing(NEED_MIN) == 0
    }

    /// Evicts until there is; `false`: nothing may be evicted, or not enough.
    pub(super) fn make_room(&self) -> bool {
        self.evict_for(NEED_MIN)
    }

    /// Evicts what the last command added beyond the limit, if it did.
    #[inline]
    pub(super) fn keep_bound(&self) {
        if self.missing(0) > 0 {
            self.evict_for(0);
        }
    }

    /// Evicts until `need` bytes fit; `false`: nothing may be evicted, or not enough.
    fn evict_for(&self, need: usize) -> bool {
        if self.missing(need) == 0 {
            return true;
        }
        // An eviction is a write.
        if self.stall.is_on() {
            return false;
        }
        // What does not fit an empty store is not a reason to empty it.
        if need >= self.keyspace().rules().max_memory() {
            return false;
        }
        let now_ms = self.now_ms();
        let places = DATABASES * SHARDS;
        let (mut evicted, mut barren) = (0, 0);
        while barren < places && evicted < EVICT_MAX {
            let missing = self.missing(need);
            if missing == 0 {
                return true;
            }
            let at = self.evict_at.fetch_add(1, Ordering::Relaxed);
            let place = usize::try_from(at).unwrap_or(0) % places;
            // Shards of one database before those of the next: usually there are few databases.
            let (database, number) = (place / SHARDS, place % SHARDS);
            if !self.keyspace().is_made(database) {
                self.evict_at.fetch_add((SHARDS - 1 - number) as u64, Ordering::Relaxed);
                barren += SHARDS - number;
                continue;
            }
            let gone = self.evict_from((database, number), missing, now_ms);
            evicted += gone;
            barren = if gone == 0 { barren + 1 } else { 0 };
        }
        self.missing(need) == 0
    }

    /// Evicts some keys of a shard, until `missing` bytes are free; returns the number of keys.
    fn evict_from(&self, (database, number): (usize, usize), missing: usize, now_ms: u64) -> usize {
        let mut ops = self.take_ops();
        let mut shard = self.keyspace().lock(database, number, now_ms);
        let before = shard.bytes();
        let mut gone = 0;
        for _ in 0..EVICT_STEP {
            if !shard.evict(&mut |key| ops.push(database, &[b"DEL", key])) {
                break;
            }
            gone += 1;
            if shard.bytes().saturating_add(missing) <= before {
                break;
            }
        }
        if gone > 0 {
            self.statistics().evicted.fetch_add(gone as u64, Ordering::Relaxed);
            self.append(shard.now_ms(), &ops);
        }
        drop(shard);
        self.give_ops(ops);
        gone
    }

    /// Removes expired keys, for at most `budget`, and evicts keys if the limit was lowered. Must
    /// be called often.
    pub fn background(&self, budget: Duration) {
        let started = Instant::now();
        self.keep_bound();
        let Some(mut at) = self.sweep.try_lock() else { return };
        let now_ms = self.now_ms();
        let (mut database, mut number, mut from) = *at;
        for _ in 0..DATABASES * SHARDS {
            if self.keyspace().is_made(database) {
                loop {
                    let (next, ready) = {
                        let mut shard = self.keyspace().lock(database, number, now_ms);
                        (shard.sweep(from), shard.take_ready())
                    };
                    drop(ready);
                    from = next.unwrap_or(0);
                    if started.elapsed() >= budget {
                        *at = (database, number, from);
                        if next.is_none() {
                            *at = step(database, number);
                        }
                        return;
                    }
                    if next.is_none() {
                        break;
                    }
                }
                (database, number) = (step(database, number).0, step(database, number).1);
            } else {
                (database, number) = ((database + 1) % DATABASES, 0);
            }
            from = 0;
        }
        *at = (database, number, 0);
    }
}

fn step(database: usize, number: usize) -> (usize, usize, u64) {
    if number + 1 < SHARDS { (database, number + 1, 0) } else { ((database + 1) % DATABASES, 0, 0) }
}

#[cfg(test)]
mod tests;
