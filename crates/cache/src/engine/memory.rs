//! The bound on memory, and what is done in the background.
//!
//! Invariant: under a policy that evicts, what is counted ([`Engine::used_memory`]) is within the bound
//! whenever no command runs. A command is let in when what its words can add fits, and what it added
//! beyond that (a page, a piece of index, room to grow) is made up for before its reply is sent.
//! Under `noeviction` that excess stays, and nothing that needs memory is let in until it is gone.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Engine;
use crate::command::{STRING_SIZE_MAX, Spec};
use crate::number;
use crate::store::{DATABASES, Prepared, SHARDS};

/// Keys evicted from one shard before the next one is asked: more than a page holds of most sizes, so
/// that pages become empty; no shard pays for all.
const EVICT_STEP: usize = 64;
/// Keys evicted for one command at most; what is still missing is taken for the next ones.
const EVICT_MAX: usize = 65_536;
/// What a command may need beyond its words: a page and a segment of the index.
const NEED_MIN: usize = 9 << 10;

/// Bytes from which on a value is worth a look whether it is to be compressed ahead.
const PREPARE_MIN: usize = 16 << 10;

/// Bytes a command may add: its words, and where one of them tells how far a string reaches, that.
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
    // One beyond what any string may be long is refused by the command itself, with a better reason.
    words + NEED_MIN + if reach <= STRING_SIZE_MAX { reach } else { 0 }
}

impl Engine {
    /// Bytes of everything that counts against the bound: data, index, buffers of connections.
    ///
    /// The buffers are what threads of the server have told
    /// [`Statistics::buffer_bytes`](super::Statistics::buffer_bytes).
    #[must_use]
    pub fn used_memory(&self) -> usize {
        let buffers = self.statistics().buffer_bytes.load(Ordering::Relaxed);
        // Less than none for the moment in which one thread has told more than another.
        let buffers = usize::try_from(buffers.cast_signed()).unwrap_or(0);
        self.keyspace().used().saturating_add(buffers)
    }

    /// Bytes by which the bound is missed if `need` more are to fit; 0: they do.
    #[inline]
    fn missing(&self, need: usize) -> usize {
        match self.keyspace().rules().max_memory() {
            0 => 0,
            max => self.used_memory().saturating_add(need).saturating_sub(max),
        }
    }

    /// Whether there is memory for a command, after evicting where that helps.
    #[inline]
    pub(super) fn has_memory_for(&self, spec: &Spec, args: &[&[u8]]) -> bool {
        self.keyspace().rules().max_memory() == 0 || self.evict_for(need_of(spec, args))
    }

    /// Compresses the long values a command is about to put, before their shards are locked.
    #[inline]
    pub(super) fn prepare<'v>(&self, spec: &Spec, args: &[&'v [u8]]) -> Option<Prepared<'v>> {
        if args.iter().all(|word| word.len() < PREPARE_MIN) {
            return None;
        }
        let values = match spec.name {
            "set" | "setnx" | "getset" => args.get(2..3)?,
            "setex" | "psetex" => args.get(3..4)?,
            "mset" | "msetnx" => args.get(2..)?,
            _ => return None,
        };
        self.keyspace().prepare(values.iter().step_by(2).copied())
    }

    /// Whether there is memory for a command of few words.
    #[inline]
    pub(super) fn has_memory(&self) -> bool {
        self.missing(NEED_MIN) == 0
    }

    /// Evicts until there is; `false`: nothing may go, or not enough.
    pub(super) fn make_room(&self) -> bool {
        self.evict_for(NEED_MIN)
    }

    /// Evicts what the last command added beyond the bound, if it did.
    #[inline]
    pub(super) fn keep_bound(&self) {
        if self.missing(0) > 0 {
            self.evict_for(0);
        }
    }

    /// Evicts until `need` bytes fit; `false`: nothing may go, or not enough.
    fn evict_for(&self, need: usize) -> bool {
        if self.missing(need) == 0 {
            return true;
        }
        // What does not fit an empty store is no reason to empty it.
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
            // Shards of one database after those of another: databases are mostly few.
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

    /// Evicts some keys of a shard, until so many bytes are free again; returns how many.
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

    /// Sweeps for keys whose deadline has passed, for at most `budget`, and makes room for what
    /// connections' buffers have grown by. To be called often.
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
