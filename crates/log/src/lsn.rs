//! Positions in the log.

use std::fmt;

/// A logical byte position: where an entry's header starts, or where the next one will.
///
/// Positions grow with every append. An acknowledged position is never used again under any
/// durability, even if a power loss removed its entry. Positions are sparse: an entry's end is not
/// always the next entry's position. `Lsn(0)` is never an entry, and is less than all entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn(pub u64);

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
