//! Compressed inputs: gzip and zstd, by their first bytes or a content encoding.
//!
//! Invariants: an input that is recognised as compressed or as another binary format is
//! decompressed or refused, never stored as noise; at most [`CHUNK_SIZE`] bytes and the window of
//! the format are held, and no more than the caller's limit comes out.

use std::io::{self, Read};

use forebay_base::compression::{Compression, Decompressor, Step};

/// Maximum number of decompressed bytes passed on at a time.
const CHUNK_SIZE: usize = 64 * 1024;

/// How an input is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// gzip, RFC 1952, of one or several members.
    Gzip,
    /// Zstandard, RFC 8878, of one or several frames.
    Zstd,
}

/// Why an input cannot be decompressed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EncodingError {
    /// The input is in a binary format that holds no lines.
    #[error("the input is {format}, not log records; {hint}")]
    Binary {
        /// What it is.
        format: &'static str,
        /// What to do.
        hint: &'static str,
    },
    /// The name of the encoding is not known.
    #[error("the encoding {found:?} is not supported; use gzip, zstd or identity")]
    Unknown {
        /// The name, at most 64 characters of it.
        found: String,
    },
    /// The compressed data is damaged.
    #[error("the {name} data is damaged after {at} decompressed bytes")]
    Damaged {
        /// The name of the encoding.
        name: &'static str,
        /// Bytes that were decompressed before.
        at: u64,
        /// The library's reason.
        #[source]
        source: io::Error,
    },
    /// The data ends too early.
    #[error("the {name} data ends early, after {at} decompressed bytes")]
    Truncated {
        /// The name of the encoding.
        name: &'static str,
        /// Bytes that were decompressed before.
        at: u64,
    },
    /// More comes out than is allowed.
    #[error("the decompressed data exceeds {limit} bytes")]
    TooLarge {
        /// The limit.
        limit: u64,
    },
}

/// Formats whose records are no lines, by their first bytes.
const BINARY: [(&[u8], &str, &str); 11] = [
    (b"\xff\xfe", "text in UTF-16", "convert it to UTF-8 first"),
    (b"\xfe\xff", "text in UTF-16", "convert it to UTF-8 first"),
    (b"BZh", "compressed with bzip2", "decompress it first"),
    (b"\xfd7zXZ\x00", "compressed with xz", "decompress it first"),
    (b"\x04\x22\x4d\x18", "compressed with lz4", "decompress it first"),
    (b"PK\x03\x04", "a ZIP archive", "unpack it first"),
    (b"PAR1", "a Parquet file", "convert it to NDJSON first"),
    (b"ElfFile\x00", "a Windows event log (EVTX)", "convert it to XML or JSON first"),
    (b"LPKSHHRH", "a file of systemd-journald", "export it with journalctl -o json"),
    (b"__CURSOR=", "in the export format of journald", "export it with journalctl -o json"),
    (b"SQLite format 3\x00", "an SQLite database", "export it to NDJSON first"),
];

impl Encoding {
    /// Number of first bytes that [`detect`](Self::detect) needs.
    pub const MAGIC_SIZE: usize = 16;

    /// Returns the encoding of an input that begins with these bytes; `None`: it is not
    /// compressed.
    ///
    /// # Errors
    /// [`EncodingError::Binary`]: it is of a format that cannot be read.
    pub fn detect(begin: &[u8]) -> Result<Option<Self>, EncodingError> {
        if begin.starts_with(b"\x1f\x8b\x08") {
            return Ok(Some(Self::Gzip));
        }
        if begin.starts_with(b"\x28\xb5\x2f\xfd") {
            return Ok(Some(Self::Zstd));
        }
        match BINARY.iter().find(|(magic, ..)| begin.starts_with(magic)) {
            Some((_, format, hint)) => Err(EncodingError::Binary { format, hint }),
            None => Ok(None),
        }
    }

    /// Returns the encoding of HTTP's name for it; `None`: `identity`.
    ///
    /// # Errors
    /// [`EncodingError::Unknown`].
    pub fn from_name(name: &str) -> Result<Option<Self>, EncodingError> {
        let name = name.trim();
        if name.is_empty() || name.eq_ignore_ascii_case("identity") {
            return Ok(None);
        }
        match Compression::from_name(name) {
            Some(Compression::Gzip) => Ok(Some(Self::Gzip)),
            Some(Compression::Zstd) => Ok(Some(Self::Zstd)),
            None => Err(EncodingError::Unknown { found: name.chars().take(64).collect() }),
        }
    }

    const fn compression(self) -> Compression {
        match self {
            Self::Gzip => Compression::Gzip,
            Self::Zstd => Compression::Zstd,
        }
    }

    const fn name(self) -> &'static str {
        self.compression().name()
    }

    /// Returns a reader of the decompressed bytes of `input`.
    ///
    /// # Errors
    /// The decompressor cannot be created.
    pub fn reader<'a>(self, input: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
        Ok(match self {
            Self::Gzip => Box::new(flate2::read::MultiGzDecoder::new(input)),
            Self::Zstd => Box::new(zstd::Decoder::new(input)?),
        })
    }
}

/// A decompressor of an input that arrives in pieces.
#[derive(Debug)]
pub struct Inflater {
    encoding: Encoding,
    decompressor: Decompressor,
    chunk: Vec<u8>,
    limit: u64,
    size: u64,
}

