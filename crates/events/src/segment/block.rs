//! A block as it is read: columns from which each row's leaf can be restored.

#![expect(clippy::cast_possible_truncation, reason = "a block is bounded in bytes and rows")]
#![deny(clippy::indexing_slicing)]

use super::columns::{MODE_IDS_DIFFER, MODE_SEQS_FOLLOW, unzigzag};
use crate::event::EventId;
use crate::format::leaf::{self, Parts};
use crate::format::take_varint;

/// Maximum number of rows of a block: what a megabyte of the smallest events has.
pub(crate) const ROWS_MAX: usize = 1 << 20;

/// A block, checked and decompressed.
#[derive(Debug)]
pub struct Block {
    raw: Vec<u8>,
    seqs: Vec<u64>,
    times_ns: Vec<i64>,
    ids: Vec<EventId>,
    tag_of: Vec<u32>,
    /// Position in `raw` of each entry of the tags' dictionary.
    tags: Vec<(u32, u32)>,
    /// Where each body ends in `raw`; the first begins at `bodies`.
    ends: Vec<u32>,
    bodies: u32,
}

impl Block {
    /// Reads the bytes that `Columns::encode` wrote, which begin at `start`.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(crate) fn decode(raw: Vec<u8>, start: usize) -> Result<Self, &'static str> {
        let mut rest = raw.get(start..).unwrap_or_default();
        let [modes] = take(&mut rest)?;
        let rows = u32::from_le_bytes(take(&mut rest)?) as usize;
        // Every row has a byte for its time and one for its body's length, so this limits memory.
        if rows == 0 || rows > ROWS_MAX || rows > raw.len() {
            return Err("it has no rows or too many");
        }
        let seqs = seqs(&mut rest, rows, modes)?;
        let times_ns = times(&mut rest, rows)?;
        let ids = ids(&mut rest, rows, modes)?;
        let count = number(&mut rest)?;
        if count == 0 || count > rows {
            return Err("it has no tags or too many");
        }
        let mut tags = Vec::with_capacity(count);
        for _ in 0..count {
            let size = number(&mut rest)?;
            let start = raw.len() - rest.len();
            rest = rest.get(size..).ok_or("its tags are truncated")?;
            tags.push((start as u32, (start + size) as u32));
        }
        let mut tag_of = vec![0; rows];
        if count > 1 {
            for tag in &mut tag_of {
                let found = number(&mut rest)?;
                *tag = u32::try_from(found).map_err(|_| "a row's tags are unknown")?;
                if found >= count {
                    return Err("a row's tags are unknown");
                }
            }
        }
        let mut sizes = Vec::with_capacity(rows);
        for _ in 0..rows {
            sizes.push(number(&mut rest)?);
        }
        let bodies = raw.len() - rest.len();
        let mut end = bodies;
        let mut ends = Vec::with_capacity(rows);
        for size in sizes {
            end = end
                .checked_add(size)
                .filter(|&end| end <= raw.len())
                .ok_or("a body is truncated")?;
            ends.push(end as u32);
        }
        if end != raw.len() {
            return Err("bytes follow its last body");
        }
        let bodies = bodies as u32;
        Ok(Self { seqs, times_ns, ids, tag_of, tags, ends, bodies, raw })
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.seqs.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.seqs.is_empty()
    }

    /// Its approximate memory in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.raw.len() + self.len() * 40
    }

    /// The sequence position of a row; 0 past the end, as all of these.
    #[must_use]
    pub fn seq(&self, row: usize) -> u64 {
        self.seqs.get(row).copied().unwrap_or_default()
    }

    /// The time of a row.
    #[must_use]
    pub fn timestamp_ns(&self, row: usize) -> i64 {
        self.times_ns.get(row).copied().unwrap_or_default()
    }

    /// The id of a row.
    #[must_use]
    pub fn id(&self, row: usize) -> EventId {
        self.ids.get(row).copied().unwrap_or_default()
    }

    /// The tags of a row, as in its leaf.
    #[must_use]
    pub fn tags(&self, row: usize) -> &[u8] {
        self.tags_at(self.tags.get(self.tag_number(row)).copied().unwrap_or_default())
    }

    /// Where the tags of a row are among the [distinct ones](Self::distinct_tags).
    pub(crate) fn tag_number(&self, row: usize) -> usize {
        self.tag_of.get(row).copied().unwrap_or_default() as usize
    }

    /// The tags of all rows, each once.
    pub(crate) fn distinct_tags(&self) -> impl Iterator<Item = &[u8]> {
        self.tags.iter().map(|&range| self.tags_at(range))
    }

    fn tags_at(&self, (start, end): (u32, u32)) -> &[u8] {
        self.raw.get(start as usize..end as usize).unwrap_or_default()
    }

    /// Raw bytes and attributes of a row, as in its leaf.
    #[must_use]
    pub fn body(&self, row: usize) -> &[u8] {
        let before = row.checked_sub(1).and_then(|row| self.ends.get(row)).copied();
        let start = before.unwrap_or(self.bodies);
        let end = self.ends.get(row).copied().unwrap_or(start);
        self.raw.get(start as usize..end as usize).unwrap_or_default()
    }

    /// Appends the canonical leaf of a row.
    pub fn leaf(&self, row: usize, out: &mut Vec<u8>) {
        leaf::join(&self.parts(row), out);
    }

    /// The parts of a row's leaf.
    pub(crate) fn parts(&self, row: usize) -> Parts<'_> {
        Parts {
            id: self.id(row),
            timestamp_ns: self.timestamp_ns(row),
            tags: self.tags(row),
            body: self.body(row),
        }
    }

    /// The rows with an id.
    pub fn rows_of(&self, id: EventId) -> impl Iterator<Item = usize> {
        (0..).zip(&self.ids).filter(move |(_, known)| **known == id).map(|(row, _)| row)
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], &'static str> {
    let (found, rest) = bytes.split_first_chunk::<N>().ok_or("it is truncated")?;
    *bytes = rest;
    Ok(*found)
}

