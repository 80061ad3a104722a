//! The bytes on disk; `docs/formats/log.md` describes them in full.
//!
//! ```text
//! segment file = header (64), frames, zeros
//! frame        = header (24), payload, zeros to a multiple of eight
//! ```
//!
//! Invariants:
//! - A frame's header checksum covers the log's identity and the frame's position, so bytes left by
//!   an earlier use of the disk, by another log or by another position in this one are never
//!   mistaken for it.
//! - A length is trusted only after the checksum that covers it, so a damaged length has no effect.
//! - Every frame records up to where the log was on stable storage when it was written; that is how
//!   recovery distinguishes a torn tail from damage.
//!
//! Pure: nothing here reads or writes files.

use forebay_base::checksum::{crc32c, extend};

use crate::error::Fault;

/// Size of a segment's header in bytes.
pub(crate) const SEGMENT_HEADER_SIZE: usize = 64;
/// Size of a frame's header in bytes.
pub(crate) const FRAME_HEADER_SIZE: usize = 24;
/// Alignment of frames, which makes the search for one after damage eight times shorter.
pub(crate) const ALIGNMENT: usize = 8;

const MAGIC: [u8; 8] = *b"FOREBLOG";
const VERSION: u16 = 1;

/// Returns the size in bytes of a frame with `payload_len` bytes of payload.
pub(crate) const fn frame_size(payload_len: u64) -> u64 {
    FRAME_HEADER_SIZE as u64 + payload_len.next_multiple_of(ALIGNMENT as u64)
}

/// Returns `N` bytes of `bytes` at `at`, padded with zeros.
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    if let Some(part) = bytes.get(at..at + N) {
        out.copy_from_slice(part);
    }
    out
}

/// A segment's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// Random identity of the log.
    pub(crate) log_id: [u8; 16],
    /// Position of the file's first byte.
    pub(crate) base: u64,
    /// `base` of the previous segment; its own for a log's first.
    pub(crate) prev_base: u64,
    /// Where the frames of the previous segment end; its own `base` for a log's first.
    pub(crate) prev_end: u64,
    /// Size with which the file was created; frames end before `base + size`.
    pub(crate) size: u64,
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> [u8; SEGMENT_HEADER_SIZE] {
        let mut out = [0; SEGMENT_HEADER_SIZE];
        out[0..8].copy_from_slice(&MAGIC);
        out[8..10].copy_from_slice(&VERSION.to_le_bytes());
        out[16..32].copy_from_slice(&self.log_id);
        out[32..40].copy_from_slice(&self.base.to_le_bytes());
        out[40..48].copy_from_slice(&self.prev_base.to_le_bytes());
        out[48..56].copy_from_slice(&self.prev_end.to_le_bytes());
        out[56..64].copy_from_slice(&self.size.to_le_bytes());
        let crc = Self::checksum(&out);
        out[12..16].copy_from_slice(&crc.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8; SEGMENT_HEADER_SIZE]) -> Result<Self, Fault> {
        if array(bytes, 0) != MAGIC {
            return Err(Fault::Magic);
        }
        let (expected, found) = (Self::checksum(bytes), u32::from_le_bytes(array(bytes, 12)));
        if expected != found {
            return Err(Fault::HeaderChecksum { expected, found });
        }
        let version = u16::from_le_bytes(array(bytes, 8));
        if version != VERSION {
            return Err(Fault::Version { found: version, known: VERSION });
        }
        Ok(Self {
            log_id: array(bytes, 16),
            base: u64::from_le_bytes(array(bytes, 32)),
            prev_base: u64::from_le_bytes(array(bytes, 40)),
            prev_end: u64::from_le_bytes(array(bytes, 48)),
            size: u64::from_le_bytes(array(bytes, 56)),
        })
    }

    /// Covers everything except the checksum itself.
    fn checksum(bytes: &[u8; SEGMENT_HEADER_SIZE]) -> u32 {
        let (before, after) = bytes.split_at(12);
        extend(crc32c(before), after.get(4..).unwrap_or_default())
    }
}

/// The kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// An entry with its payload.
    Entry = 1,
    /// An entry whose payload was erased, or a run of them: the positions remain, as a hole.
    Erased = 2,
    /// The log was closed here with everything before on stable storage.
    Close = 3,
}

impl Kind {
    fn decode(byte: u8) -> Result<Self, Fault> {
        match byte {
            1 => Ok(Self::Entry),
            2 => Ok(Self::Erased),
            3 => Ok(Self::Close),
            kind => Err(Fault::Kind { kind }),
        }
    }
}

/// A frame's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) kind: Kind,
    /// Size of the payload in bytes, without padding.
    pub(crate) payload_len: u32,
    /// Checksum of the payload and its padding; for an erased frame, the number of entries in it
    /// beyond the first.
    pub(crate) payload_crc: u32,
    /// The log was on stable storage up to here when the frame was written.
    pub(crate) synced: u64,
}

