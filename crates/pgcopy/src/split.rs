//! The splitter: unchanged tuples, counted and hashed, for a path that never looks inside.
//!
//! Invariant: what it appends is whole tuples, and its hash has exactly those.

#![deny(clippy::indexing_slicing)]

use crate::error::DecodeError;
use crate::frame::{Framer, Sink};
use crate::hash::ContentHash;

/// Cuts a stream of binary COPY into whole tuples, and hashes them.
///
/// ```
/// # use forebay_pgcopy::{HEADER, TRAILER, Splitter};
/// let tuple = [0, 1, 0, 0, 0, 2, b'h', b'i'];
/// let (mut splitter, mut out) = (Splitter::new(), Vec::new());
/// splitter.push(HEADER, &mut out)?;
/// splitter.push(&tuple[..5], &mut out)?;
/// assert!(out.is_empty());
/// splitter.push(&tuple[5..], &mut out)?;
/// splitter.push(TRAILER, &mut out)?;
/// assert_eq!(out, tuple);
/// assert_eq!(splitter.take_hash().rows, 1);
/// assert!(splitter.is_finished());
/// # Ok::<(), forebay_pgcopy::DecodeError>(())
/// ```
#[derive(Debug)]
pub struct Splitter {
    framer: Framer,
    hash: ContentHash,
}

struct Out<'a> {
    hash: &'a mut ContentHash,
    out: &'a mut Vec<u8>,
}

impl Sink for Out<'_> {
    #[inline]
    fn tuple(&mut self, _: u64, tuple: &[u8]) -> Result<(), DecodeError> {
        self.hash.add(tuple);
        Ok(())
    }

    fn run(&mut self, tuples: &[u8]) {
        self.out.extend_from_slice(tuples);
    }
}

impl Splitter {
    /// A splitter that expects the stream's header first.
    #[must_use]
    pub fn new() -> Self {
        Self { framer: Framer::new(true, None), hash: ContentHash::default() }
    }

    /// Takes bytes cut anywhere, and appends the tuples that are whole to `out`.
    ///
    /// # Errors
    /// The stream is not binary COPY, its tuples differ in their count of fields, or bytes follow the
    /// trailer. Nothing is taken after an error.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), DecodeError> {
        self.framer.push(bytes, &mut Out { hash: &mut self.hash, out })
    }

    /// The hash of the tuples since it was last taken.
    pub fn take_hash(&mut self) -> ContentHash {
        std::mem::take(&mut self.hash)
    }

    /// Whole tuples so far.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.framer.rows()
    }

    /// Whether the trailer came.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.framer.is_finished()
    }

    /// Ends the stream.
    ///
    /// # Errors
    /// [`DecodeError::Unfinished`] where its trailer did not come.
    pub fn finish(self) -> Result<(), DecodeError> {
        self.framer.end()
    }
}

/// The content hash of whole tuples, without header and trailer.
///
/// * `columns`: number of fields of each.
///
/// # Errors
/// They are not whole, or have another number of fields.
pub fn hash_tuples(tuples: &[u8], columns: u16) -> Result<ContentHash, DecodeError> {
    struct Hashes(ContentHash);

    impl Sink for Hashes {
        #[inline]
        fn tuple(&mut self, _: u64, tuple: &[u8]) -> Result<(), DecodeError> {
            self.0.add(tuple);
            Ok(())
        }

        fn run(&mut self, _: &[u8]) {}
    }

    let (mut framer, mut hashes) =
        (Framer::new(false, Some(columns)), Hashes(ContentHash::default()));
    framer.push(tuples, &mut hashes)?;
    framer.end()?;
    Ok(hashes.0)
}

impl Default for Splitter {
    fn default() -> Self {
        Self::new()
    }
}
