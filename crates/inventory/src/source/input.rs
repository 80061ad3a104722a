//! The bytes of a file, counted and verified as they are read, and expanded when they are compressed.

use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::MultiGzDecoder;
use md5::{Digest as _, Md5};

use super::SourceError;
use super::place::Place;

/// Bytes read at once.
const READ_SIZE: usize = 128 << 10;
/// How a gzip member begins.
const GZIP: &[u8] = &[0x1f, 0x8b];
/// How a Zstandard frame begins.
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// What is said of a file by whoever names it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Expected {
    pub(crate) size: Option<u64>,
    /// In lower-case hexadecimal digits.
    pub(crate) md5: Option<String>,
}

/// A stream of bytes that are counted, and hashed when a checksum is expected.
pub(crate) struct Counted<R> {
    inner: R,
    read: Arc<AtomicU64>,
    md5: Option<Md5>,
}

impl<R: Read> Counted<R> {
    pub(crate) fn new(inner: R, expected: &Expected) -> Self {
        let md5 = expected.md5.as_ref().map(|_| Md5::new());
        Self { inner, read: Arc::default(), md5 }
    }

    /// Bytes read so far; may be looked at while somebody else reads.
    pub(crate) fn read_so_far(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.read)
    }

    /// Tells whether the bytes read are those expected. All of them must have been read.
    pub(crate) fn verify(self, file: &str, expected: &Expected) -> Result<(), SourceError> {
        let read = self.read.load(Ordering::Relaxed);
        let differs = |what, expected: String, found: String| {
            Err(SourceError::Differs { file: file.to_owned(), what, expected, found })
        };
        if let Some(size) = expected.size.filter(|&size| size != read) {
            return differs("size", size.to_string(), read.to_string());
        }
        if let (Some(md5), Some(expected)) = (self.md5, &expected.md5) {
            let found = hex(&md5.finalize());
            if found != *expected {
                return differs("MD5", expected.clone(), found);
            }
        }
        Ok(())
    }
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        if let Some(md5) = &mut self.md5 {
            md5.update(buffer.get(..count).unwrap_or_default());
        }
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

/// A file as it is before it was compressed, with gzip, Zstandard or not at all.
pub(crate) enum Expanded<R: Read> {
    Plain(BufReader<R>),
    Gzip(Box<MultiGzDecoder<BufReader<R>>>),
    Zstd(zstd::stream::read::Decoder<'static, BufReader<R>>),
}

impl<R: Read> Expanded<R> {
    /// Tells by the first bytes how the file is compressed.
    pub(crate) fn new(inner: R) -> io::Result<Self> {
        let mut inner = BufReader::with_capacity(READ_SIZE, inner);
        let first = inner.fill_buf()?;
        if first.starts_with(GZIP) {
            Ok(Self::Gzip(Box::new(MultiGzDecoder::new(inner))))
        } else if first.starts_with(ZSTD) {
            Ok(Self::Zstd(zstd::stream::read::Decoder::with_buffer(inner)?))
        } else {
            Ok(Self::Plain(inner))
        }
    }

    /// Reads what is left of the file itself, and gives it back.
    pub(crate) fn finish(self) -> io::Result<R> {
        let mut rest = match self {
            Self::Plain(inner) => inner,
            Self::Gzip(decoder) => decoder.into_inner(),
            Self::Zstd(decoder) => decoder.finish(),
        };
        io::copy(&mut rest, &mut io::sink())?;
        Ok(rest.into_inner())
    }
}

impl<R: Read> Read for Expanded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(inner) => inner.read(buffer),
            Self::Gzip(decoder) => decoder.read(buffer),
            Self::Zstd(decoder) => decoder.read(buffer),
        }
    }
}

/// Reads all of a file to tell whether it is what is expected of it; gives each piece to `take`.
pub(crate) fn verify(
    place: &Place,
    expected: &Expected,
    take: &mut dyn FnMut(&[u8]) -> Result<(), SourceError>,
) -> Result<(), SourceError> {
    let name = place.name();
    let mut reader = Counted::new(place.reader()?, expected);
    let mut buffer = vec![0; READ_SIZE];
    loop {
        let count = match reader.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(source) => {
                return Err(SourceError::Io { act: "read", path: name.into(), source });
            }
        };
        take(buffer.get(..count).unwrap_or_default())?;
    }
    reader.verify(&name, expected)
}

/// The MD5 of some bytes.
pub(crate) fn md5_hex(bytes: &[u8]) -> String {
    hex(&Md5::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble & 15)]);
    bytes.iter().flat_map(|&byte| [digit(byte >> 4), digit(byte)]).collect()
}
