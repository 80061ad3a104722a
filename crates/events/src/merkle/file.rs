//! The file `tree`: the root of every complete tile, one after another
//! (`docs/formats/event-tree.md`).
//!
//! Invariants:
//! - A record is written once and never changed; records are in order, without gaps.
//! - The caller stores the number of valid records elsewhere. Records beyond it are cut off on
//!   opening; damage in a valid record is an error, never a wrong root.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_base::fs::{Access, File, FileSystem};

use super::Hash;
use super::hash::HASH_SIZE;
use super::header::{self, HEADER_SIZE};

/// First bytes of the file.
const MAGIC: [u8; 8] = *b"FOREBTRE";
const VERSION: u16 = 1;
const RECORD_SIZE: usize = HASH_SIZE + 4;
/// Number of records read at once.
const RECORDS_PER_READ: usize = 4096;

/// Why the file cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TreeFileError {
    /// The file system failed.
    #[error("cannot {act} the tree file {path}")]
    Io {
        /// The operation that failed.
        act: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The header does not belong to this store.
    #[error("the header of {path} is damaged or belongs to another store or version")]
    Header {
        /// The file.
        path: PathBuf,
    },
    /// The file ends before its last valid record.
    #[error("{path} has {found} bytes, but its {count} records need {expected}")]
    Short {
        /// The file.
        path: PathBuf,
        /// Expected number of records.
        count: u64,
        /// Bytes they need.
        expected: u64,
        /// Actual size in bytes.
        found: u64,
    },
    /// A record is damaged.
    #[error("record {index} of {path}, at byte {offset}, is damaged")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The index of its tile.
        index: u64,
        /// Its offset.
        offset: u64,
    },
    /// A sync failed earlier: the contents of the device are unknown until the file is opened
    /// again.
    #[error("a sync of {path} failed; nothing more is written to it")]
    Poisoned {
        /// The file.
        path: PathBuf,
    },
}

/// The open file, at its end.
#[derive(Debug)]
pub struct TreeFile {
    file: Arc<dyn File>,
    path: PathBuf,
    mark: u32,
    count: u64,
    poisoned: bool,
}

