//! Cutting a stream of bytes into documents, with bounded memory.
//!
//! Two framings. **Lines** (NDJSON): each line is a document; an invalid line affects no other.
//! **Values** (JSON): one object, several in sequence, or one array whose elements are the
//! documents. The nesting of brackets outside strings shows where each ends. What does not parse
//! invalidates the rest, since the start of the next document is unknown.
//!
//! Invariants: at most one document, within its limit, is held; a document is returned byte for
//! byte, without the white space around it, which does not count towards the limit; the reported
//! position (line or element, byte) is that of its first byte in the stream; the result does not
//! depend on how the stream is cut into pieces. A byte order mark is skipped at the very beginning
//! and nowhere else.

use super::DocumentError;

/// A byte order mark, which some programs write before a text in UTF-8.
const BYTE_ORDER_MARK: [u8; 3] = *b"\xEF\xBB\xBF";

/// How a body separates its documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// One per line.
    Lines,
    /// One JSON text: an object, a sequence of objects, or an array of them.
    Values,
}

impl Framing {
    /// Lines if the first line is a complete value and something follows it; otherwise one text.
    #[must_use]
    pub fn of(first: &[u8]) -> Self {
        let body = first.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(first).trim_ascii_start();
        let Some(end) = memchr::memchr(b'\n', body) else { return Self::Values };
        let (line, rest) = body.split_at(end);
        let whole = serde_json::from_slice::<serde::de::IgnoredAny>(line).is_ok();
        if whole && !rest.trim_ascii().is_empty() { Self::Lines } else { Self::Values }
    }
}

/// Where a document starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DocumentPosition {
    /// Line in the body, counted from 1.
    pub line: u64,
    /// Byte in the body, counted from 0.
    pub byte: u64,
    /// Document in the body, counted from 0, including refused ones.
    pub index: u64,
}

/// A document from a body, or the reason why there is none at this position.
pub type Framed<'a> = (DocumentPosition, Result<&'a [u8], DocumentError>);

/// Cuts a body into documents.
#[derive(Debug)]
pub struct Framer {
    framing: Framing,
    document_size_max: usize,
    held: Vec<u8>,
    place: DocumentPosition,
    byte: u64,
    line: u64,
    index: u64,
    oversized: bool,
    /// Bytes of a byte order mark, while only those have been read.
    mark: Option<usize>,
    state: State,
}

/// State of a values framing.
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
    /// Starts a body whose documents may have `document_size_max` bytes.
    #[must_use]
    pub fn new(framing: Framing, document_size_max: usize) -> Self {
        Self {
            framing,
            document_size_max,
            held: Vec::new(),
            place: DocumentPosition { line: 1, byte: 0, index: 0 },
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

    /// Processes the next bytes and passes every document they complete to `each`.
    ///
    /// # Errors
    /// Those of `each`, or the body as a whole cannot be cut any further.
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

    /// Processes bytes that looked like a byte order mark and are none.
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

    /// Ends the body: what is held is the last document, or an incomplete body.
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

    /// Skips white space at the start of a line and records where its document starts.
    fn begin_line<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let document = bytes.trim_ascii_start();
        let byte = self.byte + (bytes.len() - document.len()) as u64;
        self.place = DocumentPosition { line: self.line, byte, index: self.index };
        document
    }

    /// Keeps bytes of an unfinished line; beyond the limit it only records whether any count.
    fn hold(&mut self, mut bytes: &[u8]) {
        if self.oversized {
            return;
        }
        if self.held.is_empty() {
            bytes = self.begin_line(bytes);
        }
        let room = self.document_size_max - self.held.len();
        let (kept, beyond) = bytes.split_at(room.min(bytes.len()));
        // White space may be all that follows, and then it is not part of the document.
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
        // Runs of bytes that belong to the current value are copied in one piece.
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

    /// Processes a byte between values; returns whether a value starts with it.
    fn step_between(&mut self, byte: u8) -> Result<bool, DocumentError> {
        let first = self.state.array == Array::Undecided;
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => Ok(false),
            _ if self.state.array == Array::Closed => {
                Err(self.broken("there is text after the array's ']'"))
            }
            b'[' if first => {
                self.state.array = Array::Open;
                Ok(false)
            }
            b']' if self.state.array == Array::Open => {
                if self.state.separator == Separator::AfterComma {
                    return Err(self.broken("there is a comma before the array's ']'"));
                }
                self.state.array = Array::Closed;
                Ok(false)
            }
            b',' if self.state.array == Array::Open => {
                if self.state.separator != Separator::AfterValue {
                    return Err(self.broken("there is a comma without a value before it"));
                }
                self.state.separator = Separator::AfterComma;
                Ok(false)
            }
            b',' | b']' | b'}' | b':' => Err(self.broken("expected a value")),
            _ if self.state.array == Array::Open
                && self.state.separator == Separator::AfterValue =>
            {
                Err(self.broken("expected a comma or ']' after the value"))
            }
            _ => {
                if first {
                    self.state.array = Array::No;
                }
                self.place =
                    DocumentPosition { line: self.line, byte: self.byte, index: self.index };
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
        let result = each((self.place, framed));
        self.held = held;
        self.held.clear();
        result
    }

    fn too_large(&self) -> DocumentError {
        DocumentError::TooLarge { size_max: self.document_size_max }
    }

    fn broken(&self, what: &'static str) -> DocumentError {
        DocumentError::Broken { what, line: self.line, byte: self.byte }
    }
}

/// The effect of a byte on the value that contains it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Inside,
    EndsHere,
    EndedBefore,
}

#[cfg(test)]
mod tests;
