//! Changes in the middle of a list.

use std::collections::VecDeque;

use super::{Chunks, List};
use crate::types::packing::{LIST_CHUNK_LEN, LIST_CHUNK_SIZE};

impl List {
    /// Replaces the element at `index` (-1: the last) and returns whether there is one.
    pub fn set(&mut self, index: i64, element: &[u8]) -> bool {
        let Some(index) = self.resolve(index) else { return false };
        let (chunk, at) = self.locate(index);
        self.edit(chunk, |chunk| chunk.replace(at, element));
        self.divide(chunk);
        true
    }

    /// Adds `element` before the first element equal to `pivot` and returns whether there is one.
    pub fn insert_before(&mut self, pivot: &[u8], element: &[u8]) -> bool {
        self.insert_beside(pivot, element, 0)
    }

    /// Adds `element` after the first element equal to `pivot` and returns whether there is one.
    pub fn insert_after(&mut self, pivot: &[u8], element: &[u8]) -> bool {
        self.insert_beside(pivot, element, 1)
    }

    fn insert_beside(&mut self, pivot: &[u8], element: &[u8], beside: usize) -> bool {
        let Some(index) = self.iter().position(|other| other == pivot) else { return false };
        let (chunk, at) = self.locate(index);
        let at = if beside == 0 { at } else { self.chunks.get(chunk).element_at(at).1 };
        self.edit(chunk, |chunk| chunk.insert(at, element));
        self.len += 1;
        self.divide(chunk);
        true
    }

    /// Removes elements equal to `element`: the first `count`, the last `-count`, or all (0).
    /// Returns the number of removed elements.
    pub fn remove(&mut self, count: i64, element: &[u8]) -> usize {
        let most = match usize::try_from(count.unsigned_abs()) {
            Ok(0) | Err(_) => usize::MAX,
            Ok(most) => most,
        };
        let chunks = self.chunks.count();
        let mut removed = 0;
        for turn in 0..chunks {
            let chunk = if count < 0 { chunks - 1 - turn } else { turn };
            removed += if count < 0 {
                self.remove_backwards(chunk, most - removed, element)
            } else {
                self.remove_forwards(chunk, most - removed, element)
            };
            if removed == most {
                break;
            }
        }
        if removed > 0 {
            self.len -= removed;
            self.compact();
        }
        removed
    }

    fn remove_forwards(&mut self, index: usize, most: usize, element: &[u8]) -> usize {
        self.edit(index, |chunk| {
            let (mut at, mut removed) = (chunk.start(), 0);
            while at < chunk.end() && removed < most {
                let (other, next) = chunk.element_at(at);
                if other == element {
                    chunk.remove(at);
                    removed += 1;
                } else {
                    at = next;
                }
            }
            removed
        })
    }

    fn remove_backwards(&mut self, index: usize, most: usize, element: &[u8]) -> usize {
        self.edit(index, |chunk| {
            let (mut end, mut removed) = (chunk.end(), 0);
            while end > chunk.start() && removed < most {
                let (other, at) = chunk.element_before(end);
                if other == element {
                    chunk.remove(at);
                    removed += 1;
                }
                end = at;
            }
            removed
        })
    }

    /// Removes all elements except those from `start` to `stop`, both included; indices as for
    /// [`List::range`]. Returns most of the removed ones: freeing them takes time.
    pub fn trim(&mut self, start: i64, stop: i64) -> Self {
        let (from, to) = self.clamp(start, stop);
        if from >= to {
            return std::mem::take(self);
        }
        let mut removed = VecDeque::new();
        let (mut front, mut back) = (from, self.len - to);
        self.len = to - from;
        if let Chunks::Large(chunks) = &mut self.chunks {
            while let Some(chunk) = chunks.pop_front_if(|chunk| chunk.count() <= front) {
                front -= chunk.count();
                self.heap -= chunk.heap();
                removed.push_back(chunk);
            }
            while let Some(chunk) = chunks.pop_back_if(|chunk| chunk.count() <= back) {
                back -= chunk.count();
                self.heap -= chunk.heap();
                removed.push_back(chunk);
            }
        }
        self.edit(0, |chunk| {
            let at = chunk.offset_of(front);
            chunk.drop_front_to(at, front);
        });
        let last = self.chunks.count() - 1;
        self.edit(last, |chunk| {
            let at = chunk.offset_of(chunk.count() - back);
            chunk.drop_back_to(at, back);
        });
        self.settle(last);
        Self {
            len: removed.iter().map(super::Chunk::count).sum(),
            heap: removed.iter().map(super::Chunk::heap).sum(),
            chunks: Chunks::Large(removed),
        }
    }

    /// Splits a chunk that has grown too large.
    fn divide(&mut self, index: usize) {
        let chunk = self.chunks.get(index);
        let len_max = LIST_CHUNK_LEN.get();
        let is_long = len_max > 0 && chunk.count() > len_max * 2;
        if !is_long && chunk.size() <= LIST_CHUNK_SIZE.get() * 2 || chunk.count() < 2 {
            return;
        }
        let tail = self.edit(index, super::Chunk::split);
        self.heap += tail.heap();
        self.chunks.large().insert(index + 1, tail);
    }

    /// Removes a chunk that has become empty, and converts a list that has become small.
    pub(super) fn settle(&mut self, index: usize) {
        let Chunks::Large(chunks) = &mut self.chunks else { return };
        if chunks.get(index).is_some_and(super::Chunk::is_empty)
            && let Some(chunk) = chunks.remove(index)
        {
            self.heap -= chunk.heap();
            if chunks.capacity() > 64 && chunks.len() < chunks.capacity() / 4 {
                chunks.shrink_to(chunks.len() * 2);
            }
        }
        match chunks.len() {
            0 => *self = Self::default(),
            1 if chunks[0].size() <= LIST_CHUNK_SIZE.get() / 2 => {
                let mut chunk = chunks.pop_front().unwrap_or_default();
                chunk.shrink();
                self.heap = chunk.heap();
                self.chunks = Chunks::Small(chunk);
            }
            _ => {}
        }
    }

    /// Removes empty chunks and joins small neighbours, after elements were removed throughout the
    /// list.
    fn compact(&mut self) {
        if let Chunks::Large(chunks) = &mut self.chunks {
            chunks.retain(|chunk| !chunk.is_empty());
            let mut at = 1;
            while at < chunks.len() {
                if chunks[at - 1].size() + chunks[at].size() > LIST_CHUNK_SIZE.get() / 2 {
                    at += 1;
                } else if let Some(chunk) = chunks.remove(at) {
                    chunks[at - 1].append(&chunk);
                }
            }
            self.heap = chunks.iter().map(super::Chunk::heap).sum();
        } else {
            self.edit(0, super::Chunk::shrink);
        }
        self.settle(0);
    }
}
