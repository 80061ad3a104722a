//! Walking the frames of one segment file, verified, in limited memory.
//!
//! Invariants:
//! - A frame is returned only when it is complete and both its checksums are verified.
//! - Memory is limited to one chunk, or one frame if that is larger; a frame's length is trusted
//!   only after its checksum, and never beyond the bytes of the segment.

use std::{path::PathBuf, sync::Arc};

use forebay_base::{checksum::crc32c, fs::File};

use crate::{
    Lsn,
    error::{Corrupt, DiskError, Fault},
    format::{FRAME_HEADER_SIZE, FrameHeader, Kind, Seed},
};

/// Bytes read ahead when walking.
pub(crate) const CHUNK_SIZE: usize = 256 << 10;

/// Why a walk stopped.
#[derive(Debug)]
pub(crate) enum WalkError {
    Io(DiskError),
    Corrupt(Corrupt),
}

/// One frame.
#[derive(Debug)]
pub(crate) struct Frame<'a> {
    pub(crate) lsn: u64,
    pub(crate) next: u64,
    pub(crate) header: FrameHeader,
    /// Empty unless it is an entry.
    pub(crate) payload: &'a [u8],
}

/// A walk over a segment's frames.
#[derive(Debug)]
pub(crate) struct Cursor {
    file: Arc<dyn File>,
    path: PathBuf,
    seed: Seed,
    base: u64,
    position: u64,
    /// Where the readable frames end.
    limit: u64,
    buf: Vec<u8>,
    /// Position of `buf[0]`.
    buf_start: u64,
    chunk_size: usize,
    /// Where in the buffer the last entry's payload is.
    payload: std::ops::Range<usize>,
}

impl Cursor {
    pub(crate) fn new(file: Arc<dyn File>, path: PathBuf, seed: Seed, base: u64) -> Self {
        Self {
            file,
            path,
            seed,
            base,
            position: base,
            limit: base,
            buf: Vec::new(),
            buf_start: base,
            chunk_size: CHUNK_SIZE,
            payload: 0..0,
        }
    }

    /// Limits reading ahead to this size, for reading a single frame.
    pub(crate) fn with_chunk_size(mut self, size: usize) -> Self {
        self.chunk_size = size;
        self
    }

    /// Walks from `position` up to `limit`. Raising the limit later continues the walk.
    pub(crate) fn set_range(&mut self, position: u64, limit: u64) {
        self.position = position;
        self.limit = limit;
    }

    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    pub(crate) fn corrupt(&self, lsn: u64, fault: Fault) -> Corrupt {
        Corrupt { path: self.path.clone(), offset: lsn - self.base, lsn: Lsn(lsn), fault }
    }

    fn fault(&self, fault: Fault) -> WalkError {
        WalkError::Corrupt(self.corrupt(self.position, fault))
    }

    /// Returns the next frame, or `None` at the limit. A failed walk stays where it failed.
    pub(crate) fn next(&mut self) -> Result<Option<Frame<'_>>, WalkError> {
        let room = self.limit.saturating_sub(self.position);
        if room == 0 {
            return Ok(None);
        }
        if room < FRAME_HEADER_SIZE as u64 {
            return Err(self.fault(Fault::Length { size: FRAME_HEADER_SIZE as u64, room }));
        }
        self.payload = 0..0;
        let lsn = self.position;
        let at = self.fill(FRAME_HEADER_SIZE)?;
        let mut bytes = [0; FRAME_HEADER_SIZE];
        bytes.copy_from_slice(&self.buf[at..at + FRAME_HEADER_SIZE]);
        let header =
            FrameHeader::decode(&bytes, self.seed, lsn).map_err(|fault| self.fault(fault))?;
        let size = header.size();
        if size > room {
            return Err(self.fault(Fault::Length { size, room }));
        }
        let next = lsn + size;
        if header.kind != Kind::Entry {
            self.position = next;
            return Ok(Some(Frame { lsn, next, header, payload: &[] }));
        }
        let whole = usize::try_from(size).map_err(|_| self.fault(Fault::Length { size, room }))?;
        let at = self.fill(whole)?;
        let padded = &self.buf[at + FRAME_HEADER_SIZE..at + whole];
        let found = crc32c(padded);
        if found != header.payload_crc {
            return Err(self.fault(Fault::Payload { expected: header.payload_crc, found }));
        }
        self.position = next;
        let start = at + FRAME_HEADER_SIZE;
        self.payload = start..start + header.payload_len as usize;
        Ok(Some(Frame { lsn, next, header, payload: self.payload() }))
    }

    /// Returns the payload of the entry last returned; empty after any other frame.
    pub(crate) fn payload(&self) -> &[u8] {
        self.buf.get(self.payload.clone()).unwrap_or_default()
    }

    /// Makes `need` bytes from the position available and returns their offset in the buffer.
    ///
    /// The caller has checked that they lie before the limit.
    fn fill(&mut self, need: usize) -> Result<usize, WalkError> {
        let end = self.buf_start + self.buf.len() as u64;
        if self.position >= self.buf_start && self.position + need as u64 <= end {
            return Ok(usize::try_from(self.position - self.buf_start).unwrap_or(usize::MAX));
        }
        let room = self.limit - self.position;
        let ahead = usize::try_from(room).unwrap_or(usize::MAX).min(self.chunk_size.max(need));
        if self.position >= self.buf_start && self.position < end {
            let skip = usize::try_from(self.position - self.buf_start).unwrap_or(usize::MAX);
            self.buf.drain(..skip);
        } else {
            self.buf.clear();
        }
        self.buf_start = self.position;
        if self.buf.capacity() > 4 * self.chunk_size && ahead <= self.chunk_size {
            // One large entry must not keep its memory for the rest of the walk.
            self.buf.shrink_to(self.chunk_size);
        }
        let have = self.buf.len();
        self.buf.resize(ahead.max(have), 0);
        let offset = self.buf_start - self.base + have as u64;
        let read = self.file.read_exact_at(&mut self.buf[have..], offset);
        if let Err(source) = read {
            self.buf.clear();
            if source.kind() == std::io::ErrorKind::UnexpectedEof {
                let found = self.file.len().unwrap_or(0);
                let expected = self.limit - self.base;
                return Err(self.fault(Fault::Short { expected, found }));
            }
            return Err(WalkError::Io(DiskError::new("read", &self.path, source)));
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests;
