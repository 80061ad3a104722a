//! Documents that wait for an unavailable database, in readable files.
//!
//! ```text
//! <dir>/spill/<position, 16 hex digits>.ndjson    commits after that position, in order
//! ```
//!
//! Every segment but the last was synced completely before the next was started. After a crash the
//! last may end anywhere: an incomplete end is cut off on opening. The log still has it, since
//! nothing counts as spilled before a sync.
//!
//! Invariants: the segments follow one another without a gap; a commit is complete in one segment;
//! the total size of all segments stays within a limit, and a commit that would exceed it is
//! removed again; after a failed write or sync the files are read again before they are trusted.

mod format;
#[cfg(any(test, feature = "fuzzing"))]
pub(super) mod fuzzing;
mod segment;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_base::checksum::extend;
use forebay_base::fs::{Access, File, FileSystem};
use forebay_log::Lsn;
use forebay_sink::Document;

pub(crate) use self::format::Spilled;
pub(crate) use self::segment::{Item, SegmentReader};

use self::format::{Header, push_commit, push_document, push_end, push_json, seed};
use super::super::write::{Head, Run};

/// A segment larger than this is followed by another one.
const SEGMENT_SIZE: u64 = 16 << 20;
/// Lines gathered before they are written.
const BUFFER_SIZE: usize = 256 << 10;
/// Suffix of a segment's name.
const SUFFIX: &str = ".ndjson";

/// Why documents could not be spilled or read back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum SpillError {
    /// A file operation failed.
    #[error("could not {act} {path}", path = path.display())]
    Io {
        act: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// A segment's contents are invalid.
    #[error("{path} is damaged at byte {offset}: {found}", path = path.display())]
    Damaged { path: PathBuf, offset: u64, found: String },
    /// A commit cannot be encoded as lines.
    #[error("could not spill the commit that ends at {end}: {found}")]
    Commit { end: u64, found: String },
}

fn io(act: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> SpillError + use<> {
    let path = path.to_owned();
    move |source| SpillError::Io { act, path, source }
}

/// The valid part of a segment.
#[derive(Debug, Clone)]
struct Segment {
    path: PathBuf,
    after: Lsn,
    end: Lsn,
    size: u64,
    documents: u64,
}

/// The segment that is being written.
#[derive(Debug)]
struct Writing {
    file: Arc<dyn File>,
    seed: u32,
    /// Whether something in it is not yet on stable storage.
    dirty: bool,
}

/// The spilled documents.
#[derive(Debug)]
pub(crate) struct Spill {
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
    log: [u8; 16],
    size_max: u64,
    segments: VecDeque<Segment>,
    /// Of the last segment; `None` if the next commit starts a new one.
    writing: Option<Writing>,
    buffer: Vec<u8>,
}

/// The result of spilling a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spilling {
    /// It is in the last segment, and safe after the next [`Spill::sync`].
    Done,
    /// There is no room for it. Nothing of it was kept.
    Full,
}

impl Spill {
    /// Opens the segments in `dir`, creates the directory if it is missing, and cuts off what a
    /// crash left.
    ///
    /// # Errors
    /// [`SpillError::Io`]; [`SpillError::Damaged`] if more than the end of the last segment is
    /// invalid: see [`Spill::put_aside`].
    pub(crate) fn open(
        fs: Arc<dyn FileSystem>,
        dir: &Path,
        log: [u8; 16],
        size_max: u64,
    ) -> Result<Self, SpillError> {
        fs.create_dir_all(dir).map_err(io("create", dir))?;
        let mut spill = Self {
            fs,
            dir: dir.to_owned(),
            log,
            size_max,
            segments: VecDeque::new(),
            writing: None,
            buffer: Vec::new(),
        };
        let mut paths = spill.names(".tmp")?;
        for left in paths.drain(..) {
            spill.fs.remove_file(&left).map_err(io("remove", &left))?;
        }
        let paths = spill.names(SUFFIX)?;
        for (at, path) in paths.iter().enumerate() {
            spill.admit(path, at + 1 == paths.len())?;
        }
        Ok(spill)
    }

