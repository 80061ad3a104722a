//! From the buffer to the disk: groups, rotation, syncs, and permanent closing after a failure.
//!
//! The holder of the `io` lock writes: the committer, a blocking commit, or an append that found
//! the buffer full. It swaps the buffers under the append lock, computes checksums without any lock
//! that an appender needs, writes the group with one call and syncs once.
//!
//! Invariants:
//! - `synced <= written <= next`; the first two only grow, and only after the device has succeeded.
//! - A segment is synced to its end before the next one gets its name.
//! - After a failed write or sync nothing is written, and nothing more is acknowledged, until the
//!   log is opened again: what a failed sync left on the disk is unknown, and a later success
//!   proves nothing.
//! - The exception, if it is enabled: a write that failed for lack of space, or a segment that
//!   could not be created, is held and tried again. Its bytes and their positions are the same each
//!   time, and none of it was acknowledged. A sync is never tried again.
//!
//! Lock order: `io`, then `sync`, then `inner` or `segments`.

use std::{
    io::IoSlice,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::Waker,
    time::Instant,
};

use forebay_base::{
    Durability,
    checksum::crc32c,
    fs::{File, FileSystem, Lock},
};
use parking_lot::{Condvar, Mutex};

use crate::{
    Options,
    buffer::{Bounds, Buffer, Inner, Rotation},
    error::{CommitError, DiskError},
    format::{FRAME_HEADER_SIZE, FrameHeader, Kind, SEGMENT_HEADER_SIZE, Seed, SegmentHeader},
    segment::{self, Segment, SegmentTable},
    stats::{Counters, add},
};

/// Written after a small group, once the zeros after an earlier one are used up.
///
/// Space that is reserved but was never written to costs each sync a write of the file system's
/// metadata as well. Measured on ext4 with appends of 4 and 16 KiB: 140 and 170 us for one with its
/// sync instead of 260 and 260.
static ZEROS: [u8; 256 << 10] = [0; 256 << 10];
/// Size of a group in bytes up to which zeros follow it: larger ones would need them too often.
const ZEROED_GROUP_MAX: usize = 32 << 10;

/// The state of writing.
#[derive(Debug)]
pub(crate) struct Io {
    pub(crate) file: Arc<dyn File>,
    pub(crate) base: u64,
    pub(crate) size: u64,
    /// The last frame on the disk is a closing mark.
    pub(crate) closed: bool,
    /// Where the segment's frames end, if that is before the start of the next segment, which
    /// opening could not create yet.
    pub(crate) ends: Option<u64>,
    /// The position up to which the segment's space has been written to, if only with zeros.
    pub(crate) zeroed: u64,
    /// What a stalled log could not write.
    pub(crate) held: Option<Buffer>,
}

/// Why a group was not written.
#[derive(Debug)]
enum Failed {
    /// Temporary: the same bytes can be written to the same positions again.
    Passing(DiskError),
    /// Permanent: the state of the disk is unknown.
    Final(DiskError),
}

impl Failed {
    fn of(error: DiskError) -> Self {
        if error.is_passing() { Self::Passing(error) } else { Self::Final(error) }
    }
}

/// The file being written, for threads that only sync.
#[derive(Debug)]
pub(crate) struct Tail {
    pub(crate) file: Arc<dyn File>,
    pub(crate) path: PathBuf,
}

/// The state of an open log.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) fs: Arc<dyn FileSystem>,
    pub(crate) dir: PathBuf,
    pub(crate) options: Options,
    pub(crate) log_id: [u8; 16],
    pub(crate) seed: Seed,
    pub(crate) inner: Mutex<Inner>,
    /// Wakes the committer: a caller waits, or it must stop.
    pub(crate) work: Condvar,
    /// Wakes the committer's helper.
    pub(crate) chores: Condvar,
    pub(crate) io: Mutex<Io>,
    pub(crate) tail: Mutex<Tail>,
    /// Held during a sync, so that a failure is seen before another sync can report success.
    pub(crate) sync: Mutex<()>,
    /// The next segment, once it is ready. Held while it is being created.
    pub(crate) prepared: Mutex<Option<Arc<dyn File>>>,
    pub(crate) segments: Mutex<SegmentTable>,
    pub(crate) written: AtomicU64,
    pub(crate) synced: AtomicU64,
    pub(crate) poisoned: AtomicBool,
    pub(crate) stalled: AtomicBool,
    pub(crate) counters: Counters,
    /// Held while segments are removed or rewritten.
    pub(crate) maintenance: Mutex<()>,
    pub(crate) _lock: Box<dyn Lock>,
}

