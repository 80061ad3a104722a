//! Merges runs into the writer: directories in order, and the objects of a directory in several
//! runs in the order of their hashes, so that a key listed twice is detected wherever it was read.
//!
//! If there are more runs than may be read at once, the smallest are merged into one, and again,
//! until the rest can be merged into the writer. The first of these merges is as narrow as needed
//! for all others to be as wide as permitted, which reads and writes the least.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::path::{Path, PathBuf};

use forebay_base::fs::FileSystem;

use super::heads::Heads;
use super::monitor::Monitor;
use super::run::{Leaf, OBJECTS_MAX, Run, RunReader, RunWriter};
use super::write::IndexWriter;
use super::{BuildError, OnDuplicate};

/// Directories between two checks for cancellation.
const LOOK_EVERY: u32 = 4096;

/// Receives directories in order, and the objects of each.
trait Target {
    fn enter(&mut self, dir: &[u8]) -> Result<(), BuildError>;
    fn add(&mut self, leaf: &Leaf) -> Result<(), BuildError>;
}

impl Target for IndexWriter {
    #[inline]
    fn enter(&mut self, dir: &[u8]) -> Result<(), BuildError> {
        Self::enter(self, dir)
    }

    #[inline]
    fn add(&mut self, leaf: &Leaf) -> Result<(), BuildError> {
        Self::add(self, leaf.class, leaf.kind, leaf.size, leaf.modified)
    }
}

/// A run that is written from others.
struct Wider<'a> {
    out: RunWriter<'a>,
    dir: Vec<u8>,
    /// Objects of the directory that are not written yet; at most those of an entry.
    leaves: Vec<Leaf>,
}

impl Wider<'_> {
    fn flush(&mut self) -> Result<(), BuildError> {
        self.out.push(&self.dir, self.leaves.drain(..))
    }
}

impl Target for Wider<'_> {
    fn enter(&mut self, dir: &[u8]) -> Result<(), BuildError> {
        self.flush()?;
        self.dir.clear();
        self.dir.extend_from_slice(dir);
        Ok(())
    }

    #[inline]
    fn add(&mut self, leaf: &Leaf) -> Result<(), BuildError> {
        if self.leaves.len() == OBJECTS_MAX {
            self.flush()?;
        }
        self.leaves.push(*leaf);
        Ok(())
    }
}

/// Merges runs, with its buffers.
pub(crate) struct Merger<'a> {
    fs: &'a dyn FileSystem,
    monitor: &'a Monitor,
    /// Called with a directory and how many of its keys were listed before.
    duplicate: &'a mut OnDuplicate,
    runs: Heads,
    /// The runs at the current directory.
    same: Vec<usize>,
    heads: BinaryHeap<Head>,
    dir: Vec<u8>,
}

/// The next object of a run, and the index of the run. The least object is the greatest head,
/// since a heap has the greatest on top.
struct Head {
    leaf: Leaf,
    run: usize,
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Head {}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Head {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        other.leaf.key().cmp(&self.leaf.key())
    }
}

impl<'a> Merger<'a> {
    pub(crate) fn new(
        fs: &'a dyn FileSystem,
        monitor: &'a Monitor,
        duplicate: &'a mut OnDuplicate,
    ) -> Self {
        let (runs, same) = (Heads::default(), Vec::new());
        Self { fs, monitor, duplicate, runs, same, heads: BinaryHeap::new(), dir: Vec::new() }
    }

    /// Merges all of `runs`, at most `fan_in` at once and at least two, and removes their files.
    ///
    /// * `next`: returns the path of a new run.
    pub(crate) fn merge_all(
        &mut self,
        mut runs: Vec<Run>,
        fan_in: usize,
        next: &mut dyn FnMut() -> PathBuf,
        writer: &mut IndexWriter,
    ) -> Result<(), BuildError> {
        let fan_in = fan_in.max(2);
        // The smallest are last.
        runs.sort_by_key(|run| std::cmp::Reverse(run.size()));
        while runs.len() > fan_in {
            let some = runs.split_off(runs.len() - first_width(runs.len(), fan_in));
            let out = RunWriter::new(self.fs, next(), 0);
            let mut wider = Wider { out, dir: Vec::new(), leaves: Vec::new() };
            self.merge(some, &mut wider, false)?;
            wider.flush()?;
            let run = wider.out.finish()?;
            let at = runs.partition_point(|other| other.size() > run.size());
            runs.insert(at, run);
        }
        self.merge(runs, writer, true)
    }

