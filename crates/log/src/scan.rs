//! What follows the last whole frame: nothing, a torn tail, or proof of damage.
//!
//! A crash may leave anything in the part of a log that was never synced, so an unreadable frame
//! there is not damage: the log ends before it. Damage is an unreadable frame that *was* synced.
//! The proof is a later frame, because every frame records the position up to which the log was on
//! stable storage when the frame was written.
//!
//! Invariant: memory is limited to two chunks, or one candidate's payload, read in chunks.

use std::sync::Arc;

use forebay_base::{checksum::extend, fs::File};

use crate::{
    cursor::CHUNK_SIZE,
    format::{ALIGNMENT, FRAME_HEADER_SIZE, FrameHeader, Kind, Seed},
};

/// The result of scanning after the last whole frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Rest {
    /// A whole frame at this position proves that the log was synced beyond the start of the
    /// search.
    pub(crate) witness: Option<u64>,
    /// Position after the last byte that is not zero; the start of the search if all are zero.
    pub(crate) used_end: u64,
}

/// The file searched.
pub(crate) struct Scan<'a> {
    pub(crate) file: &'a Arc<dyn File>,
    pub(crate) seed: Seed,
    pub(crate) base: u64,
    /// Where frames must end.
    pub(crate) limit: u64,
}

impl Scan<'_> {
    /// Searches from `from` for a whole frame that records that the log was synced beyond `beyond`.
    pub(crate) fn rest(&self, from: u64, beyond: u64) -> std::io::Result<Rest> {
        let mut rest = Rest { witness: None, used_end: from };
        // A header may cross from one chunk to the next, so chunks overlap by one.
        let mut chunk = vec![0; CHUNK_SIZE + FRAME_HEADER_SIZE];
        let mut at = from;
        while at < self.limit {
            let want = usize::try_from(self.limit - at).unwrap_or(usize::MAX).min(chunk.len());
            let bytes = &mut chunk[..want];
            self.file.read_exact_at(bytes, at - self.base)?;
            if let Some(last) = last_nonzero(bytes) {
                rest.used_end = rest.used_end.max(at + last as u64 + 1);
                if rest.witness.is_none() {
                    rest.witness = self.witness_in(bytes, at, beyond)?;
                }
            }
            at += CHUNK_SIZE as u64;
        }
        Ok(rest)
    }

    /// Searches one chunk whose first byte is at position `at`.
    fn witness_in(&self, bytes: &[u8], at: u64, beyond: u64) -> std::io::Result<Option<u64>> {
        for start in (0..CHUNK_SIZE.min(bytes.len())).step_by(ALIGNMENT) {
            let Some(header) =
                bytes.get(start..).and_then(|rest| rest.first_chunk::<FRAME_HEADER_SIZE>())
            else {
                break;
            };
            let lsn = at + start as u64;
            if FrameHeader::plausible(header, lsn, beyond)
                && let Ok(header) = FrameHeader::decode(header, self.seed, lsn)
                && self.is_whole(lsn, &header)?
            {
                return Ok(Some(lsn));
            }
        }
        Ok(None)
    }

    /// Whether the frame's payload is complete too.
    fn is_whole(&self, lsn: u64, header: &FrameHeader) -> std::io::Result<bool> {
        let Some(end) = lsn.checked_add(header.size()).filter(|end| *end <= self.limit) else {
            return Ok(false);
        };
        if header.kind != Kind::Entry {
            return Ok(true);
        }
        let mut at = lsn + FRAME_HEADER_SIZE as u64;
        let mut chunk = vec![0; CHUNK_SIZE.min(usize::try_from(end - at).unwrap_or(CHUNK_SIZE))];
        let mut crc = 0;
        while at < end {
            let want = usize::try_from(end - at).unwrap_or(usize::MAX).min(chunk.len());
            let bytes = &mut chunk[..want];
            self.file.read_exact_at(bytes, at - self.base)?;
            crc = extend(crc, bytes);
            at += want as u64;
        }
        Ok(crc == header.payload_crc)
    }
}

/// The position of the last non-zero byte. Most of the input is a reserved end, all zero, so whole
/// cache lines are checked at once.
fn last_nonzero(bytes: &[u8]) -> Option<usize> {
    const LINE: usize = 64;
    let whole = bytes.len() / LINE * LINE;
    let (lines, rest) = bytes.split_at(whole);
    if let Some(last) = rest.iter().rposition(|byte| *byte != 0) {
        return Some(whole + last);
    }
    let used = |line: &[u8]| line.iter().fold(0, |all, byte| all | byte) != 0;
    let line = lines.chunks_exact(LINE).rposition(used)?;
    let start = line * LINE;
    lines.get(start..start + LINE)?.iter().rposition(|byte| *byte != 0).map(|last| start + last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_used_byte_is_found_wherever_it_lies() {
        assert_eq!(last_nonzero(&[0; 200]), None);
        assert_eq!(last_nonzero(&[]), None);
        for place in [0, 1, 63, 64, 127, 128, 199] {
            let mut bytes = [0; 200];
            bytes[0] = 1;
            bytes[place] = 1;
            assert_eq!(last_nonzero(&bytes), Some(place));
        }
    }
}
