//! Frames: where a tuple of binary COPY ends, in bytes that are cut anywhere.
//!
//! ```text
//! stream   signature (11) | flags (4) | length of extension (4) | extension | tuples | -1 (2)
//! tuple    count of fields (2) | fields
//! field    length (4), -1 is NULL | bytes
//! ```
//! All integers are big-endian (PostgreSQL's documentation, "COPY", binary format).
//!
//! Invariants:
//! * A [`Sink`] sees whole tuples only, each with the right count of fields, each field within it.
//! * Nothing is copied except a tuple that is cut, and of that only the bytes that have arrived.
//! * The time a cut tuple takes is linear in its bytes, however small the pieces.

#![deny(clippy::indexing_slicing)]

use crate::error::DecodeError;

/// What a stream of binary COPY begins with: signature, no flags, no extension.
pub const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// What it ends with: a count of fields of -1.
pub const TRAILER: &[u8] = &[0xff, 0xff];

const SIGNATURE: &[u8; 11] = b"PGCOPY\n\xff\r\n\0";
/// Bytes before the extension: signature, flags, and the extension's length.
const FIXED_HEADER_SIZE: usize = 19;
/// Flags a reader must know to go on; none is defined any more.
const CRITICAL_FLAGS: u32 = 0xffff_0000;
/// No server has ever sent an extension; this is room enough for one that does.
const EXTENSION_SIZE_MAX: usize = 64 * 1024;
/// A field or a tuple of PostgreSQL has less than 1 GiB (`MaxAllocSize`).
pub(crate) const TUPLE_SIZE_MAX: usize = (1 << 30) - 1;
/// The length of a field that is NULL, -1.
const NULL: u32 = u32::MAX;
/// Capacity that is kept for tuples that are cut.
const CUT_KEPT_MAX: usize = 1024 * 1024;

/// Takes whole tuples.
pub(crate) trait Sink {
    /// A tuple.
    fn tuple(&mut self, row: u64, tuple: &[u8]) -> Result<(), DecodeError>;

    /// The tuples since the last call, as they lie one after another.
    fn run(&mut self, tuples: &[u8]);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Header,
    Tuples,
    Finished,
    GivenUp,
}

/// How far into a tuple one has looked.
#[derive(Debug, Clone, Copy, Default)]
struct Scan {
    /// Where the next field's length, or the count of fields, begins.
    at: usize,
    /// Fields from there on; none before the count was read.
    left: Option<u16>,
}

/// What looking for a tuple's end found.
enum Step {
    /// It ends here.
    End(usize),
    /// At least this many bytes are needed to look further.
    Needs(usize),
    /// It is the trailer.
    Trailer,
}

/// Cuts a stream into tuples.
#[derive(Debug)]
pub(crate) struct Framer {
    state: State,
    /// Whether the stream has header and trailer.
    enclosed: bool,
    /// Number of fields of a tuple; by default that of the first tuple.
    columns: Option<u16>,
    /// Whole tuples so far.
    rows: u64,
    /// The received part of a header or a tuple that is cut.
    cut: Vec<u8>,
    scan: Scan,
}

impl Framer {
    pub(crate) fn new(enclosed: bool, columns: Option<u16>) -> Self {
        let state = if enclosed { State::Header } else { State::Tuples };
        Self { state, enclosed, columns, rows: 0, cut: Vec::new(), scan: Scan::default() }
    }

    /// Whole tuples so far.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// Whether the trailer came.
    pub(crate) fn is_finished(&self) -> bool {
        self.state == State::Finished
    }

    /// Whether the stream may end here.
    pub(crate) fn end(&self) -> Result<(), DecodeError> {
        match self.state {
            State::GivenUp => Err(DecodeError::GivenUp),
            State::Finished => Ok(()),
            State::Tuples if !self.enclosed && self.cut.is_empty() => Ok(()),
            State::Header | State::Tuples => {
                Err(DecodeError::Unfinished { rows: self.rows, within: !self.cut.is_empty() })
            }
        }
    }

    /// Gives up: nothing is taken from here on.
    pub(crate) fn give_up(&mut self) {
        self.state = State::GivenUp;
        self.cut = Vec::new();
    }

    /// Whether it gave up.
    pub(crate) fn has_given_up(&self) -> bool {
        self.state == State::GivenUp
    }

    /// Takes the next bytes of the stream.
    pub(crate) fn push(
        &mut self,
        mut bytes: &[u8],
        sink: &mut impl Sink,
    ) -> Result<(), DecodeError> {
        if self.state == State::GivenUp {
            return Err(DecodeError::GivenUp);
        }
        let result = self.pieces(&mut bytes, sink);
        if result.is_err() {
            self.give_up();
        }
        result
    }

    fn pieces(&mut self, bytes: &mut &[u8], sink: &mut impl Sink) -> Result<(), DecodeError> {
        if self.state == State::Header && !self.header(bytes)? {
            return Ok(());
        }
        if !self.cut.is_empty() && !self.complete(bytes, sink)? {
            return Ok(());
        }
        if self.state == State::Tuples {
            self.tuples(bytes, sink)?;
        }
        if self.state == State::Finished && !bytes.is_empty() {
            return Err(DecodeError::AfterTrailer { rows: self.rows });
        }
        Ok(())
    }

