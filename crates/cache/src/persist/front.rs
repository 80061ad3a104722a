//! How far a snapshot has read the keys.
//!
//! A snapshot reads databases, shards and hashes in ascending order. An operation that refers to
//! the value of another key needs both keys to be on the same side of it: read already, so that a
//! recovery runs the operation on both, or read later, so that the snapshot has its result at both.
//!
//! Invariant: the front passes a key while the key's shard is locked, in the critical section in
//! which the snapshot reads the key and the log's position. A command that has the shards of both
//! keys locked therefore gets an answer that stays true until it unlocks them, after its operation
//! is in the log. Whether a database is unused is decided without a lock; meanwhile no operation
//! may refer to a key of it.

use parking_lot::Mutex;

use crate::store::shard_of;

/// The position of the snapshot being taken, if one is.
#[derive(Debug, Default)]
pub(crate) struct Front(Mutex<State>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    /// No snapshot reads keys.
    #[default]
    None,
    /// All keys of earlier databases were read, and whether this one is used is being decided.
    Deciding(usize),
    /// The keys up to this one were read: database, shard, hash.
    After(usize, usize, u64),
}

impl State {
    /// Whether a key was read; `None` if that is being decided.
    fn has_read(self, (database, hash): (usize, u64)) -> Option<bool> {
        match self {
            Self::None => Some(false),
            Self::Deciding(at) if at == database => None,
            Self::Deciding(at) => Some(database < at),
            Self::After(at, shard, last) => {
                Some((database, shard_of(hash), hash) <= (at, shard, last))
            }
        }
    }
}

/// A snapshot is reading keys, until this is dropped.
#[derive(Debug)]
pub(super) struct Reading<'a>(&'a Front);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        *self.0.0.lock() = State::None;
    }
}

impl Front {
    /// Declares that a snapshot reads keys.
    pub(super) fn begin(&self) -> Reading<'_> {
        self.decide(0);
        Reading(self)
    }

    /// Declares that the snapshot has read all keys of earlier databases. Call it before it is
    /// known whether this one is used: a command that uses it for the first time has done so before
    /// it asks, and either the snapshot finds the database used, or the command finds this.
    pub(super) fn decide(&self, database: usize) {
        *self.0.lock() = State::Deciding(database);
    }

    /// Declares that the snapshot reads a database that is used.
    pub(super) fn enter(&self, database: usize) {
        // All keys of the previous database were read, and none of this one.
        let before = State::After(database.wrapping_sub(1), usize::MAX, u64::MAX);
        *self.0.lock() = if database == 0 { State::None } else { before };
    }

    /// Declares that the snapshot has read a shard's keys up to a hash. Call it while the shard is
    /// locked.
    pub(super) fn pass(&self, (database, shard): (usize, usize), last: u64) {
        *self.0.lock() = State::After(database, shard, last);
    }

    /// Whether two keys are on the same side; see the module. Call it while the shards of both are
    /// locked, and until the operation is in the log.
    ///
    /// * `keys`: the database and the hash of each.
    pub(crate) fn is_beside(&self, keys: [(usize, u64); 2]) -> bool {
        let state = *self.0.lock();
        let [first, second] = keys.map(|key| state.has_read(key));
        first.is_some() && first == second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hash in a shard.
    fn hash(shard: u64, high: u64) -> u64 {
        shard << 14 | high << 40
    }

    #[test]
    fn two_keys_are_beside_each_other_unless_the_front_is_between_them() {
        let front = Front::default();
        let keys = [(0, hash(3, 1)), (0, hash(3, 9)), (0, hash(40, 0)), (2, hash(1, 0))];
        let beside = |front: &Front| -> Vec<bool> {
            keys.windows(2).map(|pair| front.is_beside([pair[0], pair[1]])).collect()
        };
        assert_eq!(beside(&front), [true, true, true]);
        let reading = front.begin();
        assert_eq!(beside(&front), [false, false, false], "database 0 may be unused");
        front.enter(0);
        assert_eq!(beside(&front), [true, true, true]);
        front.pass((0, 3), hash(3, 5));
        assert_eq!(beside(&front), [false, true, true]);
        front.pass((0, 3), u64::MAX);
        assert_eq!(beside(&front), [true, false, true]);
        front.pass((0, 63), u64::MAX);
        assert_eq!(beside(&front), [true, true, false]);
        front.decide(2);
        assert_eq!(beside(&front), [true, true, false]);
        front.enter(2);
        assert_eq!(beside(&front), [true, true, false]);
        front.decide(3);
        assert_eq!(beside(&front), [true, true, true]);
        drop(reading);
        assert_eq!(beside(&front), [true, true, true]);
    }
}
