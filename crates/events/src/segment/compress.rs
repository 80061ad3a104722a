//! Compression and decompression of blocks.

use std::fmt;
use std::str::FromStr;

/// Accepted levels of Zstandard.
const LEVELS: std::ops::RangeInclusive<i32> = 1..=19;

/// How blocks are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// None.
    None,
    /// LZ4: a little smaller, very fast.
    Lz4,
    /// Zstandard: much smaller.
    Zstd {
        /// 1 to 19.
        level: i32,
    },
}

/// A text that is not a compression method.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("compression must be none, lz4, zstd or zstd:1 to zstd:19, not {found:?}")]
pub struct CompressionError {
    /// The text, at most 64 characters.
    pub found: String,
}

impl FromStr for Compression {
    type Err = CompressionError;

    fn from_str(text: &str) -> Result<Self, CompressionError> {
        let zstd = |level: &str| level.parse().ok().filter(|level| LEVELS.contains(level));
        match text {
            "none" => Some(Self::None),
            "lz4" => Some(Self::Lz4),
            "zstd" => Some(Self::Zstd { level: 3 }),
            other => other.strip_prefix("zstd:").and_then(zstd).map(|level| Self::Zstd { level }),
        }
        .ok_or_else(|| CompressionError { found: text.chars().take(64).collect() })
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => formatter.pad("none"),
            Self::Lz4 => formatter.pad("lz4"),
            Self::Zstd { level } => write!(formatter, "zstd:{level}"),
        }
    }
}

/// The first byte of a stored block.
pub(crate) const STORED_PLAIN: u8 = 0;
const STORED_LZ4: u8 = 1;
const STORED_ZSTD: u8 = 2;

/// Compresses block after block, with memory it keeps.
pub(crate) struct Compressor {
    kind: Compression,
    zstd: Option<zstd::bulk::Compressor<'static>>,
}

impl fmt::Debug for Compressor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Compressor").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl Compressor {
    pub(crate) fn new(kind: Compression) -> Result<Self, String> {
        let zstd = match kind {
            Compression::Zstd { level } => {
                Some(zstd::bulk::Compressor::new(level).map_err(|error| error.to_string())?)
            }
            _ => None,
        };
        Ok(Self { kind, zstd })
    }

    /// Compresses `raw` and appends it to `out`; returns how it is stored.
    pub(crate) fn compress(&mut self, raw: &[u8], out: &mut Vec<u8>) -> Result<u8, String> {
        let start = out.len();
        // Saving less than a sixteenth is not worth decompressing at every read.
        let worth = raw.len() - raw.len() / 16;
        let stored = match (self.kind, &mut self.zstd) {
            (Compression::Zstd { .. }, Some(zstd)) => {
                let bound = zstd::zstd_safe::compress_bound(raw.len());
                out.resize(start + bound, 0);
                let size = zstd
                    .compress_to_buffer(raw, &mut out[start..])
                    .map_err(|error| error.to_string())?;
                out.truncate(start + size);
                STORED_ZSTD
            }
            (Compression::Lz4, _) => {
                let bound = lz4_flex::block::get_maximum_output_size(raw.len());
                out.resize(start + bound, 0);
                let size = lz4_flex::block::compress_into(raw, &mut out[start..])
                    .map_err(|error| error.to_string())?;
                out.truncate(start + size);
                STORED_LZ4
            }
            _ => STORED_PLAIN,
        };
        if stored != STORED_PLAIN && out.len() - start <= worth {
            return Ok(stored);
        }
        out.truncate(start);
        out.extend_from_slice(raw);
        Ok(STORED_PLAIN)
    }
}

/// Reverses [`Compressor::compress`] for what begins at `start`: returns bytes that have `raw_size`
/// bytes from the returned offset on, or what is wrong. What is not compressed stays where it is.
pub(crate) fn expand(
    stored: u8,
    bytes: Vec<u8>,
    start: usize,
    raw_size: usize,
) -> Result<(Vec<u8>, usize), &'static str> {
    let compressed = bytes.get(start..).unwrap_or_default();
    let raw = match stored {
        STORED_PLAIN if compressed.len() == raw_size => return Ok((bytes, start)),
        STORED_PLAIN => return Err("it has the wrong size"),
        STORED_LZ4 => {
            let mut raw = vec![0; raw_size];
            let size = lz4_flex::block::decompress_into(compressed, &mut raw)
                .map_err(|_| "its LZ4 data cannot be decompressed")?;
            raw.truncate(size);
            raw
        }
        STORED_ZSTD => {
            thread_local! {
                static EXPANDER: std::cell::RefCell<Option<zstd::bulk::Decompressor<'static>>> =
                    const { std::cell::RefCell::new(None) };
            }
            EXPANDER.with_borrow_mut(|kept| {
                let expander = match kept {
                    Some(expander) => expander,
                    None => kept.insert(
                        zstd::bulk::Decompressor::new()
                            .map_err(|_| "there is not enough memory to decompress it")?,
                    ),
                };
                expander
                    .decompress(compressed, raw_size)
                    .map_err(|_| "its Zstandard data cannot be decompressed")
            })?
        }
        _ => return Err("its compression method is unknown"),
    };
    if raw.len() == raw_size { Ok((raw, 0)) } else { Err("it has the wrong size") }
}
