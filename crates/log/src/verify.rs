//! Reads everything again and checks that it is what was written.
//!
//! Damage is reported with file and offset, and reading continues after it: after an unreadable
//! frame, the next whole one is searched for.

use std::{path::Path, sync::Arc};

use forebay_base::fs::{Access, File, FileSystem};

use crate::{
    Log,
    cursor::{Cursor, WalkError},
    error::{Corrupt, DiskError, OpenError},
    format::{Kind, SEGMENT_HEADER_SIZE, Seed, SegmentHeader},
    recovery::{self, Cut},
    scan::{Rest, Scan},
    segment::{self, Segment},
    writer::Shared,
};

/// A damaged place: the file, the offset, and the fault.
pub type Damage = Corrupt;

/// The result of a verification.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Verified {
    /// The log's identity, [`Log::id`]; `None` if [`check`] found no segment, or inconsistent ones.
    pub log_id: Option<[u8; 16]>,
    /// Where the log starts, [`Log::start`], if `log_id` is known.
    pub start: crate::Lsn,
    /// Segment files read.
    pub segments: u64,
    /// Intact entries.
    pub entries: u64,
    /// Total size of their payloads in bytes.
    pub bytes: u64,
    /// Erased entries.
    pub erased: u64,
    /// Number of reported damages.
    pub damages: u64,
    /// A torn tail that opening would cut off; only [`check`] can find one.
    pub tail: Option<Cut>,
}

/// An entry that [`check_entries`] found intact.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct CheckedEntry<'a> {
    /// Its segment file.
    pub path: &'a Path,
    /// Offset of the entry in the file.
    pub offset: u64,
    /// Its position.
    pub lsn: crate::Lsn,
    /// The appended bytes.
    pub payload: &'a [u8],
}

/// Called for each whole entry.
type OnEntry<'a> = dyn FnMut(CheckedEntry<'_>) + 'a;

impl Log {
    /// Reads everything written so far and reports damage. Appending can continue meanwhile.
    ///
    /// # Errors
    /// When the device fails; damage found before that has been reported.
    pub fn verify(&self, on_damage: &mut dyn FnMut(Damage)) -> Result<Verified, DiskError> {
        let shared = &*self.shared;
        let written = shared.written();
        let listed: Vec<Segment> = shared.segments.lock().iter().collect();
        let (log_id, start) = (Some(shared.log_id), self.start());
        let mut verified = Verified { log_id, start, ..Verified::default() };
        for segment in listed {
            let limit = segment.end.unwrap_or(written).max(segment.first());
            match verify_one(shared, segment, limit, &mut verified, on_damage) {
                // Truncated away meanwhile.
                Err(_) if shared.segment(segment.base).is_none() => {}
                result => result?,
            }
        }
        Ok(verified)
    }
}

fn verify_one(
    shared: &Shared,
    segment: Segment,
    limit: u64,
    verified: &mut Verified,
    on_damage: &mut dyn FnMut(Damage),
) -> Result<(), DiskError> {
    // Opened again: an older handle may refer to a file that the name no longer refers to.
    let path = shared.path(segment.base);
    let file = shared
        .fs
        .open(&path, Access::Read)
        .map_err(|source| DiskError::new("open log segment", &path, source))?;
    let mut bytes = [0; SEGMENT_HEADER_SIZE];
    file.read_exact_at(&mut bytes, 0)
        .map_err(|source| DiskError::new("read header of log segment", &path, source))?;
    verified.segments += 1;
    if let Err(fault) = SegmentHeader::decode(&bytes) {
        verified.damages += 1;
        on_damage(Corrupt { path: path.clone(), offset: 0, lsn: crate::Lsn(segment.base), fault });
    }
    let (seed, open_end) = (shared.seed, false);
    let walk = Walk { file: &file, path: &path, seed, segment, limit, open_end };
    walk.run(verified, &mut |_| {}, on_damage)
}

/// A segment file to be read.
struct Walk<'a> {
    file: &'a Arc<dyn File>,
    path: &'a Path,
    seed: Seed,
    segment: Segment,
    limit: u64,
    /// Whether the frames may end before the limit, in a tail that was never synced.
    open_end: bool,
}

