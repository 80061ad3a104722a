//! Reads and hashes every byte of every segment.

use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use forebay_base::error_chain::chain;
use forebay_base::fs::FileSystem;
use parking_lot::Mutex;
use uuid::Uuid;

use super::leaves::Leaves;
use super::{Fault, hash_all};
use crate::format::leaf;
use crate::format::system::{self, SystemEntry};
use crate::segment::{Derived, Segment};
use crate::store::manifest::{Manifest, SegmentEntry, segment_path};

/// Number of blocks that a thread processes at a time.
const BLOCKS: usize = 64;
/// Maximum number of damaged blocks of a segment that are named; the others are counted.
const NAMED_MAX: usize = 100;
/// Number of id pages that a thread processes at a time.
const PAGES: usize = 512;

/// The result.
#[derive(Debug, Default)]
pub(super) struct Read {
    pub(super) leaves: Leaves,
    pub(super) events: u64,
    pub(super) leaf_bytes: u64,
    /// The store's own entries, with their positions.
    pub(super) entries: Vec<(u64, SystemEntry)>,
    /// Numbers of segments that could not be read completely.
    pub(super) damaged: Vec<u64>,
    /// The damaged blocks of each segment, or else its first other fault.
    pub(super) faults: Vec<Fault>,
}

impl Read {
    /// Adds what was read of other segments.
    pub(super) fn absorb(&mut self, other: Self) {
        self.leaves.absorb(other.leaves);
        self.events += other.events;
        self.leaf_bytes += other.leaf_bytes;
        self.entries.extend(other.entries);
        self.damaged.extend(other.damaged);
        self.faults.extend(other.faults);
    }
}

/// A segment that could be opened.
pub(super) struct Opened<'a> {
    /// What its blocks add up to.
    derived: Mutex<Derived>,
    /// The random key of sums over its ids.
    key: u64,
    entry: SegmentEntry,
    path: PathBuf,
    pub(super) segment: Handle<'a>,
}

/// An open segment, of the verification or of the store.
pub(super) enum Handle<'a> {
    Own(Box<Segment>),
    Store(&'a Segment),
}

impl Deref for Handle<'_> {
    type Target = Segment;

    fn deref(&self) -> &Segment {
        match self {
            Self::Own(segment) => segment,
            Self::Store(segment) => segment,
        }
    }
}

/// Places of faults from here on are not in blocks.
const OTHERS: usize = usize::MAX - 2;

/// A fault with the number of its segment, and its place there: the number of a block, or one of
/// [`OTHERS`].
pub(super) type Placed = (u64, usize, Fault);

/// A piece of work.
enum Work {
    Digest(usize),
    Blocks(usize, Range<usize>),
    IdPages(usize, Range<u64>),
    Stubs(usize),
}

impl<'a> Opened<'a> {
    pub(super) fn new(entry: &SegmentEntry, path: PathBuf, segment: Handle<'a>) -> Self {
        let (derived, key) = (Mutex::default(), Uuid::new_v4().as_u64_pair().0);
        Self { derived, key, entry: entry.clone(), path, segment }
    }
}

/// Opens all segments of a manifest.
pub(super) fn open_all(
    fs: &dyn FileSystem,
    dir: &Path,
    manifest: &Manifest,
) -> (Vec<Opened<'static>>, Vec<Placed>) {
    let (mut opened, mut faults) = (Vec::new(), Vec::new());
    for entry in &manifest.segments {
        let path = segment_path(dir, entry.number);
        match open(fs, entry, &path) {
            Ok(segment) => opened.push(Opened::new(entry, path, Handle::Own(Box::new(segment)))),
            Err(found) => faults.push((entry.number, 0, Fault::Segment { path, found })),
        }
    }
    (opened, faults)
}

