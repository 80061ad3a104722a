//! Cutting a stream of bytes into documents, with bounded memory.
//!
//! Two framings. **Lines** (NDJSON): each line is a document; a bad one spoils nothing but itself.
//! **Values** (JSON): one object, several after one another, or one array whose elements are the
//! documents; the nesting of brackets outside strings tells where each ends, and what does not
//! parse spoils the rest, for nobody can tell where the next would begin.
//!
//! Invariants: at most one document and its limit are held; a document comes out byte for byte,
//! without the white space around it, which does not count towards the limit; the place told with it
//! (line or element, byte) is that of its first byte in the stream; where the stream is cut into
//! pieces changes nothing. A byte order mark is passed over at the very beginning and nowhere else.

use super::DocumentError;

/// What some programs write before a text in UTF-8.
const BYTE_ORDER_MARK: [u8; 3] = *b"\xEF\xBB\xBF";

/// How documents lie in a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// One a line.
    Lines,
    /// One JSON text: an object, objects after one another, or an array of them.
    Values,
}

/// Where a document began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Line in the body, from 1.
    pub line: u64,
    /// Byte in the body, from 0.
    pub byte: u64,
    /// Document in the body, from 0, good and bad ones counted.
    pub index: u64,
}

/// A document cut out of a body, or the reason there is none at this place.
pub type Framed<'a> = (Place, Result<&'a [u8], DocumentError>);

/// Cuts a body into documents.
#[derive(Debug)]
pub struct Framer {
    framing: Framing,
    document_size_max: usize,
    held: Vec<u8>,
    place: Place,
    byte: u64,
    line: u64,
    index: u64,
    oversized: bool,
    /// Bytes of a byte order mark met so far, while that is all there was.
    mark: Option<usize>,
    state: State,
}

