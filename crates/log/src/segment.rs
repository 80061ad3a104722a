//! The segment files of one log: their names, their creation, and the lookup of a position.
//!
//! Invariants:
//! - A segment file always has a complete, synced header and its full size: it is created under
//!   another name, synced, renamed, and the directory synced, before anything refers to it.
//! - Only the last segment is written to; a segment is synced to its end before the next one is
//!   created.
//! - At most [`HANDLES_MAX`] files are kept open for reading.

use std::{
    collections::{BTreeMap, VecDeque},
    path::{Path, PathBuf},
    sync::Arc,
};

use forebay_base::fs::{Access, File, FileSystem};

use crate::{
    Lsn,
    error::DiskError,
    format::{SEGMENT_HEADER_SIZE, SegmentHeader},
};

/// The name of a segment being prepared.
pub(crate) const PREPARED_NAME: &str = "next.prepared";
/// The suffix of the name of a segment being rewritten.
pub(crate) const ERASE_SUFFIX: &str = ".erase";
/// The name of the file whose lock is held by the process that has the log open.
pub(crate) const LOCK_NAME: &str = "lock";

/// Maximum number of files kept open for reading.
const HANDLES_MAX: usize = 32;

/// Returns a segment's file name.
pub(crate) fn file_name(base: u64) -> String {
    format!("{base:016x}.log")
}

/// Returns the base in a segment's file name, `None` for any other name.
pub(crate) fn parse_file_name(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".log")?;
    let canonical =
        digits.len() == 16 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if canonical { u64::from_str_radix(digits, 16).ok() } else { None }
}

/// Creates a file of `size` zeros under the name for the next segment, durable except for its name.
/// If that fails, the file is removed, because it would take space that is scarce.
pub(crate) fn prepare(
    fs: &dyn FileSystem,
    dir: &Path,
    size: u64,
) -> Result<Arc<dyn File>, DiskError> {
    let path = dir.join(PREPARED_NAME);
    let fail = |act| {
        let path = path.clone();
        move |source| DiskError::new(act, path, source)
    };
    let file = fs.create_new(&path).map_err(fail("create segment"))?;
    let filled = file
        .allocate(size)
        .map_err(fail("reserve space for segment"))
        .and_then(|()| file.sync_all().map_err(fail("sync new segment")));
    filled.map(|()| Arc::clone(&file)).inspect_err(|_| remove_prepared(fs, dir))
}

/// Removes the prepared file if possible; otherwise the next opening removes it.
fn remove_prepared(fs: &dyn FileSystem, dir: &Path) {
    fs.remove_file(&dir.join(PREPARED_NAME)).ok();
}

/// Turns the prepared file into the segment `header` describes, durable once the directory is
/// synced. If that fails, neither of the two files remains.
pub(crate) fn publish(
    fs: &dyn FileSystem,
    dir: &Path,
    file: &Arc<dyn File>,
    header: &SegmentHeader,
) -> Result<(), DiskError> {
    let prepared = dir.join(PREPARED_NAME);
    let path = dir.join(file_name(header.base));
    let fail = |act| {
        let path = path.clone();
        move |source| DiskError::new(act, path, source)
    };
    let named = || {
        if file.len().map_err(fail("get the size of new segment"))? < header.size {
            file.allocate(header.size).map_err(fail("reserve space for segment"))?;
        }
        file.write_all_at(&header.encode(), 0).map_err(fail("write header of segment"))?;
        file.sync_all().map_err(fail("sync header of segment"))?;
        fs.rename(&prepared, &path).map_err(fail("rename a file to segment"))
    };
    named().inspect_err(|_| remove_prepared(fs, dir))
}

/// One segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) base: u64,
    /// Where the frames before it end: at `base`, or earlier if positions were skipped.
    pub(crate) prev_end: u64,
    /// Where its frames end; `None` while it is written to.
    pub(crate) end: Option<u64>,
}