/// Reads segments.
///
/// * `faults`: those of segments that could not be opened.
pub(super) fn read(
    opened: &[Opened<'_>],
    faults: Vec<Placed>,
    merkle: bool,
    threads: usize,
    on_event: &(dyn Fn(u64) + Sync),
) -> Read {
    let works = works(opened);
    let next = AtomicUsize::new(0);
    let sum = Mutex::new((Read::default(), faults));
    std::thread::scope(|scope| {
        for _ in 0..threads.min(works.len()) {
            scope.spawn(|| {
                let mut read = Read::default();
                let mut hasher = Hasher::default();
                while let Some(work) = works.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let before = read.events;
                    let mut report = |at: &Opened<'_>, place, found| {
                        let fault = Fault::Segment { path: at.path.clone(), found };
                        sum.lock().1.push((at.entry.number, place, fault));
                    };
                    let worked = hasher.work(work, opened, merkle, &mut read, &mut report);
                    if let Err((at, place, found)) = worked {
                        report(at, place, found);
                    }
                    on_event(read.events - before);
                }
                let mut sum = sum.lock();
                sum.0.leaves.absorb(read.leaves);
                sum.0.entries.append(&mut read.entries);
                sum.0.events += read.events;
                sum.0.leaf_bytes += read.leaf_bytes;
            });
        }
    });
    let (mut read, mut faults) = sum.into_inner();
    for opened in opened {
        let Opened { derived, entry, path, segment, .. } = opened;
        let derived = std::mem::take(&mut *derived.lock());
        // What was damaged adds up to nothing.
        if faults.iter().all(|(number, ..)| *number != entry.number)
            && let Err(error) = segment.check_derived(derived)
        {
            let found = chain(&error).to_string();
            let path = path.clone();
            faults.push((entry.number, usize::MAX, Fault::Segment { path, found }));
        }
    }
    faults.sort_by_key(|(number, place, _)| (*number, *place));
    for of_segment in faults.chunk_by(|(number, ..), (other, ..)| number == other) {
        read.damaged.extend(of_segment.first().map(|(number, ..)| *number));
        read.faults.extend(named(of_segment));
    }
    read
}

/// What is reported of the faults of a segment, which are in order: each damaged block up to a
/// maximum, or else the first fault. That a damaged block changes the digest too says nothing.
fn named(faults: &[Placed]) -> Vec<Fault> {
    let blocks = faults.iter().take_while(|(_, place, _)| *place < OTHERS).count().max(1);
    let mut named: Vec<_> =
        faults.iter().take(blocks.min(NAMED_MAX)).map(|(.., fault)| fault.clone()).collect();
    if let Some(Fault::Segment { path, .. }) = named.last()
        && blocks > NAMED_MAX
    {
        let found = format!("{} more of its blocks are damaged", blocks - NAMED_MAX);
        named.push(Fault::Segment { path: path.clone(), found });
    }
    named
}

pub(super) fn open(
    fs: &dyn FileSystem,
    entry: &SegmentEntry,
    path: &Path,
) -> Result<Segment, String> {
    let segment = Segment::open(fs, path).map_err(|error| chain(&error).to_string())?;
    let info = segment.info();
    let same = (info.first_seq, info.end_seq, info.rows, info.file_size)
        == (entry.first_seq, entry.end_seq, entry.rows, entry.file_size)
        && (info.time_min_ns, info.time_max_ns) == (entry.time_min_ns, entry.time_max_ns);
    if same {
        Ok(segment)
    } else {
        Err("it is not the segment that the manifest describes".to_owned())
    }
}

