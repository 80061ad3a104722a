//! Tuples as they come, for a receiver that checks them.
//!
//! A server sends every row of a COPY as a message of its own, so messages need not be searched for the ends of tuples.
//! The documentation of the protocol says so ("COPY Operations": always one message per row).
//!
//! Invariant: what is taken is all bytes of the messages in order, without the header and the trailer. Whether it is whole
//! tuples is for the receiver to check.

#![deny(clippy::indexing_slicing)]

use crate::error::DecodeError;
use crate::frame::{HEADER, TRAILER};

/// Collects the rows of the messages of a COPY, without a look at them.
///
/// ```
/// # use forebay_pgcopy::{HEADER, TRAILER, Unchecked};
/// let tuple = [0, 1, 0, 0, 0, 2, b'h', b'i'];
/// let mut unchecked = Unchecked::new(Vec::new());
/// unchecked.push(&[HEADER, &tuple].concat())?;
/// unchecked.push(&tuple)?;
/// assert_eq!(unchecked.take(0), [tuple, tuple].concat());
/// unchecked.push(TRAILER)?;
/// unchecked.finish()?;
/// assert!(unchecked.take(0).is_empty());
/// # Ok::<(), forebay_pgcopy::DecodeError>(())
/// ```
#[derive(Debug)]
pub struct Unchecked {
    has_begun: bool,
    tuples: Vec<u8>,
}

impl Unchecked {
    /// Nothing yet.
    ///
    /// * `tuples`: empty; its capacity is used.
    #[must_use]
    pub fn new(tuples: Vec<u8>) -> Self {
        Self { has_begun: false, tuples }
    }

    /// Adds a message, or several in one. The first one begins with the header.
    ///
    /// # Errors
    /// It does not, or the header has an extension, which no server sends.
    pub fn push(&mut self, message: &[u8]) -> Result<(), DecodeError> {
        let mut rows = message;
        if !self.has_begun {
            rows = message
                .strip_prefix(HEADER)
                .ok_or(DecodeError::Header("it does not begin with a header without extension"))?;
            self.has_begun = true;
        }
        self.tuples.extend_from_slice(rows);
        Ok(())
    }

    /// Size of what can be taken, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.tuples.len()
    }

    /// Takes what was added. That of the last message may only be taken after [`finish`](Self::finish): it has the trailer.
    ///
    /// * `capacity`: for what is added next, in bytes.
    pub fn take(&mut self, capacity: usize) -> Vec<u8> {
        std::mem::replace(&mut self.tuples, Vec::with_capacity(capacity))
    }

    /// Removes the trailer, after the last message.
    ///
    /// # Errors
    /// It did not come.
    pub fn finish(&mut self) -> Result<(), DecodeError> {
        if !self.tuples.ends_with(TRAILER) {
            return Err(DecodeError::Header("it does not end with its trailer"));
        }
        self.tuples.truncate(self.tuples.len() - TRAILER.len());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_without_header_or_trailer_is_an_error() {
        let mut unchecked = Unchecked::new(Vec::new());
        assert!(matches!(unchecked.push(b"PGCOPY"), Err(DecodeError::Header(_))));
        assert!(matches!(unchecked.push(&[0, 1, 0, 0, 0, 0]), Err(DecodeError::Header(_))));
        unchecked.push(HEADER).unwrap();
        assert!(matches!(unchecked.finish(), Err(DecodeError::Header(_))));
        unchecked.push(&[0, 1, 0, 0, 0, 0]).unwrap();
        assert!(matches!(unchecked.finish(), Err(DecodeError::Header(_))));
    }

    #[test]
    fn an_empty_table_has_no_tuples() {
        let mut unchecked = Unchecked::new(Vec::new());
        unchecked.push(&[HEADER, TRAILER].concat()).unwrap();
        unchecked.finish().unwrap();
        assert!(unchecked.take(0).is_empty());
    }
}
