//! An open file, read sequentially or at random positions.
//!
//! Parts of an object in a bucket are fetched in blocks, some of which are cached: a Parquet reader
//! asks for many small adjacent parts, and every request costs a round trip.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;

use forebay_sdk::error::ConnectorError;

use crate::{Bucket, Class, Failure};
use bytes::{Bytes, BytesMut};
use object_store::path::Path as Key;
use parking_lot::Mutex;
use parquet::file::reader::{ChunkReader, Length};
use tokio::runtime::Handle;

use super::location::{changed, modified_ns, store_error};

/// Bytes per request if a file is read sequentially.
const READ_SIZE: u64 = 1 << 20;
/// Bytes read at the start of a page whose size is not known yet.
const PAGE_SIZE: u64 = 64 << 10;
/// Size of a block in bytes.
const BLOCK_SIZE: u64 = 512 << 10;
/// Default memory of a reader: the default of a run.
const MEMORY: u64 = 32 << 20;
/// Maximum number of cached blocks of a file.
const BLOCKS_MAX: usize = 16;

/// An open file.
#[derive(Debug, Clone)]
pub(super) struct Opened {
    from: From,
    pub(super) size: u64,
    tag: Option<String>,
    /// When a file on disk was modified last before it was opened; `None`: that does not matter.
    modified_ns: Option<i128>,
    pub(super) path: PathBuf,
    /// Maximum memory in bytes that a reader may use for decoding.
    pub(super) memory: u64,
    /// The cached blocks by number, the most recently used last.
    blocks: Arc<Mutex<VecDeque<(u64, Bytes)>>>,
}

#[derive(Debug, Clone)]
pub(super) enum From {
    Disk(Arc<File>),
    Bucket(Bucket, Key),
}

impl Opened {
    pub(super) fn new(from: From, size: u64, tag: Option<String>, path: PathBuf) -> Self {
        Self { from, size, tag, modified_ns: None, path, memory: MEMORY, blocks: Arc::default() }
    }

    /// Sets when the file was modified last.
    pub(super) fn of_time(self, modified_ns: i128) -> Self {
        Self { modified_ns: Some(modified_ns), ..self }
    }

    /// Refuses a file on disk that was written to since it was opened: parts of two files may have been read. An object in a
    /// bucket is requested by its tag.
    pub(super) fn check_unchanged(&self) -> Result<(), ConnectorError> {
        let (From::Disk(file), Some(before)) = (&self.from, self.modified_ns) else {
            return Ok(());
        };
        let metadata = file.metadata();
        let metadata =
            metadata.map_err(|error| ConnectorError::file("read", self.path.clone(), error))?;
        let is_same = metadata.len() == self.size && modified_ns(&metadata) == before;
        if is_same { Ok(()) } else { Err(changed(&self.path)) }
    }

    /// Sets the memory that a reader may use.
    pub(super) fn within(self, memory: usize) -> Self {
        Self { memory: memory as u64, ..self }
    }

    /// Reads a range of bytes; fewer at the end of the file.
    fn range(&self, from: u64, size: u64) -> io::Result<Bytes> {
        let end = from.saturating_add(size).min(self.size);
        if from >= end {
            return Ok(Bytes::new());
        }
        match &self.from {
            From::Disk(file) => {
                use std::os::unix::fs::FileExt as _;
                let size = usize::try_from(end - from).map_err(io::Error::other)?;
                let mut bytes = vec![0; size];
                file.read_exact_at(&mut bytes, from).map_err(|error| match error.kind() {
                    io::ErrorKind::UnexpectedEof => io::Error::other(Shortened),
                    _ => error,
                })?;
                Ok(bytes.into())
            }
            From::Bucket(bucket, key) => {
                let options = object_store::GetOptions {
                    range: Some((from..end).into()),
                    if_match: self.tag.clone(),
                    ..Default::default()
                };
                let answer = async {
                    let result = bucket.store().get_opts(key, options).await?;
                    Ok(result.bytes().await?)
                };
                Handle::current()
                    .block_on(answer)
                    .map_err(|failure: Failure| io::Error::other(failure))
            }
        }
    }