    /// Reads every segment without changing it, and returns the number of complete documents.
    ///
    /// # Errors
    /// As [`Spill::open`].
    pub(crate) fn check(
        fs: Arc<dyn FileSystem>,
        dir: &Path,
        log: [u8; 16],
    ) -> Result<u64, SpillError> {
        if !fs.exists(dir).map_err(io("look for", dir))? {
            return Ok(0);
        }
        let (segments, writing) = (VecDeque::new(), None);
        let (dir, buffer) = (dir.to_owned(), Vec::new());
        let mut spill = Self { fs, dir, log, size_max: 0, segments, writing, buffer };
        let paths = spill.names(SUFFIX)?;
        for (at, path) in paths.iter().enumerate() {
            let file = spill.fs.open(path, Access::Read).map_err(io("open", path))?;
            let (segment, _) = spill.survey(path, &file, at + 1 == paths.len())?;
            spill.segments.extend(segment);
        }
        Ok(spill.documents())
    }

    /// Renames every segment so that it is no longer read, and starts without any.
    ///
    /// # Errors
    /// [`SpillError::Io`].
    pub(crate) fn put_aside(
        fs: Arc<dyn FileSystem>,
        dir: &Path,
        log: [u8; 16],
        size_max: u64,
    ) -> Result<Self, SpillError> {
        let (segments, writing) = (VecDeque::new(), None);
        let (dir, buffer) = (dir.to_owned(), Vec::new());
        let spill = Self { fs, dir, log, size_max, segments, writing, buffer };
        for path in spill.names(SUFFIX)? {
            spill.fs.rename(&path, &path.with_extension("damaged")).map_err(io("rename", &path))?;
        }
        spill.fs.sync_dir(&spill.dir).map_err(io("sync", &spill.dir))?;
        Ok(spill)
    }

    /// The spilled positions: after the first, up to the second. `None` if there are none.
    pub(crate) fn range(&self) -> Option<(Lsn, Lsn)> {
        Some((self.segments.front()?.after, self.segments.back()?.end))
    }

    /// Bytes of all segments.
    pub(crate) fn size(&self) -> u64 {
        self.segments.iter().map(|segment| segment.size).sum()
    }

    /// Documents in all segments.
    pub(crate) fn documents(&self) -> u64 {
        self.segments.iter().map(|segment| segment.documents).sum()
    }

