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
use forebay_base::fs::File;

/// Bytes covered by one checksum.
pub const BLOCK_SIZE: usize = 64 << 10;
/// Blocks read in one operation.
const BLOCKS_PER_READ: u64 = 8;

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
    use crate::pieces::{Gathered, PieceWriter};

    fn blob(size: usize) -> (tempfile::TempDir, Vec<u8>, Arc<dyn File>) {
        let dir = tempfile::tempdir().unwrap();
        let store = BlobStore::open(Arc::new(RealFs), dir.path()).unwrap();
        let bytes: Vec<u8> = (0..size).map(|n| u8::try_from(n * 31 % 251).unwrap()).collect();
        let mut gathered = Gathered::default();
        gathered.push(&bytes);
        let writer = PieceWriter::new(store.stage().unwrap());
        let (staging, written) = writer.finish(gathered).unwrap();
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
