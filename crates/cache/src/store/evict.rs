//! Eviction: which entry of a shard is removed.
//!
//! S3-FIFO keeps three queues. New keys enter the small one (a tenth of all). A key used again
//! before it reaches the head of the small queue moves to the main one. Any other is evicted, and
//! its hash is recorded as a ghost: a key that returns while it is a ghost enters the main queue
//! directly. A key at the main queue's head that was used moves to its tail with its use count
//! reduced by one.
//!
//! The queues hold references. The slab recognises a reference that was removed, and it is skipped;
//! a reused reference refers to its new entry, which then merely has two positions in the queues.

use std::collections::VecDeque;

use foldhash::{HashSet, HashSetExt as _};

use super::entry;
use super::rules::Policy;
use super::shard::{At, Shard};
use super::slab::Ref;

/// Number of entries in a sample, for policies that choose from one.
const SAMPLE: u64 = 16;

/// The queues of S3-FIFO; empty under other policies.
#[derive(Debug, Default)]
pub(super) struct Eviction {
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    ghosts: VecDeque<u32>,
    ghost_set: HashSet<u32>,
    /// Number of steps so far, for drawing samples.
    draws: u64,
}

fn print_of(hash: u64) -> u32 {
    (hash >> 20 & 0xFFFF_FFFF) as u32
}

impl Eviction {
    pub(super) fn bytes(&self) -> usize {
        (self.small.capacity() + self.main.capacity() + self.ghosts.capacity()) * size_of::<u32>()
            + self.ghost_set.capacity() * 5
    }

    /// Queues an entry that is new or has moved.
    pub(super) fn inserted(&mut self, at: Ref, hash: u64, known: bool) {
        if known || self.ghost_set.remove(&print_of(hash)) {
            self.main.push_back(at.0);
        } else {
            self.small.push_back(at.0);
        }
    }

    fn remember(&mut self, hash: u64) {
        let print = print_of(hash);
        if self.ghost_set.insert(print) {
            self.ghosts.push_back(print);
        }
        while self.ghosts.len() > self.main.len().max(64) {
            if let Some(oldest) = self.ghosts.pop_front() {
                self.ghost_set.remove(&oldest);
            }
        }
    }

    fn draw(&mut self) -> u64 {
        self.draws = self.draws.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.draws ^ self.draws >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed ^ mixed >> 27
    }
}

impl Shard {
    /// Evicts one key by the policy; its bytes are passed to `gone` first. `false`: none may be
    /// evicted.
    pub fn evict(&mut self, gone: &mut dyn FnMut(&[u8])) -> bool {
        let policy = self.rules.policy();
        let at = match policy {
            Policy::NoEviction => None,
            Policy::S3Fifo => self.next_of_queues(),
            _ => self.next_of_sample(policy),
        };
        let Some(at) = at else { return false };
        let key: Box<[u8]> = self.key(at).into();
        gone(&key);
        let hash = self.rules.hash(&key);
        self.drop_entry(hash, at);
        self.changed(&key);
        true
    }

    fn next_of_sample(&mut self, policy: Policy) -> Option<At> {
        if policy.volatile() && self.expiring() == 0 {
            return None;
        }
        let mut best: Option<(u64, At)> = None;
        // Keys with a deadline may be rare: draw more often, but not forever.
        let draws = if policy.volatile() { SAMPLE * 16 } else { SAMPLE };
        for _ in 0..draws {
            let pick = self.eviction.draw();
            let at = At(self.table.sample(pick)?);
            let held = self.slab.get(at.0);
            if policy.volatile() && entry::deadline_ms(held).is_none() {
                continue;
            }
            let willing = self.rules.reluctance(held, self.now_ms);
            if best.is_none_or(|(most, _)| willing > most) {
                best = Some((willing, at));
            }
        }
        best.map(|(_, at)| at)
    }

    fn next_of_queues(&mut self) -> Option<At> {
        self.rebuild_queues();
        // Every step removes a stale reference, reduces a use count, or ends the search.
        let steps = 4 * (self.eviction.small.len() + self.eviction.main.len()) + 1;
        for _ in 0..steps {
            let queued = self.eviction.small.len() + self.eviction.main.len();
            let from_small =
                self.eviction.small.len() * 10 >= queued || self.eviction.main.is_empty();
            let next = if from_small {
                self.eviction.small.pop_front()
            } else {
                self.eviction.main.pop_front()
            };
            let at = Ref(next?);
            if !self.slab.is_live(at) {
                continue;
            }
            let uses = entry::uses(self.slab.get(at));
            if from_small && uses > 0 {
                entry::set_uses(self.slab.get_mut(at), 0);
                self.eviction.main.push_back(at.0);
            } else if !from_small && uses > 0 {
                entry::set_uses(self.slab.get_mut(at), uses - 1);
                self.eviction.main.push_back(at.0);
            } else {
                let hash = self.rules.hash(entry::key(self.slab.get(at)));
                // A reused reference has two positions: only an entry in the table counts.
                if self.table.find(hash, |held| held == at).is_none() {
                    continue;
                }
                if from_small {
                    self.eviction.remember(hash);
                }
                return Some(At(at));
            }
        }
        None
    }

    /// Rebuilds the queues if they were not kept from the start, or hold too many stale references.
    fn rebuild_queues(&mut self) {
        let queued = self.eviction.small.len() + self.eviction.main.len();
        let len = self.table.len();
        if queued >= len && queued <= 2 * len + 1_024 {
            return;
        }
        let mut seen = HashSet::with_capacity(len);
        let mut kept = |queue: &mut VecDeque<u32>| {
            queue.retain(|&at| self.slab.is_live(Ref(at)) && seen.insert(at));
        };
        kept(&mut self.eviction.small);
        kept(&mut self.eviction.main);
        let main = &mut self.eviction.main;
        let mut next = Some(0);
        while let Some(from) = next {
            next = self.table.visit_segment(from, |at| {
                if seen.insert(at.0) {
                    main.push_back(at.0);
                }
            });
        }
        self.eviction.small.shrink_to(len);
        self.eviction.main.shrink_to(len);
    }
}
