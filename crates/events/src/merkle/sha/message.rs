//! A message split into the 64-byte blocks of SHA-256, padding included.
//!
//! Only the first block, which begins with the prefix byte, and the last one or two, which end with
//! the padding, are copied; the blocks between are read directly from the leaf.

use super::{Hash, LEAF_PREFIX, NODE_PREFIX};

/// Bytes of a block.
pub(super) const BLOCK_SIZE: usize = 64;
pub(super) type Block = [u8; BLOCK_SIZE];

/// A message, and how much of it has been consumed.
#[derive(Debug)]
pub(super) struct Message<'a> {
    head: Block,
    body: &'a [Block],
    tail: [Block; 2],
    /// The next block: 0 is the head, then the body, then the tail.
    at: usize,
    /// One beyond the last block.
    end: usize,
}

impl Default for Message<'_> {
    fn default() -> Self {
        let zeros = [0; BLOCK_SIZE];
        Self { head: zeros, body: &[], tail: [zeros; 2], at: 0, end: 0 }
    }
}

impl<'a> Message<'a> {
    /// The next block; the last tail block again when there is none left.
    #[inline]
    pub(super) fn block(&self) -> &Block {
        match self.at {
            0 => &self.head,
            at => match self.body.get(at - 1) {
                Some(block) => block,
                None if self.at + 1 == self.end => &self.tail[1],
                None => &self.tail[0],
            },
        }
    }

    /// Advances to the next block.
    #[inline]
    pub(super) fn advance(&mut self) {
        self.at += 1;
    }

    /// Whether all blocks have been consumed.
    #[inline]
    pub(super) fn is_done(&self) -> bool {
        self.at >= self.end
    }

    /// Begins the message of a leaf.
    #[inline]
    fn set_leaf(&mut self, leaf: &'a [u8]) {
        let bits = (leaf.len() as u64 + 1) * 8;
        let rest = match leaf.split_first_chunk::<{ BLOCK_SIZE - 1 }>() {
            Some((first, rest)) => {
                self.head[0] = LEAF_PREFIX;
                self.head[1..].copy_from_slice(first);
                let (body, rest) = rest.as_chunks::<BLOCK_SIZE>();
                self.body = body;
                self.at = 0;
                self.tail = [[0; BLOCK_SIZE]; 2];
                rest
            }
            None => {
                self.body = &[];
                self.at = 1;
                self.tail = [[0; BLOCK_SIZE]; 2];
                self.set_tail(Some(LEAF_PREFIX), leaf, bits);
                return;
            }
        };
        self.set_tail(None, rest, bits);
    }

    /// Writes the last bytes, fewer than a block, and the padding, into a tail of zeros.
    #[inline]
    fn set_tail(&mut self, prefix: Option<u8>, rest: &[u8], bits: u64) {
        let start = usize::from(prefix.is_some());
        let used = start + rest.len();
        // A message that ends in one block uses the second, so that the length has a fixed offset.
        let first = usize::from(used + 1 + 8 <= BLOCK_SIZE);
        let tail = self.tail.as_flattened_mut();
        let tail = &mut tail[first * BLOCK_SIZE..];
        if let Some(prefix) = prefix {
            tail[0] = prefix;
        }
        tail[start..used].copy_from_slice(rest);
        tail[used] = 0x80;
        let [_, last] = &mut self.tail;
        last[BLOCK_SIZE - 8..].copy_from_slice(&bits.to_be_bytes());
        self.end = 1 + self.body.len() + 2 - first;
    }

    /// Begins the message of a node.
    #[inline]
    fn set_node(&mut self, left: &Hash, right: &Hash) {
        const BITS: u16 = 65 * 8;
        let [right @ .., last] = &right.0;
        self.head[0] = NODE_PREFIX;
        self.head[1..33].copy_from_slice(&left.0);
        self.head[33..].copy_from_slice(right);
        self.body = &[];
        self.at = 0;
        self.end = 2;
        let tail = &mut self.tail[1];
        *tail = [0; BLOCK_SIZE];
        tail[0] = *last;
        tail[1] = 0x80;
        tail[BLOCK_SIZE - 2..].copy_from_slice(&BITS.to_be_bytes());
    }
}

/// A source of messages.
pub(super) trait Messages<'a> {
    /// Starts the next message; returns false if there is none.
    fn next(&mut self, message: &mut Message<'a>) -> bool;
}

/// The messages of leaves.
pub(super) struct Leaves<I>(pub(super) I);

impl<'a, I: Iterator<Item = &'a [u8]>> Messages<'a> for Leaves<I> {
    #[inline]
    fn next(&mut self, message: &mut Message<'a>) -> bool {
        self.0.next().is_some_and(|leaf| {
            message.set_leaf(leaf);
            true
        })
    }
}

/// The messages of nodes above pairs.
pub(super) struct Pairs<I>(pub(super) I);

impl<'a, I: Iterator<Item = &'a [Hash; 2]>> Messages<'a> for Pairs<I> {
    #[inline]
    fn next(&mut self, message: &mut Message<'a>) -> bool {
        self.0.next().is_some_and(|[left, right]| {
            message.set_node(left, right);
            true
        })
    }
}