    /// Appends a commit.
    ///
    /// * `after`: end of the previous commit, spilled or not.
    /// * `feed`: calls its argument with the documents in order.
    ///
    /// # Errors
    /// Those of `feed`, and [`SpillError`]. Then either nothing of the commit remains, or the spill
    /// has to be opened again.
    pub(crate) fn append<E: From<SpillError>>(
        &mut self,
        after: Lsn,
        head: &Head<'_>,
        feed: impl FnOnce(&mut Run<'_, E>) -> Result<(), E>,
    ) -> Result<Spilling, E> {
        let begun = self.prepare(after)?;
        let (mut offset, room) = (begun.size, self.size_max.saturating_sub(self.size()));
        let (file, first) = (begun.file, begun.size);
        let path = begun.path;
        let mut crc = begun.seed;
        let mut full = false;
        self.buffer.clear();
        let failed = |found| SpillError::Commit { end: head.end.0, found };
        push_commit(&mut self.buffer, head).map_err(failed)?;
        crc = extend(crc, &self.buffer);
        let buffer = &mut self.buffer;
        let mut documents_count = 0_u64;
        let fed = feed(&mut |first_id, documents| {
            for (id, raw) in (first_id..).zip(documents) {
                let line = buffer.len();
                let document = Document { id, received_ms: head.received(), raw };
                push_document(buffer, head.end, head.namespace, &document);
                crc = extend(crc, buffer.get(line..).unwrap_or_default());
                documents_count += 1;
                full |= offset - first + buffer.len() as u64 > room;
                if full {
                    buffer.clear();
                    return Ok(());
                }
                if buffer.len() >= BUFFER_SIZE {
                    file.write_all_at(buffer, offset).map_err(io("append to", &path))?;
                    offset += buffer.len() as u64;
                    buffer.clear();
                }
            }
            Ok(())
        });
        push_end(buffer, head.end, crc);
        full |= offset - first + buffer.len() as u64 > room;
        if full || fed.is_err() {
            if offset > first {
                file.set_len(first).map_err(io("cut", &path))?;
            }
            return fed.map(|()| Spilling::Full);
        }
        file.write_all_at(buffer, offset).map_err(io("append to", &path))?;
        offset += buffer.len() as u64;
        if let (Some(segment), Some(writing)) = (self.segments.back_mut(), &mut self.writing) {
            segment.size = offset;
            segment.end = head.end;
            segment.documents += documents_count;
            writing.dirty = true;
        }
        Ok(Spilling::Done)
    }

    /// Puts everything spilled onto stable storage.
    ///
    /// # Errors
    /// [`SpillError::Io`]; the spill has to be opened again.
    pub(crate) fn sync(&mut self) -> Result<(), SpillError> {
        if let (Some(writing), Some(segment)) = (&mut self.writing, self.segments.back())
            && writing.dirty
        {
            writing.file.sync_data().map_err(io("sync", &segment.path))?;
            writing.dirty = false;
        }
        Ok(())
    }

    /// Removes the segments that hold nothing after `position`.
    ///
    /// # Errors
    /// [`SpillError::Io`].
    pub(crate) fn remove_through(&mut self, position: Lsn) -> Result<(), SpillError> {
        let mut removed = false;
        while let Some(segment) = self.segments.front().filter(|it| it.end <= position) {
            self.fs.remove_file(&segment.path).map_err(io("remove", &segment.path))?;
            self.segments.pop_front();
            removed = true;
        }
        if self.segments.is_empty() {
            self.writing = None;
        }
        if removed {
            // A name that reappeared beside newer ones would look like a gap.
            self.fs.sync_dir(&self.dir).map_err(io("sync", &self.dir))?;
        }
        Ok(())
    }

    /// A reader of the first segment that holds something after `position`.
    ///
    /// # Errors
    /// [`SpillError::Io`].
    pub(crate) fn reader(&self, position: Lsn) -> Result<Option<SegmentReader>, SpillError> {
        let Some(segment) = self.segments.iter().find(|segment| segment.end > position) else {
            return Ok(None);
        };
        let file = self.fs.open(&segment.path, Access::Read).map_err(io("open", &segment.path))?;
        Ok(Some(SegmentReader::new(&segment.path, file, self.log)))
    }

    /// The segment that the next commit is written to, as it is before that commit.
    fn prepare(&mut self, after: Lsn) -> Result<Begun, SpillError> {
        let is_large = self.segments.back().is_none_or(|segment| segment.size >= SEGMENT_SIZE);
        if is_large || self.writing.is_none() {
            self.sync()?;
            let follows = self.segments.back().map_or(after, |segment| segment.end);
            self.create(follows)?;
        }
        match (self.segments.back(), &self.writing) {
            (Some(segment), Some(writing)) => Ok(Begun {
                path: segment.path.clone(),
                file: writing.file.clone(),
                size: segment.size,
                seed: writing.seed,
            }),
            _ => Err(SpillError::Commit { end: after.0, found: "no segment is open".to_owned() }),
        }
    }

    fn create(&mut self, after: Lsn) -> Result<(), SpillError> {
        let path = self.dir.join(format!("{:016x}{SUFFIX}", after.0));
        let file = self.fs.create_new(&path).map_err(io("create", &path))?;
        let mut header = Vec::new();
        push_json(&mut header, &Header::new(self.log, after))
            .map_err(|found| SpillError::Commit { end: after.0, found })?;
        file.write_all_at(&header, 0).map_err(io("write", &path))?;
        self.fs.sync_dir(&self.dir).map_err(io("sync", &self.dir))?;
        self.writing = Some(Writing { file, seed: seed(&header), dirty: true });
        let size = header.len() as u64;
        self.segments.push_back(Segment { path, after, end: after, size, documents: 0 });
        Ok(())
    }

    /// The files in the directory with this suffix, in order.
    fn names(&self, suffix: &str) -> Result<Vec<PathBuf>, SpillError> {
        let entries = self.fs.list(&self.dir).map_err(io("list", &self.dir))?;
        let ours = entries.iter().filter_map(|entry| {
            let name = entry.name.to_str()?;
            let digits = name.strip_suffix(suffix)?;
            let is_ours = digits.len() == 16 && u64::from_str_radix(digits, 16).is_ok();
            (is_ours && !entry.is_dir).then(|| self.dir.join(name))
        });
        Ok(ours.collect())
    }

    /// Adds a segment, and cuts off its incomplete end where that is allowed.
    fn admit(&mut self, path: &Path, is_last: bool) -> Result<(), SpillError> {
        let file = self.fs.open(path, Access::Read).map_err(io("open", path))?;
        let (segment, torn) = self.survey(path, &file, is_last)?;
        let Some(segment) = segment else {
            // Started, and empty so far.
            self.fs.remove_file(path).map_err(io("remove", path))?;
            return self.fs.sync_dir(&self.dir).map_err(io("sync", &self.dir));
        };
        if is_last {
            // A sync before the crash may have failed, so the data read may be in memory alone.
            self.rewrite(path, file.as_ref(), segment.size)?;
            if torn {
                tracing::warn!(
                    path = %path.display(),
                    size = segment.size,
                    "cut a torn tail off the spill"
                );
            }
        }
        self.segments.push_back(segment);
        Ok(())
    }

    /// Reads a segment: its valid part, and whether more follows.
    fn survey(
        &self,
        path: &Path,
        file: &Arc<dyn File>,
        is_last: bool,
    ) -> Result<(Option<Segment>, bool), SpillError> {
        let mut reader = SegmentReader::new(path, file.clone(), self.log);
        let (mut end, mut documents, mut open_documents) = (None, 0, 0);
        let torn = loop {
            match reader.next() {
                Ok(Some(Item::Commit(_))) => open_documents = 0,
                Ok(Some(Item::Document(_))) => open_documents += 1,
                Ok(Some(Item::End(position))) => {
                    documents += open_documents;
                    end = Some(position);
                }
                Ok(None) => break false,
                Err(SpillError::Damaged { .. }) if is_last => break true,
                Err(error) => return Err(error),
            }
        };
        let (Some(after), Some(end)) = (reader.after(), end) else { return Ok((None, torn)) };
        let follows = self.segments.back().is_none_or(|before| before.end == after);
        if !follows || end <= after {
            let found = format!("it holds commits after {after} up to {end}, which do not follow");
            return Err(SpillError::Damaged { path: path.to_owned(), offset: 0, found });
        }
        let (path, size) = (path.to_owned(), reader.whole());
        Ok((Some(Segment { path, after, end, size, documents }), torn))
    }

    /// Writes the first `size` bytes of a segment to a file that replaces it, on stable storage.
    fn rewrite(&self, path: &Path, file: &dyn File, size: u64) -> Result<(), SpillError> {
        let beside = path.with_extension("tmp");
        let new = self.fs.create_new(&beside).map_err(io("create", &beside))?;
        let mut buffer = vec![0; BUFFER_SIZE];
        let mut offset = 0;
        while offset < size {
            let left = usize::try_from(size - offset).unwrap_or(usize::MAX).min(BUFFER_SIZE);
            let piece = buffer.get_mut(..left).unwrap_or_default();
            file.read_exact_at(piece, offset).map_err(io("read", path))?;
            new.write_all_at(piece, offset).map_err(io("write", &beside))?;
            offset += left as u64;
        }
        new.sync_all().map_err(io("sync", &beside))?;
        self.fs.rename(&beside, path).map_err(io("rename", &beside))?;
        self.fs.sync_dir(&self.dir).map_err(io("sync", &self.dir))
    }
}

/// The segment that a commit is written to.
#[derive(Debug)]
struct Begun {
    path: PathBuf,
    file: Arc<dyn File>,
    /// Bytes before the commit.
    size: u64,
    seed: u32,
}

#[cfg(test)]
mod tests;
