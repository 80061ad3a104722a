//! Compression of output, chunk by chunk.

use std::io::Write as _;

use flate2::write::GzEncoder;
use forebay_sdk::error::ConnectorError;

use super::settings::Compression;

/// Zstandard's level: above it, time grows faster than files shrink.
const ZSTD_LEVEL: i32 = 3;

/// Compresses text.
pub(super) enum Compress {
    Not,
    Gzip(GzEncoder<Vec<u8>>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
}

fn failed(error: std::io::Error) -> ConnectorError {
    ConnectorError::Refused { act: "compress rows".into(), source: error.into() }
}

impl Compress {
    pub(super) fn new(compression: Compression) -> Result<Self, ConnectorError> {
        Ok(match compression {
            Compression::Auto | Compression::None => Self::Not,
            Compression::Gzip => {
                Self::Gzip(GzEncoder::new(Vec::new(), flate2::Compression::default()))
            }
            Compression::Zstd => {
                let encoder = zstd::stream::write::Encoder::new(Vec::new(), ZSTD_LEVEL);
                Self::Zstd(encoder.map_err(failed)?)
            }
        })
    }

    /// The suffix of file names.
    pub(super) fn ending(compression: Compression) -> &'static str {
        match compression {
            Compression::Auto | Compression::None => "",
            Compression::Gzip => ".gz",
            Compression::Zstd => ".zst",
        }
    }

    /// Takes `text` and leaves it empty; finished output is appended to `out`.
    pub(super) fn write(
        &mut self,
        text: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<(), ConnectorError> {
        match self {
            Self::Not => out.append(text),
            Self::Gzip(encoder) => {
                encoder.write_all(text).map_err(failed)?;
                out.append(encoder.get_mut());
            }
            Self::Zstd(encoder) => {
                encoder.write_all(text).map_err(failed)?;
                out.append(encoder.get_mut());
            }
        }
        text.clear();
        Ok(())
    }

    /// Ends the file.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), ConnectorError> {
        match self {
            Self::Not => {}
            Self::Gzip(encoder) => {
                encoder.try_finish().map_err(failed)?;
                out.append(encoder.get_mut());
            }
            Self::Zstd(encoder) => {
                encoder.do_finish().map_err(failed)?;
                out.append(encoder.get_mut());
            }
        }
        Ok(())
    }
}
