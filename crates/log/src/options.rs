//! What a caller decides about a log.

use forebay_base::Durability;

use crate::{
    Lsn,
    error::OpenError,
    format::{FRAME_HEADER_SIZE, SEGMENT_HEADER_SIZE},
};

/// The greatest `entry_size_max` that may be asked for: 1 GiB.
pub const ENTRY_SIZE_CAP: u32 = 1 << 30;

/// The greatest `segment_size` that may be asked for: 1 TiB.
pub const SEGMENT_SIZE_CAP: u64 = 1 << 40;

/// The least `segment_size` that may be asked for: a header, one small entry and a closing mark.
pub const SEGMENT_SIZE_MIN: u64 = 256;

/// How a log is opened. Nothing here is stored: every opening may choose anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Bytes reserved for a segment file, [`SEGMENT_SIZE_MIN`]..=[`SEGMENT_SIZE_CAP`]; rounded up to a
    /// multiple of eight. An entry that does not fit gets a larger segment of its own.
    pub segment_size: u64,
    /// Most bytes in one entry's payload, 1..=[`ENTRY_SIZE_CAP`].
    pub entry_size_max: u32,
    /// Most bytes appended and not yet written. As much again may be on its way to the disk. One entry
    /// larger than this is let in when nothing else is waiting.
    pub buffer_size_max: usize,
    /// When [`Log::commit`](crate::Log::commit) and its kin acknowledge.
    pub durability: Durability,
    /// Up to where the caller knows the log was synced, from a view that remembers it; `Lsn(0)` when it
    /// knows nothing. Damage below is never taken for a torn tail, so it is reported, not cut off.
    pub known_synced: Lsn,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            segment_size: 64 << 20,
            entry_size_max: 16 << 20,
            buffer_size_max: 8 << 20,
            durability: Durability::Sync,
            known_synced: Lsn(0),
        }
    }
}

impl Options {
    /// Checks every bound and returns the options with `segment_size` rounded.
    pub(crate) fn checked(mut self) -> Result<Self, OpenError> {
        let bound = |name, min, max, found| {
            if (min..=max).contains(&found) {
                Ok(())
            } else {
                Err(OpenError::Option { name, min, max, found })
            }
        };
        bound("segment_size", SEGMENT_SIZE_MIN, SEGMENT_SIZE_CAP, self.segment_size)?;
        bound("entry_size_max", 1, u64::from(ENTRY_SIZE_CAP), u64::from(self.entry_size_max))?;
        let least = (SEGMENT_HEADER_SIZE + 2 * FRAME_HEADER_SIZE) as u64;
        bound("buffer_size_max", least, u64::from(ENTRY_SIZE_CAP), self.buffer_size_max as u64)?;
        self.segment_size = self.segment_size.next_multiple_of(8);
        Ok(self)
    }
}