impl Inflater {
    /// Returns a decompressor of at most `limit` bytes of output.
    ///
    /// # Errors
    /// The decompressor cannot be created.
    pub fn new(encoding: Encoding, limit: u64) -> io::Result<Self> {
        let decompressor = Decompressor::new(encoding.compression())?;
        Ok(Self { encoding, decompressor, chunk: vec![0; CHUNK_SIZE], limit, size: 0 })
    }

    /// Decompresses a piece of the input, and passes what comes out to `take` in order.
    ///
    /// # Errors
    /// The inner error is that of `take`. After an error the decompressor is of no more use.
    pub fn feed<E>(
        &mut self,
        mut piece: &[u8],
        take: &mut dyn FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<Result<(), E>, EncodingError> {
        loop {
            let step = self.decompressor.step(piece, &mut self.chunk);
            let Step { read, written } = step.map_err(|source| EncodingError::Damaged {
                name: self.encoding.name(),
                at: self.size,
                source,
            })?;
            piece = piece.get(read..).unwrap_or_default();
            self.size += written as u64;
            if self.size > self.limit {
                return Err(EncodingError::TooLarge { limit: self.limit });
            }
            let out = self.chunk.get(..written).unwrap_or_default();
            if !out.is_empty()
                && let Err(error) = take(out)
            {
                return Ok(Err(error));
            }
            // A full chunk may hide more that is ready.
            if written < CHUNK_SIZE && piece.is_empty() {
                return Ok(Ok(()));
            }
        }
    }

    /// Ends the input.
    ///
    /// # Errors
    /// [`EncodingError::Truncated`]: it ends within its data.
    pub fn finish(&self) -> Result<(), EncodingError> {
        match self.decompressor.is_complete() {
            true => Ok(()),
            false => Err(EncodingError::Truncated { name: self.encoding.name(), at: self.size }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut to = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        to.write_all(text).unwrap();
        to.finish().unwrap()
    }

    fn compressed(encoding: Encoding, text: &[u8]) -> Vec<u8> {
        match encoding {
            Encoding::Gzip => gzip(text),
            Encoding::Zstd => zstd::encode_all(text, 1).unwrap(),
        }
    }

    fn inflate(
        encoding: Encoding,
        bytes: &[u8],
        size: usize,
        limit: u64,
    ) -> Result<Vec<u8>, String> {
        let mut inflater = Inflater::new(encoding, limit).unwrap();
        let mut out = Vec::new();
        for piece in bytes.chunks(size) {
            let mut take = |bytes: &[u8]| {
                out.extend_from_slice(bytes);
                Ok::<(), ()>(())
            };
            inflater.feed(piece, &mut take).map_err(|error| error.to_string())?.unwrap();
        }
        inflater.finish().map_err(|error| error.to_string())?;
        Ok(out)
    }

    #[test]
    fn pieces_of_any_size_and_several_members_give_the_whole() {
        let text: Vec<u8> = (0..300_000u32).flat_map(|n| (n % 251).to_le_bytes()).collect();
        for encoding in [Encoding::Gzip, Encoding::Zstd] {
            let mut bytes = compressed(encoding, &text);
            assert_eq!(Encoding::detect(&bytes).unwrap(), Some(encoding));
            bytes.extend(compressed(encoding, b"and a second one"));
            let whole = [&text[..], b"and a second one"].concat();
            for size in [1, 7, 4096, bytes.len()] {
                assert!(
                    inflate(encoding, &bytes, size, u64::MAX).unwrap() == whole,
                    "{encoding:?}"
                );
            }
            let mut read = Vec::new();
            encoding.reader(&bytes[..]).unwrap().read_to_end(&mut read).unwrap();
            assert!(read == whole);
        }
    }

    #[test]
    fn damage_truncation_and_expansion_are_errors() {
        for encoding in [Encoding::Gzip, Encoding::Zstd] {
            let bytes = compressed(encoding, &vec![b'x'; 3_000_000]);
            let cut = inflate(encoding, &bytes[..bytes.len() - 3], 1000, u64::MAX).unwrap_err();
            assert!(cut.contains("ends early"), "{cut}");
            let large = inflate(encoding, &bytes, 1000, 1_000_000).unwrap_err();
            assert!(large.contains("exceeds 1000000 bytes"), "{large}");
            let mut bad = bytes.clone();
            bad.truncate(12);
            bad.extend_from_slice(&[0xff; 64]);
            assert!(inflate(encoding, &bad, 1000, u64::MAX).is_err());
        }
    }

    #[test]
    fn other_binary_formats_are_refused_and_text_is_text() {
        for bytes in [&b"BZh91AY"[..], b"PK\x03\x04x", b"PAR1", b"ElfFile\x00x"] {
            assert!(Encoding::detect(bytes).is_err());
        }
        assert!(matches!(Encoding::detect(b"{\"a\":1}"), Ok(None)));
        assert!(matches!(Encoding::detect(b""), Ok(None)));
        assert_eq!(Encoding::from_name("GZIP").unwrap(), Some(Encoding::Gzip));
        assert_eq!(Encoding::from_name("identity").unwrap(), None);
        assert!(Encoding::from_name("gzip, gzip").is_err() && Encoding::from_name("br").is_err());
    }
}
