//! Decompression of gzip and zstd in pieces, with limited memory.
//!
//! Invariants: a call writes at most what its output holds, whatever the input expands to; input that
//! is damaged, or ends within its data, is an error; the window of the format is limited.

use std::io;

use flate2::{Decompress, FlushDecompress, Status};
use zstd::stream::raw::{DParameter, Decoder, Operation as _};

/// Largest window of zstd, as a power of two: 8 MiB, which RFC 8878 asks every decoder to support, and
/// the most that RFC 9659 permits for HTTP.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;
/// The largest window of gzip, as a power of two.
const GZIP_WINDOW_LOG: u8 = 15;

/// How bytes are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// gzip, RFC 1952, of one or several members.
    Gzip,
    /// Zstandard, RFC 8878, of one or several frames.
    Zstd,
}

impl Compression {
    /// Returns the compression of HTTP's name for it, whose case does not matter; `None`: another.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "gzip" | "x-gzip" => Some(Self::Gzip),
            "zstd" => Some(Self::Zstd),
            _ => None,
        }
    }

    /// Its name in HTTP.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }
}

/// What a call of [`Decompressor::step`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Bytes of the input that were used.
    pub read: usize,
    /// Bytes of the output that were written.
    pub written: usize,
}

/// Decompresses input that arrives in pieces.
///
/// ```
/// use forebay_base::compression::{Compression, Decompressor};
/// let mut decompressor = Decompressor::new(Compression::Zstd)?;
/// let mut out = [0; 16];
/// // A frame with one raw block of one byte.
/// let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x20, 1, 9, 0, 0, b'x'];
/// let step = decompressor.step(&frame, &mut out)?;
/// assert_eq!((step.read, &out[..step.written]), (frame.len(), &b"x"[..]));
/// assert!(decompressor.is_complete());
/// # std::io::Result::Ok(())
/// ```
pub struct Decompressor {
    by: By,
    /// Whether the input may end here: at the end of a member or frame.
    complete: bool,
}

enum By {
    Gzip(Decompress),
    Zstd(Decoder<'static>),
}

impl std::fmt::Debug for Decompressor {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Decompressor").field("complete", &self.complete).finish()
    }
}

impl Decompressor {
    /// A decompressor that has seen nothing.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn new(compression: Compression) -> io::Result<Self> {
        let by = match compression {
            Compression::Gzip => By::Gzip(Decompress::new_gzip(GZIP_WINDOW_LOG)),
            Compression::Zstd => {
                let mut decoder = Decoder::new()?;
                decoder.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG_MAX))?;
                By::Zstd(decoder)
            }
        };
        Ok(Self { by, complete: false })
    }

    /// Whether the input may end here. It may not before its first byte.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Decompresses some of `input` into `out`. If `out` becomes full there may be more to write, even
    /// if all of the input was read.
    ///
    /// # Errors
    /// The input is damaged; the decompressor is of no more use.
    pub fn step(&mut self, input: &[u8], out: &mut [u8]) -> io::Result<Step> {
        if self.complete && input.is_empty() {
            return Ok(Step { read: 0, written: 0 });
        }
        let step = match &mut self.by {
            By::Gzip(gzip) => {
                if self.complete {
                    // Another member follows.
                    *gzip = Decompress::new_gzip(GZIP_WINDOW_LOG);
                    self.complete = false;
                }
                let before = (gzip.total_in(), gzip.total_out());
                let status = gzip.decompress(input, out, FlushDecompress::None);
                let status = status.map_err(damaged)?;
                self.complete = status == Status::StreamEnd;
                let size = |size: u64| usize::try_from(size).unwrap_or(0);
                let read = size(gzip.total_in() - before.0);
                Step { read, written: size(gzip.total_out() - before.1) }
            }
            By::Zstd(decoder) => {
                let status = decoder.run_on_buffers(input, out).map_err(damaged)?;
                self.complete = status.remaining == 0;
                Step { read: status.bytes_read, written: status.bytes_written }
            }
        };
        if step.read == 0 && step.written == 0 && !input.is_empty() && !out.is_empty() {
            return Err(damaged("no progress"));
        }
        Ok(step)
    }
}

fn damaged(reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn compressed(compression: Compression, text: &[u8]) -> Vec<u8> {
        match compression {
            Compression::Gzip => {
                let fast = flate2::Compression::fast();
                let mut to = flate2::write::GzEncoder::new(Vec::new(), fast);
                to.write_all(text).unwrap();
                to.finish().unwrap()
            }
            Compression::Zstd => zstd::encode_all(text, 1).unwrap(),
        }
    }

    /// Decompresses in pieces of these sizes; also returns whether the input may end there.
    fn decompress(
        compression: Compression,
        bytes: &[u8],
        (input, output): (usize, usize),
    ) -> io::Result<(Vec<u8>, bool)> {
        let mut decompressor = Decompressor::new(compression)?;
        let (mut all, mut out) = (Vec::new(), vec![0; output]);
        for mut piece in bytes.chunks(input) {
            loop {
                let step = decompressor.step(piece, &mut out)?;
                piece = &piece[step.read..];
                all.extend_from_slice(&out[..step.written]);
                if piece.is_empty() && step.written < output {
                    break;
                }
            }
        }
        Ok((all, decompressor.is_complete()))
    }

    #[test]
    fn pieces_of_any_size_and_several_members_give_the_whole() {
        let text: Vec<u8> = (0..50_000_u32).flat_map(|n| (n % 251).to_le_bytes()).collect();
        for compression in [Compression::Gzip, Compression::Zstd] {
            assert_eq!(Compression::from_name(compression.name()), Some(compression));
            let mut bytes = compressed(compression, &text);
            bytes.extend(compressed(compression, b"and a second one"));
            let whole = [&text[..], b"and a second one"].concat();
            for sizes in [(1, 1), (7, 4_096), (4_096, 7), (bytes.len(), 65_536)] {
                let (found, is_complete) = decompress(compression, &bytes, sizes).unwrap();
                assert!(found == whole && is_complete, "{compression:?} {sizes:?}");
            }
        }
    }

    #[test]
    fn what_is_cut_is_incomplete_and_what_is_altered_an_error() {
        let text = b"some words and some more words".repeat(50);
        for compression in [Compression::Gzip, Compression::Zstd] {
            let bytes = compressed(compression, &text);
            for cut in 0..bytes.len() {
                let (_, is_complete) = decompress(compression, &bytes[..cut], (16, 64)).unwrap();
                assert!(!is_complete, "{compression:?} cut at {cut}");
            }
            assert!(decompress(compression, &text, (16, 64)).is_err());
        }
        let mut flipped = compressed(Compression::Gzip, &text);
        let at = flipped.len() - 6;
        flipped[at] ^= 1;
        assert!(decompress(Compression::Gzip, &flipped, (16, 64)).is_err());
        assert_eq!(Compression::from_name("X-GZip"), Some(Compression::Gzip));
        assert_eq!(Compression::from_name("br"), None);
    }
}
