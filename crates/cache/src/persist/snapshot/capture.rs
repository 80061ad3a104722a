//! The work done under a shard's lock: copying a batch of its keys.
//!
//! A batch is a whole segment of the index if that is small. Otherwise it has as many of its keys,
//! in the order of their hashes, as make [`Sizes::piece`] bytes or [`KEYS_MAX`] keys. Long strings
//! are not copied: the batch references them, and they are read after the lock is released.
//!
//! Invariants: the work under one lock is limited by the slots of a segment, a piece, and one small
//! value; a range ends between two hashes, so keys with the same hash are taken together.

use std::time::Instant;

use forebay_log::{Log, Lsn};

use super::entry::{put_bytes, put_head};
use super::pace::Pace;
use super::value::put_elements;
use crate::persist::front::Front;
use crate::persist::ops::put_number;
use crate::store::{At, Keyspace, Shard, SharedText};

/// Maximum number of keys in a batch, if a segment is not taken whole.
const KEYS_MAX: u64 = 256;

/// How much is copied under one lock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    /// Size of a piece in bytes; it may exceed this by one small value.
    pub(crate) piece: usize,
    /// Size in bytes from which a string is large. A collection is large if it exceeds a piece.
    pub(crate) large: usize,
}

/// Reused buffers.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    /// Encoded entries without the long strings.
    piece: Vec<u8>,
    /// The long strings, and the position of each in the piece.
    held: Vec<(usize, SharedText)>,
    elements: Vec<u8>,
    found: Vec<(u64, At)>,
    /// The piece with the long strings.
    whole: Vec<u8>,
}

/// The result of copying from a range.
pub(crate) struct Captured {
    /// The last hash of the range; `None` if the segment is too large to be taken whole.
    pub(crate) last: Option<u64>,
    pub(crate) position: Lsn,
    pub(crate) keys: u64,
    /// The next key, whose value is large.
    pub(crate) large: Option<(u64, Vec<u8>)>,
    /// Whether the next range begins at a segment's start.
    pub(crate) fresh: bool,
}

/// The keys, the log, how far the keys were read, and the time.
pub(crate) type Source<'a> = (&'a Keyspace, &'a Log, &'a Front, u64);

/// Copies keys from a hash on, at most to the end of its segment.
///
/// * `whole`: the hash is a segment's first, and the whole segment is wanted; if it is too large,
///   nothing is copied.
pub(crate) fn capture(
    (keyspace, log, front, now_ms): Source<'_>,
    place: (usize, usize),
    (from, whole): (u64, bool),
    sizes: Sizes,
    buffers: &mut Buffers,
    pace: &mut Pace,
) -> Captured {
    buffers.clear(sizes);
    let shard = keyspace.lock(place.0, place.1, now_ms);
    let started = Instant::now();
    let position = log.end();
    let mut captured = Captured { last: None, position, keys: 0, large: None, fresh: true };
    if whole {
        let mut fits = true;
        let next = shard.visit_range(from, &mut |shard, at| {
            fits &= buffers.size() < sizes.piece && !is_large(shard, at, sizes);
            if fits && !shard.is_expired(at) {
                buffers.put_entry(shard, at);
                captured.keys += 1;
            }
        });
        captured.last = fits.then(|| next.map_or(u64::MAX, |next| next - 1));
    } else {
        let mut found = std::mem::take(&mut buffers.found);
        let next = shard.visit_range(from, &mut |shard, at| {
            let hash = keyspace.rules().hash(shard.key(at));
            if hash >= from && !shard.is_expired(at) {
                found.push((hash, at));
            }
        });
        found.sort_unstable_by_key(|(hash, _)| *hash);
        captured.last = Some(next.map_or(u64::MAX, |next| next - 1));
        take_some(&shard, sizes, &found, buffers, &mut captured);
        buffers.found = found;
    }
    // A range that would end before its first hash is not taken; the value there is large.
    let is_empty = captured.large.as_ref().is_some_and(|(hash, _)| *hash == from);
    if let Some(last) = captured.last.filter(|_| !is_empty) {
        front.pass(place, last);
    }
    drop(shard);
    pace.held_since(started);
    captured
}

