//! Taking the keys, range by range, while others work on.
//!
//! Under a shard's lock nothing is done but copying: of a segment of its hashes as much as
//! [`Sizes::piece`] holds, together with the position the log has at that moment. Everything later
//! about those keys is in the log behind that position, so each range is whole by itself.
//!
//! A value of [`Sizes::large`] bytes or more is copied in pieces, the lock given back in between; a
//! flag that every change of the key raises tells whether the pieces are of one value. After
//! [`ATTEMPTS`] that were spoilt it is copied at once. So is a string that is kept compressed, since
//! it has to be unpacked whole anyway.
//!
//! Invariant: one lock at a time, and none while anything is written.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use forebay_log::{Log, Lsn};

use super::SnapshotProgress;
use super::format::{Block, put_bytes, put_head};
use super::value::put_elements;
use super::write::SnapshotWriter;
use crate::persist::error::SnapshotError;
use crate::persist::ranges::Ranges;
use crate::store::{At, DATABASES, Held, Keyspace, Kind, SHARDS, Shard};

/// How often a large value is tried in pieces.
const ATTEMPTS: usize = 3;

/// How much is copied under a lock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    /// Bytes of a piece; one small value more may come on top.
    pub(crate) piece: usize,
    /// Bytes of memory from which on a value is large.
    pub(crate) large: usize,
}

/// The walk over all keys.
pub(crate) struct Taking<'a> {
    pub(crate) keyspace: &'a Keyspace,
    pub(crate) log: &'a Log,
    pub(crate) now_ms: u64,
    pub(crate) sizes: Sizes,
    pub(crate) writer: SnapshotWriter,
    pub(crate) cancel: &'a AtomicBool,
    pub(crate) progress: &'a dyn Fn(&SnapshotProgress),
    pub(crate) so_far: SnapshotProgress,
    pub(crate) ranges: Ranges,
    pub(crate) pauses: Pauses,
    pub(crate) abandoned: u64,
    pub(crate) buffers: Buffers,
}

/// How long shards were locked.
#[derive(Debug, Default)]
pub(crate) struct Pauses {
    pub(crate) longest: Duration,
    pub(crate) total: Duration,
    /// When others were last given the processor.
    gave_way: Option<Instant>,
}

/// How long the thread runs before it gives way: less than what schedulers give it at a time.
const RUN_TIME: Duration = Duration::from_millis(1);

impl Pauses {
    /// Lets whoever else wants the processor have it now and then, rather than have it taken away
    /// while a shard is locked.
    fn give_way(&mut self) {
        if self.gave_way.is_none_or(|at| at.elapsed() >= RUN_TIME) {
            std::thread::yield_now();
            self.gave_way = Some(Instant::now());
        }
    }

    fn add(&mut self, started: Instant) {
        let took = started.elapsed();
        self.longest = self.longest.max(took);
        self.total += took;
    }
}

/// Room that is used again and again.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    piece: Vec<u8>,
    elements: Vec<u8>,
    found: Vec<(u64, At)>,
}

/// What one look at a range gave.
struct Captured {
    last: u64,
    position: Lsn,
    keys: u64,
    /// The key after it, whose value is large.
    large: Option<(u64, Vec<u8>)>,
    /// Whether the next range begins where a segment does.
    fresh: bool,
}

/// A large value, as one look found it.
enum Looked {
    /// It is not what it was, or not there.
    Changed,
    /// Its next piece was copied; `next` is where the one after begins.
    Piece { next: usize, done: Option<Lsn> },
    /// All of it was copied.
    Whole { pieces: Vec<Vec<u8>>, position: Lsn },
}

/// Type and deadline of a large value.
type Head = (Kind, Option<u64>);

