//! The layout of a blob file: the bytes, then a checksum for each block of them.
//!
//! ```text
//! bytes of the blob | crc32c of block 0 | crc32c of block 1 | ...     (4 bytes each, little-endian)
//! ```
//!
//! Blocks are [`BLOCK_SIZE`] bytes, the last one shorter. The checksums allow a part of a blob to
//! be checked before it is sent, without reading the whole. SHA-256 checks the whole where time
//! allows. `docs/formats/blob-file.md` describes the file and its directories.
//!
//! Invariants: [`BlockReader`] returns only bytes whose block's checksum matches; it holds the
//! blocks of one request in memory.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use forebay_base::checksum::crc32c;
use forebay_base::fs::{DIRECT_ALIGN, File};

use crate::blob::Staging;

/// Bytes covered by one checksum.
pub const BLOCK_SIZE: usize = 64 << 10;
/// Blocks read in one operation.
const BLOCKS_PER_READ: u64 = 8;

/// Bytes gathered for one direct write of a large blob.
const GATHERED_MAX: usize = 1 << 20;
/// Bytes gathered for the first write, so that a blob whose bytes arrive slowly takes little
/// memory.
const GATHERED_MIN: usize = 64 << 10;

/// Writes a blob file: bytes in order, checksums at the end.
///
/// Bytes are gathered in aligned memory, in pieces of up to a mebibyte, so that they are written to
/// the device without a second copy of the whole blob in the kernel's cache.
#[derive(Debug)]
pub struct BlockWriter {
    staging: Staging,
    gathered: Vec<u8>,
    /// How many bytes are gathered before they are written.
    capacity: usize,
    /// Offset of the aligned part of `gathered`.
    start: usize,
    held: usize,
    checksums: Vec<u8>,
    size: u64,
}

impl BlockWriter {
    /// Starts a blob.
    #[must_use]
    pub fn new(staging: Staging) -> Self {
        let (gathered, start) = aligned(GATHERED_MIN);
        let capacity = GATHERED_MIN;
        Self { staging, gathered, capacity, start, held: 0, checksums: Vec::new(), size: 0 }
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// The file system's error.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.size += bytes.len() as u64;
        let mut rest = bytes;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(self.capacity - self.held));
            let at = self.start + self.held;
            if let Some(room) = self.gathered.get_mut(at..at + now.len()) {
                room.copy_from_slice(now);
            }
            self.held += now.len();
            if self.held == self.capacity {
                self.note_checksums();
                let piece = self.gathered.get(self.start..self.start + self.held);
                self.staging.write_aligned(piece.unwrap_or_default())?;
                self.held = 0;
                if self.capacity < GATHERED_MAX {
                    self.capacity = (self.capacity * 4).min(GATHERED_MAX);
                    (self.gathered, self.start) = aligned(self.capacity);
                }
            }
            rest = later;
        }
        Ok(())
    }

    /// Writes the checksums, syncs, and returns the staged file with the number of bytes in it.
    ///
    /// # Errors
    /// The file system's error.
    pub fn finish(mut self) -> io::Result<(Staging, u64)> {
        self.note_checksums();
        let piece = self.gathered.get(self.start..self.start + self.held);
        self.staging.write_end(piece.unwrap_or_default())?;
        self.staging.write_end(&self.checksums)?;
        self.staging.sync()?;
        Ok((self.staging, self.size))
    }

    /// Computes the checksums of the gathered blocks. A full piece is a whole number of blocks.
    fn note_checksums(&mut self) {
        let piece = self.gathered.get(self.start..self.start + self.held);
        for block in piece.unwrap_or_default().chunks(BLOCK_SIZE) {
            self.checksums.extend_from_slice(&crc32c(block).to_le_bytes());
        }
    }
}

/// Allocates `size` bytes aligned for direct writes. Returns the memory and the offset of the
/// aligned part.
fn aligned(size: usize) -> (Vec<u8>, usize) {
    let memory = vec![0; size + DIRECT_ALIGN];
    let start = memory.as_ptr().align_offset(DIRECT_ALIGN);
    // The standard library may decline to compute an offset. Direct writes then fail cleanly.
    let start = if start <= DIRECT_ALIGN { start } else { 0 };
    (memory, start)
}