    /// Whether the header is over.
    fn header(&mut self, bytes: &mut &[u8]) -> Result<bool, DecodeError> {
        if !self.fill(bytes, FIXED_HEADER_SIZE) {
            return Ok(false);
        }
        let Some(fixed) = self.cut.first_chunk::<FIXED_HEADER_SIZE>() else {
            return Ok(false);
        };
        if !fixed.starts_with(SIGNATURE) {
            return Err(DecodeError::Header("its signature is missing"));
        }
        let [.., f0, f1, f2, f3, e0, e1, e2, e3] = *fixed;
        if u32::from_be_bytes([f0, f1, f2, f3]) & CRITICAL_FLAGS != 0 {
            return Err(DecodeError::Header("it has unknown flags"));
        }
        let extension = usize::try_from(i32::from_be_bytes([e0, e1, e2, e3])).ok();
        let Some(extension) = extension.filter(|size| *size <= EXTENSION_SIZE_MAX) else {
            return Err(DecodeError::Header("the length of its header is out of range"));
        };
        if !self.fill(bytes, FIXED_HEADER_SIZE + extension) {
            return Ok(false);
        }
        self.cut.clear();
        self.state = State::Tuples;
        Ok(true)
    }

    /// Brings what is kept to `size` bytes; whether it could.
    fn fill(&mut self, bytes: &mut &[u8], size: usize) -> bool {
        let missing = size.saturating_sub(self.cut.len());
        let (taken, rest) = bytes.split_at_checked(missing).unwrap_or((bytes, &[]));
        self.cut.extend_from_slice(taken);
        *bytes = rest;
        taken.len() == missing
    }

    /// Brings the tuple that was cut to its end; whether that came.
    fn complete(&mut self, bytes: &mut &[u8], sink: &mut impl Sink) -> Result<bool, DecodeError> {
        loop {
            let cut = std::mem::take(&mut self.cut);
            let step = self.look(&cut);
            self.cut = cut;
            match step? {
                Step::Needs(size) => {
                    if !self.fill(bytes, size) {
                        return Ok(false);
                    }
                }
                Step::End(end) => {
                    debug_assert_eq!(end, self.cut.len(), "no more was taken than the tuple has");
                    self.rows += 1;
                    sink.tuple(self.rows, &self.cut)?;
                    sink.run(&self.cut);
                    break;
                }
                Step::Trailer => {
                    self.state = State::Finished;
                    break;
                }
            }
        }
        self.cut.clear();
        self.cut.shrink_to(CUT_KEPT_MAX);
        self.scan = Scan::default();
        Ok(true)
    }

    /// Takes the tuples that are whole, and keeps what is left.
    fn tuples(&mut self, bytes: &mut &[u8], sink: &mut impl Sink) -> Result<(), DecodeError> {
        let all = *bytes;
        let mut run = 0;
        while let Some(rest) = all.get(run..).filter(|rest| !rest.is_empty()) {
            self.scan = Scan::default();
            match self.look(rest)? {
                Step::End(end) => {
                    self.rows += 1;
                    sink.tuple(self.rows, rest.get(..end).unwrap_or(rest))?;
                    run += end;
                }
                Step::Needs(_) => {
                    self.cut.extend_from_slice(rest);
                    *bytes = &[];
                    break;
                }
                Step::Trailer => {
                    self.state = State::Finished;
                    *bytes = rest.get(TRAILER.len()..).unwrap_or(&[]);
                    break;
                }
            }
        }
        sink.run(all.get(..run).unwrap_or(all));
        Ok(())
    }

    /// Looks for the end of the tuple `bytes` begin with, from where one stopped looking before.
    #[inline]
    fn look(&mut self, bytes: &[u8]) -> Result<Step, DecodeError> {
        let Scan { mut at, left } = self.scan;
        let mut left = match left {
            Some(left) => left,
            None => match self.count(bytes)? {
                Some(Ok(count)) => {
                    at = 2;
                    count
                }
                Some(Err(step)) => return Ok(step),
                None => return Ok(Step::Needs(2)),
            },
        };
        while left > 0 {
            let Some(length) = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>()) else {
                return self.needs(at, left, at + 4);
            };
            let length = u32::from_be_bytes(*length);
            // What is negative is larger than any field.
            let size = match length as usize {
                size if size <= TUPLE_SIZE_MAX => size,
                _ if length == NULL => 0,
                _ => return Err(self.bad_length(left, length.cast_signed())),
            };
            let end = at + 4 + size;
            if end > bytes.len() {
                return self.needs(at, left, end);
            }
            at = end;
            left -= 1;
        }
        Ok(Step::End(at))
    }

    /// The count of fields, checked.
    #[inline]
    fn count(&mut self, bytes: &[u8]) -> Result<Option<Result<u16, Step>>, DecodeError> {
        let Some(count) = bytes.first_chunk::<2>() else {
            return Ok(None);
        };
        let found = i16::from_be_bytes(*count);
        match (u16::try_from(found).ok(), self.columns) {
            (Some(count), Some(columns)) if count == columns => Ok(Some(Ok(count))),
            (Some(count), None) => {
                self.columns = Some(count);
                Ok(Some(Ok(count)))
            }
            (None, _) if found == -1 && self.enclosed => Ok(Some(Err(Step::Trailer))),
            (_, columns) => {
                let expected = usize::from(columns.unwrap_or_default());
                Err(DecodeError::Columns { row: self.rows + 1, expected, found })
            }
        }
    }

    #[cold]
    fn needs(&mut self, at: usize, left: u16, size: usize) -> Result<Step, DecodeError> {
        if size > TUPLE_SIZE_MAX {
            return Err(DecodeError::TupleTooLarge { row: self.rows + 1, max: TUPLE_SIZE_MAX });
        }
        self.scan = Scan { at, left: Some(left) };
        Ok(Step::Needs(size))
    }

    #[cold]
    fn bad_length(&self, left: u16, length: i32) -> DecodeError {
        let field = usize::from(self.columns.unwrap_or_default().saturating_sub(left)) + 1;
        DecodeError::FieldLength { row: self.rows + 1, field, length }
    }
}
