//! Taking a large value; its hash is a separate range.
//!
//! A string is referenced at one moment and written afterwards; a later change creates a new
//! string. A collection is copied in pieces, and the lock is released between them; every change of
//! the key raises a flag, which shows whether the pieces are of one value. After [`ATTEMPTS`]
//! failed attempts the collection is copied under one lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use forebay_log::Lsn;

use super::capture::capture_hash;
use super::format::Block;
use super::take::Taking;
use super::value::put_elements;
use crate::persist::error::SnapshotError;
use crate::store::{At, Held, Kind, SharedText};

/// Number of attempts to copy a large collection in pieces.
const ATTEMPTS: usize = 3;

/// The location of a large value: database and shard, and its key.
#[derive(Debug, Clone, Copy)]
pub(super) struct LargeKey<'a> {
    pub(super) place: (usize, usize),
    pub(super) hash: u64,
    pub(super) key: &'a [u8],
}

/// Type and deadline of a large value.
type Head = (Kind, Option<u64>);

/// The result of reading a large value once.
enum Looked {
    /// It has changed or no longer exists.
    Changed,
    /// A string.
    Text { text: SharedText, position: Lsn },
    /// The next piece of a collection; `next` is where the following one begins.
    Piece { next: usize, done: Option<Lsn> },
    /// All of a collection.
    Whole { pieces: Vec<Vec<u8>>, position: Lsn },
}

impl Looked {
    /// Whether all of the value was read.
    fn is_all(&self) -> bool {
        match self {
            Self::Changed | Self::Piece { done: None, .. } => false,
            Self::Text { .. } | Self::Whole { .. } | Self::Piece { done: Some(_), .. } => true,
        }
    }
}