/// Reads ranges of a blob file and checks every block.
#[derive(Debug, Clone)]
pub struct BlockReader {
    file: Arc<dyn File>,
    size: u64,
}

impl BlockReader {
    /// Reads the blob of `size` bytes in `file`.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`]: the file does not have the length such a blob has.
    pub fn new(file: Arc<dyn File>, size: u64) -> io::Result<Self> {
        let found = file.len()?;
        let expected = size + 4 * size.div_ceil(BLOCK_SIZE as u64);
        if found != expected {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("the blob file has {found} bytes, expected {expected}"),
            ));
        }
        Ok(Self { file, size })
    }

    /// Reads some of the bytes from `start` on, up to `end`. The result is empty only if the range
    /// is.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`]: a block is damaged. The message gives its offset.
    pub fn read(&self, start: u64, end: u64) -> io::Result<Bytes> {
        let end = end.min(self.size);
        if start >= end {
            return Ok(Bytes::new());
        }
        let block_size = BLOCK_SIZE as u64;
        let first = start / block_size;
        let last = ((end - 1) / block_size).min(first + BLOCKS_PER_READ - 1);
        let from = first * block_size;
        let to = ((last + 1) * block_size).min(self.size);
        let mut bytes = vec![0; to_size(to - from)];
        self.file.read_exact_at(&mut bytes, from)?;
        let mut checksums = vec![0; to_size((last - first + 1) * 4)];
        self.file.read_exact_at(&mut checksums, self.size + first * 4)?;
        for (at, (block, stored)) in
            bytes.chunks(BLOCK_SIZE).zip(checksums.chunks_exact(4)).enumerate()
        {
            if crc32c(block).to_le_bytes() != *stored {
                let place = from + at as u64 * block_size;
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("the block at byte {place} does not match its checksum"),
                ));
            }
        }
        let bytes = Bytes::from(bytes);
        Ok(bytes.slice(to_size(start - from)..to_size(end.min(to) - from)))
    }
}

/// A number of bytes read in one operation; [`BLOCKS_PER_READ`] keeps it small.
fn to_size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use forebay_base::fs::RealFs;

    use super::*;
    use crate::blob::BlobStore;

    fn blob(size: usize) -> (tempfile::TempDir, Vec<u8>, Arc<dyn File>) {
        let dir = tempfile::tempdir().unwrap();
        let store = BlobStore::open(Arc::new(RealFs), dir.path()).unwrap();
        let bytes: Vec<u8> = (0..size).map(|n| u8::try_from(n * 31 % 251).unwrap()).collect();
        let mut writer = BlockWriter::new(store.stage().unwrap());
        for piece in bytes.chunks(10_007) {
            writer.write(piece).unwrap();
        }
        let (staging, written) = writer.finish().unwrap();
        assert_eq!(written, size as u64);
        let file = staging.file();
        std::mem::forget(staging);
        (dir, bytes, file)
    }

    #[test]
    fn any_range_reads_back() {
        let size = 3 * BLOCK_SIZE + 17;
        let (_dir, bytes, file) = blob(size);
        let reader = BlockReader::new(file, size as u64).unwrap();
        for (start, end) in
            [(0, size), (1, 2), (BLOCK_SIZE - 1, BLOCK_SIZE + 1), (size - 1, size), (5, 5)]
        {
            let mut read = Vec::new();
            while read.len() < end - start {
                let at = (start + read.len()) as u64;
                read.extend_from_slice(&reader.read(at, end as u64).unwrap());
            }
            assert_eq!(read, bytes[start..end]);
        }
    }

    #[test]
    fn a_flipped_bit_is_never_returned() {
        let size = 2 * BLOCK_SIZE + 5;
        let (_dir, _, file) = blob(size);
        for at in [0, BLOCK_SIZE - 1, BLOCK_SIZE, size - 1, size + 4] {
            let mut byte = [0];
            file.read_exact_at(&mut byte, at as u64).unwrap();
            file.write_all_at(&[byte[0] ^ 4], at as u64).unwrap();
            let reader = BlockReader::new(file.clone(), size as u64).unwrap();
            let error = reader.read(0, size as u64).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "byte {at}");
            file.write_all_at(&byte, at as u64).unwrap();
        }
        assert!(BlockReader::new(file, size as u64 - 1).is_err());
    }
}
