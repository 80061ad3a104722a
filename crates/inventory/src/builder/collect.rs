//! What one reader has gathered: its directories, each once, and its objects, each with the number
//! of its directory. When the memory is used up, or the reader is done, it becomes a run.

#![expect(
    clippy::cast_possible_truncation,
    reason = "`has_room` keeps counts and places below 2^32; halves of hashes are meant"
)]

use xxhash_rust::xxh3::{xxh3_64, xxh3_128_with_seed};

use super::run::{Leaf, RunWriter};
use super::sort;
use super::{BuildError, OnDuplicate};
use crate::map::prefetch;
use crate::object::{Batch, ClassId, Kind, Month, Object};

/// Rows looked up together, so that their cache misses overlap.
const TOGETHER: usize = 16;
/// Directories between prefetching a part of one and using it.
const AHEAD: usize = 8;
/// Objects of a directory that are sorted in a separate buffer.
const SIDE_BY_SIDE_MAX: usize = 1 << 14;
/// A directory of the table that is none.
const FREE: u32 = u32::MAX;

/// A directory, by where its name is.
#[derive(Debug, Clone, Copy)]
struct Dir {
    start: u32,
    len: u32,
}

/// An object and the number of its directory. The fields are those of a [`Leaf`], side by side
/// with the number, so that a row has 32 bytes.
#[derive(Debug, Clone, Copy)]
struct Row {
    hash: u64,
    check: u64,
    size: u64,
    dir: u32,
    modified: Month,
    class: ClassId,
    kind: Kind,
}

const _: () = assert!(size_of::<Row>() == 32, "a row has no padding");

impl Row {
    #[inline]
    fn leaf(&self) -> Leaf {
        let &Self { hash, check, size, modified, class, kind, .. } = self;
        Leaf { hash, check, size, modified, class, kind }
    }
}

/// What a reader has gathered.
#[derive(Debug)]
pub(crate) struct Collector {
    delimiter: u8,
    /// The names of the directories.
    names: Vec<u8>,
    dirs: Vec<Dir>,
    /// The index in `dirs` of each directory, at the slot given by its hash or the next free one,
    /// with the upper half of the hash. Its length is a power of two, at most three quarters full.
    table: Vec<(u32, u32)>,
    rows: Vec<Row>,
}

impl Collector {
    pub(crate) fn new(delimiter: u8) -> Self {
        let table = vec![(0, FREE); 1 << 12];
        Self { delimiter, names: Vec::new(), dirs: Vec::new(), table, rows: Vec::new() }
    }

    /// Memory in use, including that for turning it into a run, in bytes.
    pub(crate) fn memory(&self) -> usize {
        let sort = size_of::<(u64, u32)>() + size_of::<u32>();
        self.names.len()
            + self.dirs.len() * (size_of::<Dir>() + sort + size_of::<u32>())
            + self.table.len() * size_of::<(u32, u32)>()
            + self.rows.len() * (size_of::<Row>() + size_of::<u32>())
    }