    /// Merges `runs` at once, and removes their files. `is_last`: whether progress is reported.
    fn merge(
        &mut self,
        runs: Vec<Run>,
        to: &mut impl Target,
        is_last: bool,
    ) -> Result<(), BuildError> {
        let (mut files, mut readers) = (Vec::new(), Vec::new());
        for run in runs {
            files.extend(run.path().map(Path::to_owned));
            let mut reader = RunReader::new(run);
            if reader.next_entry(self.fs)? {
                readers.push(reader);
            }
        }
        self.runs = Heads::new(readers);
        let mut looks = 0_u32;
        while let Some(first) = self.runs.first() {
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(LOOK_EVERY) {
                self.monitor.check()?;
                self.runs.share();
            }
            let count =
                if self.runs.is_shared() { self.merge_dir(to)? } else { self.take_dir(first, to)? };
            if is_last {
                self.monitor.merged(count);
            }
        }
        // Their buffers are large.
        self.runs = Heads::default();
        for path in files {
            self.fs.remove_file(&path).map_err(BuildError::io("remove", &path))?;
        }
        Ok(())
    }

    /// Takes the objects of the first run's current directory, in which no other run has any; returns their number.
    fn take_dir(&mut self, first: usize, to: &mut impl Target) -> Result<u64, BuildError> {
        let run = self.runs.run(first);
        to.enter(run.dir())?;
        let mut count = 0;
        while let Some(leaf) = run.next_leaf()? {
            to.add(&leaf)?;
            count += 1;
        }
        if run.next_entry(self.fs)? {
            self.runs.advance();
        } else {
            self.runs.pop();
        }
        Ok(count)
    }

    /// Merges the objects of the least directory of all runs that are at it; returns their number.
    fn merge_dir(&mut self, to: &mut impl Target) -> Result<u64, BuildError> {
        let Self { fs, runs, same, heads, dir, .. } = self;
        dir.clear();
        while let Some(first) = runs.first() {
            let name = runs.run(first).dir();
            if same.is_empty() {
                dir.extend_from_slice(name);
            } else if name != dir {
                break;
            }
            same.extend(runs.pop());
        }
        to.enter(dir)?;
        for &run in &*same {
            heads.extend(next_of(*fs, runs.run(run), dir)?.map(|leaf| Head { leaf, run }));
        }
        let (mut before, mut twice, mut count) = (None, 0, 0);
        while let Some(mut head) = heads.peek_mut() {
            let leaf = head.leaf;
            to.add(&leaf)?;
            count += 1;
            twice += u64::from(before == Some(leaf.key()));
            before = Some(leaf.key());
            match next_of(*fs, runs.run(head.run), dir)? {
                Some(next) => head.leaf = next,
                None => drop(PeekMut::pop(head)),
            }
        }
        for run in same.drain(..) {
            if runs.run(run).has_leaf() {
                runs.push(run);
            }
        }
        if twice > 0 {
            (self.duplicate)(&self.dir, twice)?;
        }
        Ok(count)
    }
}

/// How many of `runs`, which are more than `fan_in`, are merged next. With this number every later
/// merge reads exactly `fan_in` runs.
fn first_width(runs: usize, fan_in: usize) -> usize {
    (runs - 2) % (fan_in - 1) + 2
}

