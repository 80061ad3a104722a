//! The order of a large sorted set: indices into its dictionary, in chunks.
//!
//! Invariants:
//! - Every place of the dictionary is in one chunk, and all are in order of score, then of member.
//! - No chunk is empty. A full one is split in half, or, when what is added comes last, followed by
//!   a new one, so that adding in order leaves chunks full.
//!
//! A score is stored with its position, so that members are read only to order equal scores.

use super::{Dict, Ordering, Scored};

/// Maximum number of nodes in a chunk: a rank adds up about len / 256 counts, and an insertion
/// moves at most 4 KiB.
const CHUNK_LEN_MAX: usize = 512;
/// Neighbours are joined if their total is below this.
const CHUNK_LEN_JOINED: usize = CHUNK_LEN_MAX / 4;

#[derive(Debug, Clone, Copy)]
struct Node {
    score: f64,
    place: u32,
}

/// A chunk and an index in it. The index may be the chunk's length at the end of the order only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    chunk: usize,
    index: usize,
}

#[derive(Debug, Default)]
pub(super) struct Order {
    chunks: Vec<Vec<Node>>,
    /// Room for nodes in all chunks.
    capacity: usize,
}

impl Clone for Order {
    fn clone(&self) -> Self {
        let chunks = self.chunks.clone();
        // A copied chunk has no spare room.
        let capacity = chunks.iter().map(Vec::capacity).sum();
        Self { chunks, capacity }
    }
}

impl Order {
    pub(super) fn bytes(&self) -> usize {
        self.chunks.capacity() * size_of::<Vec<Node>>() + self.capacity * size_of::<Node>()
    }

    /// The place in the dictionary at a position, which must not be the end.
    #[inline]
    pub(super) fn place(&self, position: Position) -> usize {
        self.chunks[position.chunk][position.index].place as usize
    }

    /// The position of a rank; the end if there is none such.
    pub(super) fn position(&self, rank: usize) -> Position {
        let mut index = rank;
        for (chunk, nodes) in self.chunks.iter().enumerate() {
            if index < nodes.len() {
                return Position { chunk, index };
            }
            index -= nodes.len();
        }
        Position { chunk: self.chunks.len(), index: 0 }
    }

    #[inline]
    pub(super) fn after(&self, position: Position) -> Position {
        if position.index + 1 < self.chunks[position.chunk].len() {
            Position { index: position.index + 1, ..position }
        } else {
            Position { chunk: position.chunk + 1, index: 0 }
        }
    }

    /// The position before one that is not the first.
    #[inline]
    pub(super) fn before(&self, position: Position) -> Position {
        if position.index > 0 {
            return Position { index: position.index - 1, ..position };
        }
        let chunk = position.chunk - 1;
        Position { chunk, index: self.chunks[chunk].len() - 1 }
    }

    /// How many entries, from the first on, are `before`; it must be true of a beginning of the
    /// order.
    pub(super) fn count_while(
        &self,
        dict: &Dict<Scored>,
        before: impl Fn(&Scored) -> bool,
    ) -> usize {
        let entry = |node: &Node| &dict.entries()[node.place as usize];
        let whole = self
            .chunks
            .partition_point(|nodes| nodes.last().is_some_and(|node| before(entry(node))));
        let counted: usize = self.chunks[..whole].iter().map(Vec::len).sum();
        let rest = self
            .chunks
            .get(whole)
            .map_or(0, |nodes| nodes.partition_point(|node| before(entry(node))));
        counted + rest
    }

    /// Where an entry stands, or would.
    fn search(&self, dict: &Dict<Scored>, score: f64, place: usize) -> Position {
        let member = &dict.entries()[place].member;
        let less = |node: &Node| match node.score.partial_cmp(&score) {
            Some(Ordering::Less) => true,
            Some(Ordering::Greater) => false,
            _ => dict.entries()[node.place as usize].member < *member,
        };
        let chunk = self.chunks.partition_point(|nodes| nodes.last().is_some_and(less));
        let index = self.chunks.get(chunk).map_or(0, |nodes| nodes.partition_point(less));
        Position { chunk, index }
    }

    /// Adds the entry at `place`, which is not in the order.
    pub(super) fn insert(&mut self, dict: &Dict<Scored>, score: f64, place: u32) {
        let node = Node { score, place };
        let mut at = self.search(dict, score, place as usize);
        if at.chunk == self.chunks.len() {
            // After all others.
            match self.chunks.last() {
                Some(last) if last.len() < CHUNK_LEN_MAX => {
                    at = Position { chunk: at.chunk - 1, index: last.len() };
                }
                _ => {
                    self.chunks.push(vec![node]);
                    self.capacity += 1;
                    return;
                }
            }
        } else if self.chunks[at.chunk].len() >= CHUNK_LEN_MAX {
            at = self.split(at);
        }
        let nodes = &mut self.chunks[at.chunk];
        if nodes.len() == nodes.capacity() {
            let more = (nodes.len() / 2).clamp(8, CHUNK_LEN_MAX);
            let before = nodes.capacity();
            nodes.reserve_exact(more.min(CHUNK_LEN_MAX.saturating_sub(nodes.len()).max(1)));
            self.capacity += nodes.capacity() - before;
        }
        nodes.insert(at.index, node);
    }