    /// Whether it has room for this many bytes of names and this many objects: numbers and
    /// positions have 32 bits.
    pub(crate) fn has_room(&self, batch: &Batch) -> bool {
        let most = u32::MAX as usize / 2;
        self.names.len() + batch.keys_size() < most && self.rows.len() + batch.len() < most
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Adds the objects of a batch, whose keys the caller has checked.
    pub(crate) fn add(&mut self, batch: &Batch) {
        reserve(&mut self.rows, batch.len());
        reserve(&mut self.names, batch.keys_size());
        let mut rows = batch.iter().peekable();
        let mut together = [(&[][..], &[][..], 0_u64, None::<&Object>); TOGETHER];
        while rows.peek().is_some() {
            let mut count = 0;
            for (place, (key, object)) in together.iter_mut().zip(rows.by_ref()) {
                let end = memchr::memrchr(self.delimiter, key).map_or(0, |at| at + 1);
                let (dir, name) = key.split_at(end);
                *place = (dir, name, xxh3_64(dir), Some(object));
                count += 1;
            }
            let mut found = [0; TOGETHER];
            let mask = self.table.len() - 1;
            for (found, (.., hash, _)) in found.iter_mut().zip(&together[..count]) {
                let place = low(*hash) as usize & mask;
                *found = self.table.get(place).map_or(FREE, |place| place.1);
            }
            for (i, &(dir, name, hash, object)) in together[..count].iter().enumerate() {
                let Some(object) = object else { continue };
                let id = self.dir(dir, hash, found[i]);
                let key = xxh3_128_with_seed(name, object.version);
                let &Object { size, modified, class, kind, .. } = object;
                let (hash, check) = (key as u64, (key >> 64) as u64);
                self.rows.push(Row { hash, check, size, dir: id, modified, class, kind });
            }
        }
    }

    /// The number of a directory. `first`: what was in its slot of the table a moment ago.
    #[inline]
    fn dir(&mut self, name: &[u8], hash: u64, first: u32) -> u32 {
        // Adjacent objects are often in one directory.
        if let Some(last) = self.rows.last().map(|row| row.dir)
            && (first == last || self.dirs.len() < 2)
            && self.name(last) == name
        {
            return last;
        }
        let mask = self.table.len() - 1;
        let mut place = low(hash) as usize & mask;
        loop {
            let (tag, id) = self.table[place];
            if id == FREE {
                break;
            }
            if tag == high(hash) && self.name(id) == name {
                return id;
            }
            place = (place + 1) & mask;
        }
        self.table[place] = (high(hash), self.dirs.len() as u32);
        self.push_dir(name)
    }

    fn push_dir(&mut self, name: &[u8]) -> u32 {
        let id = self.dirs.len() as u32;
        self.dirs.push(Dir { start: self.names.len() as u32, len: name.len() as u32 });
        self.names.extend_from_slice(name);
        if self.dirs.len() * 4 > self.table.len() * 3 {
            self.grow();
        }
        id
    }

    fn grow(&mut self) {
        let len = self.table.len() * 2;
        let mask = len - 1;
        self.table.clear();
        self.table.resize(len, (0, FREE));
        for (id, dir) in self.dirs.iter().enumerate() {
            let hash = xxh3_64(name(&self.names, *dir));
            let mut place = low(hash) as usize & mask;
            while self.table[place].1 != FREE {
                place = (place + 1) & mask;
            }
            self.table[place] = (high(hash), id as u32);
        }
    }

    fn name(&self, id: u32) -> &[u8] {
        self.dirs.get(id as usize).map_or(&[], |&dir| name(&self.names, dir))
    }

    /// Writes all of it as a run, in order, and empties it. `duplicate` is called with a directory
    /// and how many of its keys were listed before.
    pub(crate) fn write(
        &mut self,
        out: &mut RunWriter<'_>,
        duplicate: &mut OnDuplicate,
    ) -> Result<(), BuildError> {
        let (names, dirs, rows) = (&self.names, &self.dirs, &self.rows);
        let by_name = sort::sort(dirs.len() as u32, &|id| {
            dirs.get(id as usize).map_or(&[], |&dir| name(names, dir))
        });
        // Where the objects of each directory end, in `by_dir`; first, where they start.
        let mut ends = vec![0_u32; dirs.len()];
        rows.iter().for_each(|row| ends[row.dir as usize] += 1);
        let mut sum = 0;
        for end in &mut ends {
            sum += std::mem::replace(end, sum);
        }
        let mut by_dir = vec![0_u32; rows.len()];
        for (i, row) in rows.iter().enumerate() {
            let end = &mut ends[row.dir as usize];
            by_dir[*end as usize] = i as u32;
            *end += 1;
        }
        let row = |i: u32| &rows[i as usize];
        let mut hashes = Vec::new();
        let start = |id: u32| id.checked_sub(1).map_or(0, |before| ends[before as usize]) as usize;
        for (at, &id) in by_name.iter().enumerate() {
            // Each step needs what an earlier step prefetched: the position of a directory's name
            // and objects, its first object, and that object's row.
            if let Some(&soon) = by_name.get(at + 3 * AHEAD) {
                prefetch(dirs, soon as usize);
                prefetch(&ends, (soon as usize).saturating_sub(1));
            }
            if let Some(&soon) = by_name.get(at + 2 * AHEAD) {
                prefetch(names, dirs[soon as usize].start as usize);
                prefetch(&by_dir, start(soon));
            }
            if let Some(&soon) = by_name.get(at + AHEAD)
                && let Some(&first) = by_dir.get(start(soon))
            {
                prefetch(rows, first as usize);
            }
            let of_dir = &mut by_dir[start(id)..ends[id as usize] as usize];
            let dir = name(names, dirs[id as usize]);
            if of_dir.len() > 1 {
                sort_by_hash(of_dir, rows, &mut hashes);
                let is_same = |a: &Row, b: &Row| (a.hash, a.check) == (b.hash, b.check);
                let pairs = of_dir.windows(2);
                let twice = pairs.filter(|pair| is_same(row(pair[0]), row(pair[1]))).count();
                if twice > 0 {
                    duplicate(dir, twice as u64)?;
                }
            }
            out.push(dir, of_dir.iter().map(|&i| row(i).leaf()))?;
        }
        self.names.clear();
        self.dirs.clear();
        self.rows.clear();
        self.table.fill((0, FREE));
        Ok(())
    }
}

/// Makes room for more items by growing in small steps: doubling would take up to twice the memory
/// that is counted.
fn reserve<T>(items: &mut Vec<T>, more: usize) {
    if items.capacity() - items.len() < more {
        items.reserve_exact(more.max(items.len() / 8));
    }
}

/// Sorts the objects of a directory by their hashes. The first halves are copied side by side to
/// `hashes`, unless there are too many for that buffer; then the rows are compared.
fn sort_by_hash(objects: &mut [u32], rows: &[Row], hashes: &mut Vec<(u64, u32)>) {
    let row = |i: u32| &rows[i as usize];
    let whole = |i: u32| (row(i).hash, row(i).check, i);
    if objects.len() > SIDE_BY_SIDE_MAX {
        objects.sort_unstable_by_key(|&i| whole(i));
        return;
    }
    hashes.clear();
    hashes.extend(objects.iter().map(|&i| (row(i).hash, i)));
    hashes.sort_unstable();
    objects.iter_mut().zip(&*hashes).for_each(|(object, sorted)| *object = sorted.1);
    // Equal first halves are rare: a key listed twice, or a collision.
    for same in objects.chunk_by_mut(|&a, &b| row(a).hash == row(b).hash) {
        if same.len() > 1 {
            same.sort_unstable_by_key(|&i| whole(i));
        }
    }
}

#[inline]
fn name(names: &[u8], dir: Dir) -> &[u8] {
    names.get(dir.start as usize..(dir.start + dir.len) as usize).unwrap_or_default()
}

#[inline]
fn low(hash: u64) -> u32 {
    hash as u32
}

#[inline]
fn high(hash: u64) -> u32 {
    (hash >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gathered_takes_little_more_memory_than_is_counted() {
        let (class, kind) = (ClassId::STANDARD, Kind::Current);
        let object = Object { size: 1, version: 0, modified: Month::UNKNOWN, class, kind };
        let (mut collector, mut batch) = (Collector::new(b'/'), Batch::default());
        for part in 0..300 {
            for i in 0..100 {
                batch
                    .push(format!("{}/{}/{i}", part % 7, part * 100 + i).as_bytes(), object)
                    .unwrap();
            }
            collector.add(&batch);
            let (names, rows) = (&collector.names, &collector.rows);
            assert!(rows.capacity() <= rows.len() + rows.len() / 8 + batch.len());
            assert!(names.capacity() <= names.len() + names.len() / 8 + 2 * batch.keys_size());
            batch.clear();
        }
        assert!(collector.memory() > 30_000 * (size_of::<Row>() + size_of::<Dir>()));
    }

    #[test]
    fn objects_whose_first_halves_collide_are_sorted_by_the_second() {
        let row = |hash: u64, check: u64| Row {
            hash,
            check,
            size: 0,
            dir: 0,
            modified: Month::UNKNOWN,
            class: ClassId::STANDARD,
            kind: Kind::Current,
        };
        for count in [64, 2 * SIDE_BY_SIDE_MAX as u64] {
            // Three different keys of each first half.
            let rows: Vec<Row> = (0..count)
                .map(|i| row(i * 7 % count / 3, (i * 7 % count) % 3 * 1000 + 1))
                .collect();
            let mut objects: Vec<u32> = (0..rows.len() as u32).collect();
            sort_by_hash(&mut objects, &rows, &mut Vec::new());
            let sorted: Vec<_> = objects.iter().map(|&i| rows[i as usize].leaf().key()).collect();
            let mut expected: Vec<_> = rows.iter().map(|row| row.leaf().key()).collect();
            expected.sort_unstable();
            assert_eq!(sorted, expected);
        }
    }
}
