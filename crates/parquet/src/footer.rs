//! The footer of a file, looked at before it is decoded.
//!
//! Decoding one takes many times its bytes: every column of every row group becomes a structure, and a
//! column's path is copied for each column below it. All of that is added up first.

use std::io::Cursor;

use bytes::Bytes;
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};

use crate::compact::{BINARY, Compact, I32, LIST, STRUCT, Unfit};
use crate::error::{Exceeded, ReadError, What, damaged};

/// Bytes behind a footer: its size and a mark.
const TAIL_SIZE: u64 = 8;
const MARK: &[u8] = b"PAR1";
/// Structures within each other.
const DEPTH_MAX: usize = 64;
/// Bytes that are taken up by a column of a row group, by a row group, and by a part of the schema, when
/// they are decoded; what is made of a column for Arrow is among them.
const CHUNK_SIZE: u64 = 1024;
const GROUP_SIZE: u64 = 512;
const ELEMENT_SIZE: u64 = 1024;
/// A footer's own bytes, its texts and their copies.
const COPIES: u64 = 4;

/// The footer of a file, from which metadata can be loaded any number of times without reading it again.
#[derive(Debug, Clone)]
pub struct Footer {
    start: u64,
    bytes: Bytes,
}

impl Footer {
    /// Reads the footer of a file.
    ///
    /// # Errors
    /// It cannot be read, is no footer, or declares what takes more than `limit` bytes.
    pub fn read(chunks: &impl ChunkReader, limit: u64) -> std::result::Result<Self, ReadError> {
        let size = chunks.len();
        let no_footer = || damaged("it does not end like a Parquet file");
        let tail_start = size.checked_sub(TAIL_SIZE).ok_or_else(no_footer)?;
        let tail = chunks.get_bytes(tail_start, 8)?;
        let (length, mark) = tail.split_first_chunk::<4>().ok_or_else(no_footer)?;
        if mark != MARK {
            return Err(no_footer().into());
        }
        let length = u64::from(u32::from_le_bytes(*length));
        let start = tail_start.checked_sub(length).ok_or_else(|| {
            damaged(format!("its footer of {length} bytes is larger than the file of {size} bytes"))
        })?;
        let exceeded = |declared| Exceeded {
            what: What::Footer,
            row_group: 0,
            column: String::new(),
            page: 0,
            declared,
            held: 0,
            limit,
        };
        if length.saturating_mul(COPIES) > limit {
            return Err(exceeded(length.saturating_mul(COPIES)).into());
        }
        let whole = usize::try_from(length + TAIL_SIZE).map_err(|_| no_footer())?;
        let bytes = chunks.get_bytes(start, whole)?;
        let metadata = bytes.get(..bytes.len().saturating_sub(8)).unwrap_or_default();
        let declared = weigh(metadata).map_err(|_| damaged("its footer is damaged"))?;
        let declared = declared.saturating_add(length.saturating_mul(COPIES));
        if declared > limit {
            return Err(exceeded(declared).into());
        }
        Ok(Self { start, bytes })
    }
}

impl Length for Footer {
    fn len(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

impl ChunkReader for Footer {
    type T = Cursor<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        let size = self.len().saturating_sub(start);
        let size = usize::try_from(size).map_err(|e| ParquetError::External(e.into()))?;
        self.get_bytes(start, size).map(Cursor::new)
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let from = start.checked_sub(self.start).and_then(|from| usize::try_from(from).ok());
        let range = from.and_then(|from| Some(from..from.checked_add(length)?));
        let range = range.filter(|range| range.end <= self.bytes.len());
        let range = range.ok_or_else(|| {
            ParquetError::EOF(format!("{length} bytes at {start} are not of the footer"))
        })?;
        Ok(self.bytes.slice(range))
    }
}

/// Bytes that structures take when they are decoded.
fn weigh(footer: &[u8]) -> std::result::Result<u64, Unfit> {
    let mut bytes = Compact::new(footer);
    let (mut last, mut sum) = (0, 0_u64);
    while let Some((id, kind)) = bytes.field(&mut last)? {
        let more = match (id, kind) {
            (2, LIST) => schema(&mut bytes)?,
            (4, LIST) => row_groups(&mut bytes)?,
            _ => {
                bytes.skip(kind)?;
                0
            }
        };
        sum = sum.saturating_add(more);
    }
    Ok(sum)
}

/// The parts of a schema, each before those below it.
fn schema(bytes: &mut Compact<'_>) -> std::result::Result<u64, Unfit> {
    let (kind, count) = bytes.list()?;
    if kind != STRUCT {
        return Err(Unfit::Wrong);
    }
    let mut sum = 0_u64;
    // What is still to come below each part that is open, and the bytes of its path.
    let mut open: Vec<(u64, u64)> = Vec::new();
    for _ in 0..count {
        let (mut last, mut name, mut below) = (0, 0_u64, 0_u64);
        while let Some((id, kind)) = bytes.field(&mut last)? {
            match (id, kind) {
                (4, BINARY) => name = bytes.bytes()?.len() as u64,
                (5, I32) => below = bytes.size()?,
                _ => bytes.skip(kind)?,
            }
        }
        while open.last().is_some_and(|(left, _)| *left == 0) {
            open.pop();
        }
        let path = match open.last_mut() {
            Some((left, path)) => {
                *left -= 1;
                *path
            }
            None => 0,
        };
        let path = path.saturating_add(name).saturating_add(size_of::<String>() as u64);
        sum = sum.saturating_add(ELEMENT_SIZE).saturating_add(path.saturating_mul(2));
        if below > 0 {
            open.push((below, path));
        }
        if open.len() > DEPTH_MAX {
            return Err(Unfit::Wrong);
        }
    }
    Ok(sum)
}

fn row_groups(bytes: &mut Compact<'_>) -> std::result::Result<u64, Unfit> {
    let (kind, count) = bytes.list()?;
    if kind != STRUCT {
        return Err(Unfit::Wrong);
    }
    let mut sum = (count as u64).saturating_mul(GROUP_SIZE);
    for _ in 0..count {
        let mut last = 0;
        while let Some((id, kind)) = bytes.field(&mut last)? {
            if (id, kind) != (1, LIST) {
                bytes.skip(kind)?;
                continue;
            }
            let (kind, count) = bytes.list()?;
            sum = sum.saturating_add((count as u64).saturating_mul(CHUNK_SIZE));
            (0..count).try_for_each(|_| bytes.skip(kind))?;
        }
    }
    Ok(sum)
}