/// A log's identity, hashed for use in every frame's checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seed(u32);

impl Seed {
    pub(crate) fn new(log_id: &[u8; 16]) -> Self {
        Self(crc32c(log_id))
    }

    fn checksum(self, lsn: u64, header: &[u8; FRAME_HEADER_SIZE]) -> u32 {
        let bound = extend(self.0, &lsn.to_le_bytes());
        extend(bound, header.get(4..).unwrap_or_default())
    }
}

impl FrameHeader {
    /// Size of the whole frame in bytes.
    pub(crate) fn size(&self) -> u64 {
        frame_size(u64::from(self.payload_len))
    }

    /// Returns the header that remains when this entry's payload is erased.
    pub(crate) fn erased(self) -> Self {
        Self { kind: Kind::Erased, payload_crc: 0, ..self }
    }

    /// Number of entries in an erased frame; 0 for any other frame.
    pub(crate) fn entries_erased(&self) -> u64 {
        if self.kind == Kind::Erased { u64::from(self.payload_crc) + 1 } else { 0 }
    }

    /// Returns one erased frame for this one and `next`, which directly follows it.
    ///
    /// `None` if either is not erased, or if their total length exceeds the maximum.
    pub(crate) fn join(&self, next: &Self) -> Option<Self> {
        if self.kind != Kind::Erased || next.kind != Kind::Erased {
            return None;
        }
        let payload_len = self.size() + next.size() - FRAME_HEADER_SIZE as u64;
        let swallowed = self.entries_erased() + next.entries_erased() - 1;
        Some(Self {
            payload_len: u32::try_from(payload_len).ok()?,
            payload_crc: u32::try_from(swallowed).ok()?,
            ..*self
        })
    }

    /// Whether an entry may have started at `inside`, within this erased frame at `lsn`.
    ///
    /// A run does not record where its entries began, so every position where one could have begun
    /// counts.
    pub(crate) fn swallowed(&self, lsn: u64, inside: u64) -> bool {
        const LEAST: u64 = FRAME_HEADER_SIZE as u64;
        self.entries_erased() > 1
            && inside.is_multiple_of(ALIGNMENT as u64)
            && inside >= lsn + LEAST
            && inside + LEAST <= lsn + self.size()
    }

    pub(crate) fn encode(&self, seed: Seed, lsn: u64) -> [u8; FRAME_HEADER_SIZE] {
        let mut out = [0; FRAME_HEADER_SIZE];
        out[4..8].copy_from_slice(&self.payload_crc.to_le_bytes());
        out[8..12].copy_from_slice(&self.payload_len.to_le_bytes());
        out[12] = self.kind as u8;
        out[16..24].copy_from_slice(&self.synced.to_le_bytes());
        let crc = seed.checksum(lsn, &out);
        out[0..4].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Decodes the header at position `lsn`.
    pub(crate) fn decode(
        bytes: &[u8; FRAME_HEADER_SIZE],
        seed: Seed,
        lsn: u64,
    ) -> Result<Self, Fault> {
        let (expected, found) = (seed.checksum(lsn, bytes), u32::from_le_bytes(array(bytes, 0)));
        if expected != found {
            return Err(Fault::FrameHeader { expected, found });
        }
        let [kind, reserved @ ..] = array::<4>(bytes, 12);
        let header = Self {
            kind: Kind::decode(kind)?,
            payload_len: u32::from_le_bytes(array(bytes, 8)),
            payload_crc: u32::from_le_bytes(array(bytes, 4)),
            synced: u64::from_le_bytes(array(bytes, 16)),
        };
        if let Some(kind) = reserved.into_iter().find(|byte| *byte != 0) {
            return Err(Fault::Kind { kind });
        }
        if header.kind == Kind::Close && header.payload_len != 0 {
            return Err(Fault::Mark { len: header.payload_len });
        }
        let (entries, size) = (header.entries_erased(), header.size());
        if entries > size / FRAME_HEADER_SIZE as u64 {
            return Err(Fault::Run { entries, size });
        }
        Ok(header)
    }

    /// Returns whether `bytes` could be a header that proves the log was synced beyond `beyond`.
    ///
    /// Far cheaper than [`FrameHeader::decode`], which must confirm it: it rejects zeros and nearly
    /// all payload bytes.
    pub(crate) fn plausible(bytes: &[u8; FRAME_HEADER_SIZE], lsn: u64, beyond: u64) -> bool {
        let synced = u64::from_le_bytes(array(bytes, 16));
        matches!(array(bytes, 12), [1..=3, 0, 0, 0]) && synced > beyond && synced <= lsn
    }
}

#[cfg(test)]
mod tests;
