//! Entries that were appended but not yet written, and the callers that wait for them.
//!
//! Everything here is under one lock, held for a copy and some arithmetic: positions are assigned
//! in the order of the bytes, and checksums are left to the writer.
//!
//! Invariants:
//! - The byte at `bytes[i]` belongs at position `start + i`; `start + bytes.len() == next`.
//! - No frame crosses its segment's end, and [`FRAME_HEADER_SIZE`] bytes are left for a closing
//!   mark.

use std::{collections::BTreeMap, sync::Arc, task::Waker, time::Instant};

use crate::{
    Lsn,
    error::{AppendError, DiskError},
    format::{FRAME_HEADER_SIZE, Kind, SEGMENT_HEADER_SIZE, frame_size},
    log::Appended,
};

/// The start of a segment inside the buffer, where zeros reserve the bytes of its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rotation {
    pub(crate) base: u64,
    pub(crate) size: u64,
    pub(crate) prev_base: u64,
}

/// Bytes for the disk.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    pub(crate) bytes: Vec<u8>,
    pub(crate) start: u64,
    pub(crate) rotations: Vec<Rotation>,
    /// How many of them were completed, and the position up to which the bytes were written: not
    /// zero only after a write that stopped in the middle.
    pub(crate) rotated: usize,
    pub(crate) written: u64,
    /// Whether checksums were filled in.
    pub(crate) finished: bool,
    /// Whether a closing mark is in it.
    pub(crate) has_close: bool,
    /// Whether that mark is the last frame.
    pub(crate) ends_closed: bool,
}

impl Buffer {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Empties the buffer for use from `start` on; capacity above `keep` bytes is freed.
    pub(crate) fn reset(&mut self, start: u64, keep: usize) {
        self.bytes.clear();
        if self.bytes.capacity() > keep {
            self.bytes.shrink_to(keep);
        }
        self.start = start;
        self.rotations.clear();
        self.rotated = 0;
        self.written = start;
        self.finished = false;
        self.has_close = false;
        self.ends_closed = false;
    }
}

impl Buffer {
    /// Calls `visit` with the payload of every entry.
    pub(crate) fn each_entry(&self, visit: &mut dyn FnMut(&[u8])) {
        let mut rotations = self.rotations.iter().peekable();
        let (mut lsn, mut rest) = (self.start, &self.bytes[..]);
        while !rest.is_empty() {
            let size = if rotations.next_if(|rotation| rotation.base == lsn).is_some() {
                SEGMENT_HEADER_SIZE
            } else {
                // The buffer holds a complete frame header here, because this process put it there.
                let payload_len = u32::from_le_bytes([rest[8], rest[9], rest[10], rest[11]]);
                if rest[12] == Kind::Entry as u8 {
                    visit(&rest[FRAME_HEADER_SIZE..][..payload_len as usize]);
                }
                usize::try_from(frame_size(u64::from(payload_len))).unwrap_or(usize::MAX)
            };
            rest = &rest[size..];
            lsn += size as u64;
        }
    }
}

/// The state behind the append lock.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) buffer: Buffer,
    /// The other buffer, while it is not being written.
    pub(crate) spare: Option<Buffer>,
    /// Position of the next frame.
    pub(crate) next: u64,
    /// The segment of the next frame, which may not exist yet.
    pub(crate) segment_base: u64,
    pub(crate) segment_size: u64,
    /// Where the next segment begins, if opening could not create it: the next frame is its first, and
    /// the positions up to there are skipped.
    pub(crate) skip_to: Option<u64>,
    /// Callers that wait for the acknowledgement of a position.
    pub(crate) waiters: BTreeMap<(u64, u64), Waker>,
    /// Callers that wait for room.
    pub(crate) room_waiters: BTreeMap<u64, Waker>,
    pub(crate) next_key: u64,
    /// Threads that serve waiters.
    pub(crate) committers: usize,
    pub(crate) committer_parked: bool,
    /// Whether the committer's helper must prepare the next segment.
    pub(crate) prepare_wanted: bool,
    /// The segment whose successor was last requested.
    pub(crate) prepare_asked: Option<u64>,
    /// The time since which written data is not synced.
    pub(crate) dirty_since: Option<Instant>,
    pub(crate) poison: Option<Arc<DiskError>>,
    /// Why appended entries cannot be written at the moment.
    pub(crate) stall: Option<Arc<DiskError>>,
}

/// The limits of an append.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) segment_size: u64,
    pub(crate) entry_size_max: u32,
    pub(crate) buffer_size_max: usize,
}

impl Inner {
    pub(crate) fn new(next: u64, segment_base: u64, segment_size: u64) -> Self {
        Self {
            buffer: Buffer { start: next, written: next, ..Buffer::default() },
            spare: Some(Buffer::default()),
            next,
            segment_base,
            segment_size,
            skip_to: None,
            waiters: BTreeMap::new(),
            room_waiters: BTreeMap::new(),
            next_key: 0,
            committers: 0,
            committer_parked: false,
            prepare_wanted: false,
            prepare_asked: None,
            dirty_since: None,
            poison: None,
            stall: None,
        }
    }

