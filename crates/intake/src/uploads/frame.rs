//! Frames of the file of an unfinished upload: encoding and decoding, without I/O.
//!
//! ```text
//! file    = begin frame, then bytes, accept and length frames; or one finished frame
//! frame   = header (48 bytes) | payload
//! header  = magic "FbUp" | version 1 | kind | zero (2) | payload size (4) | payload crc32c (4)
//!         | offset (8) | time (8) | synced (8) | crc of the previous header (4) | crc32c (4)
//! ```
//!
//! `docs/formats/uploads.md` describes every field.
//!
//! Invariants: decoding never panics and allocates at most the payload's own size; a header belongs
//! to one upload and follows one header, since its checksum covers the upload's id and the previous
//! checksum.

use std::collections::BTreeMap;

use forebay_base::checksum::{crc32c, extend};

use super::{NewUpload, UploadId, UploadKind};
use crate::format::{DecodeError, Decoder};

/// Number of bytes of a header.
pub(super) const HEADER_SIZE: usize = 48;
/// Maximum number of bytes of a payload.
pub(super) const PAYLOAD_SIZE_MAX: usize = 256 << 10;
/// First bytes of a header.
pub(super) const MAGIC: [u8; 4] = *b"FbUp";
const VERSION: u8 = 1;

/// What a frame means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameKind {
    /// The upload exists; always first.
    Begin,
    /// Bytes of the upload.
    Bytes,
    /// Bytes that count only once an accept frame follows: their sender's checksum is not yet known
    /// to match.
    Held,
    /// The held bytes before it match their checksum.
    Accept,
    /// The upload's length, which was not known before.
    Length,
    /// The upload was used. The file's only frame: the bytes are no longer needed.
    Finished,
}

impl FrameKind {
    fn code(self) -> u8 {
        match self {
            Self::Begin => 1,
            Self::Bytes => 2,
            Self::Held => 3,
            Self::Accept => 4,
            Self::Length => 5,
            Self::Finished => 6,
        }
    }

    fn of(code: u8) -> Option<Self> {
        [Self::Begin, Self::Bytes, Self::Held, Self::Accept, Self::Length, Self::Finished]
            .into_iter()
            .find(|kind| kind.code() == code)
    }
}

/// A frame without its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: FrameKind,
    pub(super) payload_size: u32,
    pub(super) payload_crc: u32,
    /// Offset in the upload of the payload's first byte; in frames without bytes of the upload the
    /// number of bytes before them.
    pub(super) offset: u64,
    /// When it was written, in milliseconds since 1970.
    pub(super) time_ms: u64,
    /// The file was on stable storage up to this position when the frame was written.
    pub(super) synced: u64,
}

impl Header {
    /// Encodes it.
    ///
    /// * `previous`: checksum of the previous header; 0 for the first.
    ///
    /// Returns the bytes and their checksum.
    pub(super) fn encode(&self, id: UploadId, previous: u32) -> ([u8; HEADER_SIZE], u32) {
        let mut bytes = Vec::with_capacity(HEADER_SIZE);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&[VERSION, self.kind.code(), 0, 0]);
        bytes.extend_from_slice(&self.payload_size.to_le_bytes());
        bytes.extend_from_slice(&self.payload_crc.to_le_bytes());
        bytes.extend_from_slice(&self.offset.to_le_bytes());
        bytes.extend_from_slice(&self.time_ms.to_le_bytes());
        bytes.extend_from_slice(&self.synced.to_le_bytes());
        bytes.extend_from_slice(&previous.to_le_bytes());
        let crc = extend(crc32c(&id.0), &bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        let mut header = [0; HEADER_SIZE];
        header.copy_from_slice(&bytes);
        (header, crc)
    }

    /// Decodes a header of the upload `id` that follows the header with the checksum `previous`.
    ///
    /// Returns it with its own checksum; `None`: these bytes are not such a header.
    pub(super) fn decode(
        bytes: &[u8; HEADER_SIZE],
        id: UploadId,
        previous: u32,
    ) -> Option<(Self, u32)> {
        let (covered, stored) = bytes.split_last_chunk::<4>()?;
        let crc = extend(crc32c(&id.0), covered);
        if crc.to_le_bytes() != *stored {
            return None;
        }
        let mut fields = Decoder::new(covered);
        let is_known =
            fields.array("magic").ok()? == MAGIC && fields.u8("version").ok()? == VERSION;
        let kind = FrameKind::of(fields.u8("kind").ok()?)?;
        let zero = fields.u16("zero").ok()?;
        let header = Self {
            kind,
            payload_size: fields.u32("payload size").ok()?,
            payload_crc: fields.u32("payload checksum").ok()?,
            offset: fields.u64("offset").ok()?,
            time_ms: fields.u64("time").ok()?,
            synced: fields.u64("synced").ok()?,
        };
        let follows = fields.u32("previous checksum").ok()? == previous;
        let fits = usize::try_from(header.payload_size).is_ok_and(|size| size <= PAYLOAD_SIZE_MAX);
        (is_known && zero == 0 && follows && fits).then_some((header, crc))
    }

    /// Decodes a header of the upload `id`, whatever it follows.
    pub(super) fn decode_anywhere(bytes: &[u8; HEADER_SIZE], id: UploadId) -> Option<Self> {
        let previous = bytes.get(40..44)?.try_into().ok()?;
        Self::decode(bytes, id, u32::from_le_bytes(previous)).map(|(header, _)| header)
    }
}