impl Shared {
    pub(crate) fn bounds(&self) -> Bounds {
        Bounds {
            segment_size: self.options.segment_size,
            entry_size_max: self.options.entry_size_max,
            buffer_size_max: self.options.buffer_size_max,
        }
    }

    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    pub(crate) fn synced(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }

    /// The position up to which entries are acknowledged under the configured durability.
    pub(crate) fn acknowledged(&self) -> u64 {
        match self.options.durability {
            Durability::Sync => self.synced(),
            Durability::Interval(_) | Durability::Os => self.written(),
        }
    }

    /// Returns the failure that closed the log, if any.
    pub(crate) fn poison(&self) -> Option<Arc<DiskError>> {
        if !self.poisoned.load(Ordering::Acquire) {
            return None;
        }
        self.inner.lock().poison.clone()
    }

    pub(crate) fn check_poison(&self) -> Result<(), CommitError> {
        self.poison().map_or(Ok(()), |source| Err(CommitError::Poisoned { source }))
    }

    /// Closes the log permanently. The first failure is kept.
    fn set_poison(&self, error: DiskError) -> CommitError {
        let mut inner = self.inner.lock();
        let source = Arc::clone(inner.poison.get_or_insert_with(|| Arc::new(error)));
        self.poisoned.store(true, Ordering::Release);
        CommitError::Poisoned { source }
    }

    /// Writes the buffer and, if `sync`, syncs it; then wakes the callers that waited for that.
    pub(crate) fn drive(&self, sync: bool) -> Result<(), CommitError> {
        let mut wakers = Vec::new();
        let result = {
            let mut io = self.io.lock();
            self.drain(&mut io, sync, &mut wakers)
        };
        self.take_wakers(&mut wakers);
        for waker in wakers {
            waker.wake();
        }
        result
    }

    pub(crate) fn durability(&self) -> Durability {
        self.options.durability
    }

    /// Whether an acknowledgement waits only for the kernel, not for the disk.
    pub(crate) fn is_relaxed(&self) -> bool {
        !matches!(self.options.durability, Durability::Sync)
    }

    /// Hands the buffer to the kernel on the caller's thread, if that acknowledges it and is
    /// only a short copy: no sync, no new segment, no other writer. Otherwise does nothing,
    /// and the committer writes.
    ///
    /// Without a sync to wait for, two context switches cost more than the write itself.
    pub(crate) fn write_here(&self) {
        if !self.is_relaxed() {
            return;
        }
        let mut wakers = Vec::new();
        {
            let Some(mut io) = self.io.try_lock() else { return };
            let plain = {
                let inner = self.inner.lock();
                inner.committers > 0
                    && inner.poison.is_none()
                    && inner.stall.is_none()
                    && inner.buffer.rotations.is_empty()
                    && !inner.buffer.has_close
            };
            if !plain || io.closed {
                return;
            }
            // A failure poisons the log, which reports it to all waiting callers including this
            // one.
            self.drain(&mut io, false, &mut wakers).ok();
        }
        self.take_wakers(&mut wakers);
        for waker in wakers {
            waker.wake();
        }
    }

    /// Collects all callers to be notified.
    fn take_wakers(&self, wakers: &mut Vec<Waker>) {
        let mut inner = self.inner.lock();
        if inner.poison.is_some() || inner.stall.is_some() {
            wakers.extend(std::mem::take(&mut inner.waiters).into_values());
            wakers.extend(std::mem::take(&mut inner.room_waiters).into_values());
        } else {
            inner.take_satisfied(self.acknowledged(), wakers);
        }
    }