impl Taking<'_> {
    /// Takes everything.
    pub(crate) fn run(&mut self) -> Result<(), SnapshotError> {
        for database in 0..DATABASES {
            // Asked first: who makes the database afterwards appends behind this position.
            let position = self.log.end();
            if self.keyspace.is_made(database) {
                for shard in 0..SHARDS {
                    self.shard((database, shard))?;
                }
            } else {
                self.ranges.add_unused(database, position);
                let block = Block::Unused { database, position };
                self.writer.block(&block).map_err(SnapshotError::Io)?;
            }
            self.so_far.databases += 1;
        }
        Ok(())
    }

    fn shard(&mut self, place: (usize, usize)) -> Result<(), SnapshotError> {
        let (mut from, mut fresh) = (0, true);
        loop {
            self.check_cancel()?;
            self.pauses.give_way();
            let captured = self.capture(place, from, fresh);
            let (hashes, position) = ((from, captured.last), captured.position);
            let mut last = captured.last;
            // Nothing stands between the ranges of two large values that are neighbours.
            if captured.large.as_ref().is_none_or(|(hash, _)| *hash > from) {
                let entries = &self.buffers.piece;
                let block = Block::Range { place, hashes, position, entries };
                self.writer.block(&block).map_err(SnapshotError::Io)?;
                self.note(place, hashes, position, captured.keys);
            }
            self.buffers.piece.shrink_to(4 * self.sizes.piece);
            if let Some((hash, key)) = captured.large {
                self.large(place, hash, &key)?;
                last = hash;
            }
            let Some(next) = last.checked_add(1) else { return Ok(()) };
            (from, fresh) = (next, captured.fresh);
        }
    }

    fn check_cancel(&self) -> Result<(), SnapshotError> {
        if self.cancel.load(Ordering::Relaxed) { Err(SnapshotError::Cancelled) } else { Ok(()) }
    }

    /// Notes a range that was written.
    fn note(&mut self, place: (usize, usize), hashes: (u64, u64), position: Lsn, keys: u64) {
        let follows = self.ranges.add(place, hashes, position);
        debug_assert!(follows, "ranges are taken one after another");
        self.so_far.keys += keys;
        self.so_far.bytes = self.writer.len();
        (self.progress)(&self.so_far);
    }

    /// Copies keys from a hash on, at most to the end of its segment.
    fn capture(&mut self, (database, shard): (usize, usize), from: u64, fresh: bool) -> Captured {
        let Self { keyspace, sizes, buffers, .. } = self;
        let Buffers { piece, elements, found } = buffers;
        piece.clear();
        found.clear();
        let shard = keyspace.lock(database, shard, self.now_ms);
        let started = Instant::now();
        let position = self.log.end();
        let mut size = 0;
        let next = shard.visit_range(from, &mut |shard, at| {
            if !shard.is_expired(at) {
                size += shard.usage(at);
                found.push((0, at));
            }
        });
        let segment_last = next.map_or(u64::MAX, |next| next - 1);
        let mut captured =
            Captured { last: segment_last, position, keys: 0, large: None, fresh: true };
        if fresh && size <= sizes.piece.min(sizes.large) {
            // All of it, in whatever order.
            captured.keys = found.len() as u64;
            found.iter().for_each(|(_, at)| put_entry(&shard, *at, piece, elements));
        } else {
            let rules = keyspace.rules();
            found.iter_mut().for_each(|(hash, at)| *hash = rules.hash(shard.key(*at)));
            found.retain(|(hash, _)| *hash >= from);
            found.sort_unstable_by_key(|(hash, _)| *hash);
            capture_some(&shard, sizes, (piece, elements), found, &mut captured);
        }
        drop(shard);
        self.pauses.add(started);
        captured
    }

    /// Takes a large value; its hash is a range by itself.
    fn large(&mut self, place: (usize, usize), hash: u64, key: &[u8]) -> Result<(), SnapshotError> {
        for _ in 0..ATTEMPTS {
            let flag = Arc::new(AtomicBool::new(false));
            let taken = self.in_pieces(place, hash, key, &flag);
            self.keyspace.lock(place.0, place.1, self.now_ms).unwatch(key, &flag);
            if taken? {
                return Ok(());
            }
            self.abandoned += 1;
        }
        self.at_once(place, hash, key)
    }

    /// Takes a large value piece by piece; `false`: it was changed meanwhile, or is gone.
    fn in_pieces(
        &mut self,
        place: (usize, usize),
        hash: u64,
        key: &[u8],
        flag: &Arc<AtomicBool>,
    ) -> Result<bool, SnapshotError> {
        let mut head = None;
        let mut from = 0;
        loop {
            self.check_cancel()?;
            self.pauses.give_way();
            let begun = head.is_some();
            let looked = self.look(place, hash, key, from, Some(flag), &mut head);
            if let Some((kind, deadline_ms)) = head.filter(|_| !begun) {
                self.write(&Block::Large { place, kind, deadline_ms, key })?;
            }
            match looked {
                Looked::Changed if head.is_none() => return Ok(false),
                Looked::Changed => {
                    self.write(&Block::Abandoned)?;
                    return Ok(false);
                }
                Looked::Piece { next, done } => {
                    let piece = std::mem::take(&mut self.buffers.piece);
                    self.write(&Block::Piece(&piece))?;
                    self.buffers.piece = piece;
                    (self.progress)(&self.so_far);
                    from = next;
                    if let Some(position) = done {
                        self.end_large(place, hash, position)?;
                        return Ok(true);
                    }
                }
                Looked::Whole { pieces, position } => {
                    self.write_all(pieces)?;
                    self.end_large(place, hash, position)?;
                    return Ok(true);
                }
            }
        }
    }

    /// Takes a large value, or whatever has its hash by now, under one lock.
    fn at_once(
        &mut self,
        place: (usize, usize),
        hash: u64,
        key: &[u8],
    ) -> Result<(), SnapshotError> {
        loop {
            let mut head = None;
            let looked = self.look(place, hash, key, 0, None, &mut head);
            if let (Looked::Whole { pieces, position }, Some((kind, deadline_ms))) = (looked, head)
            {
                self.write(&Block::Large { place, kind, deadline_ms, key })?;
                self.write_all(pieces)?;
                return self.end_large(place, hash, position);
            }
            // It is gone: the range is one of few keys, most likely none.
            if let Some((position, keys)) = self.capture_hash(place, hash) {
                let piece = std::mem::take(&mut self.buffers.piece);
                let hashes = (hash, hash);
                self.write(&Block::Range { place, hashes, position, entries: &piece })?;
                self.buffers.piece = piece;
                self.note(place, hashes, position, keys);
                return Ok(());
            }
        }
    }

    fn write(&mut self, block: &Block<'_>) -> Result<(), SnapshotError> {
        self.writer.block(block).map_err(SnapshotError::Io)
    }

    fn write_all(&mut self, pieces: Vec<Vec<u8>>) -> Result<(), SnapshotError> {
        pieces.iter().try_for_each(|piece| self.write(&Block::Piece(piece)))
    }

    fn end_large(
        &mut self,
        place: (usize, usize),
        hash: u64,
        position: Lsn,
    ) -> Result<(), SnapshotError> {
        self.write(&Block::LargeEnd { hash, position })?;
        self.note(place, (hash, hash), position, 1);
        Ok(())
    }

    /// Copies the keys of one hash; `None` where that is one key with a large value again.
    fn capture_hash(&mut self, (database, shard): (usize, usize), hash: u64) -> Option<(Lsn, u64)> {
        let Buffers { piece, elements, found } = &mut self.buffers;
        piece.clear();
        found.clear();
        let shard = self.keyspace.lock(database, shard, self.now_ms);
        let started = Instant::now();
        let position = self.log.end();
        shard.visit_range(hash, &mut |shard, at| {
            let own = self.keyspace.rules().hash(shard.key(at)) == hash;
            if own && !shard.is_expired(at) {
                found.push((hash, at));
            }
        });
        if let [(_, at)] = found.as_slice()
            && shard.usage(*at) >= self.sizes.large
        {
            return None;
        }
        found.iter().for_each(|(_, at)| put_entry(&shard, *at, piece, elements));
        drop(shard);
        self.pauses.add(started);
        Some((position, found.len() as u64))
    }

    /// Looks at a large value once, copying a piece of it, or without a `flag` all of it.
    fn look(
        &mut self,
        (database, shard): (usize, usize),
        hash: u64,
        key: &[u8],
        from: usize,
        flag: Option<&Arc<AtomicBool>>,
        head: &mut Option<Head>,
    ) -> Looked {
        self.buffers.piece.clear();
        let mut shard = self.keyspace.lock(database, shard, self.now_ms);
        let started = Instant::now();
        let changed = match (flag, &head) {
            (Some(flag), None) => {
                shard.watch(key, flag);
                false
            }
            (Some(flag), Some(_)) => flag.load(Ordering::Acquire),
            (None, _) => false,
        };
        let at = find(&shard, hash, key, |key| self.keyspace.rules().hash(key));
        let looked = match at.filter(|_| !changed) {
            None => Looked::Changed,
            Some(at) => {
                head.get_or_insert((shard.kind(at), shard.deadline_ms(at)));
                let size_max = if flag.is_some() { Some(self.sizes.piece) } else { None };
                let position = || self.log.end();
                look_at(&shard, at, from, size_max, self.sizes, &mut self.buffers.piece, position)
            }
        };
        drop(shard);
        self.pauses.add(started);
        looked
    }
}