impl Segment {
    /// Returns the position of its first frame.
    pub(crate) fn first(&self) -> u64 {
        self.base + SEGMENT_HEADER_SIZE as u64
    }
}

/// Maps positions to files.
#[derive(Debug, Default)]
pub(crate) struct SegmentTable {
    by_base: BTreeMap<u64, Segment>,
    /// Recently used files, the most recent last.
    handles: VecDeque<(u64, Arc<dyn File>)>,
}

/// The result of looking up a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Location {
    /// In this segment, at this position.
    In(Segment, u64),
    /// Before the first segment, which starts here.
    Before(u64),
    /// Inside a segment's header.
    Header,
}

impl SegmentTable {
    pub(crate) fn insert(&mut self, segment: Segment) {
        self.by_base.insert(segment.base, segment);
    }

    /// Marks the last segment as ending at `end`.
    pub(crate) fn end_last(&mut self, end: u64) {
        if let Some(mut last) = self.by_base.last_entry() {
            last.get_mut().end = Some(end);
        }
    }

    /// Marks the last segment as ending at `end` and adds `next` after it.
    pub(crate) fn seal(&mut self, end: u64, next: Segment) {
        self.end_last(end);
        self.insert(next);
    }

    pub(crate) fn remove(&mut self, base: u64) {
        self.by_base.remove(&base);
        self.forget_handle(base);
    }

    pub(crate) fn get(&self, base: u64) -> Option<Segment> {
        self.by_base.get(&base).copied()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Segment> + '_ {
        self.by_base.values().copied()
    }

    /// The position from which the log is complete: where the frames before the first segment
    /// ended.
    pub(crate) fn start(&self) -> Lsn {
        Lsn(self.by_base.values().next().map_or(0, |first| first.prev_end))
    }

    /// Returns the location of the frame at `position`, or of the next one if it lies between
    /// segments.
    pub(crate) fn locate(&self, position: u64) -> Location {
        let Some((_, segment)) = self.by_base.range(..=position).next_back() else {
            return match self.by_base.values().next() {
                Some(first) if position >= first.prev_end => self.settle(*first, first.first()),
                _ => Location::Before(self.start().0),
            };
        };
        if position == segment.base {
            return self.settle(*segment, segment.first());
        }
        if position < segment.first() {
            return Location::Header;
        }
        self.settle(*segment, position)
    }

    /// Moves on from the end of a sealed segment, over empty ones, to where a frame may be.
    fn settle(&self, mut segment: Segment, mut position: u64) -> Location {
        while segment.end.is_some_and(|end| position >= end) {
            let Some((_, next)) = self.by_base.range(segment.base + 1..).next() else { break };
            segment = *next;
            position = segment.first();
        }
        Location::In(segment, position)
    }

    /// Returns a segment's file, opened for reading or writing as it was first asked for.
    pub(crate) fn file(
        &mut self,
        fs: &dyn FileSystem,
        dir: &Path,
        base: u64,
    ) -> Result<(Arc<dyn File>, PathBuf), DiskError> {
        let path = dir.join(file_name(base));
        if let Some(at) = self.handles.iter().position(|(held, _)| *held == base)
            && let Some(held) = self.handles.remove(at)
        {
            let file = Arc::clone(&held.1);
            self.handles.push_back(held);
            return Ok((file, path));
        }
        let file = fs
            .open(&path, Access::Read)
            .map_err(|source| DiskError::new("open segment", &path, source))?;
        self.keep_handle(base, Arc::clone(&file));
        Ok((file, path))
    }

    pub(crate) fn keep_handle(&mut self, base: u64, file: Arc<dyn File>) {
        self.handles.push_back((base, file));
        if self.handles.len() > HANDLES_MAX {
            self.handles.pop_front();
        }
    }

    pub(crate) fn forget_handle(&mut self, base: u64) {
        self.handles.retain(|(held, _)| *held != base);
    }
}

#[cfg(test)]
mod tests;
