//! Merges runs into the writer: directories in order, and the objects of a directory in several
//! runs in the order of their hashes, so that a key listed twice is detected wherever it was read.

use forebay_base::fs::FileSystem;

use super::monitor::Monitor;
use super::run::{Leaf, Run, RunReader};
use super::write::IndexWriter;
use super::{BuildError, OnDuplicate};

/// Directories between two checks for cancellation.
const LOOK_EVERY: u32 = 4096;

/// Merges all of `runs`. `duplicate` is called with a directory and how many of its keys were
/// listed before.
pub(crate) fn merge(
    fs: &dyn FileSystem,
    runs: Vec<Run>,
    writer: &mut IndexWriter,
    monitor: &Monitor,
    duplicate: &mut OnDuplicate,
) -> Result<(), BuildError> {
    let mut heap = Heap::default();
    for run in runs {
        let mut reader = RunReader::open(fs, run)?;
        if reader.next_entry()? {
            heap.push(reader);
        }
    }
    let mut same = Vec::new();
    let mut looks = 0_u32;
    while let Some(mut first) = heap.pop() {
        looks = looks.wrapping_add(1);
        if looks.is_multiple_of(LOOK_EVERY) {
            monitor.check()?;
        }
        while heap.first().is_some_and(|next| next.dir() == first.dir()) {
            same.extend(heap.pop());
        }
        writer.enter(first.dir())?;
        if same.is_empty() {
            let mut count = 0;
            while let Some(leaf) = first.next_leaf()? {
                writer.add(&leaf.object)?;
                count += 1;
            }
            monitor.merged(count);
            if first.next_entry()? {
                heap.push(first);
            }
        } else {
            same.push(first);
            merge_dir(&mut same, &mut heap, writer, monitor, duplicate)?;
        }
    }
    Ok(())
}

/// Merges the objects of the current directory of all of `same`, and puts the runs back.
fn merge_dir(
    same: &mut Vec<RunReader>,
    heap: &mut Heap,
    writer: &mut IndexWriter,
    monitor: &Monitor,
    duplicate: &mut OnDuplicate,
) -> Result<(), BuildError> {
    let dir = same.first().map_or_else(Vec::new, |run| run.dir().to_vec());
    // The next object of each run that has one, and the index of the run, which is not moved.
    let mut heads: Vec<(Leaf, usize)> = Vec::with_capacity(same.len());
    for (i, run) in same.iter_mut().enumerate() {
        heads.extend(next_of(run, &dir)?.map(|leaf| (leaf, i)));
    }
    let (mut before, mut twice, mut count) = (None, 0, 0);
    while let Some(at) = (0..heads.len()).min_by_key(|&i| heads[i].0.hash) {
        let (leaf, run) = heads[at];
        writer.add(&leaf.object)?;
        count += 1;
        twice += u64::from(before == Some(leaf.hash));
        before = Some(leaf.hash);
        match next_of(&mut same[run], &dir)? {
            Some(next) => heads[at].0 = next,
            None => drop(heads.swap_remove(at)),
        }
    }
    for run in same.drain(..).filter(RunReader::has_leaf) {
        heap.push(run);
    }
    monitor.merged(count);
    if twice > 0 {
        duplicate(&dir, twice)?;
    }
    Ok(())
}

/// The next object of a run in this directory; `None` if the run is at another one, or at its end.
fn next_of(run: &mut RunReader, dir: &[u8]) -> Result<Option<Leaf>, BuildError> {
    loop {
        if let Some(leaf) = run.next_leaf()? {
            return Ok(Some(leaf));
        }
        if !run.next_entry()? || run.dir() != dir {
            return Ok(None);
        }
    }
}

/// Runs, the one at the least directory first.
#[derive(Default)]
struct Heap(Vec<RunReader>);

impl Heap {
    fn first(&self) -> Option<&RunReader> {
        self.0.first()
    }

    fn push(&mut self, run: RunReader) {
        let runs = &mut self.0;
        let mut at = runs.len();
        runs.push(run);
        while at > 0 && runs[at].dir() < runs[(at - 1) / 2].dir() {
            runs.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
    }

    fn pop(&mut self) -> Option<RunReader> {
        let runs = &mut self.0;
        if runs.is_empty() {
            return None;
        }
        let first = runs.swap_remove(0);
        let mut at = 0;
        loop {
            let children = [2 * at + 1, 2 * at + 2].into_iter().filter(|&child| child < runs.len());
            let Some(least) = children.min_by(|&a, &b| runs[a].dir().cmp(runs[b].dir())) else {
                return Some(first);
            };
            if runs[at].dir() <= runs[least].dir() {
                return Some(first);
            }
            runs.swap(at, least);
            at = least;
        }
    }
}
