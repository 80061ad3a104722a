//! A block being filled: rows in, columns out.
//!
//! ```text
//! rows      u32
//! seqs      first u64, then per row after it the zigzag varint of the difference; a block whose
//!           positions follow one another says so in `modes` and has only the first
//! times     first i64, then differences likewise
//! ids       16 bytes each; or the first, then varints of differences, where all are small
//! tags      varint count, then per entry varint length and bytes; then per row a varint index, unless
//!           there is one entry
//! bodies    varint length per row, then all bytes
//! ```
//! `modes` is the byte before `rows`: bit 0 says positions follow one another, bit 1 that ids are
//! differences.

#![expect(clippy::cast_possible_truncation, reason = "a block is bounded in bytes and rows")]

use std::collections::HashMap;

use crate::event::EventId;
use crate::format::leaf::Parts;
use crate::format::put_varint;

pub(crate) const MODE_SEQS_FOLLOW: u8 = 1;
pub(crate) const MODE_IDS_DIFFER: u8 = 2;

/// Rows of the block that is being filled.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    pub(crate) seqs: Vec<u64>,
    pub(crate) times_ns: Vec<i64>,
    pub(crate) ids: Vec<EventId>,
    tag_of: Vec<u32>,
    pub(crate) tags: Vec<Vec<u8>>,
    known: HashMap<Vec<u8>, u32>,
    ends: Vec<usize>,
    pub(crate) bodies: Vec<u8>,
    size: usize,
}

/// Folds a number's sign: small numbers of either sign become small numbers.
pub(crate) fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

/// Undoes [`zigzag`].
pub(crate) fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

impl Columns {
    /// Number of rows.
    pub(crate) fn len(&self) -> usize {
        self.seqs.len()
    }

    /// Its approximate encoded size in bytes.
    pub(crate) fn size(&self) -> usize {
        self.size + self.bodies.len()
    }

    /// Empties it, keeping its memory.
    pub(crate) fn clear(&mut self) {
        self.seqs.clear();
        self.times_ns.clear();
        self.ids.clear();
        self.tag_of.clear();
        self.tags.clear();
        self.known.clear();
        self.ends.clear();
        self.bodies.clear();
        self.size = 0;
    }

    /// Adds a row.
    pub(crate) fn push(&mut self, seq: u64, parts: &Parts<'_>) {
        // Most events have the same tags as the previous one.
        let same = self.tag_of.last().filter(|&&at| self.tags[at as usize] == parts.tags);
        let tag = match same {
            Some(&tag) => tag,
            None => self.tag(parts.tags),
        };
        self.seqs.push(seq);
        self.times_ns.push(parts.timestamp_ns);
        self.ids.push(parts.id);
        self.tag_of.push(tag);
        self.bodies.extend_from_slice(parts.body);
        self.ends.push(self.bodies.len());
        self.size += 8;
    }

    fn tag(&mut self, tags: &[u8]) -> u32 {
        if let Some(&tag) = self.known.get(tags) {
            return tag;
        }
        let tag = self.tags.len() as u32;
        self.tags.push(tags.to_vec());
        self.known.insert(tags.to_vec(), tag);
        self.size += tags.len() + 2;
        tag
    }

    /// The body of a row.
    pub(crate) fn body(&self, row: usize) -> &[u8] {
        let start = if row == 0 { 0 } else { self.ends[row - 1] };
        &self.bodies[start..self.ends[row]]
    }

    /// Appends the block's bytes.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let follow = self.seqs.windows(2).all(|pair| pair[0].checked_add(1) == Some(pair[1]));
        let differ = self
            .ids
            .windows(2)
            .all(|pair| pair[1].0.wrapping_sub(pair[0].0) < u128::from(u32::MAX));
        let modes =
            if follow { MODE_SEQS_FOLLOW } else { 0 } | if differ { MODE_IDS_DIFFER } else { 0 };
        out.push(modes);
        out.extend_from_slice(&(self.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.seqs.first().copied().unwrap_or(0).to_le_bytes());
        if !follow {
            for pair in self.seqs.windows(2) {
                put_varint(out, zigzag(pair[1].wrapping_sub(pair[0]) as i64));
            }
        }
        out.extend_from_slice(&self.times_ns.first().copied().unwrap_or(0).to_le_bytes());
        for pair in self.times_ns.windows(2) {
            put_varint(out, zigzag(pair[1].wrapping_sub(pair[0])));
        }
        if differ {
            out.extend_from_slice(&self.ids.first().copied().unwrap_or_default().0.to_be_bytes());
            for pair in self.ids.windows(2) {
                put_varint(out, pair[1].0.wrapping_sub(pair[0].0) as u64);
            }
        } else {
            self.ids.iter().for_each(|id| out.extend_from_slice(&id.0.to_be_bytes()));
        }
        put_varint(out, self.tags.len() as u64);
        for tags in &self.tags {
            put_varint(out, tags.len() as u64);
            out.extend_from_slice(tags);
        }
        if self.tags.len() > 1 {
            self.tag_of.iter().for_each(|&tag| put_varint(out, u64::from(tag)));
        }
        let mut start = 0;
        for &end in &self.ends {
            put_varint(out, (end - start) as u64);
            start = end;
        }
        out.extend_from_slice(&self.bodies);
    }
}