impl TreeFile {
    /// Opens the file, or creates it if no record is valid yet, and returns the valid roots.
    ///
    /// * `id`: the store's; a file of another store is refused.
    /// * `count`: number of valid records. What is beyond them is cut off.
    ///
    /// # Errors
    /// [`TreeFileError`].
    pub fn open(
        fs: &dyn FileSystem,
        path: &Path,
        id: [u8; 16],
        count: u64,
    ) -> Result<(Self, Vec<Hash>), TreeFileError> {
        let (header, mark) = header::encode(MAGIC, VERSION, id);
        let io = |act| move |source| TreeFileError::Io { act, path: path.to_owned(), source };
        let file = match fs.open(path, Access::ReadWrite) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && count == 0 => {
                fs.create_new(path).map_err(io("create"))?
            }
            opened => opened.map_err(io("open"))?,
        };
        // Also for an existing file: its creator may have ended before its name was durable.
        fs.sync_dir(path.parent().unwrap_or(Path::new(""))).map_err(io("sync the directory of"))?;
        let this = Self { file, path: path.to_owned(), mark, count, poisoned: false };
        let roots = if count == 0 {
            // Always written again: it may be incomplete, or lost by a failed sync.
            this.file.set_len(0).map_err(io("write"))?;
            this.file.write_all_at(&header, 0).map_err(io("write"))?;
            Vec::new()
        } else {
            this.read_records(&header)?
        };
        let end = end_of(count);
        if this.file.len().map_err(io("read"))? > end {
            this.file.set_len(end).map_err(io("truncate"))?;
        }
        this.file.sync_all().map_err(io("sync"))?;
        Ok((this, roots))
    }

    /// Reads the valid roots without changing anything.
    ///
    /// # Errors
    /// [`TreeFileError`].
    pub fn read(
        fs: &dyn FileSystem,
        path: &Path,
        id: [u8; 16],
        count: u64,
    ) -> Result<Vec<Hash>, TreeFileError> {
        let (header, mark) = header::encode(MAGIC, VERSION, id);
        let file = fs.open(path, Access::Read).map_err(|source| {
            let path = path.to_owned();
            TreeFileError::Io { act: "open", path, source }
        })?;
        let this = Self { file, path: path.to_owned(), mark, count, poisoned: false };
        this.read_records(&header)
    }

    /// Appends roots. They are durable after [`TreeFile::sync`].
    ///
    /// After an error nothing was added, and the call may be repeated.
    ///
    /// # Errors
    /// [`TreeFileError::Io`], [`TreeFileError::Poisoned`].
    pub fn append(&mut self, roots: &[Hash]) -> Result<(), TreeFileError> {
        self.check()?;
        let mut bytes = Vec::with_capacity(roots.len() * RECORD_SIZE);
        for (index, root) in (self.count..).zip(roots) {
            bytes.extend_from_slice(&root.0);
            let crc = header::checksum(self.mark, index, &[&root.0]);
            bytes.extend_from_slice(&crc.to_le_bytes());
        }
        let written = self.file.write_all_at(&bytes, end_of(self.count));
        written.map_err(|source| self.io("write", source))?;
        self.count += roots.len() as u64;
        Ok(())
    }

    /// Makes all appended roots durable. After an error nothing more is written.
    ///
    /// # Errors
    /// [`TreeFileError::Io`], [`TreeFileError::Poisoned`].
    pub fn sync(&mut self) -> Result<(), TreeFileError> {
        self.check()?;
        self.file.sync_data().map_err(|source| {
            self.poisoned = true;
            self.io("sync", source)
        })
    }

    /// Roots in the file, synced or not.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether a sync failed, so that the file must be opened again.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.poisoned
    }

    fn check(&self) -> Result<(), TreeFileError> {
        match self.poisoned {
            true => Err(TreeFileError::Poisoned { path: self.path.clone() }),
            false => Ok(()),
        }
    }

    fn read_records(&self, header: &[u8]) -> Result<Vec<Hash>, TreeFileError> {
        let found = self.file.len().map_err(|source| self.io("read", source))?;
        let (count, expected) = (self.count, end_of(self.count));
        if found < expected {
            let path = self.path.clone();
            return Err(TreeFileError::Short { path, count, expected, found });
        }
        let mut buffer = vec![0; HEADER_SIZE];
        self.read_at(&mut buffer, 0)?;
        if buffer != header {
            return Err(TreeFileError::Header { path: self.path.clone() });
        }
        let mut roots = Vec::new();
        while (roots.len() as u64) < count {
            let index = roots.len() as u64;
            let records = usize::try_from(count - index).unwrap_or(usize::MAX);
            buffer.resize(records.min(RECORDS_PER_READ) * RECORD_SIZE, 0);
            self.read_at(&mut buffer, end_of(index))?;
            for (index, record) in (index..).zip(buffer.as_chunks::<RECORD_SIZE>().0) {
                roots.push(self.decode(index, record)?);
            }
        }
        Ok(roots)
    }

    fn decode(&self, index: u64, record: &[u8; RECORD_SIZE]) -> Result<Hash, TreeFileError> {
        let (root, crc) = record.split_at(HASH_SIZE);
        let hash = <[u8; HASH_SIZE]>::try_from(root).unwrap_or_default();
        if header::checksum(self.mark, index, &[root]).to_le_bytes() == crc {
            return Ok(Hash(hash));
        }
        Err(TreeFileError::Damaged { path: self.path.clone(), index, offset: end_of(index) })
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), TreeFileError> {
        self.file.read_exact_at(buffer, offset).map_err(|source| self.io("read", source))
    }

    fn io(&self, act: &'static str, source: io::Error) -> TreeFileError {
        TreeFileError::Io { act, path: self.path.clone(), source }
    }
}

/// The size of the file with this many records; saturates for impossible numbers.
fn end_of(count: u64) -> u64 {
    count.saturating_mul(RECORD_SIZE as u64).saturating_add(HEADER_SIZE as u64)
}

#[cfg(test)]
mod tests;