    /// Whether a frame of `size` bytes fits the current segment, with room for a closing mark after
    /// it.
    fn fits_segment(&self, size: u64) -> bool {
        let used = self.next - self.segment_base;
        self.skip_to.is_none() && used + size + FRAME_HEADER_SIZE as u64 <= self.segment_size
    }

    /// Buffer space in bytes that an entry of `len` bytes needs now.
    fn needed(&self, len: u64) -> u64 {
        let size = frame_size(len);
        if self.fits_segment(size) { size } else { size + SEGMENT_HEADER_SIZE as u64 }
    }

    /// Whether an entry of `len` bytes can be appended now.
    pub(crate) fn has_room(&self, len: u64, bounds: Bounds) -> bool {
        let used = self.buffer.bytes.len() as u64;
        // Nothing can be written to make room; entries of operations in progress are accepted.
        used == 0
            || self.stall.is_some()
            || used + self.needed(len) <= bounds.buffer_size_max as u64
    }

    /// Appends an entry, or returns why not and changes nothing.
    pub(crate) fn push(
        &mut self,
        parts: &[&[u8]],
        bounds: Bounds,
    ) -> Result<Appended, AppendError> {
        if let Some(source) = &self.poison {
            return Err(AppendError::Poisoned { source: Arc::clone(source) });
        }
        let len: u64 = parts.iter().map(|part| part.len() as u64).sum();
        let Some(payload_len) = u32::try_from(len).ok().filter(|len| *len <= bounds.entry_size_max)
        else {
            return Err(AppendError::TooLarge { len, max: bounds.entry_size_max });
        };
        if !self.has_room(len, bounds) {
            return Err(AppendError::Full { needed: self.needed(len) });
        }
        let size = frame_size(len);
        if !self.fits_segment(size) {
            self.rotate(size, bounds.segment_size);
        }
        let lsn = self.next;
        self.push_frame(Kind::Entry, payload_len, parts);
        self.buffer.ends_closed = false;
        Ok(Appended { lsn: Lsn(lsn), end: Lsn(self.next) })
    }

    /// Appends a closing mark if the segment has room for it.
    pub(crate) fn push_close(&mut self) {
        let used = self.next - self.segment_base;
        let is_open = self.poison.is_none() && self.skip_to.is_none();
        if is_open && used + FRAME_HEADER_SIZE as u64 <= self.segment_size {
            self.push_frame(Kind::Close, 0, &[]);
            self.buffer.has_close = true;
            self.buffer.ends_closed = true;
        }
    }

    /// Puts a frame into the buffer; checksums and the synced position are left to the writer.
    fn push_frame(&mut self, kind: Kind, payload_len: u32, parts: &[&[u8]]) {
        let bytes = &mut self.buffer.bytes;
        let at = bytes.len();
        let mut header = [0; FRAME_HEADER_SIZE];
        header[8..12].copy_from_slice(&payload_len.to_le_bytes());
        header[12] = kind as u8;
        bytes.extend_from_slice(&header);
        for part in parts {
            bytes.extend_from_slice(part);
        }
        let size = frame_size(u64::from(payload_len));
        self.next += size;
        // The buffer holds at most a few GiB, so a frame's size fits `usize` on any supported
        // machine.
        bytes.resize(at + usize::try_from(size).unwrap_or(usize::MAX), 0);
    }

    /// Starts a segment that has room for a frame of `size` bytes.
    fn rotate(&mut self, size: u64, segment_size: u64) {
        if let Some(base) = self.skip_to.take() {
            // Nothing was appended since opening, so the buffer is empty.
            (self.next, self.buffer.start, self.buffer.written) = (base, base, base);
        }
        let alone = SEGMENT_HEADER_SIZE as u64 + size + FRAME_HEADER_SIZE as u64;
        let rotation = Rotation {
            base: self.next,
            size: segment_size.max(alone),
            prev_base: self.segment_base,
        };
        self.segment_base = rotation.base;
        self.segment_size = rotation.size;
        self.buffer.rotations.push(rotation);
        self.buffer.bytes.resize(self.buffer.bytes.len() + SEGMENT_HEADER_SIZE, 0);
        self.next += SEGMENT_HEADER_SIZE as u64;
    }

    /// Returns a key that no other waiter has.
    pub(crate) fn fresh_key(&mut self) -> u64 {
        self.next_key += 1;
        self.next_key
    }

    /// Removes and returns the wakers of callers that wait for a position up to `acknowledged`.
    pub(crate) fn take_satisfied(&mut self, acknowledged: u64, into: &mut Vec<Waker>) {
        while let Some(first) = self.waiters.first_entry() {
            if first.key().0 > acknowledged {
                break;
            }
            into.push(first.remove());
        }
    }
}
