//! Reading entries: a single one, or all from a position on.
//!
//! Invariants:
//! - Only bytes already handed to the kernel are read, so a reader never sees a partial frame.
//! - Nothing is skipped except marks and erased entries; damage stops the reader at its position.
//! - What was skipped because it was erased is counted ([`Reader::take_erased`]).
//! - The position of an entry stays valid: if the entry was erased with its neighbours and has no
//!   header any more, walking the segment up to the run that contains it shows that.
//! - Memory is limited to one chunk, or one entry if that is larger.

use std::sync::Arc;

use crate::{
    Lsn,
    cursor::{Cursor, WalkError},
    error::{DiskError, ReadError},
    format::Kind,
    segment::{Location, Segment},
    writer::Shared,
};

/// An entry as read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Its position.
    pub lsn: Lsn,
    /// The position after it, from which a later reader continues.
    pub next: Lsn,
    /// Its bytes.
    pub payload: &'a [u8],
}

/// Erased entries that a reader has passed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErasedEntries {
    /// Position of the first of them.
    pub from: Lsn,
    /// The position after the last of them. Entries that were not erased may lie between.
    pub to: Lsn,
    /// Their number; at least that, if the reader started among entries that were erased together.
    pub entries: u64,
}

/// Reads entries in order; see [`Log::reader`](crate::Log::reader).
#[derive(Debug)]
pub struct Reader {
    shared: Arc<Shared>,
    position: u64,
    /// Erased entries passed since they were last asked for.
    erased: Option<ErasedEntries>,
    /// In the segment being read.
    cursor: Option<Cursor>,
}

impl Reader {
    pub(crate) fn new(shared: Arc<Shared>, from: Lsn) -> Self {
        Self { shared, position: from.0, cursor: None, erased: None }
    }

    /// Returns the position reading continues from.
    #[must_use]
    pub fn position(&self) -> Lsn {
        Lsn(self.position)
    }

    /// Returns the erased entries that [`Reader::next`] has passed over since the last call.
    pub fn take_erased(&mut self) -> Option<ErasedEntries> {
        self.erased.take()
    }

    /// Returns the bytes of the entry that [`Reader::next`] returned last; empty before the first.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        self.cursor.as_ref().map_or(&[][..], Cursor::payload)
    }

    fn pass(&mut self, from: u64, to: u64, entries: u64) {
        let before = self.erased.take();
        let (from, passed) = before.map_or((Lsn(from), 0), |before| (before.from, before.entries));
        self.erased = Some(ErasedEntries { from, to: Lsn(to), entries: passed + entries });
    }

    /// Returns the next entry, or `None` after the last one written; a later call continues there.
    ///
    /// # Errors
    /// [`ReadError::BelowStart`]: the position was truncated away. [`ReadError::NotAnEntry`]: the
    /// reader was created for a position inside an entry. [`ReadError::Corrupt`],
    /// [`ReadError::Io`]: a later call tries the same position again.
    #[expect(
        clippy::should_implement_trait,
        reason = "an entry borrows the reader, which Iterator cannot express"
    )]
    pub fn next(&mut self) -> Result<Option<Entry<'_>>, ReadError> {
        let (lsn, next) = loop {
            let Some(frame) = self.advance()? else { return Ok(None) };
            if frame.kind == Kind::Entry {
                break (frame.lsn, frame.next);
            }
            if frame.erased > 0 {
                self.pass(frame.lsn, frame.next, frame.erased);
            }
        };
        // The borrow checker cannot see that a returned frame ends the loop, so it is fetched here.
        let payload = self.cursor.as_ref().map_or(&[][..], Cursor::payload);
        Ok(Some(Entry { lsn: Lsn(lsn), next: Lsn(next), payload }))
    }

    fn advance(&mut self) -> Result<Option<Step>, ReadError> {
        loop {
            if self.cursor.is_none() && !self.enter()? {
                return Ok(None);
            }
            let Some(cursor) = &mut self.cursor else { return Ok(None) };
            match cursor.next() {
                Ok(Some(frame)) => {
                    let step = Step {
                        lsn: frame.lsn,
                        next: frame.next,
                        kind: frame.header.kind,
                        erased: frame.header.entries_erased(),
                    };
                    self.position = step.next;
                    return Ok(Some(step));
                }
                Ok(None) => match extent(&self.shared, cursor.base()) {
                    Some((_, limit)) if self.position < limit => {
                        cursor.set_range(self.position, limit);
                    }
                    Some((segment, _)) if segment.end.is_none() => return Ok(None),
                    // Read to its end, or truncated away: look up where to continue.
                    Some(_) | None => self.cursor = None,
                },
                Err(error) => {
                    let base = cursor.base();
                    self.cursor = None;
                    let from = self.position;
                    self.position = explain(&self.shared, error, base, from)?;
                    self.pass(from, self.position, 1);
                }
            }
        }
    }

    /// Opens the segment that contains the position; returns `false` if nothing is written there
    /// yet.
    fn enter(&mut self) -> Result<bool, ReadError> {
        let (segment, position, limit) = find(&self.shared, self.position)?;
        if position >= limit {
            return if self.position > limit && segment.end.is_none() {
                Err(ReadError::Beyond { lsn: Lsn(self.position), written: Lsn(limit) })
            } else {
                Ok(false)
            };
        }
        let mut cursor = open(&self.shared, segment).map_err(ReadError::Io)?;
        cursor.set_range(position, limit);
        self.position = position;
        self.cursor = Some(cursor);
        Ok(true)
    }
}