impl Walk<'_> {
    /// Reads all frames, skipping damage.
    fn run(
        &self,
        verified: &mut Verified,
        on_entry: &mut OnEntry<'_>,
        on_damage: &mut dyn FnMut(Damage),
    ) -> Result<(), DiskError> {
        let base = self.segment.base;
        let (file, path) = (Arc::clone(self.file), self.path.to_path_buf());
        let mut cursor = Cursor::new(file, path, self.seed, base);
        cursor.set_range(self.segment.first(), self.limit);
        loop {
            match cursor.next() {
                Ok(Some(frame)) => match frame.header.kind {
                    Kind::Entry => {
                        verified.entries += 1;
                        verified.bytes += frame.payload.len() as u64;
                        let (path, payload) = (self.path, frame.payload);
                        let (offset, lsn) = (frame.lsn - base, crate::Lsn(frame.lsn));
                        on_entry(CheckedEntry { path, offset, lsn, payload });
                    }
                    Kind::Erased => verified.erased += frame.header.entries_erased(),
                    Kind::Close => {}
                },
                Ok(None) => return Ok(()),
                Err(WalkError::Io(error)) => return Err(error),
                Err(WalkError::Corrupt(corrupt)) => {
                    let at = corrupt.lsn.0;
                    if self.open_end && self.is_tail(&corrupt, verified)? {
                        return Ok(());
                    }
                    verified.damages += 1;
                    on_damage(corrupt);
                    // Every frame was written when the log was synced up to some position, so any
                    // frame will do.
                    match self.rest(at, 0)?.witness {
                        Some(next) => cursor.set_range(next, self.limit),
                        None => return Ok(()),
                    }
                }
            }
        }
    }

    /// Whether the unreadable bytes are a torn tail, or nothing at all.
    fn is_tail(&self, corrupt: &Corrupt, verified: &mut Verified) -> Result<bool, DiskError> {
        let at = corrupt.lsn.0;
        let rest = self.rest(at, at)?;
        if rest.witness.is_none() && rest.used_end > at {
            verified.tail = Some(Cut {
                path: corrupt.path.clone(),
                offset: corrupt.offset,
                bytes: rest.used_end - at,
                fault: corrupt.fault.clone(),
            });
        }
        Ok(rest.witness.is_none())
    }

    fn rest(&self, from: u64, beyond: u64) -> Result<Rest, DiskError> {
        let fail = |act| move |source| DiskError::new(act, self.path, source);
        let len = self.file.len().map_err(fail("get the size of log segment"))?;
        let base = self.segment.base;
        let limit = self.limit.min(base + len);
        let scan = Scan { file: self.file, seed: self.seed, base, limit };
        scan.rest(from, beyond).map_err(fail("read log segment"))
    }
}

/// Reads the log in `dir`, which no process may have open, and reports damage. Changes nothing.
///
/// # Errors
/// [`OpenError::Locked`]: it is open. [`OpenError::Io`]: the device failed, or there is no such
/// directory.
pub fn check(
    fs: &dyn FileSystem,
    dir: &Path,
    on_damage: &mut dyn FnMut(Damage),
) -> Result<Verified, OpenError> {
    check_entries(fs, dir, &mut |_| {}, on_damage)
}

/// Like [`check`], and passes every whole entry, in order, to a caller that knows the entries'
/// format.
///
/// # Errors
/// As [`check`].
pub fn check_entries(
    fs: &dyn FileSystem,
    dir: &Path,
    on_entry: &mut dyn FnMut(CheckedEntry<'_>),
    on_damage: &mut dyn FnMut(Damage),
) -> Result<Verified, OpenError> {
    let _lock = recovery::lock(fs, dir)?;
    let mut verified = Verified::default();
    let inventory = match recovery::take_inventory(fs, dir) {
        Ok(inventory) => inventory,
        Err(OpenError::Corrupt(corrupt)) => {
            verified.damages += 1;
            on_damage(corrupt);
            return Ok(verified);
        }
        Err(error) => return Err(error),
    };
    let table = recovery::table(&inventory.headers);
    verified.log_id = inventory.headers.first().map(|header| header.log_id);
    verified.start = table.start();
    for header in &inventory.headers {
        let path = dir.join(segment::file_name(header.base));
        let file = fs
            .open(&path, Access::Read)
            .map_err(|source| OpenError::Io(DiskError::new("open log segment", &path, source)))?;
        let Some(segment) = table.get(header.base) else { continue };
        let walk = Walk {
            file: &file,
            path: &path,
            seed: Seed::new(&header.log_id),
            segment,
            limit: segment.end.unwrap_or(header.base + header.size),
            open_end: segment.end.is_none(),
        };
        verified.segments += 1;
        walk.run(&mut verified, on_entry, on_damage).map_err(OpenError::Io)?;
    }
    Ok(verified)
}
