//! Expands pages to exactly the size their header declares, and never further.

use std::io::Read;

use flate2::read::MultiGzDecoder;
use parquet::basic::Compression;
use parquet::errors::{ParquetError, Result};

use crate::error::damaged;

/// What expands the pages of a column.
pub(crate) enum Codec {
    None,
    Snappy(snap::raw::Decoder),
    Gzip,
    Zstd(Box<zstd::bulk::Decompressor<'static>>),
    /// LZ4 as Hadoop frames it, as LZ4 itself does, or not framed: old writers differ.
    Lz4,
    Lz4Raw,
}

impl Codec {
    pub(crate) fn new(compression: Compression) -> Result<Self> {
        Ok(match compression {
            Compression::UNCOMPRESSED => Self::None,
            Compression::SNAPPY => Self::Snappy(snap::raw::Decoder::new()),
            Compression::GZIP(_) => Self::Gzip,
            Compression::ZSTD(_) => Self::Zstd(Box::new(zstd::bulk::Decompressor::new()?)),
            Compression::LZ4 => Self::Lz4,
            Compression::LZ4_RAW => Self::Lz4Raw,
            other => {
                return Err(ParquetError::NYI(format!("pages compressed with {other}")));
            }
        })
    }

    pub(crate) fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Appends `size` bytes to `out`, which `stored` expands to. `out` has the room.
    pub(crate) fn expand(&mut self, stored: &[u8], out: &mut Vec<u8>, size: usize) -> Result<()> {
        if size == 0 {
            return Ok(());
        }
        let before = out.len();
        let external = |error: Box<dyn std::error::Error + Send + Sync>| {
            damaged(format!(
                "a page cannot be decompressed to its declared size of {size} bytes: {error}"
            ))
        };
        match self {
            Self::None => out.extend_from_slice(stored),
            Self::Gzip => read(MultiGzDecoder::new(stored), out, size)?,
            Self::Snappy(decoder) => {
                out.resize(before + size, 0);
                let room = out.get_mut(before..).unwrap_or_default();
                let count = decoder.decompress(stored, room).map_err(|e| external(e.into()))?;
                out.truncate(before + count);
            }
            Self::Zstd(decoder) => {
                out.resize(before + size, 0);
                let room = out.get_mut(before..).unwrap_or_default();
                let count =
                    decoder.decompress_to_buffer(stored, room).map_err(|e| external(e.into()))?;
                out.truncate(before + count);
            }
            Self::Lz4Raw => raw_lz4(stored, out, size)?,
            Self::Lz4 => {
                let found = hadoop_lz4(stored, out, size).or_else(|_| {
                    out.truncate(before);
                    read(lz4_flex::frame::FrameDecoder::new(stored), out, size)?;
                    check(out.len() - before, size)
                });
                if found.is_err() {
                    out.truncate(before);
                    raw_lz4(stored, out, size)?;
                }
            }
        }
        check(out.len() - before, size)
    }
}

fn check(found: usize, declared: usize) -> Result<()> {
    if found == declared {
        return Ok(());
    }
    let more = if found > declared { "more than " } else { "" };
    let found = found.min(declared);
    Err(damaged(format!("a page declares {declared} bytes, but decompresses to {more}{found}")))
}

/// Reads one byte more than there should be, which is how the excess is seen.
fn read(reader: impl Read, out: &mut Vec<u8>, size: usize) -> Result<()> {
    reader.take(size as u64 + 1).read_to_end(out)?;
    Ok(())
}

fn raw_lz4(stored: &[u8], out: &mut Vec<u8>, size: usize) -> Result<()> {
    let before = out.len();
    out.resize(before + size, 0);
    let room = out.get_mut(before..).unwrap_or_default();
    let count = lz4_flex::block::decompress_into(stored, room)
        .map_err(|error| damaged(format!("a page cannot be decompressed: {error}")))?;
    out.truncate(before + count);
    check(count, size)
}

/// Blocks, each after its two sizes: expanded, and stored; most significant byte first.
fn hadoop_lz4(stored: &[u8], out: &mut Vec<u8>, size: usize) -> Result<()> {
    let wrong = || damaged("a page lacks valid Hadoop framing");
    let before = out.len();
    let mut rest = stored;
    while !rest.is_empty() {
        let (head, after) = rest.split_first_chunk::<8>().ok_or_else(wrong)?;
        let [a, b, c, d, e, f, g, h] = *head;
        let (expanded, length) =
            (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
        let (block, after) = after.split_at_checked(length as usize).ok_or_else(wrong)?;
        let done = out.len() - before;
        if expanded as usize > size - done {
            return Err(wrong());
        }
        raw_lz4(block, out, expanded as usize)?;
        rest = after;
    }
    check(out.len() - before, size)
}
