//! Permanent removal of entries from a sealed segment; every other position stays valid.
//!
//! The segment is rewritten to a new file next to the old one, with holes in place of dead entries,
//! then synced and renamed over it. A crash leaves the old file or the new one, each of them
//! complete.
//!
//! Adjacent dead entries share one header and one hole. With separate headers, entries of a page or
//! less would keep nearly every page of the disk that they had.
//!
//! Invariants:
//! - The rewritten file differs from the old one only in the frames of entries that are or were
//!   dead.
//! - No two adjacent erased frames could be replaced by one.

use std::{path::Path, sync::Arc};

use forebay_base::fs::File;

use crate::{
    Log, Lsn,
    cursor::{CHUNK_SIZE, Cursor, WalkError},
    error::{DiskError, EraseError},
    format::{FrameHeader, Kind, SEGMENT_HEADER_SIZE},
    segment::{ERASE_SUFFIX, Segment, file_name},
    writer::Shared,
};

/// The result of an erasure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Erased {
    /// Entries erased now; those erased before are not counted again.
    pub entries: u64,
    /// Total size of their payloads in bytes.
    pub bytes: u64,
}

impl Log {
    /// Rewrites a sealed segment without the payloads of the entries for which `dead` returns true.
    ///
    /// Every position stays valid: reading an erased entry returns that error, and a reader
    /// continues after it. The old bytes are returned to the file system, not overwritten. A header
    /// stays for each run of dead entries, so a page of the disk is freed if no live entry is in it
    /// and no run begins there.
    ///
    /// * `base`: the segment's, from [`Log::segments`].
    /// * `dead`: called once for every remaining entry, in order. Must not truncate or erase.
    ///
    /// # Errors
    /// [`EraseError::NoSegment`], [`EraseError::NotSealed`]: nothing was touched.
    /// [`EraseError::Corrupt`]: the segment is damaged and was left unchanged. [`EraseError::Io`]:
    /// the segment is unchanged, or, if only the last sync of the directory failed, may be the new
    /// one.
    pub fn erase(
        &self,
        base: Lsn,
        dead: &mut dyn FnMut(Lsn) -> bool,
    ) -> Result<Erased, EraseError> {
        let shared = &*self.shared;
        let _one_at_a_time = shared.maintenance.lock();
        let segment = shared.segment(base.0).ok_or(EraseError::NoSegment { base })?;
        let end = segment.end.ok_or(EraseError::NotSealed { base })?;
        let path = shared.dir.join(format!("{}{ERASE_SUFFIX}", file_name(base.0)));
        let result = rewrite(shared, segment, end, &path, dead);
        if !matches!(result, Ok(Copied { changed: true, .. })) {
            // Not renamed: nothing to keep. If this fails too, opening removes the file.
            shared.fs.remove_file(&path).ok();
        }
        result.map(|copied| copied.erased)
    }
}

fn rewrite(
    shared: &Shared,
    segment: Segment,
    end: u64,
    path: &Path,
    dead: &mut dyn FnMut(Lsn) -> bool,
) -> Result<Copied, EraseError> {
    let fail = |act| move |source| EraseError::Io(DiskError::new(act, path, source));
    let fs = &*shared.fs;
    if fs.exists(path).map_err(fail("check for"))? {
        fs.remove_file(path).map_err(fail("remove leftover"))?;
    }
    let (old, old_path) =
        shared.segments.lock().file(fs, &shared.dir, segment.base).map_err(EraseError::Io)?;
    let new = fs.create_new(path).map_err(fail("create"))?;
    new.set_len(end - segment.base).map_err(fail("extend"))?;
    let mut header = [0; SEGMENT_HEADER_SIZE];
    old.read_exact_at(&mut header, 0)
        .map_err(|source| EraseError::Io(DiskError::new("read", &old_path, source)))?;
    let mut out = Out { file: new, path, bytes: Vec::new(), at: 0 };
    out.put(0, &header).map_err(EraseError::Io)?;
    let mut cursor = Cursor::new(old, old_path, shared.seed, segment.base);
    cursor.set_range(segment.first(), end);
    let copied = copy(shared, segment, &mut cursor, &mut out, dead)?;
    out.flush().map_err(EraseError::Io)?;
    if !copied.changed {
        return Ok(copied);
    }
    out.file.sync_all().map_err(fail("sync"))?;
    fs.rename(path, &shared.path(segment.base)).map_err(fail("rename"))?;
    shared.segments.lock().forget_handle(segment.base);
    fs.sync_dir(&shared.dir)
        .map_err(|source| EraseError::Io(DiskError::new("sync directory", &shared.dir, source)))?;
    Ok(copied)
}

