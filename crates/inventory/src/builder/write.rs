//! Writes the records in one pass, from directories in the order of their names.
//!
//! The prefixes from the root to the current directory are held with their counts so far. A prefix
//! that is left is written and added to its parent. So every ancestor is updated once for each
//! directory below it, not once for each object.

use std::sync::Arc;

use forebay_base::fs::FileSystem;

use super::BuildError;
use super::build_dir::BuildDir;
use super::largest::Largest;
use super::out::Out;
use super::spool::Spool;
use super::tally::{Counted, Tally};
use crate::format::histogram::Amount;
use crate::format::meta::{FileMeta, Slot};
use crate::format::record::{Encoder, NewRecord, Subtree};
use crate::format::table::{ROOT_HASH, hash_child};
use crate::format::{DEPTH_MAX, NAMES_STRIDE, NARROW_MAX, POSITION_END, SLOTS_MAX, listed, order};
use crate::object::{ClassId, Kind, Month};

/// One of the prefixes from the root to the current directory.
#[derive(Debug, Default)]
struct Frame {
    /// Where its name starts in the path, and where it ends, the delimiter not included.
    name: std::ops::Range<usize>,
    hash: u64,
    tally: Tally,
    /// Where the records below it start.
    below: u64,
    descendants: u64,
    children: u64,
    by_bytes: Largest,
    by_objects: Largest,
    /// By the bytes of all versions; `None` as long as it would be `by_bytes`.
    by_billed: Option<Largest>,
    by_name: Vec<u64>,
}

/// The figures of a finished index.
#[derive(Debug, Clone)]
pub(crate) struct Written {
    pub(crate) nodes: FileMeta,
    pub(crate) table: FileMeta,
    pub(crate) order: FileMeta,
    pub(crate) slots: Vec<Slot>,
    pub(crate) total: Amount,
    /// Bytes of all versions.
    pub(crate) billed_bytes: u64,
    pub(crate) prefixes: u64,
}

/// An index being written.
pub(crate) struct IndexWriter {
    nodes: Out,
    order: Out,
    spool: Spool,
    encoder: Encoder,
    delimiter: u8,
    histograms: bool,
    /// The current directory, its last delimiter included.
    path: Vec<u8>,
    /// The root first; those beyond `depth` are kept for their allocations.
    frames: Vec<Frame>,
    depth: usize,
    slots: Slots,
    /// Bytes of all versions so far. No other sum of the index is larger.
    bytes: u64,
}

/// The slots of classes, assigned at the first occurrence of each class.
#[derive(Debug)]
struct Slots {
    /// By class and whether noncurrent.
    by_class: [[Option<u8>; 2]; 256],
    /// The class and version kind of each slot.
    classes: Vec<(u8, bool)>,
    /// Those of current versions.
    current: u64,
}

impl IndexWriter {
    /// `memory`: maximum memory for the table's entries.
    pub(crate) fn create(
        fs: &Arc<dyn FileSystem>,
        place: &BuildDir,
        delimiter: u8,
        histograms: bool,
        memory: u64,
    ) -> Result<Self, BuildError> {
        let root = Frame { hash: ROOT_HASH, ..Frame::default() };
        Ok(Self {
            nodes: Out::create(&**fs, &place.file("nodes"))?,
            order: Out::create(&**fs, &place.file("order"))?,
            spool: Spool::new(Arc::clone(fs), place.file("spool"), memory),
            encoder: Encoder::new(),
            delimiter,
            histograms,
            path: Vec::new(),
            frames: vec![root],
            depth: 0,
            slots: Slots { by_class: [[None; 2]; 256], classes: Vec::new(), current: 0 },
            bytes: 0,
        })
    }

    /// Makes `dir` (empty, or ending in the delimiter) the current directory. It must not precede
    /// one that was left.
    #[inline]
    pub(crate) fn enter(&mut self, dir: &[u8]) -> Result<(), BuildError> {
        if dir == self.path {
            return Ok(());
        }
        let common = common_prefix(dir, &self.path);
        while self.depth > 0 && self.frames[self.depth].name.end >= common {
            self.leave()?;
        }
        let mut start = if self.depth == 0 { 0 } else { self.frames[self.depth].name.end + 1 };
        self.path.truncate(start);
        self.path.extend_from_slice(dir.get(start..).unwrap_or_default());
        while let Some(len) = memchr::memchr(self.delimiter, &self.path[start..]) {
            self.open(start..start + len)?;
            start += len + 1;
        }
        Ok(())
    }

    fn open(&mut self, name: std::ops::Range<usize>) -> Result<(), BuildError> {
        if self.depth >= DEPTH_MAX {
            return Err(BuildError::TooDeep);
        }
        let hash = hash_child(self.frames[self.depth].hash, &self.path[name.clone()]);
        self.depth += 1;
        if self.frames.len() <= self.depth {
            self.frames.push(Frame::default());
        }
        let frame = &mut self.frames[self.depth];
        frame.name = name;
        frame.hash = hash;
        frame.below = self.nodes.position();
        Ok(())
    }

    /// Counts an object of the current directory.
    #[inline]
    pub(crate) fn add(
        &mut self,
        class: ClassId,
        kind: Kind,
        size: u64,
        month: Month,
    ) -> Result<(), BuildError> {
        let tally = &mut self.frames[self.depth].tally;
        if kind == Kind::DeleteMarker {
            tally.delete_markers += 1;
            return Ok(());
        }
        // Checked once here: every other sum is one of a part of these objects.
        self.bytes = self.bytes.checked_add(size).ok_or(BuildError::TooManyBytes)?;
        let slot = self.slots.of(class.0, kind == Kind::Noncurrent)?;
        tally.add(Counted { slot, size, month }, self.histograms);
        Ok(())
    }

