//! The layout of a blob file: the bytes, then a checksum for each block of them, then whose they are.
//!
//! ```text
//! bytes of the blob | checksum of block 0 | checksum of block 1 | ... | mark | checksum of the blob
//!                     (4 bytes each, little-endian)
//! ```
//!
//! Blocks are [`BLOCK_SIZE`] bytes, the last one shorter. The checksums allow a part of a blob to
//! be checked before it is sent, without reading the whole. They depend on the digest of the blob and on
//! the number of the block, so that no block is accepted in the place of another, and no file in the place
//! of another. SHA-256 checks the whole where time allows. `docs/formats/blob-file.md` describes the file
//! and its directories.
//!
//! Invariants: [`BlockReader`] returns only bytes whose block's checksum matches; it holds the
//! blocks of one request in memory.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use forebay_base::checksum::crc32c;
use forebay_base::fs::File;

use crate::blobs::RemoteBlob;
use crate::digest::Digest;

/// Bytes covered by one checksum.
pub const BLOCK_SIZE: usize = 64 << 10;
/// Blocks read in one operation.
const BLOCKS_PER_READ: u64 = 8;

/// Precedes the last checksum of a file whose checksums depend on the blob.
const MARK: [u8; 4] = *b"FBB2";
/// Size of the mark and of the checksum after it.
pub(crate) const TRAILER_SIZE: usize = 8;

/// Computes what a checksum is combined with to depend on the blob, and on a number.
fn binding(digest: Digest, number: u64) -> u32 {
    let mut bytes = [0; 40];
    let (first, rest) = bytes.split_at_mut(32);
    first.copy_from_slice(&digest.0);
    rest.copy_from_slice(&number.to_le_bytes());
    crc32c(&bytes)
}

pub(crate) fn trailer(digest: Digest, size: u64) -> [u8; TRAILER_SIZE] {
    let mut trailer = [0; TRAILER_SIZE];
    let (mark, checksum) = trailer.split_at_mut(MARK.len());
    mark.copy_from_slice(&MARK);
    checksum.copy_from_slice(&binding(digest, size).to_le_bytes());
    trailer
}

/// Returns what follows the bytes of a blob in its file.
///
/// * `size`: of the blob.
/// * `checksums`: CRC32C of each of its blocks.
pub(crate) fn file_end(digest: Digest, size: u64, checksums: &[u32]) -> Vec<u8> {
    let mut end = Vec::with_capacity(4 * checksums.len() + TRAILER_SIZE);
    for (number, checksum) in (0..).zip(checksums) {
        end.extend_from_slice(&(checksum ^ binding(digest, number)).to_le_bytes());
    }
    end.extend_from_slice(&trailer(digest, size));
    end
}

/// Returns the blob file of bytes that are in memory.
pub(crate) fn encode(digest: Digest, bytes: &[u8]) -> Vec<u8> {
    let checksums: Vec<u32> = bytes.chunks(BLOCK_SIZE).map(crc32c).collect();
    let end = file_end(digest, bytes.len() as u64, &checksums);
    [bytes, &end].concat()
}

/// Compares whole blocks of a blob with their checksums.
///
/// * `first`: number of the first block.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`]: a block does not match. The message gives its offset.
pub(crate) fn verify_blocks(
    digest: Digest,
    first: u64,
    bytes: &[u8],
    checksums: &[u8],
) -> io::Result<()> {
    check_blocks(Some(digest), first, bytes, checksums)
}

fn check_blocks(
    digest: Option<Digest>,
    first: u64,
    bytes: &[u8],
    checksums: &[u8],
) -> io::Result<()> {
    for ((number, block), stored) in
        (first..).zip(bytes.chunks(BLOCK_SIZE)).zip(checksums.chunks_exact(4))
    {
        let binding = digest.map_or(0, |digest| binding(digest, number));
        if (crc32c(block) ^ binding).to_le_bytes() != *stored {
            let place = number * BLOCK_SIZE as u64;
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("the block at byte {place} does not match its checksum"),
            ));
        }
    }
    Ok(())
}

