//! Opening: from any state that a crash left to a log that can be appended to.
//!
//! Steps, each of which can be interrupted and repeated:
//! 1. Unfinished segment files are removed.
//! 2. Every segment's header is verified, and that the segments follow one another.
//! 3. The last segment is read up to its last whole frame. If a later frame proves that more was
//!    synced, that is damage ([`OpenError::Corrupt`]); otherwise what follows is a torn tail.
//! 4. What may not be on stable storage is written again and synced. A sync that failed before the
//!    crash may have left the kernel believing that it is there.
//! 5. After a clean stop the segment is continued. Otherwise a new one is created, beyond every
//!    position that may have been assigned, and the old one ends at its last whole frame
//!    permanently. If there is no space for it and [`Options::hold_when_full`] is set, the first
//!    write creates it: all entries can be read meanwhile, and the log ends after the last of them.
//!
//! Sealed segments are not read completely: damage in them is found when they are read, or by
//! `verify`.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use forebay_base::fs::{Access, File, FileSystem};
use parking_lot::{Condvar, Mutex};

use crate::{
    Lsn, Options,
    buffer::Inner,
    cursor::{CHUNK_SIZE, Cursor, WalkError},
    error::{Corrupt, DiskError, Fault, OpenError},
    format::{Kind, SEGMENT_HEADER_SIZE, Seed, SegmentHeader},
    scan::Scan,
    segment::{self, Segment, SegmentTable},
    stats::Counters,
    writer::{Io, Shared, Tail},
};

/// The result of opening a log.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// There was no log; an empty one was created.
    pub created: bool,
    /// The log had been closed properly, so nothing needed repair.
    pub clean: bool,
    /// Where the log starts.
    pub start: Lsn,
    /// Where its entries end: nothing at or after this position was in the log.
    pub entries_end: Lsn,
    /// Where the log ends: beyond `entries_end` if positions were skipped.
    pub end: Lsn,
    /// Number of segment files.
    pub segments: usize,
    /// Entries in the last segment, all verified.
    pub last_segment_entries: u64,
    /// The torn tail that was cut off, if there was one.
    pub cut: Option<Cut>,
    /// Removed files that never became part of the log.
    pub leftovers: Vec<PathBuf>,
}

/// A torn tail: bytes of incomplete writes, none of them acknowledged after a sync.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// The segment file.
    pub path: PathBuf,
    /// Offset of the tail in the file.
    pub offset: u64,
    /// Bytes cut off, up to the last that was not zero.
    pub bytes: u64,
    /// Why no entry could be read there.
    pub fault: Fault,
}

/// The segments according to their headers.
#[derive(Debug)]
pub(crate) struct Inventory {
    pub(crate) headers: Vec<SegmentHeader>,
    pub(crate) leftovers: Vec<PathBuf>,
}

/// The contents of the last segment.
#[derive(Debug)]
pub(crate) struct LastSegment {
    pub(crate) end: u64,
    pub(crate) entries: u64,
    /// The position up to which its own frames prove that it is on stable storage.
    pub(crate) synced: u64,
    pub(crate) clean: bool,
    pub(crate) cut: Option<Cut>,
    /// Whether the next segment could not be created yet.
    pub(crate) is_waiting: bool,
}

