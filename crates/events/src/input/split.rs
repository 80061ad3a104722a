//! Splits a stream of bytes into records: lines, or syslog messages with their length (RFC 6587).
//!
//! Invariants:
//! - The boundaries of the chunks make no difference to the records.
//! - No more than one record of the limit's size is held, however long the stream's records are.

use std::io::{self, Read};
use std::ops::Range;

use super::Reject;

/// The usual limit of a record's size for [`Splitter::new`], in bytes.
pub const RECORD_SIZE_MAX: usize = 1024 * 1024;
/// The usual limit of a record of JSON, which may be an envelope of several events, in bytes. Each
/// of its events has the limit of a record.
pub const ENVELOPE_SIZE_MAX: usize = 16 * 1024 * 1024;
/// Maximum number of bytes returned of a faulty record.
const FAULTY_SIZE_MAX: usize = 1024;
/// Maximum number of digits of a length.
const LENGTH_DIGITS_MAX: usize = 9;
/// Size of a read in bytes.
const CHUNK_SIZE: usize = 256 * 1024;
/// The byte order mark that some editors put before UTF-8 text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A record of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its line, from 1; in a stream of counted messages its number among them and the lines.
    pub line: u64,
    /// Its bytes without the line end; the beginning if it is faulty.
    pub bytes: &'a [u8],
    /// Why it cannot be used, if it is faulty.
    pub fault: Option<Reject>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// At the first bytes of the stream, held until they show how it is framed.
    Start,
    /// In a line.
    Line,
    /// At a message's length, in a stream of counted messages.
    Length,
    /// In a message with this many missing bytes.
    Counted(usize),
}

/// Splits chunks, passed one after another, into records.
#[derive(Debug)]
pub struct Splitter {
    state: State,
    /// Whether messages may have a length.
    counted: bool,
    /// Whether they do.
    framed: bool,
    limit: usize,
    line: u64,
    /// The beginning of the current record; of a record beyond the limit its first bytes.
    held: Vec<u8>,
    /// Size of the current record so far, if it exceeds the limit.
    oversize: Option<u64>,
    /// Whether `held` was returned and must be cleared.
    spent: bool,
}

/// A record, and whether it is in the chunk or in `held`.
struct Span {
    line: u64,
    chunk: Option<Range<usize>>,
    fault: Option<Reject>,
}

impl Splitter {
    /// Returns a splitter of records of at most `limit` bytes.
    ///
    /// * `counted`: a stream that begins with a number, a space and `<` is treated as syslog
    ///   messages with their length (RFC 6587 3.4.1).
    #[must_use]
    pub fn new(limit: usize, counted: bool) -> Self {
        Self {
            state: State::Start,
            counted,
            framed: false,
            limit: limit.max(1),
            line: 0,
            held: Vec::new(),
            oversize: None,
            spent: false,
        }
    }

    /// Returns the next record that ends in `chunk`, and removes what was read from `chunk`.
    /// `None`: the whole chunk was read; pass the next one, or call [`finish`](Self::finish).
    pub fn next<'a, 'c: 'a>(&'a mut self, chunk: &mut &'c [u8]) -> Option<Record<'a>> {
        let bytes = *chunk;
        let (used, found) = self.advance(bytes);
        *chunk = bytes.get(used..).unwrap_or_default();
        found.map(|found| self.record(found, bytes))
    }

