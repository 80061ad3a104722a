//! Work that a command has done without its locks, before it runs again.
//!
//! A command that would copy or combine long strings under its locks, or read a very long one on the
//! thread of its connection, requests the work instead
//! ([`Context::deferred`](super::Context)), changing nothing. The dispatcher releases the locks,
//! does the work, or has a thread do what takes long (`engine::aside`), and runs the command again.
//! A command uses a result only if the strings it was
//! made from are still the same; otherwise it may request the work again, for a limited number of
//! times.

use std::ops::Range;

use super::bits::Combination;
use crate::resp::{Proto, Reply};
use crate::store::{CopyAhead, Preparation, SharedText};

/// Size in bytes from which a part of a string is made a reply by the thread for long work: that takes
/// some 0.4 ms a megabyte, and others are served meanwhile.
pub(super) const REPLY_MIN: usize = 8 << 20;
/// Size in bytes from which a compressed string is decompressed by that thread to read a part of it.
pub(super) const DECOMPRESSED_MIN: usize = 1 << 20;

/// The work of one command, done or yet to be done.
#[derive(Debug)]
pub(crate) enum Apart {
    /// Copies a string of which a part will be overwritten.
    Copy(CopyAhead),
    /// Combines the bits of strings.
    Combine(Combination),
    /// Makes a part of a string a reply.
    Reply(LongReply),
    /// Compresses or copies values that will be stored, before the command runs.
    Prepare(Preparation),
}

/// A part of a long string as a reply, made or yet to be made.
#[derive(Debug)]
pub(crate) struct LongReply {
    source: SharedText,
    range: Range<usize>,
    made: Option<Vec<u8>>,
}

impl LongReply {
    pub(super) fn new(source: SharedText, range: Range<usize>) -> Self {
        Self { source, range, made: None }
    }

    fn make(&mut self) {
        let mut reply = Reply::new(Proto::Resp2);
        let (text, range) = (self.source.text(), self.range.clone());
        // A bulk string is the same in both versions of the protocol.
        reply.bulk_with(range.len(), |buffer| text.append_range_to(range, buffer));
        let mut made = reply.take();
        // Of a compressed string all of it was there for a moment.
        made.shrink_to_fit();
        self.made = Some(made);
    }

    /// Takes the reply, if it was made of this part of this string.
    pub(super) fn take(&mut self, source: &SharedText, range: &Range<usize>) -> Option<Vec<u8>> {
        let is_same = self.source.is_same(source) && self.range == *range;
        self.made.take_if(|_| is_same)
    }
}

impl Apart {
    /// Bytes that the work reads.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Copy(copy) => copy.size(),
            Self::Combine(combination) => combination.size(),
            Self::Reply(reply) => reply.source.text().len().max(reply.range.len()),
            Self::Prepare(preparation) => preparation.size(),
        }
    }

    /// Does the work; must be called without a lock.
    pub(crate) fn run(&mut self) {
        match self {
            Self::Copy(copy) => copy.make(),
            Self::Combine(combination) => combination.run(),
            Self::Reply(reply) => reply.make(),
            Self::Prepare(preparation) => preparation.run(),
        }
    }
}
