//! Positions in the log.

use std::fmt;

/// A logical byte position: where an entry's header stands, or where the next one will.
///
/// Positions grow with every append. One that was acknowledged, under whatever durability, is never
/// used again, not even after a power loss took its entry away. They are sparse: an entry's end is not always the next entry's position.
/// `Lsn(0)` is never an entry, and lies before all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn(pub u64);

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
