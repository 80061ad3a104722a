//! The bytes on disk; `docs/formats/log.md` describes them in full.
//!
//! ```text
//! segment file = header (64), frames, zeros
//! frame        = header (24), payload, zeros to a multiple of eight
//! ```
//!
//! Invariants:
//! - A frame's header checksum covers the log's identity and the frame's position, so bytes left by an
//!   earlier use of the disk, by another log or by another place in this one are never taken for it.
//! - A length is believed only after the checksum that covers it, so no damaged length is acted upon.
//! - Every frame says up to where the log was on stable storage when it was written; that is how
//!   recovery tells a torn tail from damage.
//!
//! Pure: nothing here reads or writes files.

use forebay_base::checksum::{crc32c, extend};

use crate::error::Fault;

/// Bytes of a segment's header.
pub(crate) const SEGMENT_HEADER_SIZE: usize = 64;
/// Bytes of a frame's header.
pub(crate) const FRAME_HEADER_SIZE: usize = 24;
/// Frames start at multiples of this, which makes the search for one after damage eight times shorter.
pub(crate) const ALIGNMENT: usize = 8;

const MAGIC: [u8; 8] = *b"FOREBLOG";
const VERSION: u16 = 1;

/// Returns the bytes a frame with `payload_len` bytes of payload takes.
pub(crate) const fn frame_size(payload_len: u64) -> u64 {
    FRAME_HEADER_SIZE as u64 + payload_len.next_multiple_of(ALIGNMENT as u64)
}

/// Returns `N` bytes of `bytes` at `at`, zeros where there are none.
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
    /// `base` of the segment before; its own for a log's first.
    pub(crate) prev_base: u64,
    /// Where the frames of the segment before end; its own `base` for a log's first.
    pub(crate) prev_end: u64,
    /// Bytes the file was made with; frames end before `base + size`.
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

    /// Covers everything but the four bytes it is stored in.
    fn checksum(bytes: &[u8; SEGMENT_HEADER_SIZE]) -> u32 {
        let (before, after) = bytes.split_at(12);
        extend(crc32c(before), after.get(4..).unwrap_or_default())
    }
}

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// An entry with its payload.
    Entry = 1,
    /// An entry whose payload was erased, or a run of them: the place remains, as a hole.
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
    /// Bytes of payload, padding not counted.
    pub(crate) payload_len: u32,
    /// Checksum of the payload and its padding; of an erased frame, how many entries it stands for
    /// beyond the first.
    pub(crate) payload_crc: u32,
    /// The log was on stable storage up to here when the frame was written.
    pub(crate) synced: u64,
}

/// A log's identity, digested for use in every frame's checksum.
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
    /// Bytes of the whole frame.
    pub(crate) fn size(&self) -> u64 {
        frame_size(u64::from(self.payload_len))
    }

    /// Returns what remains of this entry when its payload is erased.
    pub(crate) fn erased(self) -> Self {
        Self { kind: Kind::Erased, payload_crc: 0, ..self }
    }

    /// How many entries an erased frame stands for; none for any other.
    pub(crate) fn entries_erased(&self) -> u64 {
        if self.kind == Kind::Erased { u64::from(self.payload_crc) + 1 } else { 0 }
    }

    /// Returns one erased frame for this one and `next`, which stands right behind it.
    ///
    /// `None` when either is not erased, or together they are longer than a length can say.
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

    /// Whether an entry may have stood at `inside`, of which this erased frame at `lsn` took the place.
    ///
    /// Where entries began within a run is not kept, so every place where one could have counts.
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

    /// Reads a header that stands at `lsn`.
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
    /// Far cheaper than [`FrameHeader::decode`], which must confirm it: it turns away zeros and nearly
    /// all payload bytes.
    pub(crate) fn plausible(bytes: &[u8; FRAME_HEADER_SIZE], lsn: u64, beyond: u64) -> bool {
        let synced = u64::from_le_bytes(array(bytes, 16));
        matches!(array(bytes, 12), [1..=3, 0, 0, 0]) && synced > beyond && synced <= lsn
    }
}

#[cfg(test)]
mod tests;
