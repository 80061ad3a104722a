//! Reading entries back: one, or all from a position on.
//!
//! Invariants:
//! - Only bytes already handed to the kernel are read, so a reader never meets a frame half written.
//! - Nothing is skipped but what was erased or is a mark; damage stops the reader where it stands.
//! - Memory is a chunk, or one entry where that is larger.

use std::sync::Arc;

use crate::{
    Lsn,
    cursor::{Cursor, WalkError},
    error::{DiskError, ReadError},
    format::Kind,
    segment::{Place, Segment},
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

/// Reads entries in order; see [`Log::reader`](crate::Log::reader).
#[derive(Debug)]
pub struct Reader {
    shared: Arc<Shared>,
    position: u64,
    /// The segment being read, and where its frames end if it was sealed when looked up.
    cursor: Option<(Cursor, Option<u64>)>,
}

impl Reader {
    pub(crate) fn new(shared: Arc<Shared>, from: Lsn) -> Self {
        Self { shared, position: from.0, cursor: None }
    }

    /// Returns the position reading continues from.
    #[must_use]
    pub fn position(&self) -> Lsn {
        Lsn(self.position)
    }

    /// Returns the next entry, or `None` after the last one written; asked again later, it goes on.
    ///
    /// # Errors
    /// [`ReadError::BelowStart`]: the position was truncated away. [`ReadError::NotAnEntry`]: the reader was
    /// made for a position inside an entry. [`ReadError::Corrupt`], [`ReadError::Io`]: asked again, it tries
    /// the same place again.
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
        };
        // The borrow checker cannot see that a returned frame ends the loop, so it is fetched here.
        let payload = self.cursor.as_ref().map_or(&[][..], |(cursor, _)| cursor.payload());
        Ok(Some(Entry { lsn: Lsn(lsn), next: Lsn(next), payload }))
    }

    fn advance(&mut self) -> Result<Option<Step>, ReadError> {
        loop {
            // Read before the segments are: what lies below it is in a segment already listed.
            let written = self.shared.written();
            if self.cursor.is_none() && !self.enter()? {
                return Ok(None);
            }
            let Some((cursor, sealed_end)) = &mut self.cursor else { return Ok(None) };
            let limit = sealed_end.unwrap_or(written);
            cursor.set_range(self.position, limit.max(self.position));
            match cursor.next() {
                Ok(Some(frame)) => {
                    let step = Step { lsn: frame.lsn, next: frame.next, kind: frame.header.kind };
                    self.position = step.next;
                    return Ok(Some(step));
                }
                Ok(None) => {
                    let base = cursor.base();
                    match self.shared.segment(base) {
                        // Sealed since, or read to its end: look up where to go on.
                        Some(now) if now.end == *sealed_end && sealed_end.is_none() => {
                            return Ok(None);
                        }
                        _ => self.cursor = None,
                    }
                }
                Err(error) => {
                    let base = cursor.base();
                    self.cursor = None;
                    return Err(explain(&self.shared, error, base, self.position));
                }
            }
        }
    }

    /// Opens the segment the position is in; `false` when that is where nothing was written yet.
    fn enter(&mut self) -> Result<bool, ReadError> {
        let (segment, position) = find(&self.shared, self.position)?;
        if position > self.shared.written() {
            return if self.position > self.shared.written() && segment.end.is_none() {
                let (lsn, written) = (Lsn(self.position), Lsn(self.shared.written()));
                Err(ReadError::Beyond { lsn, written })
            } else {
                Ok(false)
            };
        }
        let cursor = open(&self.shared, segment).map_err(ReadError::Io)?;
        self.position = position;
        self.cursor = Some((cursor, segment.end));
        Ok(true)
    }
}

struct Step {
    lsn: u64,
    next: u64,
    kind: Kind,
}

impl Shared {
    pub(crate) fn segment(&self, base: u64) -> Option<Segment> {
        self.segments.lock().get(base)
    }
}

/// Returns the segment that holds `position`, and the position moved on to where a frame may be.
fn find(shared: &Shared, position: u64) -> Result<(Segment, u64), ReadError> {
    let segments = shared.segments.lock();
    match segments.place(position) {
        Place::In(segment, position) => Ok((segment, position)),
        Place::Before(start) => {
            Err(ReadError::BelowStart { lsn: Lsn(position), start: Lsn(start) })
        }
        Place::Header => Err(ReadError::NotAnEntry { lsn: Lsn(position) }),
    }
}

fn open(shared: &Shared, segment: Segment) -> Result<Cursor, DiskError> {
    let (file, path) = shared.segments.lock().file(&*shared.fs, &shared.dir, segment.base)?;
    Ok(Cursor::new(file, path, shared.seed, segment.base))
}

/// Reads the entry at `lsn`.
pub(crate) fn read_one(shared: &Shared, lsn: Lsn) -> Result<Vec<u8>, ReadError> {
    /// Holds most entries whole, so that one read call fetches header and payload.
    const GUESS_SIZE: usize = 8 << 10;
    let written = shared.written();
    let (segment, position) = find(shared, lsn.0)?;
    if position != lsn.0 {
        return Err(ReadError::NotAnEntry { lsn });
    }
    let limit = segment.end.unwrap_or(written);
    if lsn.0 >= limit {
        return Err(ReadError::Beyond { lsn, written: Lsn(written) });
    }
    let mut cursor = open(shared, segment).map_err(ReadError::Io)?.with_chunk_size(GUESS_SIZE);
    cursor.set_range(lsn.0, limit);
    match cursor.next() {
        Ok(Some(frame)) => match frame.header.kind {
            Kind::Entry => Ok(frame.payload.to_vec()),
            Kind::Erased => Err(ReadError::Erased { lsn }),
            Kind::Close => Err(ReadError::NotAnEntry { lsn }),
        },
        Ok(None) => Err(ReadError::Beyond { lsn, written: Lsn(written) }),
        Err(error) => Err(explain(shared, error, segment.base, lsn.0)),
    }
}

/// Tells damage from a position that never was an entry's, by walking the segment up to it.
fn explain(shared: &Shared, error: WalkError, base: u64, position: u64) -> ReadError {
    let corrupt = match error {
        WalkError::Io(error) => return ReadError::Io(error),
        WalkError::Corrupt(corrupt) => corrupt,
    };
    let Some(segment) = shared.segment(base) else {
        let start = shared.segments.lock().start();
        return ReadError::BelowStart { lsn: Lsn(position), start };
    };
    match boundary(shared, segment, position) {
        Ok(None) => ReadError::Corrupt(corrupt),
        Ok(Some(elsewhere)) => elsewhere,
        Err(error) => ReadError::Io(error),
    }
}

/// Returns `None` when a frame starts at `position`, otherwise what is there.
fn boundary(
    shared: &Shared,
    segment: Segment,
    position: u64,
) -> Result<Option<ReadError>, DiskError> {
    let mut cursor = open(shared, segment)?;
    cursor.set_range(segment.first(), segment.end.unwrap_or_else(|| shared.written()));
    loop {
        match cursor.position() {
            at if at == position => return Ok(None),
            at if at > position => {
                return Ok(Some(ReadError::NotAnEntry { lsn: Lsn(position) }));
            }
            _ => {}
        }
        match cursor.next() {
            Ok(Some(_)) => {}
            Ok(None) => return Ok(Some(ReadError::NotAnEntry { lsn: Lsn(position) })),
            Err(WalkError::Io(error)) => return Err(error),
            Err(WalkError::Corrupt(earlier)) => return Ok(Some(ReadError::Corrupt(earlier))),
        }
    }
}