/// Copies keys in the order of their hashes, until there is a piece, or a large value.
fn capture_some(
    shard: &Held<'_>,
    sizes: &Sizes,
    (piece, elements): (&mut Vec<u8>, &mut Vec<u8>),
    found: &[(u64, At)],
    captured: &mut Captured,
) {
    // Keys of one hash are taken together: a range ends between two hashes.
    for group in found.chunk_by(|(one, _), (other, _)| one == other) {
        let Some((hash, first)) = group.first() else { continue };
        if piece.len() >= sizes.piece {
            captured.last = hash - 1;
            captured.fresh = false;
            return;
        }
        if group.len() == 1 && shard.usage(*first) >= sizes.large {
            captured.last = hash.saturating_sub(1);
            captured.large = Some((*hash, shard.key(*first).to_vec()));
            captured.fresh = false;
            return;
        }
        captured.keys += group.len() as u64;
        group.iter().for_each(|(_, at)| put_entry(shard, *at, piece, elements));
    }
}

/// Copies a key with its value.
fn put_entry(shard: &Shard, at: At, out: &mut Vec<u8>, elements: &mut Vec<u8>) {
    put_head(out, shard.kind(at), shard.deadline_ms(at), shard.key(at));
    match shard.object_at(at) {
        None => put_bytes(out, &shard.string_at(at).unwrap_or_default()),
        Some(object) => {
            elements.clear();
            put_elements(object, 0, usize::MAX, elements);
            put_bytes(out, elements);
        }
    }
}

