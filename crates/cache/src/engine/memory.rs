//! The bound on memory, and what is done in the background.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Engine;
use crate::store::{DATABASES, SHARDS};

/// Keys evicted from one shard before the next one is asked: more than a page holds of most sizes, so
/// that pages become empty; no shard pays for all.
const EVICT_STEP: usize = 64;
/// Keys evicted for one command at most; what is still missing is taken for the next ones.
const EVICT_MAX: usize = 65_536;

impl Engine {
    /// Bytes of everything that counts against the bound: data, index, buffers of connections.
    #[must_use]
    pub fn used_memory(&self) -> usize {
        self.keyspace().used() + self.statistics().buffer_bytes.load(Ordering::Relaxed)
    }

    /// Whether there is memory for a write.
    #[inline]
    pub(super) fn has_memory(&self) -> bool {
        let max = self.keyspace().rules().max_memory();
        max == 0 || self.used_memory() < max
    }

    /// Evicts until there is memory again; `false`: nothing may go, or not enough.
    pub(super) fn make_room(&self) -> bool {
        let now_ms = self.now_ms();
        let places = DATABASES * SHARDS;
        let (mut evicted, mut barren) = (0, 0);
        while !self.has_memory() && barren < places && evicted < EVICT_MAX {
            let at = self.evict_at.fetch_add(1, Ordering::Relaxed);
            let place = usize::try_from(at).unwrap_or(0) % places;
            // Shards of one database after those of another: databases are mostly few.
            let (database, number) = (place / SHARDS, place % SHARDS);
            if !self.keyspace().is_made(database) {
                self.evict_at.fetch_add((SHARDS - 1 - number) as u64, Ordering::Relaxed);
                barren += SHARDS - number;
                continue;
            }
            let gone = self.evict_from(database, number, now_ms);
            evicted += gone;
            barren = if gone == 0 { barren + 1 } else { 0 };
        }
        self.has_memory()
    }

    fn evict_from(&self, database: usize, number: usize, now_ms: u64) -> usize {
        let mut ops = self.take_ops();
        let mut shard = self.keyspace().lock(database, number, now_ms);
        let mut gone = 0;
        for _ in 0..EVICT_STEP {
            if !shard.evict(&mut |key| ops.push(database, &[b"DEL", key])) {
                break;
            }
            gone += 1;
        }
        if gone > 0 {
            self.statistics().evicted.fetch_add(gone as u64, Ordering::Relaxed);
            self.append(shard.now_ms(), &ops);
        }
        drop(shard);
        self.give_ops(ops);
        gone
    }

    /// Sweeps for keys whose deadline has passed, for at most `budget`. To be called often.
    pub fn background(&self, budget: Duration) {
        let started = Instant::now();
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
