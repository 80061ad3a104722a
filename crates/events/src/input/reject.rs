//! Records that could not be parsed, and the file to which they are written.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

/// Maximum number of bytes of a record in a reject file.
pub const REJECT_RAW_MAX: usize = 64 * 1024;

/// Why a record is not an event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Reject {
    /// What is wrong, and at which byte or field.
    pub reason: Cow<'static, str>,
    /// The bytes of the element of an envelope that it is about; `None`: it is about the record.
    pub element: Option<Vec<u8>>,
}

impl Reject {
    /// A reject of a record, with its reason.
    pub fn new(reason: impl Into<Cow<'static, str>>) -> Self {
        Self { reason: reason.into(), element: None }
    }

    /// The reject of an element of a record, with its place and bytes.
    pub(super) fn of_element(self, place: impl Display, bytes: &[u8]) -> Self {
        let reason = format!("{place}: {}", self.reason).into();
        Self { reason, element: Some(bytes.to_vec()) }
    }
}

#[derive(Serialize)]
struct Row<'a> {
    line: u64,
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    raw: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    raw_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    raw_size: Option<u64>,
}

/// Writes rejected records as NDJSON: `{"line":7,"reason":"...","raw":"..."}`.
///
/// Bytes that are not UTF-8 are written in `raw_base64` instead of `raw`. Of a record longer than
/// [`REJECT_RAW_MAX`] only the beginning is written, and `raw_size` is its full size.
#[derive(Debug)]
pub struct RejectWriter<W> {
    out: W,
    count: u64,
}

impl<W: Write> RejectWriter<W> {
    /// A writer to `out`, which should be buffered.
    pub fn new(out: W) -> Self {
        Self { out, count: 0 }
    }

    /// Writes one record; `line` counts from 1.
    ///
    /// # Errors
    /// Those of the underlying writer.
    pub fn write(&mut self, line: u64, reject: &Reject, raw: &[u8]) -> io::Result<()> {
        let (kept, raw_size) = match raw.get(..REJECT_RAW_MAX) {
            Some(start) if raw.len() > REJECT_RAW_MAX => (start, Some(raw.len() as u64)),
            _ => (raw, None),
        };
        let text = match std::str::from_utf8(kept) {
            Ok(text) => Some(text),
            // Only the truncation may have split a character.
            Err(error) if raw_size.is_some() && error.error_len().is_none() => {
                kept.get(..error.valid_up_to()).and_then(|kept| std::str::from_utf8(kept).ok())
            }
            Err(_) => None,
        };
        let raw_base64 = text.is_none().then(|| STANDARD.encode(kept));
        let row = Row { line, reason: &reject.reason, raw: text, raw_base64, raw_size };
        serde_json::to_writer(&mut self.out, &row).map_err(io::Error::from)?;
        self.out.write_all(b"\n")?;
        self.count += 1;
        Ok(())
    }

    /// Records written so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Flushes the writer and returns it.
    ///
    /// # Errors
    /// Those of the underlying writer.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }
}
