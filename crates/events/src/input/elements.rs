//! Splits a JSON document into its records: the elements of a top-level array, or a sequence of
//! values, byte for byte and in any layout.
//!
//! Invariants:
//! - A record's bytes are those of the document from the element's first to its last.
//! - No more than one record of the limit's size is held, however large an element is.
//! - Only as much of JSON's grammar is checked as is needed to find where an element ends; the
//!   parser checks whether an element is valid JSON.

use std::io::{self, Read};
use std::ops::Range;

use super::{Record, Reject};

/// Size of a read in bytes.
const CHUNK_SIZE: usize = 256 * 1024;
/// Maximum number of bytes returned of a faulty element.
const FAULTY_SIZE_MAX: usize = 1024;

/// What may follow outside of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    /// A value, an array of them, or the end.
    Top,
    /// The first element, or the array's end.
    First,
    /// An element.
    Next,
    /// A comma, or the array's end.
    After,
    /// Nothing: the rest cannot be read.
    Over,
}

/// The state of the scan within an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inside {
    Not,
    /// In an object or an array, at this depth.
    Brackets(u64),
    /// In a string, at this depth; whether after a backslash.
    Text(u64, bool),
    /// In a number or a word.
    Word,
}

/// Splits JSON documents, passed in chunks, into their records. A record's line is
/// the element's number.
#[derive(Debug)]
pub struct ElementSplitter {
    limit: usize,
    expected: Expected,
    inside: Inside,
    in_array: bool,
    number: u64,
    held: Vec<u8>,
    size: u64,
    /// Whether `held` was returned and must be cleared.
    spent: bool,
}

/// The records of a JSON document, one after the other. A record's line is the element's number.
#[derive(Debug)]
pub struct Elements<R> {
    reader: R,
    splitter: ElementSplitter,
    chunk: Vec<u8>,
    /// The part of the chunk that has not been split.
    rest: Range<usize>,
}

/// An element that is complete, or faulty with the reason.
type Ended = Option<&'static str>;

/// The result of a byte.
enum Step {
    Go,
    /// The element ended with this byte.
    Ended,
    /// The element ended before this byte.
    EndedBefore,
    Fault(&'static str),
}

impl<R: Read> Elements<R> {
    /// Returns the records of `reader`, which needs no buffering, of at most `limit` bytes each.
    pub fn new(reader: R, limit: usize) -> Self {
        let splitter = ElementSplitter::new(limit);
        Self { reader, splitter, chunk: vec![0; CHUNK_SIZE], rest: 0..0 }
    }

    /// Returns the next record; `None` at the end, and after a record that reports that the
    /// document cannot be read any further.
    ///
    /// # Errors
    /// The reader's error; a later call continues where it failed.
    #[expect(clippy::should_implement_trait, reason = "the record borrows from this")]
    pub fn next(&mut self) -> io::Result<Option<Record<'_>>> {
        loop {
            let bytes = self.chunk.get(self.rest.clone()).unwrap_or_default();
            let (used, ended) = self.splitter.advance(bytes);
            self.rest.start += used;
            if let Some(fault) = ended {
                return Ok(Some(self.splitter.record(fault)));
            }
            if self.splitter.expected == Expected::Over {
                return Ok(None);
            }
            let size = match self.reader.read(&mut self.chunk) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            self.rest = 0..size;
            if size == 0 {
                return Ok(self.splitter.finish());
            }
        }
    }
}

