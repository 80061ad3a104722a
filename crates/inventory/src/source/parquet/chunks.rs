//! The parts of a file that the Parquet reader requests, none of them outside of the file.

use std::fs::File;
use std::io::{BufReader, Cursor, Read, Seek as _, SeekFrom};

use bytes::Bytes;
use forebay_objects::Failure;
use object_store::ObjectStoreExt as _;
use object_store::path::Path as Key;
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};

use crate::source::location::Remote;

/// Bytes requested from an object store if the required number is unknown.
const AHEAD: u64 = 64 << 10;

/// A file that is read in parts.
pub(super) enum Chunks {
    /// Opened separately: its readers share a position.
    Local(File, u64),
    Remote(Remote, Key, u64),
}

impl Chunks {
    fn size(&self) -> u64 {
        match self {
            Self::Local(_, size) | Self::Remote(_, _, size) => *size,
        }
    }
}

impl Length for Chunks {
    fn len(&self) -> u64 {
        self.size()
    }
}

impl ChunkReader for Chunks {
    type T = Box<dyn Read>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        match self {
            Self::Local(file, _) => {
                let mut file = file.try_clone()?;
                file.seek(SeekFrom::Start(start))?;
                Ok(Box::new(BufReader::with_capacity(1024, file)))
            }
            Self::Remote(_, _, size) => {
                let ahead = size.saturating_sub(start).min(AHEAD);
                let ahead = self.get_bytes(start, usize::try_from(ahead).unwrap_or(0))?;
                Ok(Box::new(Cursor::new(ahead)))
            }
        }
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let end = start.checked_add(length as u64).filter(|&end| end <= self.size());
        let end = end.ok_or_else(|| {
            let size = self.size();
            ParquetError::EOF(format!("{length} bytes at {start} of a file of {size} bytes"))
        })?;
        match self {
            Self::Local(file, _) => {
                let mut file = file.try_clone()?;
                file.seek(SeekFrom::Start(start))?;
                let mut content = Vec::with_capacity(length);
                let read = file.take(length as u64).read_to_end(&mut content)?;
                if read != length {
                    return Err(ParquetError::EOF(format!("{read} of {length} bytes at {start}")));
                }
                Ok(content.into())
            }
            Self::Remote(remote, key, _) => remote
                .runtime
                .block_on(remote.store.get_range(key, start..end))
                .map_err(|e| ParquetError::External(Box::new(Failure::from(e)))),
        }
    }
}
