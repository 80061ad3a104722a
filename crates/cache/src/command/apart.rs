//! Work that a command has done without its locks, before it runs again.
//!
//! A command that would copy or combine long strings under its locks requests the work instead
//! ([`Context::deferred`](super::Context)), changing nothing. The dispatcher releases the locks,
//! does the work, or has a thread do what takes long (`engine::aside`), and runs the command again.
//! A command uses a result only if the strings it was
//! made from are still the same; otherwise it may request the work again, for a limited number of
//! times.

use super::bits::Combination;
use crate::store::CopyAhead;

/// The work of one command, done or yet to be done.
#[derive(Debug)]
pub(crate) enum Apart {
    /// Copies a string of which a part will be overwritten.
    Copy(CopyAhead),
    /// Combines the bits of strings.
    Combine(Combination),
}

impl Apart {
    /// Bytes that the work reads.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Copy(copy) => copy.size(),
            Self::Combine(combination) => combination.size(),
        }
    }

    /// Does the work; must be called without a lock.
    pub(crate) fn run(&mut self) {
        match self {
            Self::Copy(copy) => copy.make(),
            Self::Combine(combination) => combination.run(),
        }
    }
}