/// Where a key is, found without noting a use of it.
fn find(shard: &Shard, hash: u64, key: &[u8], hash_of: impl Fn(&[u8]) -> u64) -> Option<At> {
    let mut found = None;
    let mut others = false;
    shard.visit_range(hash, &mut |shard, at| {
        if shard.is_expired(at) {
            return;
        }
        if shard.key(at) == key {
            found = Some(at);
        } else if hash_of(shard.key(at)) == hash {
            others = true;
        }
    });
    // A second key of the same hash belongs to the same range, which a large value has for itself.
    found.filter(|_| !others)
}

/// Copies a piece of a value, or all of it.
///
/// * `size_max`: bytes of the piece; `None` for all.
fn look_at(
    shard: &Shard,
    at: At,
    from: usize,
    size_max: Option<usize>,
    sizes: Sizes,
    piece: &mut Vec<u8>,
    position: impl Fn() -> Lsn,
) -> Looked {
    let Some(object) = shard.object_at(at) else {
        let text = shard.string_at(at).unwrap_or_default();
        let (Some(size_max), Cow::Borrowed(plain)) = (size_max, &text) else {
            return Looked::Whole { pieces: vec![text.into_owned()], position: position() };
        };
        let next = from.saturating_add(size_max).min(plain.len());
        piece.extend_from_slice(plain.get(from..next).unwrap_or_default());
        let done = (next == plain.len()).then(position);
        return Looked::Piece { next, done };
    };
    if let Some(size_max) = size_max {
        let next = put_elements(object, from, size_max, piece);
        let done = (next >= object.len()).then(position);
        return Looked::Piece { next, done };
    }
    let (mut pieces, mut next) = (Vec::new(), 0);
    while next < object.len() {
        let mut piece = Vec::with_capacity(sizes.piece);
        next = put_elements(object, next, sizes.piece, &mut piece);
        pieces.push(piece);
    }
    Looked::Whole { pieces, position: position() }
}
