//! A file that is written sequentially, with the checksum of all of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_base::checksum::extend;
use forebay_base::fs::{File, FileSystem};

use super::BuildError;
use crate::format::meta::FileMeta;

/// Bytes gathered before they are written.
const BUFFER_SIZE: usize = 1 << 20;

/// A file being written.
#[derive(Debug)]
pub(crate) struct Out {
    file: Arc<dyn File>,
    path: PathBuf,
    buffer: Vec<u8>,
    written: u64,
    crc: u32,
}

impl Out {
    pub(crate) fn create(fs: &dyn FileSystem, path: &Path) -> Result<Self, BuildError> {
        let file = fs.create_new(path).map_err(BuildError::io("create", path))?;
        let buffer = Vec::with_capacity(BUFFER_SIZE + BUFFER_SIZE / 4);
        Ok(Self { file, path: path.to_owned(), buffer, written: 0, crc: 0 })
    }

    /// Number of bytes written so far, including those still buffered.
    #[inline]
    pub(crate) fn position(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// The buffer to append to; call [`Out::flush_if_full`] afterwards.
    #[inline]
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    #[inline]
    pub(crate) fn flush_if_full(&mut self) -> Result<(), BuildError> {
        if self.buffer.len() >= BUFFER_SIZE { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), BuildError> {
        self.crc = extend(self.crc, &self.buffer);
        let written = self.file.write_all_at(&self.buffer, self.written);
        written.map_err(BuildError::io("write to", &self.path))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Writes the rest and waits until all of it is on stable storage.
    pub(crate) fn finish(mut self) -> Result<FileMeta, BuildError> {
        self.flush()?;
        self.file.sync_all().map_err(BuildError::io("sync", &self.path))?;
        Ok(FileMeta { size: self.written, crc32c: self.crc })
    }
}