/// Copies the keys with one hash; `None` if that is a single key with a large value.
pub(crate) fn capture_hash(
    (keyspace, log, front, now_ms): Source<'_>,
    place: (usize, usize),
    hash: u64,
    sizes: Sizes,
    buffers: &mut Buffers,
    pace: &mut Pace,
) -> Option<(Lsn, u64)> {
    buffers.clear(sizes);
    let shard = keyspace.lock(place.0, place.1, now_ms);
    let started = Instant::now();
    let position = log.end();
    let mut found = std::mem::take(&mut buffers.found);
    shard.visit_range(hash, &mut |shard, at| {
        if keyspace.rules().hash(shard.key(at)) == hash && !shard.is_expired(at) {
            found.push((hash, at));
        }
    });
    let large = matches!(found.as_slice(), [(_, at)] if is_large(&shard, *at, sizes));
    if !large {
        found.iter().for_each(|(_, at)| buffers.put_entry(&shard, *at));
        front.pass(place, hash);
    }
    let keys = found.len() as u64;
    buffers.found = found;
    drop(shard);
    pace.held_since(started);
    (!large).then_some((position, keys))
}

/// Whether a value is taken separately.
fn is_large(shard: &Shard, at: At, sizes: Sizes) -> bool {
    match shard.text_at(at) {
        Ok(text) => text.len().max(shard.usage(at)) >= sizes.large,
        Err(_) => shard.usage(at) >= sizes.large.min(sizes.piece),
    }
}

/// Copies keys in the order of their hashes, until the batch is full or a value is large.
fn take_some(
    shard: &Shard,
    sizes: Sizes,
    found: &[(u64, At)],
    buffers: &mut Buffers,
    captured: &mut Captured,
) {
    for group in found.chunk_by(|(one, _), (other, _)| one == other) {
        let Some((hash, first)) = group.first() else { continue };
        let large = group.len() == 1 && is_large(shard, *first, sizes);
        if large || buffers.size() >= sizes.piece || captured.keys >= KEYS_MAX {
            captured.last = Some(hash.saturating_sub(1));
            captured.large = large.then(|| (*hash, shard.key(*first).to_vec()));
            captured.fresh = false;
            return;
        }
        captured.keys += group.len() as u64;
        group.iter().for_each(|(_, at)| buffers.put_entry(shard, *at));
    }
}

impl Buffers {
    fn clear(&mut self, sizes: Sizes) {
        self.piece.clear();
        self.piece.shrink_to(4 * sizes.piece);
        self.whole.clear();
        self.whole.shrink_to(4 * sizes.piece);
        self.elements.clear();
        self.elements.shrink_to(4 * sizes.piece);
        self.held.clear();
        self.found.clear();
    }

    /// Size of the entries in bytes.
    fn size(&self) -> usize {
        self.piece.len() + self.held.iter().map(|(_, text)| text.text().len()).sum::<usize>()
    }

    /// Copies a key with its value, or references a long string.
    fn put_entry(&mut self, shard: &Shard, at: At) {
        let out = &mut self.piece;
        put_head(out, shard.kind(at), shard.deadline_ms(at), shard.key(at));
        if let Some(object) = shard.object_at(at) {
            self.elements.clear();
            put_elements(object, 0, usize::MAX, &mut self.elements);
            put_bytes(out, &self.elements);
        } else if let Ok(text) = shard.text_at(at) {
            put_number(out, text.len() as u64);
            match text.share() {
                Some(shared) => self.held.push((out.len(), shared)),
                None => text.append_to(out),
            }
        }
    }

    /// Returns the complete entries; must be called without a lock.
    pub(crate) fn entries(&mut self) -> &[u8] {
        if self.held.is_empty() {
            return &self.piece;
        }
        let mut from = 0;
        for (at, shared) in self.held.drain(..) {
            self.whole.extend_from_slice(self.piece.get(from..at).unwrap_or_default());
            shared.text().append_to(&mut self.whole);
            from = at;
        }
        self.whole.extend_from_slice(self.piece.get(from..).unwrap_or_default());
        &self.whole
    }
}
