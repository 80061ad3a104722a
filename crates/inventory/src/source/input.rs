//! The bytes of a file, counted and verified as they are read, and decompressed if necessary.

use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::MultiGzDecoder;
use md5::{Digest as _, Md5};

use super::SourceError;
use super::location::FileLocation;

/// Bytes read at once.
const READ_SIZE: usize = 128 << 10;
/// Magic bytes of a gzip member.
const GZIP: &[u8] = &[0x1f, 0x8b];
/// Magic bytes of a Zstandard frame.
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// Expected properties of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Expected {
    pub(crate) size: Option<u64>,
    /// In lower-case hexadecimal digits.
    pub(crate) md5: Option<String>,
}

/// A stream that counts its bytes, and hashes them if a checksum is expected.
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

    /// Number of bytes read so far; may be read by another thread.
    pub(crate) fn read_so_far(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.read)
    }

    /// Checks the bytes read against the expected properties. All of them must have been read.
    pub(crate) fn verify(self, file: &str, expected: &Expected) -> Result<(), SourceError> {
        let read = self.read.load(Ordering::Relaxed);
        let differs = |what, expected: String, found: String| {
            Err(SourceError::Differs { file: file.to_owned(), what, expected, found })
        };
        if let Some(size) = expected.size.filter(|&size| size != read) {
            return differs("size", size.to_string(), read.to_string());
        }
        if let (Some(md5), Some(expected)) = (self.md5, &expected.md5) {
            let found = hex::encode(md5.finalize());
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

/// A decompressed file: gzip, Zstandard or uncompressed.
pub(crate) enum Expanded<R: Read> {
    Plain(BufReader<R>),
    Gzip(Box<MultiGzDecoder<BufReader<R>>>),
    Zstd(zstd::stream::read::Decoder<'static, BufReader<R>>),
}

impl<R: Read> Expanded<R> {
    /// Detects the compression from the first bytes.
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

    /// Reads the rest of the file itself, and returns it.
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

/// Reads a whole file to verify it; passes each piece to `take`.
pub(crate) fn verify(
    place: &FileLocation,
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
    hex::encode(Md5::digest(bytes))
}