    /// Writes the current directory, and makes its parent the current one.
    fn leave(&mut self) -> Result<(), BuildError> {
        let end = self.write_record()?;
        let current = self.slots.current;
        let depth = self.depth;
        let (above, left) = self.frames.split_at_mut(depth);
        if let (Some(above), Some(left)) = (above.last_mut(), left.first_mut()) {
            self.spool.push(left.hash, end)?;
            above.tally.add_all(&left.tally, self.histograms);
            above.descendants += 1 + left.descendants;
            if above.children.is_multiple_of(NAMES_STRIDE as u64) {
                above.by_name.push(end);
            }
            above.children += 1;
            let total = left.tally.total(current);
            let has_noncurrent = left.tally.has(!current);
            if has_noncurrent && above.by_billed.is_none() {
                above.by_billed = Some(above.by_bytes.clone());
            }
            if let Some(by_billed) = &mut above.by_billed {
                let billed = if has_noncurrent { left.tally.total(u64::MAX) } else { total };
                by_billed.push(billed.bytes, end);
            }
            above.by_bytes.push(total.bytes, end);
            above.by_objects.push(total.objects, end);
            left.clear();
        }
        self.depth -= 1;
        Ok(())
    }

    /// Writes the current directory's record; returns its end.
    fn write_record(&mut self) -> Result<u64, BuildError> {
        let frame = &mut self.frames[self.depth];
        let lists = if frame.children > NARROW_MAX {
            let at = self.order.position();
            let count = listed(frame.children);
            let (bytes, objects) = (frame.by_bytes.ends(count), frame.by_objects.ends(count));
            let billed =
                frame.by_billed.as_mut().map_or_else(Vec::new, |billed| billed.ends(count));
            order::put(self.order.buffer(), &bytes, &objects, &billed, &frame.by_name);
            self.order.flush_if_full()?;
            Some(at)
        } else {
            None
        };
        frame.tally.spread_single(self.histograms);
        let record = NewRecord {
            name: self.path.get(frame.name.clone()).unwrap_or_default(),
            depth: self.depth as u64,
            subtree: Subtree {
                size: self.nodes.position() - frame.below,
                descendants: frame.descendants,
                children: frame.children,
                lists,
            },
            delete_markers: frame.tally.delete_markers,
            mask: frame.tally.mask,
            slots: &frame.tally.slots,
            months: &frame.tally.months,
            histograms: self.histograms,
        };
        self.encoder.encode(&record, self.nodes.buffer());
        self.nodes.flush_if_full()?;
        let end = self.nodes.position();
        if end >= POSITION_END {
            return Err(BuildError::TooLarge);
        }
        Ok(end)
    }

    /// Writes the rest, and the table. `names`: those of the classes, by their numbers.
    pub(crate) fn finish(
        mut self,
        place: &BuildDir,
        names: &[String],
    ) -> Result<Written, BuildError> {
        while self.depth > 0 {
            self.leave()?;
        }
        self.write_record()?;
        let total = self.frames[0].tally.total(self.slots.current);
        let prefixes = self.spool.len() + 1;
        let slots = self.slots.classes.iter().map(|&(class, noncurrent)| Slot {
            class: names.get(usize::from(class)).cloned().unwrap_or_default(),
            noncurrent,
        });
        Ok(Written {
            slots: slots.collect(),
            nodes: self.nodes.finish()?,
            order: self.order.finish()?,
            table: self.spool.write_table(&place.file("table"))?,
            total,
            billed_bytes: self.bytes,
            prefixes,
        })
    }
}

impl Frame {
    /// Empties it and keeps its allocations.
    fn clear(&mut self) {
        self.tally.clear();
        (self.descendants, self.children) = (0, 0);
        self.by_bytes.clear();
        self.by_objects.clear();
        self.by_billed = None;
        self.by_name.clear();
    }
}

impl Slots {
    #[inline]
    fn of(&mut self, class: u8, noncurrent: bool) -> Result<usize, BuildError> {
        match self.by_class[usize::from(class)][usize::from(noncurrent)] {
            Some(slot) => Ok(usize::from(slot)),
            None => self.give(class, noncurrent),
        }
    }

    fn give(&mut self, class: u8, noncurrent: bool) -> Result<usize, BuildError> {
        let slot = self.classes.len();
        let number = u8::try_from(slot).ok().filter(|_| slot < SLOTS_MAX);
        let number = number.ok_or(BuildError::TooManyClasses)?;
        self.classes.push((class, noncurrent));
        if !noncurrent {
            self.current |= 1 << slot;
        }
        self.by_class[usize::from(class)][usize::from(noncurrent)] = Some(number);
        Ok(slot)
    }
}

/// Length of the common prefix of two paths.
#[inline]
fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let (wide_a, wide_b) = (a.as_chunks::<8>().0, b.as_chunks::<8>().0);
    let wide = wide_a.iter().zip(wide_b).take_while(|(a, b)| a == b).count() * 8;
    let rest = a.iter().zip(b).skip(wide).take_while(|(a, b)| a == b).count();
    wide + rest
}