/// The result of rewriting a file.
#[derive(Debug, Default)]
struct Copied {
    erased: Erased,
    /// Whether an entry was erased, or separate runs were joined.
    changed: bool,
}

/// An erased frame that may still grow.
struct Run {
    lsn: u64,
    header: FrameHeader,
}

fn copy(
    shared: &Shared,
    segment: Segment,
    cursor: &mut Cursor,
    out: &mut Out<'_>,
    dead: &mut dyn FnMut(Lsn) -> bool,
) -> Result<Copied, EraseError> {
    const PADDING: [u8; 8] = [0; 8];
    let mut copied = Copied::default();
    let mut run: Option<Run> = None;
    loop {
        let frame = match cursor.next() {
            Ok(Some(frame)) => frame,
            Ok(None) => break,
            Err(WalkError::Io(error)) => return Err(EraseError::Io(error)),
            Err(WalkError::Corrupt(corrupt)) => return Err(EraseError::Corrupt(corrupt)),
        };
        let mut header = frame.header;
        if header.kind == Kind::Entry && dead(Lsn(frame.lsn)) {
            copied.erased.entries += 1;
            copied.erased.bytes += u64::from(header.payload_len);
            copied.changed = true;
            header = header.erased();
        }
        if let Some(run) = &mut run
            && let Some(joined) = run.header.join(&header)
        {
            run.header = joined;
            copied.changed = true;
            continue;
        }
        put_run(shared, segment, out, run.take())?;
        if header.kind == Kind::Erased {
            run = Some(Run { lsn: frame.lsn, header });
            continue;
        }
        let at = frame.lsn - segment.base;
        let encoded = header.encode(shared.seed, frame.lsn);
        out.put(at, &encoded).map_err(EraseError::Io)?;
        let payload_at = at + encoded.len() as u64;
        out.put(payload_at, frame.payload).map_err(EraseError::Io)?;
        let padding = frame.payload.len().next_multiple_of(8) - frame.payload.len();
        let padding_at = payload_at + frame.payload.len() as u64;
        out.put(padding_at, &PADDING[..padding]).map_err(EraseError::Io)?;
    }
    put_run(shared, segment, out, run)?;
    Ok(copied)
}

/// Writes a run's header; what follows it stays a hole.
fn put_run(
    shared: &Shared,
    segment: Segment,
    out: &mut Out<'_>,
    run: Option<Run>,
) -> Result<(), EraseError> {
    let Some(Run { lsn, header }) = run else { return Ok(()) };
    out.put(lsn - segment.base, &header.encode(shared.seed, lsn)).map_err(EraseError::Io)
}

/// Joins small neighbouring writes into large ones.
struct Out<'a> {
    file: Arc<dyn File>,
    path: &'a Path,
    bytes: Vec<u8>,
    /// Where `bytes` belongs.
    at: u64,
}

impl Out<'_> {
    fn put(&mut self, at: u64, data: &[u8]) -> Result<(), DiskError> {
        let end = self.at + self.bytes.len() as u64;
        if at != end || self.bytes.len() + data.len() > CHUNK_SIZE {
            self.flush()?;
            self.at = at;
        }
        if data.len() >= CHUNK_SIZE {
            self.write(data, at)?;
            self.at = at + data.len() as u64;
        } else {
            self.bytes.extend_from_slice(data);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), DiskError> {
        if !self.bytes.is_empty() {
            self.write(&self.bytes, self.at)?;
            self.bytes.clear();
        }
        Ok(())
    }

    fn write(&self, data: &[u8], at: u64) -> Result<(), DiskError> {
        let write = self.file.write_all_at(data, at);
        write.map_err(|source| DiskError::new("write", self.path, source))
    }
}

#[cfg(test)]
mod tests;
