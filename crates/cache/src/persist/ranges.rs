//! The log position at which each range of keys was taken.
//!
//! Invariant: the ranges of a shard follow one another without gaps, from hash 0 to the last.

use forebay_log::Lsn;

use crate::store::{DATABASES, SHARDS, shard_of};

/// The ranges of a snapshot. The default has none, and every operation applies to it.
#[derive(Debug, Clone)]
pub(crate) struct Ranges {
    databases: [Database; DATABASES],
    count: u64,
}

#[derive(Debug, Clone, Default)]
struct Database {
    /// The position of all keys of an unused database.
    unused: Option<Lsn>,
    /// Of each shard, the ranges' last hashes and positions.
    shards: Vec<Vec<(u64, Lsn)>>,
    highest: Lsn,
}

impl Default for Ranges {
    fn default() -> Self {
        Self { databases: std::array::from_fn(|_| Database::default()), count: 0 }
    }
}

impl Ranges {
    /// Adds an unused database; `false` if a part of it was added before.
    pub(crate) fn add_unused(&mut self, database: usize, position: Lsn) -> bool {
        let Some(database) = self.databases.get_mut(database) else { return false };
        let fresh = database.unused.is_none() && database.shards.is_empty();
        database.unused = Some(position);
        database.highest = position;
        self.count += 1;
        fresh
    }

    /// Adds the next range of a shard; `false` if it does not follow the previous range.
    pub(crate) fn add(
        &mut self,
        (database, shard): (usize, usize),
        (from, last): (u64, u64),
        position: Lsn,
    ) -> bool {
        let Some(database) = self.databases.get_mut(database) else { return false };
        if database.unused.is_some() {
            return false;
        }
        database.shards.resize(SHARDS, Vec::new());
        let Some(ranges) = database.shards.get_mut(shard) else { return false };
        let expected = ranges.last().map_or(Some(0), |(last, _)| last.checked_add(1));
        ranges.push((last, position));
        database.highest = database.highest.max(position);
        self.count += 1;
        expected == Some(from) && from <= last
    }

    /// Where the next range of a shard must begin; `None` after the last.
    pub(crate) fn next(&self, database: usize, shard: usize) -> Option<u64> {
        let ranges = self.databases.get(database).and_then(|held| held.shards.get(shard));
        match ranges.and_then(|ranges| ranges.last()) {
            None => Some(0),
            Some((last, _)) => last.checked_add(1),
        }
    }

    /// Whether the ranges cover every key of every database.
    pub(crate) fn is_complete(&self) -> bool {
        self.databases.iter().enumerate().all(|(number, database)| {
            database.unused.is_some() || (0..SHARDS).all(|shard| self.next(number, shard).is_none())
        })
    }

    /// The number of ranges.
    pub(crate) fn len(&self) -> u64 {
        self.count
    }

    /// The position at which a key was taken: earlier operations are included in the range.
    pub(crate) fn position(&self, database: usize, hash: u64) -> Lsn {
        let Some(database) = self.databases.get(database) else { return Lsn(0) };
        if let Some(position) = database.unused {
            return position;
        }
        let Some(ranges) = database.shards.get(shard_of(hash)) else { return Lsn(0) };
        let at = ranges.partition_point(|(last, _)| *last < hash);
        ranges.get(at).map_or(Lsn(0), |(_, position)| *position)
    }

    /// The highest position of a database's ranges.
    pub(crate) fn highest_of(&self, database: usize) -> Lsn {
        self.databases.get(database).map_or(Lsn(0), |database| database.highest)
    }

    /// The lowest and the highest position of all ranges.
    pub(crate) fn bounds(&self) -> (Lsn, Lsn) {
        let of_shards = |database: &Database| {
            let all = database.shards.iter().flatten().map(|(_, position)| *position);
            all.min().into_iter().chain(database.unused).min()
        };
        let lowest = self.databases.iter().filter_map(of_shards).min();
        let highest = self.databases.iter().map(|database| database.highest).max();
        (lowest.unwrap_or_default(), highest.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_the_position_of_its_range() {
        let mut ranges = Ranges::default();
        assert_eq!(ranges.position(3, 99), Lsn(0));
        for database in (0..DATABASES).filter(|&database| database != 3) {
            assert!(ranges.add_unused(database, Lsn(40)));
        }
        for shard in 0..SHARDS {
            assert!(!ranges.is_complete());
            assert!(ranges.add((3, shard), (0, 1 << 40), Lsn(50 + shard as u64)));
            assert!(ranges.add((3, shard), ((1 << 40) + 1, u64::MAX), Lsn(200)));
        }
        assert!(ranges.is_complete());
        assert_eq!(ranges.bounds(), (Lsn(40), Lsn(200)));
        let hash = 5 << 14;
        assert_eq!((shard_of(hash), ranges.position(3, hash)), (5, Lsn(55)));
        assert_eq!(ranges.position(3, hash + (1 << 40)), Lsn(200));
        assert_eq!(ranges.position(2, hash), Lsn(40));
    }

    #[test]
    fn a_gap_and_an_overlap_are_detected() {
        let mut ranges = Ranges::default();
        assert!(ranges.add((0, 0), (0, 9), Lsn(1)));
        assert!(!ranges.add((0, 0), (11, 20), Lsn(1)));
        assert!(!ranges.add((0, 0), (20, 30), Lsn(1)));
        assert!(!ranges.add((0, 1), (5, 9), Lsn(1)));
        assert!(!ranges.add_unused(0, Lsn(1)));
        assert!(!ranges.add((0, SHARDS), (0, 9), Lsn(1)) && !ranges.add((16, 0), (0, 9), Lsn(1)));
    }
}
