//! Compression of batches while they wait between two stages, if `resources.compression` is set:
//! more of them fit in the memory of a run, at the cost of compressing.
//!
//! Invariant: an unpacked batch is identical to the packed one; anything else is an error, never
//! other rows.

use std::io::Cursor;

use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use bytes::Bytes;
use forebay_pgcopy::ContentHash;

use crate::batch::Rows;
use crate::error::ConnectorError;
use crate::settings::Compression;

/// Level of Zstandard: data that waits for milliseconds does not justify a higher one.
#[cfg(not(target_family = "wasm"))]
const ZSTD_LEVEL: i32 = 1;

/// Compressed rows.
#[derive(Debug)]
pub(super) struct Packed {
    bytes: Vec<u8>,
    /// Size before compression.
    size: usize,
    /// The hash of tuples; `None` for Arrow.
    tuples: Option<ContentHash>,
}

impl Packed {
    /// Size in memory, in bytes.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }
}

fn failed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ConnectorError {
    ConnectorError::Refused { act: "compress rows between stages".into(), source: error.into() }
}

/// Compresses batches, reusing one context.
pub(super) enum Packer {
    Lz4,
    #[cfg(not(target_family = "wasm"))]
    Zstd(Box<zstd::bulk::Compressor<'static>>),
}

impl std::fmt::Debug for Packer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Lz4 => "Lz4",
            #[cfg(not(target_family = "wasm"))]
            Self::Zstd(_) => "Zstd",
        })
    }
}

impl Packer {
    /// Creates a packer; `None` if nothing is to be compressed.
    pub(super) fn new(compression: Compression) -> Result<Option<Self>, ConnectorError> {
        Ok(match compression {
            Compression::None => None,
            Compression::Lz4 => Some(Self::Lz4),
            // A library in C.
            #[cfg(target_family = "wasm")]
            Compression::Zstd => {
                return Err(ConnectorError::unsupported(
                    "a sandbox has no Zstandard",
                    "use `compression: lz4`",
                ));
            }
            #[cfg(not(target_family = "wasm"))]
            Compression::Zstd => {
                let compressor = zstd::bulk::Compressor::new(ZSTD_LEVEL).map_err(failed)?;
                Some(Self::Zstd(Box::new(compressor)))
            }
        })
    }

    pub(super) fn pack(&mut self, rows: &Rows) -> Result<Packed, ConnectorError> {
        match rows {
            Rows::Tuples(tuples, hash) => self.compress(tuples, Some(*hash)),
            Rows::Records(records) => {
                let mut writer =
                    StreamWriter::try_new(Vec::new(), &records.schema()).map_err(failed)?;
                writer.write(records).map_err(failed)?;
                let bytes = writer.into_inner().map_err(failed)?;
                self.compress(&bytes, None)
            }
        }
    }

    fn compress(
        &mut self,
        plain: &[u8],
        tuples: Option<ContentHash>,
    ) -> Result<Packed, ConnectorError> {
        let bytes = match self {
            Self::Lz4 => lz4_flex::block::compress(plain),
            #[cfg(not(target_family = "wasm"))]
            Self::Zstd(compressor) => compressor.compress(plain).map_err(failed)?,
        };
        Ok(Packed { bytes, size: plain.len(), tuples })
    }
}

/// Restores the batches of a [`Packer`], reusing one context.
pub(super) enum Unpacker {
    Lz4,
    #[cfg(not(target_family = "wasm"))]
    Zstd(Box<zstd::bulk::Decompressor<'static>>),
}

impl Unpacker {
    pub(super) fn of(packer: &Packer) -> Result<Self, ConnectorError> {
        Ok(match packer {
            Packer::Lz4 => Self::Lz4,
            #[cfg(not(target_family = "wasm"))]
            Packer::Zstd(_) => {
                Self::Zstd(Box::new(zstd::bulk::Decompressor::new().map_err(failed)?))
            }
        })
    }

    pub(super) fn unpack(&mut self, packed: &Packed) -> Result<Rows, ConnectorError> {
        let bytes = match self {
            Self::Lz4 => lz4_flex::block::decompress(&packed.bytes, packed.size).map_err(failed)?,
            #[cfg(not(target_family = "wasm"))]
            Self::Zstd(decompressor) => {
                decompressor.decompress(&packed.bytes, packed.size).map_err(failed)?
            }
        };
        if bytes.len() != packed.size {
            return Err(failed("the decompressed size differs from the original size"));
        }
        if let Some(hash) = packed.tuples {
            return Ok(Rows::Tuples(Bytes::from(bytes), hash));
        }
        let mut reader = StreamReader::try_new(Cursor::new(bytes), None).map_err(failed)?;
        match (reader.next(), reader.next()) {
            (Some(records), None) => Ok(Rows::Records(records.map_err(failed)?)),
            _ => Err(failed("the decompressed data is not one batch")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};

    use super::*;

    fn packers() -> [Packer; 2] {
        [Compression::Lz4, Compression::Zstd].map(|kind| Packer::new(kind).unwrap().unwrap())
    }

    #[test]
    fn batches_come_out_as_they_went_in_and_smaller_between() {
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..10_000));
        let names: ArrayRef = Arc::new(StringArray::from_iter(
            (0..10_000).map(|id| (id % 3 > 0).then_some("the same name")),
        ));
        let records = RecordBatch::try_from_iter([("id", ids), ("name", names)]).unwrap();
        let tuples = Bytes::from(vec![7; 100_000]);
        let hash = ContentHash { rows: 3, sum: 99 };
        for mut packer in packers() {
            let mut unpacker = Unpacker::of(&packer).unwrap();
            for _ in 0..2 {
                let packed = packer.pack(&Rows::Records(records.clone())).unwrap();
                assert!(packed.len() < records.get_array_memory_size() / 2, "{}", packed.len());
                let Rows::Records(back) = unpacker.unpack(&packed).unwrap() else { panic!() };
                assert_eq!(back, records);
                let packed = packer.pack(&Rows::Tuples(tuples.clone(), hash)).unwrap();
                assert!(packed.len() < 1_000);
                let Rows::Tuples(back, its) = unpacker.unpack(&packed).unwrap() else { panic!() };
                assert_eq!((back, its), (tuples.clone(), hash));
            }
        }
    }

    #[test]
    fn bytes_that_changed_are_an_error_or_the_same() {
        let tuples = Bytes::from((0..5_000_u32).flat_map(u32::to_le_bytes).collect::<Vec<_>>());
        for mut packer in packers() {
            let mut unpacker = Unpacker::of(&packer).unwrap();
            let mut packed =
                packer.pack(&Rows::Tuples(tuples.clone(), ContentHash::default())).unwrap();
            packed.bytes.truncate(packed.bytes.len() / 2);
            assert!(unpacker.unpack(&packed).is_err());
        }
    }
}