impl ElementSplitter {
    /// Returns a splitter of records of at most `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            expected: Expected::Top,
            inside: Inside::Not,
            in_array: false,
            number: 0,
            held: Vec::new(),
            size: 0,
            spent: false,
        }
    }

    /// Returns the next record that ends in `chunk`, and removes what was read from `chunk`.
    /// `None`: the whole chunk was read; pass the next one, or call [`finish`](Self::finish).
    pub fn next(&mut self, chunk: &mut &[u8]) -> Option<Record<'_>> {
        let (used, ended) = self.advance(chunk);
        *chunk = chunk.get(used..).unwrap_or_default();
        ended.map(|fault| self.record(fault))
    }

    /// Returns the last record, if the document ended within one.
    pub fn finish(&mut self) -> Option<Record<'_>> {
        self.clear_spent();
        let expected = std::mem::replace(&mut self.expected, Expected::Over);
        match (self.inside, expected) {
            (Inside::Not, Expected::Top | Expected::Over) => None,
            (Inside::Not, _) => {
                self.number += 1;
                Some(self.record(Some("the document ends before its array does")))
            }
            (Inside::Word, _) if !self.in_array => Some(self.record(None)),
            _ => Some(self.record(Some("the document ends within an element"))),
        }
    }

    /// Bytes of memory held between two chunks.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.capacity()
    }

    fn clear_spent(&mut self) {
        if self.spent {
            self.spent = false;
            self.held.clear();
            self.size = 0;
        }
    }

    /// Reads from `chunk` until a record is complete; also returns how many bytes were read. After
    /// a fault that ends the document, everything is read.
    fn advance(&mut self, chunk: &[u8]) -> (usize, Option<Ended>) {
        self.clear_spent();
        if self.expected == Expected::Over {
            return (chunk.len(), None);
        }
        for (at, &byte) in chunk.iter().enumerate() {
            match self.step(byte) {
                Step::Go => {}
                Step::Ended => return (at + 1, Some(None)),
                Step::EndedBefore => return (at, Some(None)),
                Step::Fault(reason) => {
                    self.expected = Expected::Over;
                    self.number += 1;
                    return (at, Some(Some(reason)));
                }
            }
        }
        (chunk.len(), None)
    }

    fn step(&mut self, byte: u8) -> Step {
        let inside = match self.inside {
            Inside::Not => return self.between(byte),
            Inside::Brackets(depth) => match byte {
                b'"' => Inside::Text(depth, false),
                b'{' | b'[' => Inside::Brackets(depth + 1),
                b'}' | b']' => Inside::Brackets(depth - 1),
                _ => Inside::Brackets(depth),
            },
            Inside::Text(depth, true) => Inside::Text(depth, false),
            Inside::Text(depth, false) => match byte {
                b'"' => Inside::Brackets(depth),
                b'\\' => Inside::Text(depth, true),
                _ => Inside::Text(depth, false),
            },
            Inside::Word if byte.is_ascii_whitespace() || matches!(byte, b',' | b']' | b'}') => {
                self.end_element();
                return Step::EndedBefore;
            }
            Inside::Word => Inside::Word,
        };
        self.inside = inside;
        self.hold(byte);
        if inside == Inside::Brackets(0) {
            self.end_element();
            return Step::Ended;
        }
        Step::Go
    }

    fn end_element(&mut self) {
        self.inside = Inside::Not;
        self.expected = if self.in_array { Expected::After } else { Expected::Top };
    }

    fn between(&mut self, byte: u8) -> Step {
        match (self.expected, byte) {
            (_, b' ' | b'\t' | b'\r' | b'\n') => Step::Go,
            (Expected::Top, b'[') => {
                self.in_array = true;
                self.expected = Expected::First;
                Step::Go
            }
            (Expected::First | Expected::After, b']') => {
                self.in_array = false;
                self.expected = Expected::Top;
                Step::Go
            }
            (Expected::After, b',') => {
                self.expected = Expected::Next;
                Step::Go
            }
            (Expected::After, _) => Step::Fault("no comma before the next element of the array"),
            (_, b',' | b']' | b'}' | b':') => Step::Fault("an element is missing here"),
            _ => {
                self.number += 1;
                self.hold(byte);
                self.inside = match byte {
                    b'{' | b'[' => Inside::Brackets(1),
                    b'"' => Inside::Text(0, false),
                    _ => Inside::Word,
                };
                Step::Go
            }
        }
    }

    fn hold(&mut self, byte: u8) {
        self.size += 1;
        if self.size <= self.limit as u64 {
            self.held.push(byte);
        }
    }

    /// The element that is held, as a record.
    fn record(&mut self, fault: Option<&'static str>) -> Record<'_> {
        let oversize = || {
            let (size, limit) = (self.size, self.limit);
            (size > limit as u64).then(|| {
                Reject::new(format!("the record has {size} bytes; the maximum is {limit}"))
            })
        };
        let object = self.held.first() == Some(&b'{');
        let other = || (!object).then(|| Reject::new("an event must be a JSON object"));
        let fault = fault.map(Reject::new).or_else(oversize).or_else(other);
        if fault.is_some() {
            self.held.truncate(FAULTY_SIZE_MAX);
        }
        self.spent = true;
        Record { line: self.number, bytes: &self.held, fault }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Limits the number of bytes returned by one read.
    struct Slow<'a>(&'a [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(self.0.len()).min(buf.len());
            buf[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    fn read(text: &str) -> Vec<(u64, String, Option<String>)> {
        let of = |step| {
            let mut elements = Elements::new(Slow(text.as_bytes(), step), 32);
            let mut found = Vec::new();
            while let Some(record) = elements.next().unwrap() {
                let bytes = String::from_utf8(record.bytes.to_vec()).unwrap();
                found.push((record.line, bytes, record.fault.map(|fault| fault.to_string())));
            }
            assert!(elements.next().unwrap().is_none(), "the end stays the end");
            found
        };
        let whole = of(usize::MAX);
        assert_eq!(of(1), whole, "{text}");
        whole
    }

    fn sound(text: &str) -> Vec<String> {
        let found = read(text).into_iter();
        let sound = |(_, bytes, fault): (u64, String, Option<String>)| {
            assert_eq!(fault, None, "{text}");
            bytes
        };
        found.map(sound).collect()
    }

    #[test]
    fn elements_keep_their_bytes() {
        assert_eq!(sound(r#"[{"a" : 1}, {"b":"]},{"} ]"#), [r#"{"a" : 1}"#, r#"{"b":"]},{"}"#]);
        assert_eq!(sound("{\n  \"a\": [1,\n 2]\n}\n"), ["{\n  \"a\": [1,\n 2]\n}"]);
        assert_eq!(sound(r#"{"a":"\"}"}{"b":"\\"} [{"c":[[]]}]"#).len(), 3);
        for empty in ["", " \n ", "[]", " [ ] "] {
            assert!(read(empty).is_empty(), "{empty}");
        }
    }

    #[test]
    fn an_element_that_is_not_an_object_is_reported_and_skipped() {
        let found = read(r#"[1, "x,]", null,[{}],{}] 7"#);
        let bytes: Vec<&str> = found.iter().map(|(_, bytes, _)| bytes.as_str()).collect();
        assert_eq!(bytes, ["1", r#""x,]""#, "null", "[{}]", "{}", "7"]);
        for (_, bytes, fault) in found {
            assert_eq!(fault.is_none(), bytes == "{}", "{bytes}");
        }
    }

    #[test]
    fn what_cannot_be_read_on_is_said_once() {
        for (text, count) in [
            ("[{}", 2),
            ("[{},", 2),
            ("[", 1),
            ("[{\"a\":1", 1),
            ("[1", 1),
            ("[{} {}]", 2),
            ("[{},,{}]", 2),
            ("]", 1),
            ("\"open", 1),
        ] {
            let found = read(text);
            assert_eq!(found.len(), count, "{text}: {found:?}");
            assert!(found.last().unwrap().2.is_some(), "{text}: {found:?}");
        }
    }

    #[test]
    fn an_element_beyond_the_limit_is_passed_over() {
        let text = format!("[{{\"a\":\"{}\"}},{{}}]", "x".repeat(100));
        let found = read(&text);
        assert_eq!(found.len(), 2);
        assert!(found[0].2.as_ref().unwrap().contains("108 bytes"), "{found:?}");
        assert_eq!((found[1].0, found[1].1.as_str()), (2, "{}"));
    }
}