/// Where a blob file is.
#[derive(Debug, Clone)]
enum Place {
    File(Arc<dyn File>),
    Remote(Arc<RemoteBlob>),
}

/// Reads ranges of a blob file and checks every block.
#[derive(Debug, Clone)]
pub struct BlockReader {
    place: Place,
    size: u64,
    /// The blob on which the checksums depend; `None` in files of version 1.
    digest: Option<Digest>,
}

impl BlockReader {
    /// Reads the blob of `size` bytes in `file`.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`]: the file does not have the length such a blob has, or is that of another
    /// blob.
    pub fn new(file: Arc<dyn File>, size: u64, digest: Digest) -> io::Result<Self> {
        let invalid = |text| Err(io::Error::new(io::ErrorKind::InvalidData, text));
        let found = file.len()?;
        let version_1 = size + 4 * size.div_ceil(BLOCK_SIZE as u64);
        if found == version_1 {
            return Ok(Self { place: Place::File(file), size, digest: None });
        }
        let expected = version_1 + TRAILER_SIZE as u64;
        if found != expected {
            return invalid(format!("the blob file has {found} bytes, expected {expected}"));
        }
        let mut end = [0; TRAILER_SIZE];
        file.read_exact_at(&mut end, version_1)?;
        if end != trailer(digest, size) {
            return invalid("the end of the blob file is damaged, or that of another".to_owned());
        }
        Ok(Self { place: Place::File(file), size, digest: Some(digest) })
    }

    /// Reads the blob of `size` bytes in a pack. Nothing is requested yet.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`]: the index of packs has another size for this digest.
    pub(crate) fn remote(blob: RemoteBlob, size: u64, digest: Digest) -> io::Result<Self> {
        let found = blob.size();
        if found != size {
            let text = format!("the blob in {} has {found} bytes, expected {size}", blob.name());
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(Self { place: Place::Remote(Arc::new(blob)), size, digest: Some(digest) })
    }

    /// Reads all of a blob of `size` bytes into memory.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn read_all(&self, size: u64) -> io::Result<Bytes> {
        let mut bytes = bytes::BytesMut::with_capacity(to_size(size));
        while (bytes.len() as u64) < size {
            bytes.extend_from_slice(&self.read(bytes.len() as u64, size)?);
        }
        Ok(bytes.freeze())
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
        let bytes = match (self.read_blocks(first, last), &self.place) {
            // The cache may be damaged: what it had is requested again.
            (Err(error), Place::Remote(blob))
                if error.kind() == io::ErrorKind::InvalidData && self.doubt(blob, first, last) =>
            {
                self.read_blocks(first, last)?
            }
            (read, _) => read?,
        };
        let (from, to) = (first * block_size, ((last + 1) * block_size).min(self.size));
        Ok(bytes.slice(to_size(start - from)..to_size(end.min(to) - from)))
    }

    /// Reads whole blocks and checks them.
    fn read_blocks(&self, first: u64, last: u64) -> io::Result<Bytes> {
        let block_size = BLOCK_SIZE as u64;
        let from = first * block_size;
        let to = ((last + 1) * block_size).min(self.size);
        let mut bytes = vec![0; to_size(to - from)];
        self.read_exact_at(&mut bytes, from)?;
        let mut checksums = vec![0; to_size((last - first + 1) * 4)];
        self.read_exact_at(&mut checksums, self.size + first * 4)?;
        check_blocks(self.digest, first, &bytes, &checksums)?;
        Ok(Bytes::from(bytes))
    }