/// What a begin or finished frame says of an upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Begin {
    pub(super) new: NewUpload,
    pub(super) created_ms: u64,
}

impl Begin {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let (code, group, number) = match self.new.kind {
            UploadKind::Resumable => (1, UploadId::default(), 0),
            UploadKind::Partial => (2, UploadId::default(), 0),
            UploadKind::Multipart => (3, UploadId::default(), 0),
            UploadKind::Part { group, number } => (4, group, number),
            UploadKind::Final => (5, UploadId::default(), 0),
        };
        out.push(code);
        out.extend_from_slice(&group.0);
        out.extend_from_slice(&number.to_le_bytes());
        out.push(u8::from(self.new.length.is_some()));
        out.extend_from_slice(&self.new.length.unwrap_or(0).to_le_bytes());
        out.extend_from_slice(&self.created_ms.to_le_bytes());
        out.extend_from_slice(&self.new.kept_ms.to_le_bytes());
        out.extend_from_slice(&size_of_field(self.new.attributes.len()).to_le_bytes());
        for (name, value) in &self.new.attributes {
            for text in [name, value] {
                out.extend_from_slice(&size_of_field(text.len()).to_le_bytes());
                out.extend_from_slice(text.as_bytes());
            }
        }
        out
    }

    pub(super) fn decode(payload: &[u8]) -> Result<Self, DecodeError> {
        let mut fields = Decoder::new(payload);
        let begin = Self::take(&mut fields)?;
        fields.finish()?;
        Ok(begin)
    }

    fn take(fields: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let at = fields.offset();
        let code = fields.u8("kind")?;
        let group = UploadId(fields.array("group")?);
        let number = fields.u32("part number")?;
        let kind = match code {
            1 => UploadKind::Resumable,
            2 => UploadKind::Partial,
            3 => UploadKind::Multipart,
            4 => UploadKind::Part { group, number },
            5 => UploadKind::Final,
            _ => return Err(unknown("kind", at, code)),
        };
        let at = fields.offset();
        let (presence, length) = (fields.u8("presence of a length")?, fields.u64("length")?);
        let length = match presence {
            0 => None,
            1 => Some(length),
            _ => return Err(unknown("presence of a length", at, presence)),
        };
        let (created_ms, kept_ms) = (fields.u64("creation")?, fields.u64("time kept")?);
        let count = fields.u32("attribute count")?;
        let mut attributes = BTreeMap::new();
        for _ in 0..count {
            let name = text(fields, "attribute name")?;
            attributes.insert(name, text(fields, "attribute value")?);
        }
        Ok(Self { new: NewUpload { kind, length, kept_ms, attributes }, created_ms })
    }
}

/// Encodes the payload of a finished frame.
pub(super) fn encode_finished(begin: &Begin, result: &[u8]) -> Vec<u8> {
    let mut out = begin.encode();
    out.extend_from_slice(&size_of_field(result.len()).to_le_bytes());
    out.extend_from_slice(result);
    out
}

/// Decodes the payload of a finished frame.
pub(super) fn decode_finished(payload: &[u8]) -> Result<(Begin, Vec<u8>), DecodeError> {
    let mut fields = Decoder::new(payload);
    let begin = Begin::take(&mut fields)?;
    let result = fields.bytes("result")?.to_vec();
    fields.finish()?;
    Ok((begin, result))
}

fn text(fields: &mut Decoder<'_>, field: &'static str) -> Result<String, DecodeError> {
    let offset = fields.offset();
    let bytes = fields.bytes(field)?;
    let text = std::str::from_utf8(bytes).map_err(|_| DecodeError::Text { field, offset })?;
    Ok(text.to_owned())
}

fn unknown(field: &'static str, offset: usize, found: u8) -> DecodeError {
    DecodeError::Value { field, offset, found: found.into() }
}

/// A size or count in a field of 32 bits; everything here is far smaller.
fn size_of_field(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin() -> Begin {
        let attributes = [("filename", "a.txt"), ("comment", "")];
        let attributes = attributes.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let kind = UploadKind::Part { group: UploadId([7; 16]), number: 3 };
        let new = NewUpload { kind, length: Some(5), kept_ms: 9, attributes: attributes.into() };
        Begin { new, created_ms: 1 }
    }

    #[test]
    fn payloads_read_back_and_are_refused_at_every_other_length() {
        let begin = begin();
        let (plain, finished) = (begin.encode(), encode_finished(&begin, b"result"));
        assert_eq!(Begin::decode(&plain).unwrap(), begin);
        assert_eq!(decode_finished(&finished).unwrap(), (begin, b"result".to_vec()));
        for (at, _) in finished.iter().enumerate() {
            assert!(decode_finished(&finished[..at]).is_err(), "{at} bytes");
        }
        assert!(Begin::decode(&finished).is_err());
    }

    #[test]
    fn a_header_with_a_flipped_bit_of_another_upload_or_out_of_order_is_refused() {
        let id = UploadId([1; 16]);
        let header = Header {
            kind: FrameKind::Bytes,
            payload_size: 10,
            payload_crc: 11,
            offset: 12,
            time_ms: 13,
            synced: 14,
        };
        let (bytes, crc) = header.encode(id, 15);
        assert_eq!(Header::decode(&bytes, id, 15), Some((header, crc)));
        assert_eq!(Header::decode(&bytes, id, 16), None);
        assert_eq!(Header::decode(&bytes, UploadId([2; 16]), 15), None);
        for bit in 0..HEADER_SIZE * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::decode(&flipped, id, 15), None, "bit {bit}");
        }
    }
}