struct Step {
    lsn: u64,
    next: u64,
    kind: Kind,
    /// Number of erased entries.
    erased: u64,
}

impl Shared {
    pub(crate) fn segment(&self, base: u64) -> Option<Segment> {
        self.segments.lock().get(base)
    }
}

/// Returns the segment that starts at `base`, and the position up to which it can be read.
fn extent(shared: &Shared, base: u64) -> Option<(Segment, u64)> {
    // Read before the segment is looked up: if it is not sealed even then, this position lies in
    // it.
    let written = shared.written();
    let segment = shared.segment(base)?;
    Some((segment, segment.end.unwrap_or(written)))
}

/// Returns the segment that holds `position`, the position moved on to where a frame may be, and
/// the position up to which the segment can be read.
fn find(shared: &Shared, position: u64) -> Result<(Segment, u64, u64), ReadError> {
    // As in `extent`.
    let written = shared.written();
    let segments = shared.segments.lock();
    match segments.locate(position) {
        Location::In(segment, position) => Ok((segment, position, segment.end.unwrap_or(written))),
        Location::Before(start) => {
            Err(ReadError::BelowStart { lsn: Lsn(position), start: Lsn(start) })
        }
        Location::Header => Err(ReadError::NotAnEntry { lsn: Lsn(position) }),
    }
}

fn open(shared: &Shared, segment: Segment) -> Result<Cursor, DiskError> {
    let (file, path) = shared.segments.lock().file(&*shared.fs, &shared.dir, segment.base)?;
    Ok(Cursor::new(file, path, shared.seed, segment.base))
}

/// Reads the entry at `lsn`.
pub(crate) fn read_one(shared: &Shared, lsn: Lsn) -> Result<Vec<u8>, ReadError> {
    /// Large enough for most entries, so that one read call fetches header and payload.
    const GUESS_SIZE: usize = 8 << 10;
    let (segment, position, limit) = find(shared, lsn.0)?;
    if lsn.0 >= limit {
        return Err(ReadError::Beyond { lsn, written: Lsn(limit) });
    }
    if position != lsn.0 {
        return Err(ReadError::NotAnEntry { lsn });
    }
    let mut cursor = open(shared, segment).map_err(ReadError::Io)?.with_chunk_size(GUESS_SIZE);
    cursor.set_range(lsn.0, limit);
    match cursor.next() {
        Ok(Some(frame)) => match frame.header.kind {
            Kind::Entry => Ok(frame.payload.to_vec()),
            Kind::Erased => Err(ReadError::Erased { lsn }),
            Kind::Close => Err(ReadError::NotAnEntry { lsn }),
        },
        Ok(None) => Err(ReadError::Beyond { lsn, written: Lsn(limit) }),
        Err(error) => {
            let _behind = explain(shared, error, segment.base, lsn.0)?;
            Err(ReadError::Erased { lsn })
        }
    }
}

/// Finds out why no frame can be read at `position`, by walking the segment up to it.
///
/// Returns where to continue if entries erased together extend over the position. Otherwise the
/// error distinguishes damage from a position that never was an entry's.
fn explain(shared: &Shared, error: WalkError, base: u64, position: u64) -> Result<u64, ReadError> {
    let corrupt = match error {
        WalkError::Io(error) => return Err(ReadError::Io(error)),
        WalkError::Corrupt(corrupt) => corrupt,
    };
    let Some((segment, limit)) = extent(shared, base) else {
        let start = shared.segments.lock().start();
        return Err(ReadError::BelowStart { lsn: Lsn(position), start });
    };
    let mut cursor = open(shared, segment).map_err(ReadError::Io)?;
    cursor.set_range(segment.first(), limit);
    while cursor.position() < position {
        match cursor.next() {
            Ok(Some(frame)) if frame.header.swallowed(frame.lsn, position) => {
                return Ok(frame.next);
            }
            Ok(Some(_)) => {}
            Ok(None) => break,
            Err(WalkError::Io(error)) => return Err(ReadError::Io(error)),
            Err(WalkError::Corrupt(earlier)) => return Err(ReadError::Corrupt(earlier)),
        }
    }
    if cursor.position() == position {
        Err(ReadError::Corrupt(corrupt))
    } else {
        Err(ReadError::NotAnEntry { lsn: Lsn(position) })
    }
}
