//! A list of elements.
//!
//! Elements are packed into chunks of about 4 KiB ([`packing::LIST_CHUNK_SIZE`]), each
//! `varint(length) bytes size`, where `size` at the end is the size of length and bytes and is read
//! backwards, so that a chunk can be iterated in both directions. A small list is one chunk, a
//! large one a double-ended queue of non-empty chunks. An element larger than a chunk gets its own
//! chunk when it is pushed.
//!
//! Pushing and popping at either end is O(1) except for the bytes of one chunk; an index is found
//! by counting chunks from the nearer end.

mod chunk;
mod edit;

use std::collections::VecDeque;

use chunk::Chunk;

use super::packing;

/// Room to reserve in a chunk that pushes will fill; few elements need no room.
fn chunk_room() -> usize {
    if packing::LIST_CHUNK_LEN.get() == 0 { packing::LIST_CHUNK_SIZE.get() } else { 0 }
}

/// Whether a chunk accepts no push of `extra` more bytes.
#[inline]
fn is_full(chunk: &Chunk, extra: usize) -> bool {
    let len_max = packing::LIST_CHUNK_LEN.get();
    !chunk.is_empty()
        && (chunk.size() + extra > packing::LIST_CHUNK_SIZE.get()
            || (len_max > 0 && chunk.count() >= len_max))
}

/// Elements in order.
#[derive(Debug, Default)]
pub struct List {
    chunks: Chunks,
    len: usize,
    /// Bytes of the chunks' buffers.
    heap: usize,
}

impl Clone for List {
    fn clone(&self) -> Self {
        let chunks = self.chunks.clone();
        // A copied buffer has no spare room.
        let heap = (0..chunks.count()).map(|index| chunks.get(index).heap()).sum();
        Self { chunks, len: self.len, heap }
    }
}

#[derive(Debug, Clone)]
enum Chunks {
    Small(Chunk),
    Large(VecDeque<Chunk>),
}

impl Default for Chunks {
    fn default() -> Self {
        Self::Small(Chunk::default())
    }
}

impl Chunks {
    fn count(&self) -> usize {
        match self {
            Self::Small(_) => 1,
            Self::Large(chunks) => chunks.len(),
        }
    }

    #[inline]
    fn get(&self, index: usize) -> &Chunk {
        match self {
            Self::Small(chunk) => chunk,
            Self::Large(chunks) => &chunks[index],
        }
    }

    #[inline]
    fn get_mut(&mut self, index: usize) -> &mut Chunk {
        match self {
            Self::Small(chunk) => chunk,
            Self::Large(chunks) => &mut chunks[index],
        }
    }

    /// Returns the queue of chunks, created from the only one if necessary.
    fn large(&mut self) -> &mut VecDeque<Chunk> {
        if let Self::Small(chunk) = self {
            *self = Self::Large(VecDeque::from([std::mem::take(chunk)]));
        }
        match self {
            Self::Large(chunks) => chunks,
            Self::Small(_) => unreachable!("it was made large above"),
        }
    }
}