impl Taking<'_> {
    /// Takes a large value.
    pub(super) fn large(&mut self, target: LargeKey<'_>) -> Result<(), SnapshotError> {
        for _ in 0..ATTEMPTS {
            let flag = Arc::new(AtomicBool::new(false));
            let taken = self.in_pieces(target, &flag);
            let (database, shard) = target.place;
            self.keyspace.lock(database, shard, self.now_ms).unwatch(target.key, &flag);
            if taken? {
                return Ok(());
            }
            self.abandoned += 1;
        }
        self.at_once(target)
    }

    /// Takes it piece by piece; `false` if it was changed meanwhile or no longer exists.
    fn in_pieces(
        &mut self,
        target: LargeKey<'_>,
        flag: &Arc<AtomicBool>,
    ) -> Result<bool, SnapshotError> {
        let LargeKey { place, key, .. } = target;
        let (mut head, mut from, mut piece) = (None, 0, Vec::new());
        loop {
            self.check_cancel()?;
            self.pace.rest();
            let begun = head.is_some();
            let looked = self.look(target, from, Some(flag), &mut head, &mut piece);
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
                    self.write(&Block::Piece(&piece))?;
                    (self.progress)(&self.so_far);
                    from = next;
                    if let Some(position) = done {
                        self.end_large(target, position)?;
                        return Ok(true);
                    }
                }
                Looked::Text { text, position } => {
                    self.write_text(&text)?;
                    self.end_large(target, position)?;
                    return Ok(true);
                }
                Looked::Whole { pieces, position } => {
                    self.write_all(pieces)?;
                    self.end_large(target, position)?;
                    return Ok(true);
                }
            }
        }
    }

    /// Takes a large value, or whatever has its hash now, under one lock.
    fn at_once(&mut self, target: LargeKey<'_>) -> Result<(), SnapshotError> {
        let LargeKey { place, hash, key } = target;
        loop {
            let mut head = None;
            let looked = self.look(target, 0, None, &mut head, &mut Vec::new());
            if let Some((kind, deadline_ms)) = head {
                self.write(&Block::Large { place, kind, deadline_ms, key })?;
                let position = match looked {
                    Looked::Text { text, position } => self.write_text(&text).map(|()| position)?,
                    Looked::Whole { pieces, position } => {
                        self.write_all(pieces)?;
                        position
                    }
                    Looked::Changed | Looked::Piece { .. } => {
                        self.write(&Block::Abandoned)?;
                        continue;
                    }
                };
                return self.end_large(target, position);
            }
            // It no longer exists: the range has few keys, most likely none.
            let source = (self.keyspace, self.log, self.front, self.now_ms);
            let (sizes, buffers) = (self.sizes, &mut self.buffers);
            let captured = capture_hash(source, place, hash, sizes, buffers, &mut self.pace);
            if let Some((position, keys)) = captured {
                let hashes = (hash, hash);
                let entries = self.buffers.entries();
                let block = Block::Range { place, hashes, position, entries };
                self.writer.block(&block).map_err(SnapshotError::Io)?;
                self.note(place, hashes, position, keys);
                return Ok(());
            }
        }
    }

    /// Writes a string in pieces, with no lock held.
    fn write_text(&mut self, text: &SharedText) -> Result<(), SnapshotError> {
        let plain = text.text().plain();
        for piece in plain.chunks(self.sizes.piece) {
            self.check_cancel()?;
            self.pace.rest();
            self.write(&Block::Piece(piece))?;
            (self.progress)(&self.so_far);
        }
        Ok(())
    }

    fn write_all(&mut self, pieces: Vec<Vec<u8>>) -> Result<(), SnapshotError> {
        pieces.iter().try_for_each(|piece| self.write(&Block::Piece(piece)))
    }

    fn end_large(&mut self, target: LargeKey<'_>, position: Lsn) -> Result<(), SnapshotError> {
        let hash = target.hash;
        self.write(&Block::LargeEnd { hash, position })?;
        self.note(target.place, (hash, hash), position, 1);
        Ok(())
    }

    /// Reads a large value once: references a string, copies a piece of a collection, or without a
    /// `flag` copies all of it.
    fn look(
        &mut self,
        target: LargeKey<'_>,
        from: usize,
        flag: Option<&Arc<AtomicBool>>,
        head: &mut Option<Head>,
        piece: &mut Vec<u8>,
    ) -> Looked {
        piece.clear();
        let key = self.keyspace.key(target.key);
        let mut shard = self.keyspace.lock(target.place.0, target.place.1, self.now_ms);
        let started = Instant::now();
        let changed = match (flag, &head) {
            (Some(flag), None) => {
                shard.watch(target.key, flag);
                false
            }
            (Some(flag), Some(_)) => flag.load(Ordering::Acquire),
            (None, _) => false,
        };
        let looked = match shard.only(&key).filter(|_| !changed) {
            None => Looked::Changed,
            Some(at) => {
                head.get_or_insert((shard.kind(at), shard.deadline_ms(at)));
                let looked = self.look_at(&shard, at, from, flag.is_some(), piece);
                // The position was read under this lock.
                if looked.is_all() {
                    self.front.pass(target.place, target.hash);
                }
                looked
            }
        };
        drop(shard);
        self.pace.held_since(started);
        looked
    }

    fn look_at(
        &self,
        shard: &Held<'_>,
        at: At,
        from: usize,
        in_pieces: bool,
        piece: &mut Vec<u8>,
    ) -> Looked {
        let position = || self.log.end();
        let Some(object) = shard.object_at(at) else {
            let Ok(text) = shard.text_at(at) else { return Looked::Changed };
            return match text.share() {
                Some(text) => Looked::Text { text, position: position() },
                None => {
                    Looked::Whole { pieces: vec![text.plain().into_owned()], position: position() }
                }
            };
        };
        let size_max = self.sizes.piece;
        if in_pieces {
            let next = put_elements(object, from, size_max, piece);
            let done = (next >= object.len()).then(position);
            return Looked::Piece { next, done };
        }
        let (mut pieces, mut next) = (Vec::new(), 0);
        while next < object.len() {
            let mut piece = Vec::with_capacity(size_max);
            next = put_elements(object, next, size_max, &mut piece);
            pieces.push(piece);
        }
        Looked::Whole { pieces, position: position() }
    }
}