    fn drain(&self, io: &mut Io, sync: bool, wakers: &mut Vec<Waker>) -> Result<(), CommitError> {
        self.check_poison()?;
        if let Some(held) = io.held.take() {
            self.write_out(io, held, sync)?;
        }
        let Some(buffer) = self.take_buffer(wakers) else {
            return if sync { self.sync_written() } else { Ok(()) };
        };
        // Callers that wait for room need not wait for the disk.
        for waker in wakers.drain(..) {
            waker.wake();
        }
        self.write_out(io, buffer, sync)
    }

    /// Writes a buffer; if there is no space, the buffer is held, if that is enabled.
    fn write_out(&self, io: &mut Io, mut buffer: Buffer, sync: bool) -> Result<(), CommitError> {
        // Frames after a closing mark must reach the disk before any caller learns of them: until
        // then the mark is the end, and their positions could be assigned again.
        let must_sync = sync || io.closed || buffer.has_close;
        let end = buffer.start + buffer.bytes.len() as u64;
        match self.write_group(io, &mut buffer) {
            Ok(()) => self.end_stall(),
            Err(Failed::Passing(error)) if self.options.hold_when_full => {
                io.held = Some(buffer);
                let stalled = self.stall(error);
                // What was written before can be acknowledged and read meanwhile.
                if sync {
                    self.sync_written()?;
                }
                return Err(stalled);
            }
            Err(Failed::Passing(error) | Failed::Final(error)) => {
                return Err(self.set_poison(error));
            }
        }
        if must_sync {
            self.sync_through(end)?;
        } else {
            self.written.fetch_max(end, Ordering::AcqRel);
        }
        io.closed = buffer.ends_closed;
        self.after_write(io, buffer, end);
        Ok(())
    }

    /// Records that what is held cannot be written at the moment.
    fn stall(&self, error: DiskError) -> CommitError {
        let source = Arc::new(error);
        self.inner.lock().stall = Some(Arc::clone(&source));
        self.stalled.store(true, Ordering::Release);
        CommitError::Stalled { source }
    }

    fn end_stall(&self) {
        if self.stalled.load(Ordering::Acquire) {
            self.inner.lock().stall = None;
            self.stalled.store(false, Ordering::Release);
        }
    }

    /// Swaps the buffers; `None` if there is nothing to write.
    fn take_buffer(&self, wakers: &mut Vec<Waker>) -> Option<Buffer> {
        let mut inner = self.inner.lock();
        if inner.buffer.is_empty() {
            return None;
        }
        let mut fresh = inner.spare.take().unwrap_or_default();
        fresh.reset(inner.next, self.options.buffer_size_max);
        wakers.extend(std::mem::take(&mut inner.room_waiters).into_values());
        Some(std::mem::replace(&mut inner.buffer, fresh))
    }

    /// Returns the buffer and gives work to the committer's helper.
    fn after_write(&self, io: &Io, buffer: Buffer, end: u64) {
        add(&self.counters.groups, 1);
        add(&self.counters.written_bytes, buffer.bytes.len() as u64);
        let mut inner = self.inner.lock();
        inner.spare = Some(buffer);
        if self.synced() >= end {
            inner.dirty_since = None;
        } else if inner.dirty_since.is_none() {
            inner.dirty_since = Some(Instant::now());
            self.chores.notify_all();
        }
        if inner.prepare_asked != Some(io.base) && end - io.base > io.size / 2 {
            inner.prepare_asked = Some(io.base);
            inner.prepare_wanted = true;
            self.chores.notify_all();
        }
    }

    /// Writes a buffer, creating the segments that begin in it. Called again after a temporary
    /// failure, it continues where it stopped.
    fn write_group(&self, io: &mut Io, buffer: &mut Buffer) -> Result<(), Failed> {
        if !std::mem::replace(&mut buffer.finished, true) {
            let rotations = std::mem::take(&mut buffer.rotations);
            self.finish_frames(buffer, &rotations);
            buffer.rotations = rotations;
        }
        while let Some(&rotation) = buffer.rotations.get(buffer.rotated) {
            self.write_part(io, buffer, buffer.written, rotation.base).map_err(Failed::of)?;
            buffer.written = rotation.base;
            self.rotate(io, rotation)?;
            buffer.written = rotation.base + SEGMENT_HEADER_SIZE as u64;
            buffer.rotated += 1;
        }
        let end = buffer.start + buffer.bytes.len() as u64;
        self.write_part(io, buffer, buffer.written, end).map_err(Failed::of)
    }

