//! Writing a blob file (the layout is in [`blocks`](crate::blocks)): its bytes are gathered in pieces, with
//! the checksums of their blocks, and the pieces are written in order.
//!
//! Pieces are of up to a mebibyte, in aligned memory, so that they are written to the device
//! without a second copy of the whole blob in the kernel's cache. Gathering and writing are separate, so
//! that one thread writes a piece while another gathers the next.
//!
//! Invariant: all pieces but the last have a whole number of blocks, and lie in the file in the order in
//! which they were gathered.

use std::io;

use forebay_base::checksum::crc32c;
use forebay_base::fs::DIRECT_ALIGN;

use crate::blob::Staging;
use crate::blocks::{BLOCK_SIZE, file_end};
use crate::digest::Digest;

/// Maximum size of a piece, in bytes.
const PIECE_MAX: usize = 1 << 20;
/// Size of the first piece, so that a blob whose bytes arrive slowly takes little memory.
const PIECE_MIN: usize = 64 << 10;

/// Aligned memory that is filled from its beginning.
#[derive(Debug)]
pub struct Piece {
    memory: Vec<u8>,
    /// Offset of the aligned part of `memory`.
    start: usize,
    capacity: usize,
    size: usize,
}

impl Piece {
    fn new(capacity: usize) -> Self {
        let memory = vec![0; capacity + DIRECT_ALIGN];
        let start = memory.as_ptr().align_offset(DIRECT_ALIGN);
        // The standard library may decline to compute an offset. Direct writes then fail cleanly.
        let start = if start <= DIRECT_ALIGN { start } else { 0 };
        Self { memory, start, capacity, size: 0 }
    }

    fn bytes(&self) -> &[u8] {
        self.memory.get(self.start..self.start + self.size).unwrap_or_default()
    }

    /// Appends as many of the bytes as there is room for; returns the others.
    fn fill<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let (now, later) = bytes.split_at(bytes.len().min(self.capacity - self.size));
        let at = self.start + self.size;
        if let Some(room) = self.memory.get_mut(at..at + now.len()) {
            room.copy_from_slice(now);
        }
        self.size += now.len();
        later
    }

    fn is_full(&self) -> bool {
        self.size == self.capacity
    }
}

/// The bytes of a blob that are not written yet, and the checksums of all so far.
#[derive(Debug)]
pub struct Gathered {
    /// Is being filled.
    piece: Piece,
    full: Vec<Piece>,
    spare: Option<Piece>,
    /// CRC32C of each block.
    checksums: Vec<u32>,
    size: u64,
}

impl Default for Gathered {
    fn default() -> Self {
        let piece = Piece::new(PIECE_MIN);
        Self { piece, full: Vec::new(), spare: None, checksums: Vec::new(), size: 0 }
    }
}

impl Gathered {
    /// Appends bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.size += bytes.len() as u64;
        let mut rest = self.piece.fill(bytes);
        while self.piece.is_full() {
            self.note_checksums();
            let capacity = (self.piece.capacity * 4).min(PIECE_MAX);
            let spare = self.spare.take().filter(|spare| spare.capacity == capacity);
            let next = spare.unwrap_or_else(|| Piece::new(capacity));
            self.full.push(std::mem::replace(&mut self.piece, next));
            rest = self.piece.fill(rest);
        }
    }

    /// Returns the pieces that are full, in order.
    pub fn take_full(&mut self) -> Vec<Piece> {
        std::mem::take(&mut self.full)
    }

    /// Gives the memory of a written piece back, to be filled again.
    pub fn reuse(&mut self, written: Option<Piece>) {
        self.spare = written.map(|piece| Piece { size: 0, ..piece }).or(self.spare.take());
    }

    /// Computes the checksums of the blocks of the current piece.
    fn note_checksums(&mut self) {
        self.checksums.extend(self.piece.bytes().chunks(BLOCK_SIZE).map(crc32c));
    }
}

/// Writes the pieces of a blob.
#[derive(Debug)]
pub struct PieceWriter {
    staging: Staging,
    written: Option<Piece>,
}

impl PieceWriter {
    /// Starts a blob.
    #[must_use]
    pub fn new(staging: Staging) -> Self {
        Self { staging, written: None }
    }

    /// Writes the next full piece.
    ///
    /// # Errors
    /// The file system's error.
    pub fn write(&mut self, piece: Piece) -> io::Result<()> {
        self.staging.write_aligned(piece.bytes())?;
        self.written = Some(piece);
        Ok(())
    }

    /// Returns the memory of the last piece that was written.
    pub fn take_written(&mut self) -> Option<Piece> {
        self.written.take()
    }

    /// Writes the rest and the end of the file, syncs, and returns the staged file with the number of the
    /// blob's bytes.
    ///
    /// * `digest`: of these bytes.
    ///
    /// # Errors
    /// The file system's error.
    pub fn finish(mut self, mut gathered: Gathered, digest: Digest) -> io::Result<(Staging, u64)> {
        for piece in gathered.take_full() {
            self.write(piece)?;
        }
        gathered.note_checksums();
        self.staging.write_end(gathered.piece.bytes())?;
        self.staging.write_end(&file_end(digest, gathered.size, &gathered.checksums))?;
        self.staging.sync()?;
        Ok((self.staging, gathered.size))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use forebay_base::fs::RealFs;

    use super::*;
    use crate::blob::BlobStore;
    use crate::blocks::BlockReader;

    /// Writes a blob of which pieces are written before the next bytes come, and reads it.
    fn written(store: &BlobStore, bytes: &[u8], step: usize) -> Vec<u8> {
        let (mut gathered, mut writer) =
            (Gathered::default(), PieceWriter::new(store.stage().unwrap()));
        for part in bytes.chunks(step) {
            gathered.push(part);
            for piece in gathered.take_full() {
                writer.write(piece).unwrap();
                gathered.reuse(writer.take_written());
            }
        }
        let digest = Digest([3; 32]);
        let (staging, size) = writer.finish(gathered, digest).unwrap();
        let reader = BlockReader::new(staging.file(), size, digest).unwrap();
        let mut read = Vec::new();
        while (read.len() as u64) < size {
            read.extend_from_slice(&reader.read(read.len() as u64, size).unwrap());
        }
        read
    }

    #[test]
    fn a_blob_is_the_same_in_whatever_parts_it_arrives() {
        let dir = tempfile::tempdir().unwrap();
        let store = BlobStore::open(Arc::new(RealFs), dir.path()).unwrap();
        let whole = PIECE_MIN * (1 + 4 + 16) + PIECE_MAX;
        let bytes: Vec<u8> =
            (0..2 * whole).map(|n| u8::try_from(n / 7 * 31 % 251).unwrap()).collect();
        for size in [0, 1, PIECE_MIN - 1, PIECE_MIN, PIECE_MIN + 1, whole, whole + 1, 2 * whole] {
            for step in [10_007, 256 << 10, 3 * PIECE_MAX] {
                assert!(written(&store, &bytes[..size], step) == bytes[..size], "{size} by {step}");
            }
        }
    }
}