/// The next object of a run in this directory; `None` if the run is at another one, or at its end.
fn next_of(
    fs: &dyn FileSystem,
    run: &mut RunReader,
    dir: &[u8],
) -> Result<Option<Leaf>, BuildError> {
    loop {
        if let Some(leaf) = run.next_leaf()? {
            return Ok(Some(leaf));
        }
        if !run.next_entry(fs)? || run.dir() != dir {
            return Ok(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use forebay_base::fs::RealFs;

    use super::*;
    use crate::object::{ClassId, Kind, Month};

    /// Directories with their objects.
    type Dirs = Vec<(Vec<u8>, Vec<Leaf>)>;

    /// Keeps what it receives.
    #[derive(Default)]
    struct Kept(Dirs);

    impl Target for Kept {
        fn enter(&mut self, dir: &[u8]) -> Result<(), BuildError> {
            if self.0.last().is_none_or(|(last, _)| last != dir) {
                self.0.push((dir.to_vec(), Vec::new()));
            }
            Ok(())
        }

        fn add(&mut self, leaf: &Leaf) -> Result<(), BuildError> {
            self.0.last_mut().unwrap().1.push(*leaf);
            Ok(())
        }
    }

    fn leaf(hash: u64, check: u64) -> Leaf {
        let (class, kind) = (ClassId::STANDARD, Kind::Current);
        Leaf { hash, check, size: 1, modified: Month::UNKNOWN, class, kind }
    }

    fn run(entries: &[(&str, &[Leaf])]) -> Run {
        let mut writer = RunWriter::new(&RealFs, "no file".into(), usize::MAX);
        for (dir, leaves) in entries {
            writer.push(dir.as_bytes(), leaves.iter().copied()).unwrap();
        }
        writer.finish().unwrap()
    }

    /// What a merge of runs gives, and how many keys it found twice.
    fn merged(runs: Vec<Run>) -> (Dirs, u64) {
        thread_local!(static TWICE: Cell<u64> = const { Cell::new(0) });
        TWICE.set(0);
        let mut duplicate = |_: &[u8], count| {
            TWICE.set(TWICE.get() + count);
            Ok(())
        };
        let monitor = Monitor::default();
        let mut kept = Kept::default();
        Merger::new(&RealFs, &monitor, &mut duplicate).merge(runs, &mut kept, true).unwrap();
        (kept.0, TWICE.get())
    }

    #[test]
    fn half_of_a_hash_does_not_make_two_keys_one() {
        let (a, b) = (leaf(7, 1), leaf(7, 2));
        let of = |leaf: Leaf| run(&[("d/", &[leaf][..])]);
        assert_eq!(merged(vec![of(a), of(b)]), (vec![(b"d/".to_vec(), vec![a, b])], 0));
        assert_eq!(merged(vec![of(b), of(a), of(b)]).1, 1);
    }

    #[test]
    fn runs_are_merged_in_the_order_of_directories_and_hashes() {
        let runs = vec![
            run(&[("", &[leaf(1, 0), leaf(9, 0)]), ("b/", &[leaf(5, 0)])]),
            run(&[("", &[leaf(3, 0)]), ("a/", &[leaf(2, 0)]), ("b/", &[leaf(4, 0), leaf(6, 0)])]),
            run(&[("b/", &[leaf(1, 0)]), ("c/", &[leaf(1, 0)])]),
        ];
        let (found, twice) = merged(runs);
        let hashes: Vec<(&[u8], Vec<u64>)> = found
            .iter()
            .map(|(dir, leaves)| (&**dir, leaves.iter().map(|leaf| leaf.hash).collect()))
            .collect();
        let expected: [(&[u8], Vec<u64>); 4] =
            [(b"", vec![1, 3, 9]), (b"a/", vec![2]), (b"b/", vec![1, 4, 5, 6]), (b"c/", vec![1])];
        assert_eq!((hashes.as_slice(), twice), (&expected[..], 0));
    }

    #[test]
    fn all_merges_but_the_first_are_as_wide_as_permitted() {
        for fan_in in 2..40 {
            for count in fan_in + 1..300 {
                let mut runs = count;
                let width = first_width(runs, fan_in);
                assert!((2..=fan_in).contains(&width));
                runs -= width - 1;
                while runs > fan_in {
                    assert_eq!(first_width(runs, fan_in), fan_in, "{count} runs, {fan_in} at once");
                    runs -= fan_in - 1;
                }
                assert_eq!(runs, fan_in, "the last merge, too");
            }
        }
    }
}