    /// Fills in what appends left open: the synced position and the checksums.
    fn finish_frames(&self, buffer: &mut Buffer, rotations: &[Rotation]) {
        let synced = self.synced();
        let mut rotations = rotations.iter().peekable();
        let mut lsn = buffer.start;
        let mut rest = &mut buffer.bytes[..];
        while !rest.is_empty() {
            if rotations.next_if(|rotation| rotation.base == lsn).is_some() {
                rest = &mut rest[SEGMENT_HEADER_SIZE..];
                lsn += SEGMENT_HEADER_SIZE as u64;
                continue;
            }
            let mut header =
                FrameHeader { kind: Kind::Entry, payload_len: 0, payload_crc: 0, synced };
            if rest[12] == Kind::Close as u8 {
                header.kind = Kind::Close;
            } else {
                header.payload_len = u32::from_le_bytes([rest[8], rest[9], rest[10], rest[11]]);
            }
            let size = usize::try_from(header.size()).unwrap_or(usize::MAX);
            let (frame, after) = rest.split_at_mut(size);
            header.payload_crc = crc32c(&frame[FRAME_HEADER_SIZE..]);
            frame[..FRAME_HEADER_SIZE].copy_from_slice(&header.encode(self.seed, lsn));
            rest = after;
            lsn += size as u64;
        }
    }

    /// Writes the buffer's bytes at positions `from..to` to the current segment.
    fn write_part(
        &self,
        io: &mut Io,
        buffer: &Buffer,
        from: u64,
        to: u64,
    ) -> Result<(), DiskError> {
        let at = |position| usize::try_from(position - buffer.start).unwrap_or(usize::MAX);
        let part = &buffer.bytes[at(from)..at(to)];
        if part.is_empty() {
            return Ok(());
        }
        debug_assert!(to <= io.base + io.size, "frames end inside their segment");
        let zeros = self.zeros_after(io, part.len(), to);
        let parts = [IoSlice::new(part), IoSlice::new(zeros)];
        let written = match zeros {
            [] => io.file.write_all_at(part, from - io.base),
            _ => io.file.write_vectored_at(&parts, from - io.base),
        };
        written
            .map_err(|source| DiskError::new("write to log segment", self.path(io.base), source))?;
        io.zeroed = io.zeroed.max(to + zeros.len() as u64);
        Ok(())
    }