fn works(opened: &[Opened<'_>]) -> Vec<Work> {
    let mut works = Vec::new();
    for (at, opened) in opened.iter().enumerate() {
        works.push(Work::Digest(at));
        let count = opened.segment.blocks().len();
        works.extend(
            (0..count)
                .step_by(BLOCKS)
                .map(|first| Work::Blocks(at, first..count.min(first + BLOCKS))),
        );
        let pages = opened.segment.id_pages().unwrap_or(0);
        works.extend(
            (0..pages)
                .step_by(PAGES)
                .map(|first| Work::IdPages(at, first..pages.min(first + PAGES as u64))),
        );
        works.push(Work::Stubs(at));
    }
    works
}

/// Memory of one thread.
#[derive(Default)]
struct Hasher {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    hashes: Vec<crate::merkle::Hash>,
}

/// The offset of a fault in the segment, and its description.
type FoundFault<'a> = (&'a Opened<'a>, usize, String);

impl Hasher {
    fn work<'a>(
        &mut self,
        work: &Work,
        opened: &'a [Opened<'a>],
        merkle: bool,
        read: &mut Read,
        report: &mut dyn FnMut(&Opened<'_>, usize, String),
    ) -> Result<(), FoundFault<'a>> {
        let (Work::Digest(at) | Work::Blocks(at, _) | Work::IdPages(at, _) | Work::Stubs(at)) =
            work;
        let Some(opened) = opened.get(*at) else { return Ok(()) };
        let text = |error: &dyn std::error::Error| chain(error).to_string();
        match work {
            Work::Digest(_) => {
                let found = opened.segment.digest();
                let found = found.map_err(|error| (opened, usize::MAX, text(&error)))?;
                if found != opened.entry.digest {
                    let found = "its bytes differ from those that were sealed (BLAKE3)".to_owned();
                    return Err((opened, usize::MAX, found));
                }
            }
            Work::Blocks(_, blocks) => {
                let mut derived = Derived::default();
                for number in blocks.clone() {
                    // The blocks after a damaged one are read as well.
                    if let Err(error) = self.block(opened, number, merkle, read, &mut derived) {
                        report(opened, number, text(&error));
                    }
                }
                opened.derived.lock().absorb(derived);
            }
            Work::IdPages(_, pages) => {
                let mut derived = Derived::default();
                opened
                    .segment
                    .add_id_pages(pages.clone(), opened.key, &mut derived)
                    .map_err(|error| (opened, OTHERS, text(&error)))?;
                opened.derived.lock().absorb(derived);
            }
            Work::Stubs(_) => {
                let range = opened.entry.first_seq..opened.entry.end_seq;
                let stubs = opened.segment.stubs(range);
                let stubs = stubs.map_err(|error| (opened, usize::MAX - 1, text(&error)))?;
                let ordered = stubs.is_sorted_by(|before, next| before.0 < next.0);
                if !ordered || stubs.len() as u64 != opened.segment.info().stubs {
                    let found = "the hashes of its removed events are not in order".to_owned();
                    return Err((opened, usize::MAX - 1, found));
                }
                for (seq, hash) in stubs {
                    read.leaves.put_stub(seq, hash);
                }
            }
        }
        Ok(())
    }

    fn block(
        &mut self,
        opened: &Opened<'_>,
        number: usize,
        merkle: bool,
        read: &mut Read,
        derived: &mut Derived,
    ) -> Result<(), crate::segment::SegmentError> {
        let segment: &Segment = &opened.segment;
        let block = segment.read_block(number)?;
        self.bytes.clear();
        self.ends.clear();
        // Many rows have the same tags.
        let tags: Vec<_> = block.distinct_tags().map(leaf::tags).collect();
        for row in 0..block.len() {
            let parts = block.parts(row);
            let start = self.bytes.len();
            leaf::join(&parts, &mut self.bytes);
            self.ends.push(self.bytes.len());
            let valid = match tags.get(block.tag_number(row)) {
                Some(Ok(tags)) => leaf::body(&parts, tags, self.bytes.len() - start).is_ok(),
                _ => false,
            };
            if !valid {
                return Err(segment.no_event(block.seq(row)));
            }
            if system::is_own(parts.tags) {
                let event = leaf::decode(self.bytes.get(start..).unwrap_or_default()).ok();
                let entry = event.as_ref().and_then(SystemEntry::decode);
                read.entries.extend(entry.map(|entry| (block.seq(row), entry)));
            }
        }
        // No reader would find an event that is not where the index says.
        if let Some(seq) = segment.misplaced(number, &block) {
            return Err(segment.no_event(seq));
        }
        segment.check_block(number, &block, self.bytes.len() as u64, opened.key, derived)?;
        if merkle {
            hash_all(&self.bytes, &self.ends, &mut self.hashes);
            for (row, &hash) in self.hashes.iter().enumerate() {
                read.leaves.put(block.seq(row), hash);
            }
        }
        read.events += block.len() as u64;
        read.leaf_bytes += self.bytes.len() as u64;
        Ok(())
    }
}
