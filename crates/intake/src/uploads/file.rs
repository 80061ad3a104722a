//! The file of one upload: how far it is valid, and reading its frames.
//!
//! Frames up to the position that the newest header calls synced were on stable storage before that
//! header was written, so a recovery reads the payloads of later ones only. Everything after the first
//! invalid frame is cut off: it was never acknowledged, or it is damaged and has to be sent again.
//!
//! Invariants: bytes are returned only if their frame's checksums match and the frame is in its
//! place; held bytes are valid only with the accept frame after them.

use std::io;

use forebay_base::checksum::crc32c;
use forebay_base::fs::File;

use super::frame::{Begin, FrameKind, HEADER_SIZE, Header, decode_finished};
use super::{Note, UploadId};

/// Size of a header in a file.
pub(super) const HEADER: u64 = HEADER_SIZE as u64;

/// The valid part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tail {
    /// Bytes of the upload.
    pub(super) offset: u64,
    /// Where the next frame is written.
    pub(super) end: u64,
    /// Checksum of the last header.
    pub(super) chain: u32,
    /// Up to here the file is on stable storage.
    pub(super) synced: u64,
    /// When the last frame was written.
    pub(super) touched_ms: u64,
    /// Length of the upload, if it is known.
    pub(super) length: Option<u64>,
    /// What was noted with it.
    pub(super) note: Note,
}

/// The first frame of a file.
#[derive(Debug)]
pub(super) enum First {
    /// The upload takes bytes.
    Open { begin: Begin, tail: Tail },
    /// The upload was used.
    Finished { begin: Begin, result: Vec<u8>, offset: u64, touched_ms: u64 },
}

/// Reads the first frame; `None`: it is damaged.
pub(super) fn read_first(file: &dyn File, id: UploadId) -> io::Result<Option<First>> {
    let len = file.len()?;
    let Some((header, chain)) = read_header(file, len, id, 0, 0)? else { return Ok(None) };
    let Some(payload) = read_payload(file, 0, &header)? else { return Ok(None) };
    let end = HEADER + u64::from(header.payload_size);
    let touched_ms = header.time_ms;
    Ok(match header.kind {
        FrameKind::Begin => Begin::decode(&payload).ok().map(|begin| {
            let length = begin.new.length;
            let (offset, note) = (0, Note::default());
            let tail = Tail { offset, end, chain, synced: end, touched_ms, length, note };
            First::Open { begin, tail }
        }),
        FrameKind::Finished if end == len => {
            decode_finished(&payload).ok().map(|(begin, result)| First::Finished {
                begin,
                result,
                offset: header.offset,
                touched_ms,
            })
        }
        _ => None,
    })
}

/// Reads the header at `at`, which follows the header with the checksum `previous`; `None`: there is no
/// such header, or the file ends before its payload does.
pub(super) fn read_header(
    file: &dyn File,
    len: u64,
    id: UploadId,
    at: u64,
    previous: u32,
) -> io::Result<Option<(Header, u32)>> {
    let Some(left) = len.checked_sub(at).and_then(|left| left.checked_sub(HEADER)) else {
        return Ok(None);
    };
    let mut bytes = [0; HEADER_SIZE];
    file.read_exact_at(&mut bytes, at)?;
    let header = Header::decode(&bytes, id, previous);
    Ok(header.filter(|(header, _)| u64::from(header.payload_size) <= left))
}

/// Reads the payload of the header at `at`; `None`: it does not match its checksum.
pub(super) fn read_payload(
    file: &dyn File,
    at: u64,
    header: &Header,
) -> io::Result<Option<Vec<u8>>> {
    let mut payload = vec![0; usize::try_from(header.payload_size).unwrap_or(usize::MAX)];
    file.read_exact_at(&mut payload, at + HEADER)?;
    Ok((crc32c(&payload) == header.payload_crc).then_some(payload))
}

