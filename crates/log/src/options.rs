//! Options of a log.

use forebay_base::Durability;

use crate::{
    Lsn,
    error::OpenError,
    format::{FRAME_HEADER_SIZE, SEGMENT_HEADER_SIZE},
};

/// Maximum value of `entry_size_max`: 1 GiB.
pub const ENTRY_SIZE_CAP: u32 = 1 << 30;

/// Maximum value of `segment_size`: 1 TiB.
pub const SEGMENT_SIZE_CAP: u64 = 1 << 40;

/// Minimum value of `segment_size`: a header, one small entry and a closing mark.
pub const SEGMENT_SIZE_MIN: u64 = 256;

/// Options of an open log. None of them is stored: each opening may use others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Bytes reserved for a segment file, [`SEGMENT_SIZE_MIN`]..=[`SEGMENT_SIZE_CAP`]; rounded up
    /// to a multiple of eight. An entry that does not fit gets a larger, separate segment.
    pub segment_size: u64,
    /// Maximum size in bytes of an entry's payload, 1..=[`ENTRY_SIZE_CAP`].
    pub entry_size_max: u32,
    /// Maximum size in bytes of appended data that is not yet written. The same amount may be being
    /// written. A larger entry is accepted if nothing else is waiting.
    pub buffer_size_max: usize,
    /// When [`Log::commit`](crate::Log::commit) and related methods acknowledge.
    pub durability: Durability,
    /// The position up to which the caller knows the log was synced, from a view that stores it;
    /// `Lsn(0)` if it knows nothing. Damage below is never treated as a torn tail: it is reported,
    /// not cut off.
    pub known_synced: Lsn,
    /// Whether a write that failed for lack of space or of descriptors is kept and tried again,
    /// instead of closing the log: see [`CommitError::Stalled`](crate::CommitError::Stalled). False
    /// by default.
    ///
    /// With this option the caller must append nothing while the log is stalled, except for
    /// operations in progress: the limit of the buffer does not apply then.
    pub hold_when_full: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            segment_size: 64 << 20,
            entry_size_max: 16 << 20,
            buffer_size_max: 8 << 20,
            durability: Durability::Sync,
            known_synced: Lsn(0),
            hold_when_full: false,
        }
    }
}

impl Options {
    /// Checks every limit and returns the options with `segment_size` rounded.
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