    /// The same, from cached blocks if the request would be small.
    fn piece(&self, from: u64, size: u64) -> io::Result<Bytes> {
        if matches!(self.from, From::Disk(_)) || size >= BLOCK_SIZE {
            return self.range(from, size);
        }
        let end = from.saturating_add(size).min(self.size);
        let mut bytes = BytesMut::new();
        let mut at = from;
        while at < end {
            let block = self.block(at / BLOCK_SIZE)?;
            let begin = usize::try_from(at % BLOCK_SIZE).map_err(io::Error::other)?;
            let count = usize::try_from(end - at).map_err(io::Error::other)?;
            let Some(rest) = block.get(begin..).filter(|rest| !rest.is_empty()) else { break };
            let taken = rest.get(..count.min(rest.len())).unwrap_or_default();
            bytes.extend_from_slice(taken);
            at += taken.len() as u64;
        }
        Ok(bytes.freeze())
    }

    fn block(&self, number: u64) -> io::Result<Bytes> {
        let kept =
            self.blocks.lock().iter().find(|(of, _)| *of == number).map(|(_, it)| it.clone());
        if let Some(block) = kept {
            return Ok(block);
        }
        let block = self.range(number * BLOCK_SIZE, BLOCK_SIZE)?;
        let mut blocks = self.blocks.lock();
        if blocks.len() == BLOCKS_MAX {
            blocks.pop_front();
        }
        blocks.push_back((number, block.clone()));
        Ok(block)
    }

    /// Its bytes from an offset to the end.
    pub(super) fn reader(&self, at: u64) -> Sequential {
        Sequential { file: self.clone(), at, chunk: Bytes::new(), step: READ_SIZE }
    }

    /// The cause of a failed read.
    pub(super) fn failed(&self, error: io::Error) -> ConnectorError {
        if error.get_ref().is_some_and(|inner| inner.is::<Shortened>()) {
            return changed(&self.path);
        }
        let is_of_store = error.get_ref().is_some_and(|inner| inner.is::<Failure>());
        if !is_of_store {
            return ConnectorError::file("read", self.path.clone(), error);
        }
        match error.into_inner().map(|inner| inner.downcast::<Failure>()) {
            Some(Ok(inner)) if inner.class() != Class::Conflict => {
                store_error("read", self.path.display().to_string(), *inner)
            }
            _ => changed(&self.path),
        }
    }
}

/// A file on disk became shorter while it was read.
#[derive(Debug, thiserror::Error)]
#[error("the file became shorter while it was read")]
struct Shortened;

/// Reads a file from an offset to its end.
pub(super) struct Sequential {
    file: Opened,
    at: u64,
    chunk: Bytes,
    step: u64,
}

impl Read for Sequential {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.chunk.is_empty() {
            self.chunk = self.file.piece(self.at, self.step)?;
            self.at += self.chunk.len() as u64;
        }
        let taken = self.chunk.split_to(buffer.len().min(self.chunk.len()));
        if let Some(buffer) = buffer.get_mut(..taken.len()) {
            buffer.copy_from_slice(&taken);
        }
        Ok(taken.len())
    }
}

impl Length for Opened {
    fn len(&self) -> u64 {
        self.size
    }
}

impl ChunkReader for Opened {
    type T = Sequential;

    fn get_read(&self, start: u64) -> parquet::errors::Result<Sequential> {
        Ok(Sequential { step: PAGE_SIZE, ..self.reader(start) })
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        let bytes = self.piece(start, length as u64)?;
        if bytes.len() == length {
            Ok(bytes)
        } else {
            Err(parquet::errors::ParquetError::EOF(format!(
                "{length} bytes at offset {start} exceed its size of {}",
                self.size
            )))
        }
    }
}
