//! Cuts a JSON document into its records: the elements of a top-level array, or the values that stand
//! one after another, byte for byte and however they are laid out.
//!
//! Invariants:
//! - A record's bytes are those of the document from the element's first to its last.
//! - No more than one record of the limit's size is held, however large an element is.
//! - Only as much of JSON's grammar is looked at as it takes to find where an element ends; whether
//!   an element is JSON is for who parses it.

use std::io::{self, Read};

use super::{Record, Reject};

/// Bytes read at once.
const CHUNK_SIZE: usize = 256 * 1024;
/// Bytes of a faulty element that are handed out.
const FAULTY_SIZE_MAX: usize = 1024;

/// What may come next outside of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// A value, an array of them, or the end.
    Top,
    /// The first element, or the array's end.
    First,
    /// An element.
    Next,
    /// A comma, or the array's end.
    After,
    /// Nothing: what is there cannot be read on.
    Over,
}

/// Where in an element the scan is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inside {
    Not,
    /// In an object or an array, so many brackets deep.
    Brackets(u64),
    /// In a string, so many brackets deep; after a backslash or not.
    Text(u64, bool),
    /// In a number or a word.
    Word,
}

/// The records of a JSON document, one after the other. A record's line is the element's number.
#[derive(Debug)]
pub struct Elements<R> {
    reader: R,
    limit: usize,
    chunk: Vec<u8>,
    at: usize,
    end: usize,
    place: Place,
    inside: Inside,
    in_array: bool,
    number: u64,
    held: Vec<u8>,
    size: u64,
}

/// What a byte led to.
enum Step {
    Go,
    /// The element ended with this byte.
    Ended,
    /// The element ended before this byte.
    EndedBefore,
    Fault(&'static str),
}

impl<R: Read> Elements<R> {
    /// The records of `reader`, which needs no buffer of its own, of at most `limit` bytes each.
    pub fn new(reader: R, limit: usize) -> Self {
        Self {
            reader,
            limit,
            chunk: vec![0; CHUNK_SIZE],
            at: 0,
            end: 0,
            place: Place::Top,
            inside: Inside::Not,
            in_array: false,
            number: 0,
            held: Vec::new(),
            size: 0,
        }
    }

    /// The next record; `None` at the end. Behind one that says the document cannot be read on, there
    /// is none.
    ///
    /// # Errors
    /// Those of the reader.
    #[expect(clippy::should_implement_trait, reason = "the record borrows from this")]
    pub fn next(&mut self) -> io::Result<Option<Record<'_>>> {
        self.held.clear();
        self.size = 0;
        loop {
            while self.at < self.end && self.place != Place::Over {
                let byte = self.chunk[self.at];
                match self.step(byte) {
                    Step::Go => self.at += 1,
                    Step::Ended => {
                        self.at += 1;
                        return Ok(Some(self.record(None)));
                    }
                    Step::EndedBefore => return Ok(Some(self.record(None))),
                    Step::Fault(reason) => {
                        self.place = Place::Over;
                        self.number += 1;
                        return Ok(Some(self.record(Some(reason))));
                    }
                }
            }
            if self.place == Place::Over {
                return Ok(None);
            }
            self.at = 0;
            self.end = match self.reader.read(&mut self.chunk) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            if self.end == 0 {
                return Ok(self.finish());
            }
        }
    }

    fn finish(&mut self) -> Option<Record<'_>> {
        let place = std::mem::replace(&mut self.place, Place::Over);
        match (self.inside, place) {
            (Inside::Not, Place::Top | Place::Over) => None,
            (Inside::Not, _) => {
                self.number += 1;
                Some(self.record(Some("the document ends before its array does")))
            }
            (Inside::Word, _) if !self.in_array => Some(self.record(None)),
            _ => Some(self.record(Some("the document ends within an element"))),
        }
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
        self.place = if self.in_array { Place::After } else { Place::Top };
    }

    fn between(&mut self, byte: u8) -> Step {
        match (self.place, byte) {
            (_, b' ' | b'\t' | b'\r' | b'\n') => Step::Go,
            (Place::Top, b'[') => {
                self.in_array = true;
                self.place = Place::First;
                Step::Go
            }
            (Place::First | Place::After, b']') => {
                self.in_array = false;
                self.place = Place::Top;
                Step::Go
            }
            (Place::After, b',') => {
                self.place = Place::Next;
                Step::Go
            }
            (Place::After, _) => Step::Fault("no comma before the next element of the array"),
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
            (size > limit as u64)
                .then(|| Reject::new(format!("the record has {size} bytes; {limit} are allowed")))
        };
        let object = self.held.first() == Some(&b'{');
        let other = || (!object).then(|| Reject::new("an event is a JSON object"));
        let fault = fault.map(Reject::new).or_else(oversize).or_else(other);
        if fault.is_some() {
            self.held.truncate(FAULTY_SIZE_MAX);
        }
        Record { line: self.number, bytes: &self.held, fault }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hands out so many bytes at once.
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
    fn an_element_that_is_no_object_is_told_and_passed_over() {
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