fn io(act: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> OpenError {
    let path = path.to_path_buf();
    move |source| OpenError::Io(DiskError::new(act, path, source))
}

/// Opens or creates the log in `dir`.
pub(crate) fn open(
    fs: Arc<dyn FileSystem>,
    dir: &Path,
    options: Options,
) -> Result<(Shared, Recovery), OpenError> {
    fs.create_dir_all(dir).map_err(io("create log directory", dir))?;
    let lock = lock(&*fs, dir)?;
    let inventory = take_inventory(&*fs, dir)?;
    for path in &inventory.leftovers {
        fs.remove_file(path).map_err(io("remove leftover", path))?;
    }
    let found = inventory.headers.len();
    let (header, file, last) = match inventory.headers.last() {
        None => create(&*fs, dir, &options)?,
        Some(header) => reopen(&*fs, dir, header, &options)?,
    };
    let mut table = table(&inventory.headers);
    if inventory.headers.last().map(|last| last.base) != Some(header.base) {
        let segment = Segment { base: header.base, prev_end: header.prev_end, end: None };
        table.seal(header.prev_end, segment);
    }
    table.keep_handle(header.base, Arc::clone(&file));
    let first = header.base + SEGMENT_HEADER_SIZE as u64;
    // A log that waits for space assigns no position before it has a segment for it. Until then nothing
    // is beyond its last entry, also not for those who store where it ends.
    let end = if last.clean || last.is_waiting { last.end } else { first };
    let recovery = Recovery {
        created: found == 0,
        clean: last.clean && found > 0,
        start: table.start(),
        entries_end: Lsn(last.end),
        end: Lsn(end),
        segments: found,
        last_segment_entries: last.entries,
        cut: last.cut,
        leftovers: inventory.leftovers,
    };
    let path = dir.join(segment::file_name(header.base));
    let shared = Shared {
        fs,
        dir: dir.to_path_buf(),
        log_id: header.log_id,
        seed: Seed::new(&header.log_id),
        inner: Mutex::new(Inner {
            skip_to: last.is_waiting.then_some(header.base + header.size),
            ..Inner::new(end, header.base, header.size)
        }),
        work: Condvar::new(),
        chores: Condvar::new(),
        io: Mutex::new(Io {
            file: Arc::clone(&file),
            base: header.base,
            size: header.size,
            closed: recovery.clean,
            ends: last.is_waiting.then_some(last.end),
            zeroed: header.base,
            held: None,
        }),
        tail: Mutex::new(Tail { file, path }),
        sync: Mutex::new(()),
        prepared: Mutex::new(None),
        segments: Mutex::new(table),
        written: end.into(),
        synced: end.into(),
        poisoned: false.into(),
        stalled: false.into(),
        counters: Counters::default(),
        maintenance: Mutex::new(()),
        options,
        _lock: lock,
    };
    Ok((shared, recovery))
}

pub(crate) fn lock(
    fs: &dyn FileSystem,
    dir: &Path,
) -> Result<Box<dyn forebay_base::fs::Lock>, OpenError> {
    let path = dir.join(segment::LOCK_NAME);
    fs.lock_exclusive(&path).map_err(|source| {
        if source.kind() == std::io::ErrorKind::WouldBlock {
            OpenError::Locked { path: dir.to_path_buf(), source }
        } else {
            OpenError::Io(DiskError::new("lock", &path, source))
        }
    })
}

/// Creates the first segment of a new log.
fn create(
    fs: &dyn FileSystem,
    dir: &Path,
    options: &Options,
) -> Result<(SegmentHeader, Arc<dyn File>, LastSegment), OpenError> {
    let header = SegmentHeader {
        log_id: fresh_log_id(),
        base: 0,
        prev_base: 0,
        prev_end: 0,
        size: options.segment_size,
    };
    let file = make(fs, dir, &header)?;
    // Not clean: the disk does not record a clean stop, and only the disk counts.
    let last =
        LastSegment { end: 0, entries: 0, synced: 0, clean: false, cut: None, is_waiting: false };
    Ok((header, file, last))
}

fn make(
    fs: &dyn FileSystem,
    dir: &Path,
    header: &SegmentHeader,
) -> Result<Arc<dyn File>, OpenError> {
    let file = segment::prepare(fs, dir, header.size).map_err(OpenError::Io)?;
    segment::publish(fs, dir, &file, header).map_err(OpenError::Io)?;
    fs.sync_dir(dir).map_err(io("sync directory", dir))?;
    Ok(file)
}

/// Returns 16 bytes that no other log has.
fn fresh_log_id() -> [u8; 16] {
    use std::hash::{BuildHasher, RandomState};
    let mut id = [0; 16];
    for half in id.chunks_exact_mut(8) {
        // The standard library seeds these from the operating system's source of randomness.
        half.copy_from_slice(&RandomState::new().hash_one(half.as_ptr().addr()).to_le_bytes());
    }
    id
}

/// Repairs the last segment and returns the segment to append to, which may be a new one.
fn reopen(
    fs: &dyn FileSystem,
    dir: &Path,
    header: &SegmentHeader,
    options: &Options,
) -> Result<(SegmentHeader, Arc<dyn File>, LastSegment), OpenError> {
    let path = dir.join(segment::file_name(header.base));
    let file = fs.open(&path, Access::ReadWrite).map_err(io("open log segment", &path))?;
    let mut last = read_last(&file, &path, header, options.known_synced)?;
    rewrite(&file, &path, header.base, last.synced, last.end)?;
    if last.clean {
        return Ok((*header, file, last));
    }
    let next = SegmentHeader {
        log_id: header.log_id,
        base: header.base + header.size,
        prev_base: header.base,
        prev_end: last.end,
        size: options.segment_size,
    };
    let next_file = match make(fs, dir, &next) {
        Err(OpenError::Io(error)) if options.hold_when_full && error.is_passing() => {
            last.is_waiting = true;
            return Ok((*header, file, last));
        }
        made => made?,
    };
    file.set_len(last.end - header.base).map_err(io("release unused space of", &path))?;
    Ok((next, next_file, last))
}

/// Reads and checks all headers, and finds files that do not belong to the log.
pub(crate) fn take_inventory(fs: &dyn FileSystem, dir: &Path) -> Result<Inventory, OpenError> {
    let mut leftovers = Vec::new();
    let mut segments = Vec::new();
    for entry in fs.list(dir).map_err(io("list log directory", dir))? {
        let Some(name) = entry.name.to_str() else { continue };
        if name == segment::PREPARED_NAME || name.ends_with(segment::ERASE_SUFFIX) {
            leftovers.push(dir.join(name));
        } else if let Some(base) = segment::parse_file_name(name) {
            segments.push((base, entry.len));
        }
    }
    segments.sort_unstable();
    let mut headers: Vec<SegmentHeader> = Vec::with_capacity(segments.len());
    for (base, len) in &segments {
        let path = dir.join(segment::file_name(*base));
        let header = read_header(fs, &path, *base, *len)?;
        if let Some(before) = headers.last() {
            check_chain(&path, before, &header)?;
        }
        headers.push(header);
    }
    for (at, header) in headers.iter().enumerate() {
        let end = headers.get(at + 1).map_or(header.base + header.size, |next| next.prev_end);
        let (expected, found) = (end - header.base, segments.get(at).map_or(0, |(_, len)| *len));
        if found < expected {
            let path = dir.join(segment::file_name(header.base));
            let lsn = Lsn(header.base + found);
            let fault = Fault::Short { expected, found };
            return Err(OpenError::Corrupt(Corrupt { path, offset: found, lsn, fault }));
        }
    }
    Ok(Inventory { headers, leftovers })
}

fn read_header(
    fs: &dyn FileSystem,
    path: &Path,
    base: u64,
    len: u64,
) -> Result<SegmentHeader, OpenError> {
    let corrupt = |offset, fault| {
        let lsn = Lsn(base.saturating_add(offset));
        OpenError::Corrupt(Corrupt { path: path.to_path_buf(), offset, lsn, fault })
    };
    let expected = SEGMENT_HEADER_SIZE as u64;
    if len < expected {
        return Err(corrupt(len, Fault::Short { expected, found: len }));
    }
    let file = fs.open(path, Access::Read).map_err(io("open log segment", path))?;
    let mut bytes = [0; SEGMENT_HEADER_SIZE];
    file.read_exact_at(&mut bytes, 0).map_err(io("read header of log segment", path))?;
    let header = SegmentHeader::decode(&bytes).map_err(|fault| corrupt(0, fault))?;
    if header.base != base {
        let fault = Fault::Chain { field: "base", expected: base, found: header.base };
        return Err(corrupt(0, fault));
    }
    // The checksum matches, but later computations use these sums, so they are limited here.
    let sound = header.size >= expected
        && header.base.checked_add(header.size).is_some_and(|end| end < u64::MAX / 2)
        && header.prev_base <= header.base
        && header.prev_end <= header.base;
    if !sound {
        let fault = Fault::Chain { field: "size", expected, found: header.size };
        return Err(corrupt(0, fault));
    }
    Ok(header)
}

/// Checks that `header` follows `before`.
fn check_chain(
    path: &Path,
    before: &SegmentHeader,
    header: &SegmentHeader,
) -> Result<(), OpenError> {
    let first = before.base + SEGMENT_HEADER_SIZE as u64;
    let fault = if header.log_id != before.log_id {
        Some(Fault::Foreign)
    } else if header.prev_base != before.base {
        let (expected, found) = (before.base, header.prev_base);
        Some(Fault::Chain { field: "previous segment", expected, found })
    } else if header.prev_end < first || header.prev_end > before.base + before.size {
        let (expected, found) = (first, header.prev_end);
        Some(Fault::Chain { field: "previous segment's end", expected, found })
    } else {
        None
    };
    match fault {
        None => Ok(()),
        Some(fault) => Err(OpenError::Corrupt(Corrupt {
            path: path.to_path_buf(),
            offset: 0,
            lsn: Lsn(header.base),
            fault,
        })),
    }
}

pub(crate) fn table(headers: &[SegmentHeader]) -> SegmentTable {
    let mut table = SegmentTable::default();
    for (at, header) in headers.iter().enumerate() {
        table.insert(Segment {
            base: header.base,
            prev_end: header.prev_end,
            end: headers.get(at + 1).map(|next| next.prev_end),
        });
    }
    table
}

/// Reads the last segment up to its last whole frame and classifies what follows.
///
/// * `known_synced`: as in [`Options`].
pub(crate) fn read_last(
    file: &Arc<dyn File>,
    path: &Path,
    header: &SegmentHeader,
    known_synced: Lsn,
) -> Result<LastSegment, OpenError> {
    let seed = Seed::new(&header.log_id);
    let first = header.base + SEGMENT_HEADER_SIZE as u64;
    let limit = header.base + header.size;
    let mut cursor = Cursor::new(Arc::clone(file), path.to_path_buf(), seed, header.base);
    cursor.set_range(first, limit);
    let mut last = LastSegment {
        end: first,
        entries: 0,
        synced: first,
        clean: false,
        cut: None,
        is_waiting: false,
    };
    let mut closed = false;
    let stopped = loop {
        match cursor.next() {
            Ok(Some(frame)) => {
                last.end = frame.next;
                last.synced = last.synced.max(frame.header.synced);
                last.entries += u64::from(frame.header.kind == Kind::Entry);
                closed = frame.header.kind == Kind::Close && frame.header.synced == frame.lsn;
            }
            Ok(None) => break None,
            Err(WalkError::Io(error)) => return Err(OpenError::Io(error)),
            Err(WalkError::Corrupt(corrupt)) => break Some(corrupt),
        }
    };
    let Some(corrupt) = stopped else {
        last.clean = closed;
        return Ok(last);
    };
    let scan = Scan { file, seed, base: header.base, limit };
    let rest = scan.rest(last.end, last.end).map_err(io("read log segment", path))?;
    // An earlier frame may also prove it, and so may the caller: then the damage lies within
    // what was synced.
    if rest.witness.is_some() || last.synced.max(known_synced.0) > last.end {
        return Err(OpenError::Corrupt(corrupt));
    }
    if rest.used_end > last.end {
        last.cut = Some(Cut {
            path: path.to_path_buf(),
            offset: corrupt.offset,
            bytes: rest.used_end - last.end,
            fault: corrupt.fault,
        });
    } else {
        last.clean = closed;
    }
    Ok(last)
}

/// Writes the bytes at positions `from..to` again and syncs them.
fn rewrite(
    file: &Arc<dyn File>,
    path: &Path,
    base: u64,
    from: u64,
    to: u64,
) -> Result<(), OpenError> {
    let mut chunk = vec![0; CHUNK_SIZE];
    let mut at = from;
    while at < to {
        let want = usize::try_from(to - at).unwrap_or(usize::MAX).min(chunk.len());
        let bytes = &mut chunk[..want];
        file.read_exact_at(bytes, at - base).map_err(io("read log segment", path))?;
        file.write_all_at(bytes, at - base).map_err(io("rewrite log segment", path))?;
        at += want as u64;
    }
    file.sync_all().map_err(io("sync log segment", path))
}