    /// The places of the entries from a rank on, in order.
    pub(super) fn places(&self, rank: usize) -> impl Iterator<Item = usize> {
        let Position { chunk, index } = self.position(rank);
        let nodes = self.chunks.get(chunk..).unwrap_or_default().iter().flatten();
        nodes.skip(index).map(|node| node.place as usize)
    }

    /// Takes out the entries from a rank on, and returns their places.
    pub(super) fn cut(&mut self, rank: usize, count: usize) -> Vec<u32> {
        let mut places = Vec::with_capacity(count);
        let Position { chunk: first, mut index } = self.position(rank);
        let mut chunk = first;
        while places.len() < count
            && let Some(nodes) = self.chunks.get_mut(chunk)
        {
            let to = nodes.len().min(index + count - places.len());
            places.extend(nodes.drain(index..to).map(|node| node.place));
            (chunk, index) = (chunk + 1, 0);
        }
        let emptied = self.chunks.extract_if(first..chunk, |nodes| nodes.is_empty());
        self.capacity -= emptied.map(|nodes| nodes.capacity()).sum::<usize>();
        if self.chunks.get(first).is_some_and(|nodes| nodes.len() < CHUNK_LEN_JOINED / 2) {
            self.join(first);
        }
        places
    }

    /// Adds an entry that is after all others.
    pub(super) fn push(&mut self, score: f64, place: u32) {
        let node = Node { score, place };
        match self.chunks.last_mut() {
            Some(last) if last.len() < last.capacity() => last.push(node),
            _ => {
                let mut chunk = Vec::with_capacity(CHUNK_LEN_MAX);
                chunk.push(node);
                self.capacity += chunk.capacity();
                self.chunks.push(chunk);
            }
        }
    }

    /// Halves a chunk and returns where a position in it has gone.
    fn split(&mut self, at: Position) -> Position {
        let nodes = &mut self.chunks[at.chunk];
        self.capacity -= nodes.capacity();
        let half = nodes.len() / 2;
        let tail = nodes.split_off(half);
        nodes.shrink_to_fit();
        self.capacity += nodes.capacity() + tail.capacity();
        self.chunks.insert(at.chunk + 1, tail);
        if at.index <= half { at } else { Position { chunk: at.chunk + 1, index: at.index - half } }
    }

    /// Takes out the entry at a place of the dictionary, where it must still be, and returns the
    /// place.
    pub(super) fn remove(&mut self, dict: &Dict<Scored>, place: usize) -> Option<u32> {
        let at = self.search(dict, dict.entries()[place].score, place);
        let nodes = self.chunks.get_mut(at.chunk)?;
        debug_assert_eq!(nodes.get(at.index).map(|node| node.place as usize), Some(place));
        let node = (at.index < nodes.len()).then(|| nodes.remove(at.index))?;
        if nodes.is_empty() {
            self.capacity -= nodes.capacity();
            self.chunks.remove(at.chunk);
        } else if nodes.len() < CHUNK_LEN_JOINED / 2 {
            self.join(at.chunk);
        }
        Some(node.place)
    }

    /// Joins a small chunk with the next, if that is small too, and gives back room.
    fn join(&mut self, chunk: usize) {
        let next = self.chunks.get(chunk + 1).map_or(CHUNK_LEN_MAX, Vec::len);
        if self.chunks[chunk].len() + next < CHUNK_LEN_JOINED {
            let next = self.chunks.remove(chunk + 1);
            let before = self.chunks[chunk].capacity() + next.capacity();
            self.chunks[chunk].extend_from_slice(&next);
            self.capacity = self.capacity - before + self.chunks[chunk].capacity();
        }
        let nodes = &mut self.chunks[chunk];
        if nodes.capacity() > nodes.len() * 4 {
            self.capacity -= nodes.capacity();
            nodes.shrink_to(nodes.len() * 2);
            self.capacity += nodes.capacity();
        }
    }

    /// Notes that the entry at place `from`, where it still is, is about to move to place `to`.
    pub(super) fn moved(&mut self, dict: &Dict<Scored>, from: usize, to: usize) {
        let at = self.search(dict, dict.entries()[from].score, from);
        let node = self.chunks.get_mut(at.chunk).and_then(|nodes| nodes.get_mut(at.index));
        debug_assert_eq!(node.as_ref().map(|node| node.place as usize), Some(from));
        if let (Some(node), Ok(to)) = (node, u32::try_from(to)) {
            node.place = to;
        }
    }

    #[cfg(test)]
    pub(super) fn counted_capacity(&self) -> (usize, usize) {
        (self.capacity, self.chunks.iter().map(Vec::capacity).sum())
    }
}