    /// Returns the last record, if the stream ended within one.
    pub fn finish(&mut self) -> Option<Record<'_>> {
        self.clear_spent();
        let found = match self.state {
            State::Counted(missing) => {
                let reason = format!("the stream ends {missing} bytes before the message does");
                let fault = self.oversize().unwrap_or_else(|| Reject::new(reason));
                self.line += 1;
                self.hold_only_the_beginning();
                Some(Span { line: self.line, chunk: None, fault: Some(fault) })
            }
            _ => self.end_line(&[], 0..0),
        };
        self.state = State::Line;
        self.spent = true;
        found.map(|found| self.record(found, &[]))
    }

    /// Bytes of memory held between two chunks.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.capacity()
    }

    fn record<'a>(&'a self, found: Span, chunk: &'a [u8]) -> Record<'a> {
        let bytes = match found.chunk {
            Some(range) => chunk.get(range).unwrap_or_default(),
            None => &self.held,
        };
        let mark = if found.line == 1 { BYTE_ORDER_MARK } else { b"" };
        let bytes = bytes.strip_prefix(mark).unwrap_or(bytes);
        Record { line: found.line, bytes, fault: found.fault }
    }

    fn clear_spent(&mut self) {
        if self.spent {
            self.spent = false;
            self.oversize = None;
            self.held.clear();
        }
    }

    /// Reads from `chunk` until a record is complete; also returns how many bytes were read.
    fn advance(&mut self, chunk: &[u8]) -> (usize, Option<Span>) {
        let mut at = 0;
        while at < chunk.len() {
            self.clear_spent();
            let rest = &chunk[at..];
            match self.state {
                State::Start => at += self.decide(rest),
                State::Length => at += self.length(rest),
                State::Line => {
                    let Some(length) = memchr::memchr(b'\n', rest) else {
                        self.hold(rest);
                        return (chunk.len(), None);
                    };
                    let range = at..at + length;
                    at += length + 1;
                    if let Some(found) = self.end_line(chunk, range) {
                        return (at, Some(found));
                    }
                }
                State::Counted(missing) => {
                    let length = missing.min(rest.len());
                    let range = at..at + length;
                    at += length;
                    self.state = State::Counted(missing - length);
                    if length < missing {
                        self.hold(&chunk[range]);
                    } else {
                        return (at, Some(self.end_counted(chunk, range)));
                    }
                }
            }
        }
        (at, None)
    }

    /// Keeps the stream's first bytes until it is clear whether they are a length.
    fn decide(&mut self, rest: &[u8]) -> usize {
        let Some(&byte) = rest.first().filter(|_| self.counted) else {
            self.state = State::Line;
            return 0;
        };
        let digits = self.held.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let space = self.held.len() > digits;
        match byte {
            b'0'..=b'9' if !space && digits < LENGTH_DIGITS_MAX => {}
            b' ' if !space && digits > 0 => {}
            b'<' if space => {
                self.announce();
                return 0;
            }
            _ => {
                self.state = State::Line;
                return 0;
            }
        }
        self.held.push(byte);
        1
    }

    /// Reads a byte of a message's length; it may turn out to be a line.
    fn length(&mut self, rest: &[u8]) -> usize {
        match rest.first() {
            Some(byte @ b'0'..=b'9') if self.held.len() < LENGTH_DIGITS_MAX => {
                self.held.push(*byte);
                1
            }
            Some(b' ') if !self.held.is_empty() => {
                self.announce();
                1
            }
            Some(b'\n') if self.held.is_empty() => 1,
            _ => {
                self.state = State::Line;
                0
            }
        }
    }

    /// The length is complete: what follows is the message.
    fn announce(&mut self) {
        let digits = self.held.iter().take_while(|byte| byte.is_ascii_digit());
        let length = digits.fold(0usize, |sum, &digit| sum * 10 + usize::from(digit - b'0'));
        self.held.clear();
        self.framed = true;
        self.state = if length > 0 { State::Counted(length) } else { State::Length };
    }

    /// Keeps bytes of a record that continues in the next chunk.
    fn hold(&mut self, bytes: &[u8]) {
        let size = self.oversize.unwrap_or(self.held.len() as u64) + bytes.len() as u64;
        // One byte more, which may turn out to belong to the line's end.
        if size <= self.limit as u64 + 1 {
            self.held.extend_from_slice(bytes);
            return;
        }
        let room = FAULTY_SIZE_MAX.saturating_sub(self.held.len()).min(bytes.len());
        self.held.extend_from_slice(&bytes[..room]);
        self.hold_only_the_beginning();
        self.oversize = Some(size);
    }

    fn hold_only_the_beginning(&mut self) {
        self.held.truncate(FAULTY_SIZE_MAX);
    }

    fn oversize(&self) -> Option<Reject> {
        let size = self.oversize?;
        Some(Reject::new(format!("the record has {size} bytes; the maximum is {}", self.limit)))
    }

    /// A line that ends with this range of the chunk; `None` for an empty one.
    fn end_line(&mut self, chunk: &[u8], range: Range<usize>) -> Option<Span> {
        self.line += 1;
        self.state = if self.framed { State::Length } else { State::Line };
        let line = self.line;
        let blank = |bytes: &[u8]| bytes.is_empty() || (line == 1 && bytes == BYTE_ORDER_MARK);
        let bytes = &chunk[range.clone()];
        let bare = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        if self.held.is_empty() && bare.len() <= self.limit {
            let chunk = Some(range.start..range.start + bare.len());
            return (!blank(bare)).then_some(Span { line, chunk, fault: None });
        }
        self.hold(bytes);
        self.spent = true;
        if self.oversize.is_none() && self.held.last() == Some(&b'\r') {
            self.held.pop();
        }
        let fault = self.end_held();
        (!blank(&self.held)).then_some(Span { line, chunk: None, fault })
    }

    /// A message that ends with this range of the chunk.
    fn end_counted(&mut self, chunk: &[u8], range: Range<usize>) -> Span {
        self.line += 1;
        self.state = State::Length;
        let line = self.line;
        if self.held.is_empty() && range.len() <= self.limit {
            return Span { line, chunk: Some(range), fault: None };
        }
        self.hold(&chunk[range]);
        self.spent = true;
        Span { line, chunk: None, fault: self.end_held() }
    }

    /// Returns what is wrong with the held record, which is now complete.
    fn end_held(&mut self) -> Option<Reject> {
        if self.oversize.is_none() && self.held.len() > self.limit {
            self.oversize = Some(self.held.len() as u64);
        }
        let fault = self.oversize()?;
        self.hold_only_the_beginning();
        Some(fault)
    }
}

/// The records of a reader.
#[derive(Debug)]
pub struct Records<R> {
    reader: R,
    splitter: Splitter,
    chunk: Vec<u8>,
    /// The part of the chunk that has not been split.
    rest: Range<usize>,
    ended: bool,
}

impl<R: Read> Records<R> {
    /// Returns the records of `reader`, which needs no buffering, as `splitter` splits them.
    pub fn new(reader: R, splitter: Splitter) -> Self {
        Self { reader, splitter, chunk: vec![0; CHUNK_SIZE], rest: 0..0, ended: false }
    }

    /// The next record; `None` at the end.
    ///
    /// # Errors
    /// The reader's error; a later call continues where it failed.
    #[expect(clippy::should_implement_trait, reason = "the record borrows from this")]
    pub fn next(&mut self) -> io::Result<Option<Record<'_>>> {
        while !self.ended {
            let bytes = self.chunk.get(self.rest.clone()).unwrap_or_default();
            let (used, found) = self.splitter.advance(bytes);
            let start = self.rest.start;
            self.rest.start += used;
            if let Some(found) = found {
                let bytes = self.chunk.get(start..self.rest.end).unwrap_or_default();
                return Ok(Some(self.splitter.record(found, bytes)));
            }
            let size = match self.reader.read(&mut self.chunk) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            self.rest = 0..size;
            self.ended = size == 0;
            if self.ended {
                return Ok(self.splitter.finish());
            }
        }
        Ok(None)
    }
}