    fn read_exact_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        match &self.place {
            Place::File(file) => file.read_exact_at(buf, at),
            Place::Remote(blob) => blob.read_exact_at(buf, at),
        }
    }

    /// Drops what the cache has of these blocks and their checksums. Returns whether it had any.
    fn doubt(&self, blob: &RemoteBlob, first: u64, last: u64) -> bool {
        let from = first * BLOCK_SIZE as u64;
        let to = ((last + 1) * BLOCK_SIZE as u64).min(self.size);
        let blocks = blob.doubt(from, to - from);
        let checksums = blob.doubt(self.size + first * 4, (last - first + 1) * 4);
        blocks || checksums
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

    const DIGEST: Digest = Digest([7; 32]);

    fn blob(size: usize) -> (tempfile::TempDir, Vec<u8>, Arc<dyn File>) {
        let dir = tempfile::tempdir().unwrap();
        let store = BlobStore::open(Arc::new(RealFs), dir.path()).unwrap();
        let bytes: Vec<u8> = (0..size).map(|n| u8::try_from(n * 31 % 251).unwrap()).collect();
        let mut gathered = Gathered::default();
        gathered.push(&bytes);
        let writer = PieceWriter::new(store.stage().unwrap());
        let (staging, written) = writer.finish(gathered, DIGEST).unwrap();
        assert_eq!(written, size as u64);
        let file = staging.file();
        std::mem::forget(staging);
        (dir, bytes, file)
    }

    fn reader(file: &Arc<dyn File>, size: usize) -> io::Result<BlockReader> {
        BlockReader::new(Arc::clone(file), size as u64, DIGEST)
    }

    #[test]
    fn any_range_reads_back() {
        let size = 3 * BLOCK_SIZE + 17;
        let (_dir, bytes, file) = blob(size);
        let reader = reader(&file, size).unwrap();
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
        let end = size + 3 * 4;
        for at in [0, BLOCK_SIZE - 1, BLOCK_SIZE, size - 1, size + 4, end, end + 7] {
            let mut byte = [0];
            file.read_exact_at(&mut byte, at as u64).unwrap();
            file.write_all_at(&[byte[0] ^ 4], at as u64).unwrap();
            let read = reader(&file, size).and_then(|reader| reader.read(0, size as u64));
            assert_eq!(read.unwrap_err().kind(), io::ErrorKind::InvalidData, "byte {at}");
            file.write_all_at(&byte, at as u64).unwrap();
        }
        assert!(reader(&file, size - 1).is_err());
    }

    #[test]
    fn blocks_that_changed_places_with_their_checksums_are_never_returned() {
        let size = 2 * BLOCK_SIZE;
        let (_dir, _, file) = blob(size);
        let (block, checksum) = (BLOCK_SIZE as u64, size as u64);
        for (first, second, len) in [(0, block, BLOCK_SIZE), (checksum, checksum + 4, 4)] {
            let (mut one, mut two) = (vec![0; len], vec![0; len]);
            file.read_exact_at(&mut one, first).unwrap();
            file.read_exact_at(&mut two, second).unwrap();
            file.write_all_at(&two, first).unwrap();
            file.write_all_at(&one, second).unwrap();
        }
        for at in [0, block] {
            assert!(reader(&file, size).unwrap().read(at, size as u64).is_err());
        }
    }

    #[test]
    fn the_file_of_another_blob_is_refused() {
        let size = 2 * BLOCK_SIZE;
        let (_dir, _, file) = blob(size);
        let other = BlockReader::new(file, size as u64, Digest([8; 32]));
        assert_eq!(other.unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_file_of_version_1_reads_back_and_its_flipped_bits_do_not() {
        let size = BLOCK_SIZE + 9;
        let (_dir, bytes, file) = blob(size);
        for (number, block) in bytes.chunks(BLOCK_SIZE).enumerate() {
            let at = (size + 4 * number) as u64;
            file.write_all_at(&crc32c(block).to_le_bytes(), at).unwrap();
        }
        file.set_len((size + 8) as u64).unwrap();
        let reader = reader(&file, size).unwrap();
        assert_eq!(reader.read(0, size as u64).unwrap(), bytes);
        file.write_all_at(&[bytes[3] ^ 1], 3).unwrap();
        assert!(reader.read(0, 1).is_err());
    }
}