impl List {
    /// No elements.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of elements.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Heap memory, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match &self.chunks {
            Chunks::Small(_) => self.heap,
            Chunks::Large(chunks) => self.heap + chunks.capacity() * size_of::<Chunk>(),
        }
    }

    /// The name in `OBJECT ENCODING`.
    #[must_use]
    pub const fn encoding(&self) -> &'static str {
        match self.chunks {
            Chunks::Small(_) => "listpack",
            Chunks::Large(_) => "quicklist",
        }
    }

    /// Adds an element before the first.
    pub fn push_front(&mut self, element: &[u8]) {
        let first = self.chunks.get(0);
        if is_full(first, element.len()) {
            let chunk = Chunk::open_in_front(element, chunk_room());
            self.heap += chunk.heap();
            self.chunks.large().push_front(chunk);
        } else {
            self.edit(0, |chunk| chunk.push_front(element));
        }
        self.len += 1;
    }

    /// Adds an element after the last.
    pub fn push_back(&mut self, element: &[u8]) {
        let last_index = self.chunks.count() - 1;
        let last = self.chunks.get(last_index);
        if is_full(last, element.len()) {
            self.edit(last_index, Chunk::seal);
            let chunk = Chunk::open_at_back(element, chunk_room());
            self.heap += chunk.heap();
            self.chunks.large().push_back(chunk);
        } else {
            self.edit(last_index, |chunk| chunk.push_back(element));
        }
        self.len += 1;
    }

    /// Removes and returns the first element.
    pub fn pop_front(&mut self) -> Option<Box<[u8]>> {
        let element = self.edit(0, Chunk::pop_front)?;
        self.len -= 1;
        self.settle(0);
        Some(element)
    }

    /// Removes and returns the last element.
    pub fn pop_back(&mut self) -> Option<Box<[u8]>> {
        let last = self.chunks.count() - 1;
        let element = self.edit(last, Chunk::pop_back)?;
        self.len -= 1;
        self.settle(last);
        Some(element)
    }

    /// The element at `index`; -1 is the last.
    #[must_use]
    pub fn get(&self, index: i64) -> Option<&[u8]> {
        let (chunk, at) = self.locate(self.resolve(index)?);
        Some(self.chunks.get(chunk).element_at(at).0)
    }

    /// The elements from `start` to `stop`, both included. Negative indices count from the end, and
    /// indices beyond the ends are left out.
    #[must_use]
    pub fn range(&self, start: i64, stop: i64) -> Items<'_> {
        let (from, to) = self.clamp(start, stop);
        self.items(from, to)
    }

    /// All elements, from the first to the last.
    #[must_use]
    pub fn iter(&self) -> Items<'_> {
        self.items(0, self.len)
    }

    /// The indices of elements equal to `element`, as `LPOS` defines them: from match `rank` on (1:
    /// the first, -1: the last, backwards), at most `count` of them (0: all), comparing at most
    /// `maxlen` elements (0: all).
    #[must_use]
    pub fn position(&self, element: &[u8], rank: i64, count: usize, maxlen: usize) -> Vec<usize> {
        let some = |limit: usize| if limit == 0 { usize::MAX } else { limit };
        let skipped = usize::try_from(rank.unsigned_abs().saturating_sub(1)).unwrap_or(usize::MAX);
        if rank < 0 {
            let last = self.len;
            let walk = self.iter().rev().take(some(maxlen)).enumerate();
            let same = walk.filter(|(_, other)| *other == element);
            same.map(|(index, _)| last - 1 - index).skip(skipped).take(some(count)).collect()
        } else {
            let walk = self.iter().take(some(maxlen)).enumerate();
            let same = walk.filter(|(_, other)| *other == element);
            same.map(|(index, _)| index).skip(skipped).take(some(count)).collect()
        }
    }

    /// Converts `start..=stop` into a half-open range of indices.
    fn clamp(&self, start: i64, stop: i64) -> (usize, usize) {
        let len = i64::try_from(self.len).unwrap_or(i64::MAX);
        let from_end = |index: i64| if index < 0 { index.saturating_add(len) } else { index };
        let from = from_end(start).clamp(0, len);
        let to = from_end(stop).saturating_add(1).clamp(from, len);
        (usize::try_from(from).unwrap_or(0), usize::try_from(to).unwrap_or(0))
    }

    /// Resolves an index counted from either end, if there is such an element.
    fn resolve(&self, index: i64) -> Option<usize> {
        let len = i64::try_from(self.len).unwrap_or(i64::MAX);
        let index = if index < 0 { index.checked_add(len)? } else { index };
        usize::try_from(index).ok().filter(|&index| index < self.len)
    }

    /// The chunk of an index, and the offset of the element in it. The end of the last chunk for
    /// the index after the last.
    fn locate(&self, index: usize) -> (usize, usize) {
        if index < self.len / 2 {
            let (mut chunk, mut left) = (0, index);
            while left >= self.chunks.get(chunk).count() {
                left -= self.chunks.get(chunk).count();
                chunk += 1;
            }
            (chunk, self.chunks.get(chunk).offset_of(left))
        } else {
            let (mut chunk, mut left) = (self.chunks.count() - 1, self.len - index);
            while left > self.chunks.get(chunk).count() {
                left -= self.chunks.get(chunk).count();
                chunk -= 1;
            }
            let count = self.chunks.get(chunk).count();
            (chunk, self.chunks.get(chunk).offset_of(count - left))
        }
    }

    fn items(&self, from: usize, to: usize) -> Items<'_> {
        if from >= to {
            return Items { chunks: &self.chunks, front: (0, 0), back: (0, 0), left: 0 };
        }
        let (chunk, at) = self.locate(to - 1);
        let end = self.chunks.get(chunk).element_at(at).1;
        Items {
            chunks: &self.chunks,
            front: self.locate(from),
            back: (chunk, end),
            left: to - from,
        }
    }

    /// Changes a chunk and updates the memory count.
    fn edit<R>(&mut self, index: usize, change: impl FnOnce(&mut Chunk) -> R) -> R {
        let chunk = self.chunks.get_mut(index);
        let before = chunk.heap();
        let result = change(chunk);
        self.heap = self.heap - before + chunk.heap();
        result
    }
}

impl<'a> IntoIterator for &'a List {
    type Item = &'a [u8];
    type IntoIter = Items<'a>;

    fn into_iter(self) -> Items<'a> {
        self.iter()
    }
}

/// Elements of a list, from both ends.
#[derive(Debug, Clone)]
pub struct Items<'a> {
    chunks: &'a Chunks,
    /// The chunk and offset where the next element begins.
    front: (usize, usize),
    /// The chunk and offset where the next element from the back ends.
    back: (usize, usize),
    left: usize,
}

impl<'a> Iterator for Items<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        self.left = self.left.checked_sub(1)?;
        let mut chunk = self.chunks.get(self.front.0);
        if self.front.1 == chunk.end() {
            self.front.0 += 1;
            chunk = self.chunks.get(self.front.0);
            self.front.1 = chunk.start();
        }
        let (element, next) = chunk.element_at(self.front.1);
        self.front.1 = next;
        Some(element)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl DoubleEndedIterator for Items<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let mut chunk = self.chunks.get(self.back.0);
        if self.back.1 == chunk.start() {
            self.back.0 -= 1;
            chunk = self.chunks.get(self.back.0);
            self.back.1 = chunk.end();
        }
        let (element, start) = chunk.element_before(self.back.1);
        self.back.1 = start;
        Some(element)
    }
}

impl ExactSizeIterator for Items<'_> {}

#[cfg(test)]
mod tests;
