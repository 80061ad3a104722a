//! Writing a snapshot's file, block by block.
//!
//! Invariant: memory is one buffer of [`WRITE_SIZE`], and a block.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_base::fs::{File, FileSystem};

use super::format::{Block, End, Header};
use crate::persist::error::Disk;

/// Bytes buffered before they are written.
const WRITE_SIZE: usize = 256 << 10;
/// Bytes after which the file is synced: a sync of the log, which may come at any time, waits for
/// no more than these.
const SYNC_SIZE: u64 = 8 << 20;

/// A snapshot's file being written.
#[derive(Debug)]
pub(crate) struct SnapshotWriter {
    file: Arc<dyn File>,
    path: PathBuf,
    /// [`Header::checksum`].
    mark: u32,
    buffer: Vec<u8>,
    /// Offset of the buffer in the file.
    offset: u64,
    synced: u64,
    blocks: u64,
}

impl SnapshotWriter {
    /// Begins a file.
    pub(crate) fn create(fs: &dyn FileSystem, path: &Path, header: &Header) -> Result<Self, Disk> {
        let file = fs.create_new(path).map_err(|source| Disk::new("create", path, source))?;
        let header = header.encode();
        let mut buffer = Vec::with_capacity(2 * WRITE_SIZE);
        buffer.extend_from_slice(&header);
        Ok(Self {
            file,
            path: path.to_path_buf(),
            mark: Header::checksum(&header),
            buffer,
            offset: 0,
            synced: 0,
            blocks: 0,
        })
    }

    /// Appends a block.
    pub(crate) fn block(&mut self, block: &Block<'_>) -> Result<(), Disk> {
        block.encode(self.mark, self.len(), &mut self.buffer);
        self.blocks += 1;
        if self.buffer.len() >= WRITE_SIZE { self.flush() } else { Ok(()) }
    }

    /// Bytes written so far.
    pub(crate) fn len(&self) -> u64 {
        self.offset + self.buffer.len() as u64
    }

    fn flush(&mut self) -> Result<(), Disk> {
        self.file
            .write_all_at(&self.buffer, self.offset)
            .map_err(|source| Disk::new("write to", &self.path, source))?;
        self.offset += self.buffer.len() as u64;
        self.buffer.clear();
        self.buffer.shrink_to(2 * WRITE_SIZE);
        if self.offset - self.synced >= SYNC_SIZE {
            self.synced = self.offset;
            self.file.sync_data().map_err(|source| Disk::new("sync", &self.path, source))?;
        }
        Ok(())
    }

    /// Appends the end block and puts everything on stable storage; returns the file's size.
    pub(crate) fn finish(mut self, end: End) -> Result<u64, Disk> {
        self.block(&Block::End(End { blocks: self.blocks, ..end }))?;
        self.flush()?;
        self.file.sync_all().map_err(|source| Disk::new("sync", &self.path, source))?;
        Ok(self.offset)
    }
}
