//! Packed elements that can be iterated in both directions.
//!
//! `varint(length) bytes reversed-varint(size of both)`, from `head` to the end of the buffer; the
//! bytes before `head` are room for elements pushed in front, or left by those popped there.

use crate::types::pack::{self, Varint};

#[derive(Debug, Clone, Default)]
pub(super) struct Chunk {
    buf: Vec<u8>,
    head: usize,
    count: usize,
}

/// The two lengths around an element.
struct Frame {
    before: Varint,
    after: Varint,
}

impl Frame {
    fn new(element: &[u8]) -> Self {
        let before = Varint::new(element.len());
        let after = Varint::reversed(before.as_bytes().len() + element.len());
        Self { before, after }
    }

    fn parts<'a>(&'a self, element: &'a [u8]) -> [&'a [u8]; 3] {
        [self.before.as_bytes(), element, self.after.as_bytes()]
    }
}

impl Chunk {
    /// Returns a chunk of one element, with room in front of it up to `size` bytes.
    pub(super) fn open_in_front(element: &[u8], size: usize) -> Self {
        if element.len() >= size / 2 {
            let mut chunk = Self::default();
            chunk.push_back(element);
            return chunk;
        }
        let mut chunk = Self { buf: vec![0; size], head: size, count: 0 };
        chunk.push_front(element);
        chunk
    }

    /// Returns a chunk of one element, with room after it up to `size` bytes.
    pub(super) fn open_at_back(element: &[u8], size: usize) -> Self {
        let mut chunk = Self::default();
        if element.len() < size / 2 {
            chunk.buf.reserve_exact(size);
        }
        chunk.push_back(element);
        chunk
    }

    pub(super) const fn count(&self) -> usize {
        self.count
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of its elements.
    pub(super) const fn size(&self) -> usize {
        self.buf.len() - self.head
    }

    /// Bytes of its buffer.
    pub(super) const fn heap(&self) -> usize {
        self.buf.capacity()
    }

    /// Where the first element begins.
    pub(super) const fn start(&self) -> usize {
        self.head
    }

    /// Where the last element ends.
    pub(super) const fn end(&self) -> usize {
        self.buf.len()
    }

    /// The element that begins at `at`, and where the next does.
    #[inline]
    pub(super) fn element_at(&self, at: usize) -> (&[u8], usize) {
        let (len, size) = Varint::read(&self.buf[at..]);
        let end = at + size + len;
        (&self.buf[at + size..end], end + varint_size(size + len))
    }

    /// The element that ends at `end`, and where it begins.
    #[inline]
    pub(super) fn element_before(&self, end: usize) -> (&[u8], usize) {
        let (framed, size) = Varint::read_back(&self.buf[..end]);
        let at = end - size - framed;
        let (len, prefix) = Varint::read(&self.buf[at..]);
        (&self.buf[at + prefix..at + prefix + len], at)
    }

    /// Where the element of an index begins; the end for the index after the last.
    pub(super) fn offset_of(&self, index: usize) -> usize {
        if index <= self.count / 2 {
            (0..index).fold(self.start(), |at, _| self.element_at(at).1)
        } else {
            (index..self.count).fold(self.end(), |end, _| self.element_before(end).1)
        }
    }

    pub(super) fn push_back(&mut self, element: &[u8]) {
        self.insert(self.buf.len(), element);
    }

    pub(super) fn push_front(&mut self, element: &[u8]) {
        let frame = Frame::new(element);
        let size: usize = frame.parts(element).iter().map(|part| part.len()).sum();
        if self.head < size {
            return self.insert(self.head, element);
        }
        self.head -= size;
        let mut at = self.head;
        for part in frame.parts(element) {
            self.buf[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        self.count += 1;
    }

    /// Adds an element that begins at `at`.
    pub(super) fn insert(&mut self, at: usize, element: &[u8]) {
        // Room left by popped elements is reused before the buffer grows.
        let at = if self.head > 0 && self.buf.len() + element.len() + 20 > self.buf.capacity() {
            self.buf.drain(..self.head);
            at - std::mem::take(&mut self.head)
        } else {
            at
        };
        pack::splice(&mut self.buf, at, 0, &Frame::new(element).parts(element));
        self.count += 1;
    }

    /// Replaces the element that begins at `at`.
    pub(super) fn replace(&mut self, at: usize, element: &[u8]) {
        let end = self.element_at(at).1;
        pack::splice(&mut self.buf, at, end - at, &Frame::new(element).parts(element));
        self.shrink();
    }

    /// Removes the element that begins at `at`.
    pub(super) fn remove(&mut self, at: usize) {
        let end = self.element_at(at).1;
        pack::splice(&mut self.buf, at, end - at, &[]);
        self.count -= 1;
    }

    pub(super) fn pop_front(&mut self) -> Option<Box<[u8]>> {
        if self.is_empty() {
            return None;
        }
        let (element, next) = self.element_at(self.head);
        let element = element.into();
        self.drop_front_to(next, 1);
        Some(element)
    }

    pub(super) fn pop_back(&mut self) -> Option<Box<[u8]>> {
        if self.is_empty() {
            return None;
        }
        let (element, start) = self.element_before(self.buf.len());
        let element = element.into();
        self.drop_back_to(start, 1);
        Some(element)
    }

    /// Drops the `count` elements before `at`.
    pub(super) fn drop_front_to(&mut self, at: usize, count: usize) {
        self.head = at;
        self.count -= count;
        if self.head > self.size() + 64 {
            self.shrink();
        }
    }

    /// Drops the `count` elements from `at` on.
    pub(super) fn drop_back_to(&mut self, at: usize, count: usize) {
        self.buf.truncate(at);
        self.count -= count;
        pack::shrink(&mut self.buf);
    }

    /// Frees unused room.
    pub(super) fn shrink(&mut self) {
        self.buf.drain(..self.head);
        self.head = 0;
        pack::shrink(&mut self.buf);
    }

    /// Frees all room: the chunk is full, and a neighbour takes later pushes.
    pub(super) fn seal(&mut self) {
        self.buf.drain(..self.head);
        self.head = 0;
        if self.buf.capacity() > self.buf.len() + self.buf.len() / 8 {
            self.buf.shrink_to(self.buf.len().next_multiple_of(16));
        }
    }

    /// Splits off the second half of its bytes, with at least one element on either side.
    pub(super) fn split(&mut self) -> Self {
        let half = self.head + self.size() / 2;
        let (mut at, mut kept) = (self.element_at(self.head).1, 1);
        while kept + 1 < self.count && at < half {
            at = self.element_at(at).1;
            kept += 1;
        }
        let tail = Self { buf: self.buf[at..].to_vec(), head: 0, count: self.count - kept };
        self.drop_back_to(at, tail.count);
        tail
    }

    /// Adds the elements of `next` after its own.
    pub(super) fn append(&mut self, next: &Self) {
        pack::grow(&mut self.buf, next.size());
        self.buf.extend_from_slice(&next.buf[next.head..]);
        self.count += next.count;
    }
}

/// Bytes a length takes as a varint.
#[inline]
const fn varint_size(value: usize) -> usize {
    match value {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        _ => ((usize::BITS - value.leading_zeros()) as usize).div_ceil(7),
    }
}