fn number(bytes: &mut &[u8]) -> Result<usize, &'static str> {
    let number = take_varint(bytes).ok_or("it contains an invalid number")?;
    usize::try_from(number).map_err(|_| "it contains a number that is too large")
}

fn seqs(rest: &mut &[u8], rows: usize, modes: u8) -> Result<Vec<u64>, &'static str> {
    let first = u64::from_le_bytes(take(rest)?);
    if modes & MODE_SEQS_FOLLOW != 0 {
        let end = first.checked_add(rows as u64).ok_or("its positions are too large")?;
        return Ok((first..end).collect());
    }
    let mut seqs = Vec::with_capacity(rows);
    let mut seq = first;
    seqs.push(seq);
    for _ in 1..rows {
        let difference = take_varint(rest).ok_or("a position is not a valid number")?;
        seq = seq.wrapping_add(unzigzag(difference) as u64);
        seqs.push(seq);
    }
    Ok(seqs)
}

fn times(rest: &mut &[u8], rows: usize) -> Result<Vec<i64>, &'static str> {
    let mut time = i64::from_le_bytes(take(rest)?);
    let mut times = Vec::with_capacity(rows);
    times.push(time);
    for _ in 1..rows {
        let difference = take_varint(rest).ok_or("a time is not a valid number")?;
        time = time.wrapping_add(unzigzag(difference));
        times.push(time);
    }
    Ok(times)
}

fn ids(rest: &mut &[u8], rows: usize, modes: u8) -> Result<Vec<EventId>, &'static str> {
    let mut ids = Vec::with_capacity(rows);
    if modes & MODE_IDS_DIFFER == 0 {
        let size = rows.checked_mul(16).ok_or("it has too many ids")?;
        let (bytes, after) = rest.split_at_checked(size).ok_or("its ids are truncated")?;
        *rest = after;
        ids.extend(bytes.as_chunks::<16>().0.iter().map(|id| EventId(u128::from_be_bytes(*id))));
        return Ok(ids);
    }
    let mut id = u128::from_be_bytes(take(rest)?);
    ids.push(EventId(id));
    for _ in 1..rows {
        let difference = take_varint(rest).ok_or("an id is not a valid number")?;
        id = id.wrapping_add(u128::from(difference));
        ids.push(EventId(id));
    }
    Ok(ids)
}
