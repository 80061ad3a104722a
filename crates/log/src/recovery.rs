//! Opening: from whatever a crash left to a log that can be appended to.
//!
//! Steps, each safe to be cut short and begun anew:
//! 1. Files that never became segments are removed.
//! 2. Every segment's header is verified, and that the segments follow one another.
//! 3. The last segment is read to its last whole frame. A later frame that proves more was synced makes
//!    that damage ([`OpenError::Corrupt`]); otherwise what follows is a torn tail.
//! 4. What may not be on stable storage is written again and synced. A sync that failed before the
//!    crash may have left the kernel believing that it is there.
//! 5. After a clean stop the segment is continued. Otherwise a new one is begun, beyond every position
//!    that may have been handed out, and the old one ends at its last whole frame for good.
//!
//! Sealed segments are not read in full: their damage is found when they are read, or by `verify`.

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

/// What opening found and did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// There was no log; an empty one was made.
    pub created: bool,
    /// The log had been stopped in order, so nothing needed repair.
    pub clean: bool,
    /// Where the log starts.
    pub start: Lsn,
    /// Where its entries end: nothing from here on was in the log.
    pub entries_end: Lsn,
    /// Where appending goes on; beyond `entries_end` when positions were passed over.
    pub end: Lsn,
    /// Segment files found.
    pub segments: usize,
    /// Entries in the last segment, all verified.
    pub last_segment_entries: u64,
    /// The torn tail that was cut off, if there was one.
    pub cut: Option<Cut>,
    /// Files removed that never became part of the log.
    pub leftovers: Vec<PathBuf>,
}

/// A torn tail: bytes of writes that never became whole, none of them acknowledged after a sync.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// The segment file.
    pub path: PathBuf,
    /// Where in the file the tail began.
    pub offset: u64,
    /// Bytes cut off, up to the last that was not zero.
    pub bytes: u64,
    /// Why no entry could be read there.
    pub fault: Fault,
}

/// What the segment files say about themselves.
#[derive(Debug)]
pub(crate) struct Inventory {
    pub(crate) headers: Vec<SegmentHeader>,
    pub(crate) leftovers: Vec<PathBuf>,
}

/// What the last segment holds.
#[derive(Debug)]
pub(crate) struct LastSegment {
    pub(crate) end: u64,
    pub(crate) entries: u64,
    /// Up to here its own frames prove that it is on stable storage.
    pub(crate) synced: u64,
    pub(crate) clean: bool,
    pub(crate) cut: Option<Cut>,
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
    let end = if last.clean { last.end } else { first };
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
        inner: Mutex::new(Inner::new(end, header.base, header.size)),
        work: Condvar::new(),
        chores: Condvar::new(),
        io: Mutex::new(Io {
            file: Arc::clone(&file),
            base: header.base,
            size: header.size,
            closed: recovery.clean,
        }),
        tail: Mutex::new(Tail { file, path }),
        sync: Mutex::new(()),
        prepared: Mutex::new(None),
        segments: Mutex::new(table),
        written: end.into(),
        synced: end.into(),
        poisoned: false.into(),
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

/// Makes the first segment of a new log.
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
    // Not clean: nothing says so on the disk, and nothing may be believed that the disk does not say.
    let last = LastSegment { end: 0, entries: 0, synced: 0, clean: false, cut: None };
    Ok((header, file, last))
}

fn make(
    fs: &dyn FileSystem,
    dir: &Path,
    header: &SegmentHeader,
) -> Result<Arc<dyn File>, OpenError> {
    let file = segment::prepare(fs, dir, header.size).map_err(OpenError::Io)?;
    segment::publish(fs, dir, &file, header).map_err(OpenError::Io)?;
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

/// Repairs the last segment and returns the one to append to, which may be a new one.
fn reopen(
    fs: &dyn FileSystem,
    dir: &Path,
    header: &SegmentHeader,
    options: &Options,
) -> Result<(SegmentHeader, Arc<dyn File>, LastSegment), OpenError> {
    let path = dir.join(segment::file_name(header.base));
    let file = fs.open(&path, Access::ReadWrite).map_err(io("open log segment", &path))?;
    let last = read_last(&file, &path, header, options.known_synced)?;
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
    let next_file = make(fs, dir, &next)?;
    file.set_len(last.end - header.base).map_err(io("give back unused space of", &path))?;
    Ok((next, next_file, last))
}

/// Reads and checks all headers, and finds what does not belong.
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
    // The checksum fits, but sums of these are computed everywhere, so they are bounded here.
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

/// Reads the last segment to its last whole frame and judges what follows.
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
    let mut last = LastSegment { end: first, entries: 0, synced: first, clean: false, cut: None };
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
    // A frame read before the stop may say it too, and so may whoever opens: then the stop lies in
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

/// Writes the bytes at positions `from..to` once more and syncs them.
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
