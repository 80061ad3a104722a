//! The shards a command has locked.

use smallvec::SmallVec;

use crate::store::{Held, Keyspace, Shard};

type ShardKey = (u16, u16);

fn shard_key(database: usize, shard: usize) -> ShardKey {
    let small = |number: usize| u16::try_from(number).unwrap_or(u16::MAX);
    (small(database), small(shard))
}

/// Which shards to lock.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    keys: SmallVec<[ShardKey; 4]>,
}

impl Wanted {
    #[inline]
    pub(crate) fn add(&mut self, database: usize, shard: usize) {
        self.keys.push(shard_key(database, shard));
    }
}

/// Locked shards, in ascending order. A lent shard is absent until it is returned.
#[derive(Debug, Default)]
pub(crate) struct Locked<'e> {
    held: SmallVec<[(ShardKey, Option<Held<'e>>); 2]>,
    /// The time at which the command runs: the latest of its shards.
    now_ms: u64,
}

impl<'e> Locked<'e> {
    /// Locks every wanted shard, in ascending order.
    pub(crate) fn lock(keyspace: &'e Keyspace, wanted: &mut Wanted, now_ms: u64) -> Self {
        let keys = &mut wanted.keys;
        if keys.len() > 1 {
            keys.sort_unstable();
            keys.dedup();
        }
        let mut latest_ms = now_ms;
        let held = keys
            .drain(..)
            .map(|key| {
                let held = keyspace.lock(usize::from(key.0), usize::from(key.1), now_ms);
                latest_ms = latest_ms.max(held.now_ms());
                (key, Some(held))
            })
            .collect();
        let mut locked = Self { held, now_ms: latest_ms };
        locked.iter_mut().for_each(|(_, shard)| shard.advance(latest_ms));
        locked
    }

    /// The time at which the command runs on all of its shards, and at which a replay runs it
    /// again.
    ///
    /// Known only with the locks held: on no shard may it be earlier than that of a previous
    /// command.
    #[inline]
    pub(crate) fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Locks one shard.
    #[inline]
    pub(crate) fn one(keyspace: &'e Keyspace, database: usize, shard: usize, now_ms: u64) -> Self {
        let mut held = SmallVec::new();
        let shard_held = keyspace.lock(database, shard, now_ms);
        let now_ms = shard_held.now_ms();
        held.push((shard_key(database, shard), Some(shard_held)));
        Self { held, now_ms }
    }

    /// Whether a shard is locked.
    pub(crate) fn holds(&self, database: usize, shard: usize) -> bool {
        let key = shard_key(database, shard);
        self.held.binary_search_by_key(&key, |(held, _)| *held).is_ok()
    }

    /// A locked shard.
    ///
    /// # Panics
    /// If it is not locked: the command's row does not name the key.
    #[inline]
    pub(crate) fn get(&mut self, database: usize, shard: usize) -> &mut Shard {
        let key = shard_key(database, shard);
        let at = match self.held.as_slice() {
            [(only, _)] if *only == key => 0,
            held => held.binary_search_by_key(&key, |(held, _)| *held).unwrap_or(usize::MAX),
        };
        let held = self.held.get_mut(at).and_then(|(_, held)| held.as_mut());
        held.expect("a command's row names every key it works on")
    }

    /// Releases a shard's lock before the command ends: it changed nothing there and no longer
    /// needs it.
    pub(crate) fn release(&mut self, database: usize, shard: usize) {
        drop(self.lend(database, shard));
    }

    pub(crate) fn lend(&mut self, database: usize, shard: usize) -> Option<Held<'e>> {
        let key = shard_key(database, shard);
        let found = self.held.binary_search_by_key(&key, |(held, _)| *held).ok()?;
        self.held.get_mut(found)?.1.take()
    }

    pub(crate) fn give_back(&mut self, database: usize, shard: usize, held: Held<'e>) {
        let key = shard_key(database, shard);
        if let Ok(found) = self.held.binary_search_by_key(&key, |(held, _)| *held)
            && let Some(slot) = self.held.get_mut(found)
        {
            slot.1 = Some(held);
        }
    }

    /// Every locked shard with its database.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut Held<'e>)> {
        let each = self.held.iter_mut();
        each.filter_map(|(key, held)| Some((usize::from(key.0), held.as_mut()?)))
    }
}