/// Where a value framing stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    array: Array,
    depth: u64,
    in_string: bool,
    escaped: bool,
    in_value: bool,
    /// Whether an element must follow (after `[` or `,`), may follow, or must not.
    separator: Separator,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Array {
    Undecided,
    No,
    Open,
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Separator {
    First,
    AfterValue,
    AfterComma,
}

impl Framer {
    /// Begins a body whose documents may have `document_size_max` bytes.
    #[must_use]
    pub fn new(framing: Framing, document_size_max: usize) -> Self {
        Self {
            framing,
            document_size_max,
            held: Vec::new(),
            place: Place { line: 1, byte: 0, index: 0 },
            byte: 0,
            line: 1,
            index: 0,
            oversized: false,
            mark: Some(0),
            state: State {
                array: Array::Undecided,
                depth: 0,
                in_string: false,
                escaped: false,
                in_value: false,
                separator: Separator::First,
            },
        }
    }

    /// Takes the next bytes and hands every document they complete to `each`.
    ///
    /// # Errors
    /// What `each` returned, or that the body as a whole cannot be cut any further.
    pub fn push<E: From<DocumentError>>(
        &mut self,
        bytes: &[u8],
        each: &mut impl FnMut(Framed<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(met) = self.mark else { return self.push_text(bytes, each) };
        let awaited = BYTE_ORDER_MARK.get(met..).unwrap_or_default();
        let same = awaited.iter().zip(bytes).take_while(|(one, other)| one == other).count();
        let (met, rest) = (met + same, bytes.get(same..).unwrap_or_default());
        if met == BYTE_ORDER_MARK.len() {
            self.mark = None;
            self.byte = met as u64;
            self.push_text(rest, each)
        } else if rest.is_empty() {
            self.mark = Some(met);
            Ok(())
        } else {
            self.push_false_mark(met, each)?;
            self.push_text(rest, each)
        }
    }

    /// Takes what began like a byte order mark and was none.
    fn push_false_mark<E: From<DocumentError>>(
        &mut self,
        met: usize,
        each: &mut impl FnMut(Framed<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.mark = None;
        self.push_text(BYTE_ORDER_MARK.get(..met).unwrap_or_default(), each)
    }

    fn push_text<E: From<DocumentError>>(
        &mut self,
        bytes: &[u8],
        each: &mut impl FnMut(Framed<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        match self.framing {
            Framing::Lines => self.push_lines(bytes, each),
            Framing::Values => self.push_values(bytes, each),
        }
    }

    /// Ends the body: what is held is the last document, or a body cut short.
    ///
    /// # Errors
    /// As for [`Framer::push`].
    pub fn finish<E: From<DocumentError>>(
        &mut self,
        each: &mut impl FnMut(Framed<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if let Some(met) = self.mark {
            self.push_false_mark(met, each)?;
        }
        match self.framing {
            Framing::Lines => {
                let held = std::mem::take(&mut self.held);
                self.emit_line(held.trim_ascii_end(), each)
            }
            Framing::Values => {
                if self.state.in_value {
                    if self.state.depth == 0 && !self.state.in_string {
                        return self.emit_value(each);
                    }
                    return Err(self.broken("the body ends inside a value").into());
                }
                if self.state.array == Array::Open {
                    return Err(self.broken("the body ends before the array's ']'").into());
                }
                Ok(())
            }
        }
    }

    fn push_lines<E: From<DocumentError>>(
        &mut self,
        mut bytes: &[u8],
        each: &mut impl FnMut(Framed<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            let (line, rest) = (bytes.get(..end).unwrap_or_default(), bytes.get(end + 1..));
            if self.held.is_empty() && !self.oversized {
                let document = self.begin_line(line).trim_ascii_end();
                self.oversized = document.len() > self.document_size_max;
                self.emit_line(document, each)?;
            } else {
                self.hold(line);
                let held = std::mem::take(&mut self.held);
                self.emit_line(held.trim_ascii_end(), each)?;
                self.held = held;
                self.held.clear();
            }
            self.byte += line.len() as u64 + 1;
            self.line += 1;
            bytes = rest.unwrap_or_default();
        }
        self.hold(bytes);
        self.byte += bytes.len() as u64;
        Ok(())
    }

    /// Passes over the white space that a line begins with and notes where its document begins.
    fn begin_line<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let document = bytes.trim_ascii_start();
        let byte = self.byte + (bytes.len() - document.len()) as u64;
        self.place = Place { line: self.line, byte, index: self.index };
        document
    }

    /// Keeps bytes of an unfinished line; beyond the limit only whether there were any that count.
    fn hold(&mut self, mut bytes: &[u8]) {
        if self.oversized {
            return;
        }
        if self.held.is_empty() {
            bytes = self.begin_line(bytes);
        }
        let room = self.document_size_max - self.held.len();
        let (kept, beyond) = bytes.split_at(room.min(bytes.len()));
        // White space there may be all that follows, and then it is no part of the document.
        if beyond.trim_ascii().is_empty() {
            self.held.extend_from_slice(kept);
        } else {
            self.oversized = true;
            self.held.clear();
        }
    }

    fn emit_line<E: From<DocumentError>>(
        &mut self,
        document: &[u8],
        each: &mut impl FnMut(Framed<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let oversized = std::mem::take(&mut self.oversized);
        if document.is_empty() && !oversized {
            return Ok(());
        }
        self.index += 1;
        each((self.place, if oversized { Err(self.too_large()) } else { Ok(document) }))
    }

    fn push_values<E: From<DocumentError>>(
        &mut self,
        bytes: &[u8],
        each: &mut impl FnMut(Framed<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        // Runs of bytes that belong to the current value are held in one piece.
        let mut run_start = 0;
        for (at, &byte) in bytes.iter().enumerate() {
            if self.state.in_value {
                let ended_before = self.step_inside(byte);
                match ended_before {
                    Step::Inside => {}
                    Step::EndsHere => {
                        self.hold_value(bytes.get(run_start..=at).unwrap_or_default())?;
                        self.emit_value(each)?;
                        run_start = at + 1;
                    }
                    Step::EndedBefore => {
                        self.hold_value(bytes.get(run_start..at).unwrap_or_default())?;
                        self.emit_value(each)?;
                        if self.step_between(byte)? {
                            run_start = at;
                        }
                    }
                }
            } else if self.step_between(byte)? {
                run_start = at;
            }
            self.byte += 1;
            if byte == b'\n' {
                self.line += 1;
            }
        }
        if self.state.in_value {
            self.hold_value(bytes.get(run_start..).unwrap_or_default())?;
        }
        Ok(())
    }

    /// A byte inside a value.
    fn step_inside(&mut self, byte: u8) -> Step {
        let state = &mut self.state;
        if state.in_string {
            match byte {
                _ if state.escaped => state.escaped = false,
                b'\\' => state.escaped = true,
                b'"' => {
                    state.in_string = false;
                    if state.depth == 0 {
                        return Step::EndsHere;
                    }
                }
                _ => {}
            }
            return Step::Inside;
        }
        match byte {
            b'"' => state.in_string = true,
            b'{' | b'[' => state.depth += 1,
            b'}' | b']' => {
                if state.depth == 0 {
                    return Step::EndedBefore;
                }
                state.depth -= 1;
                if state.depth == 0 {
                    return Step::EndsHere;
                }
            }
            b',' | b' ' | b'\t' | b'\r' | b'\n' if state.depth == 0 => return Step::EndedBefore,
            _ => {}
        }
        Step::Inside
    }

    /// A byte between values; tells whether a value begins with it.
    fn step_between(&mut self, byte: u8) -> Result<bool, DocumentError> {
        let first = self.state.array == Array::Undecided;
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => Ok(false),
            _ if self.state.array == Array::Closed => {
                Err(self.broken("something follows the array's ']'"))
            }
            b'[' if first => {
                self.state.array = Array::Open;
                Ok(false)
            }
            b']' if self.state.array == Array::Open => {
                if self.state.separator == Separator::AfterComma {
                    return Err(self.broken("the array ends after a comma"));
                }
                self.state.array = Array::Closed;
                Ok(false)
            }
            b',' if self.state.array == Array::Open => {
                if self.state.separator != Separator::AfterValue {
                    return Err(self.broken("a comma follows no value"));
                }
                self.state.separator = Separator::AfterComma;
                Ok(false)
            }
            b',' | b']' | b'}' | b':' => Err(self.broken("a value was expected here")),
            _ if self.state.array == Array::Open
                && self.state.separator == Separator::AfterValue =>
            {
                Err(self.broken("a comma or ']' was expected after the value"))
            }
            _ => {
                if first {
                    self.state.array = Array::No;
                }
                self.place = Place { line: self.line, byte: self.byte, index: self.index };
                self.state.in_value = true;
                self.state.in_string = byte == b'"';
                self.state.depth = u64::from(matches!(byte, b'{' | b'['));
                Ok(true)
            }
        }
    }

    fn hold_value(&mut self, bytes: &[u8]) -> Result<(), DocumentError> {
        if self.held.len() + bytes.len() > self.document_size_max {
            self.oversized = true;
            self.held.clear();
        } else if !self.oversized {
            self.held.extend_from_slice(bytes);
        }
        Ok(())
    }

    fn emit_value<E: From<DocumentError>>(
        &mut self,
        each: &mut impl FnMut(Framed<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.state.in_value = false;
        self.state.separator = Separator::AfterValue;
        self.index += 1;
        let held = std::mem::take(&mut self.held);
        let oversized = std::mem::take(&mut self.oversized);
        let framed = if oversized { Err(self.too_large()) } else { Ok(held.as_slice()) };
        let told = each((self.place, framed));
        self.held = held;
        self.held.clear();
        told
    }

    fn too_large(&self) -> DocumentError {
        DocumentError::TooLarge { size_max: self.document_size_max }
    }

    fn broken(&self, what: &'static str) -> DocumentError {
        DocumentError::Broken { what, line: self.line, byte: self.byte }
    }
}

/// What a byte did to the value it was met in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Inside,
    EndsHere,
    EndedBefore,
}

#[cfg(test)]
mod tests;