    /// Zeros to be written after a small group that is synced, so that the syncs after the next ones
    /// need not record where their blocks are.
    fn zeros_after(&self, io: &Io, len: usize, to: u64) -> &'static [u8] {
        if self.is_relaxed() || to <= io.zeroed || len > ZEROED_GROUP_MAX {
            return &[];
        }
        let left = usize::try_from(io.base + io.size - to).unwrap_or(usize::MAX);
        &ZEROS[..left.min(ZEROS.len())]
    }

    /// Puts everything on stable storage and marks the log as closed there, unless it is already.
    pub(crate) fn close(&self) -> Result<(), CommitError> {
        /// A constantly busy appender can prevent closing; the next opening then finds no mark and
        /// recovers the log as after a crash.
        const ATTEMPTS: usize = 8;
        for _ in 0..ATTEMPTS {
            self.drive(true)?;
            let io = self.io.lock();
            let mut inner = self.inner.lock();
            if io.closed && inner.buffer.is_empty() {
                return Ok(());
            }
            if inner.buffer.is_empty() && self.synced() == inner.next {
                inner.push_close();
                if inner.buffer.is_empty() {
                    return Ok(());
                }
            }
        }
        self.drive(true)
    }

    /// Wakes all waiting callers, so that each checks the state itself.
    pub(crate) fn wake_everyone(&self) {
        let wakers: Vec<Waker> = {
            let mut inner = self.inner.lock();
            let waiters = std::mem::take(&mut inner.waiters).into_values();
            waiters.chain(std::mem::take(&mut inner.room_waiters).into_values()).collect()
        };
        for waker in wakers {
            waker.wake();
        }
    }

    pub(crate) fn path(&self, base: u64) -> PathBuf {
        self.dir.join(segment::file_name(base))
    }

    /// Seals the current segment and creates the next, durably.
    fn rotate(&self, io: &mut Io, rotation: Rotation) -> Result<(), Failed> {
        // If opening left the start open, that was synced then; otherwise the segment is full.
        let ends = io.ends.unwrap_or(rotation.base);
        if io.ends.is_none() {
            self.sync_file(rotation.base).map_err(Failed::Final)?;
        }
        let header = SegmentHeader {
            log_id: self.log_id,
            base: rotation.base,
            prev_base: rotation.prev_base,
            prev_end: ends,
            size: rotation.size,
        };
        let ready = self.prepared.lock().take();
        let file = match ready {
            Some(file) => file,
            None => segment::prepare(&*self.fs, &self.dir, rotation.size).map_err(Failed::of)?,
        };
        segment::publish(&*self.fs, &self.dir, &file, &header).map_err(Failed::of)?;
        self.fs.sync_dir(&self.dir).map_err(|source| {
            Failed::Final(DiskError::new("sync directory", &*self.dir, source))
        })?;
        // Only after the next segment records where this one ends may the unused space be released.
        let used = ends - io.base;
        if used < io.size {
            io.file.set_len(used).map_err(|source| {
                let act = "release unused space of log segment";
                Failed::Final(DiskError::new(act, self.path(io.base), source))
            })?;
        }
        let mut segments = self.segments.lock();
        segments.seal(ends, Segment { base: rotation.base, prev_end: ends, end: None });
        segments.keep_handle(rotation.base, Arc::clone(&file));
        drop(segments);
        *self.tail.lock() = Tail { file: Arc::clone(&file), path: self.path(rotation.base) };
        *io = Io {
            file,
            base: rotation.base,
            size: rotation.size,
            closed: false,
            ends: None,
            zeroed: rotation.base,
            held: None,
        };
        add(&self.counters.rotations, 1);
        Ok(())
    }

    /// Makes everything written durable.
    pub(crate) fn sync_written(&self) -> Result<(), CommitError> {
        // Read before the file is looked up: a rotation in between has synced what precedes it.
        let end = self.written();
        if self.synced() >= end { Ok(()) } else { self.sync_through(end) }
    }

    /// Makes everything up to `end`, all of it handed to the kernel, durable; a failure is
    /// permanent.
    fn sync_through(&self, end: u64) -> Result<(), CommitError> {
        let failed = {
            let _one_at_a_time = self.sync.lock();
            self.check_poison()?;
            if self.synced() >= end {
                return Ok(());
            }
            match self.sync_tail(end) {
                Ok(()) => return Ok(()),
                // Still under the lock: the next sync must find the log closed.
                Err(error) => self.set_poison(error),
            }
        };
        Err(failed)
    }

    /// Like `sync_through`, for callers that handle the failure themselves.
    fn sync_file(&self, end: u64) -> Result<(), DiskError> {
        let _one_at_a_time = self.sync.lock();
        if self.synced() >= end { Ok(()) } else { self.sync_tail(end) }
    }

    /// Syncs the last segment and publishes that everything up to `end` is durable.
    fn sync_tail(&self, end: u64) -> Result<(), DiskError> {
        let (file, path) = {
            let tail = self.tail.lock();
            (Arc::clone(&tail.file), tail.path.clone())
        };
        let started = Instant::now();
        file.sync_data().map_err(|source| DiskError::new("sync log segment", path, source))?;
        let took_ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        add(&self.counters.syncs, 1);
        add(&self.counters.sync_ns_total, took_ns);
        self.written.fetch_max(end, Ordering::AcqRel);
        self.synced.fetch_max(end, Ordering::AcqRel);
        Ok(())
    }
}