/// Finds the valid part of a file that begins with `first`.
///
/// Changes nothing. What is after it has to be cut off before more is written.
pub(super) fn scan(file: &dyn File, id: UploadId, first: Tail) -> io::Result<Tail> {
    let len = file.len()?;
    let mut synced = first.synced;
    walk(file, id, first, len, u64::MAX, |header| synced = synced.max(header.synced))?;
    walk(file, id, first, len, synced, |_| ())
}

/// Follows the frames from `first` on, and checks payloads that end after `checked_to`.
fn walk(
    file: &dyn File,
    id: UploadId,
    first: Tail,
    len: u64,
    checked_to: u64,
    mut visit: impl FnMut(&Header),
) -> io::Result<Tail> {
    let mut valid = first;
    // With held bytes that are not yet accepted it is ahead of `valid`.
    let mut at = first;
    let mut holds = false;
    while let Some((header, chain)) = read_header(file, len, id, at.end, at.chain)? {
        let size = u64::from(header.payload_size);
        let end = at.end + HEADER + size;
        if header.offset != at.offset || !follows(header.kind, holds) {
            break;
        }
        if end > checked_to || header.kind == FrameKind::Length {
            let Some(payload) = read_payload(file, at.end, &header)? else { break };
            if header.kind == FrameKind::Length {
                let Some((length, note)) = length_of(&payload) else { break };
                at.length = Some(length);
                at.note = note;
            }
        }
        visit(&header);
        if matches!(header.kind, FrameKind::Bytes | FrameKind::Held) {
            at.offset += size;
        }
        at = Tail { end, chain, touched_ms: header.time_ms, ..at };
        at.synced = at.synced.max(header.synced);
        holds = header.kind == FrameKind::Held;
        if !holds {
            valid = at;
        }
    }
    Ok(valid)
}

/// Reads the payload of a length frame; `None`: it is none.
pub(super) fn length_of(payload: &[u8]) -> Option<(u64, Note)> {
    let (length, note) = payload.split_first_chunk::<8>()?;
    Some((u64::from_le_bytes(*length), Note::new(note)?))
}

/// Whether a frame of this kind may follow; held bytes are followed by more or by their accept frame.
pub(super) fn follows(kind: FrameKind, holds: bool) -> bool {
    match kind {
        FrameKind::Begin | FrameKind::Finished => false,
        FrameKind::Held => true,
        FrameKind::Accept => holds,
        FrameKind::Bytes | FrameKind::Length => !holds,
    }
}

/// Reads the bytes of an upload in order.
#[derive(Debug)]
pub(super) struct FrameReader {
    file: std::sync::Arc<dyn File>,
    id: UploadId,
    len: u64,
    at: Tail,
    until: u64,
}

impl FrameReader {
    /// Reads the first `until` bytes of an upload; `None`: its first frame is damaged.
    pub(super) fn open(
        file: std::sync::Arc<dyn File>,
        id: UploadId,
        until: u64,
    ) -> io::Result<Option<Self>> {
        let len = file.len()?;
        Ok(match read_first(file.as_ref(), id)? {
            Some(First::Open { tail, .. }) => Some(Self { file, id, len, at: tail, until }),
            _ => None,
        })
    }

    /// Returns the next bytes; `Ok(None)` at the end, `Err(offset)` inside if they are damaged.
    pub(super) fn next(&mut self) -> io::Result<Result<Option<Vec<u8>>, u64>> {
        while self.at.offset < self.until {
            let offset = self.at.offset;
            let read =
                read_header(self.file.as_ref(), self.len, self.id, self.at.end, self.at.chain)?;
            let Some((header, chain)) = read.filter(|(header, _)| header.offset == offset) else {
                return Ok(Err(offset));
            };
            let Some(payload) = read_payload(self.file.as_ref(), self.at.end, &header)? else {
                return Ok(Err(offset));
            };
            self.at.end += HEADER + u64::from(header.payload_size);
            self.at.chain = chain;
            if matches!(header.kind, FrameKind::Bytes | FrameKind::Held) && !payload.is_empty() {
                self.at.offset += payload.len() as u64;
                return Ok(Ok(Some(payload)));
            }
        }
        Ok(if self.at.offset == self.until { Ok(None) } else { Err(self.until) })
    }
}
