//! Records of a CSV file, in sequence, with their positions.
//!
//! Quotes matter here, unlike in most CSV readers: `""` is an empty text and nothing is NULL. A
//! quote within a field that does not start with one is literal.

#![deny(clippy::indexing_slicing)]

use forebay_sdk::error::ConnectorError;

use super::super::text::{LINE_SIZE_MAX, TextReader};

/// Fields of a record.
const FIELDS_MAX: usize = 16 << 10;

/// Reads records.
pub(super) struct Records<'a> {
    text: TextReader<'a>,
    delimiter: u8,
    /// The fields of the record, in sequence.
    bytes: Vec<u8>,
    fields: Vec<Field>,
    /// The line on which the record starts.
    line: u64,
}

#[derive(Debug, Clone, Copy)]
struct Field {
    end: usize,
    is_quoted: bool,
}

/// A record.
pub(super) struct Record<'a> {
    text: &'a str,
    fields: &'a [Field],
}

/// What ended a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Field,
    Record,
}

impl<'a> Records<'a> {
    pub(super) fn new(text: TextReader<'a>, delimiter: u8) -> Self {
        Self { text, delimiter, bytes: Vec::new(), fields: Vec::new(), line: 0 }
    }

    /// The next record; `None` at the end of the file.
    pub(super) fn next(&mut self) -> Result<Option<Record<'_>>, ConnectorError> {
        self.bytes.clear();
        self.fields.clear();
        if self.text.fill()?.is_empty() {
            return Ok(None);
        }
        self.text.line += 1;
        self.line = self.text.line;
        loop {
            if self.fields.len() == FIELDS_MAX {
                return Err(self.found(format!("it has more than {FIELDS_MAX} fields")));
            }
            let is_quoted = self.text.fill()?.first() == Some(&b'"');
            let end = match is_quoted {
                true => self.quoted()?,
                false => self.plain()?,
            };
            self.fields.push(Field { end: self.bytes.len(), is_quoted });
            if end == End::Record {
                break;
            }
        }
        match std::str::from_utf8(&self.bytes) {
            Ok(text) => Ok(Some(Record { text, fields: &self.fields })),
            Err(error) => {
                let field = self.fields.iter().filter(|field| field.end <= error.valid_up_to());
                let found = format!("field {} is not UTF-8", field.count() + 1);
                Err(self.found(found))
            }
        }
    }

    /// An error of the record that was read last.
    pub(super) fn found(&self, found: impl Into<String>) -> ConnectorError {
        // A record may have several lines; it is identified by its first.
        self.text.found_at(self.line, found)
    }

    fn check_size(&self) -> Result<(), ConnectorError> {
        match self.bytes.len() > LINE_SIZE_MAX {
            true => Err(self.found(format!("the record is larger than {LINE_SIZE_MAX} bytes"))),
            false => Ok(()),
        }
    }

    /// Reads up to the next delimiter or line end.
    fn plain(&mut self) -> Result<End, ConnectorError> {
        loop {
            let delimiter = self.delimiter;
            let buffer = self.text.fill()?;
            if buffer.is_empty() {
                return self.end_plain(End::Record);
            }
            let end = memchr::memchr2(delimiter, b'\n', buffer);
            let (taken, rest) = buffer.split_at(end.unwrap_or(buffer.len()));
            let ended_by = rest.first().copied();
            self.bytes.extend_from_slice(taken);
            let consumed = taken.len() + usize::from(end.is_some());
            self.text.consume(consumed);
            self.check_size()?;
            match ended_by {
                Some(b'\n') => return self.end_plain(End::Record),
                Some(_) => return self.end_plain(End::Field),
                None => {}
            }
        }
    }

    /// Removes the first half of a line end, and refuses any other: lines that end with it alone
    /// would be one record, and a file of them nothing but a header.
    fn end_plain(&mut self, end: End) -> Result<End, ConnectorError> {
        let before = self.fields.last().map_or(0, |field| field.end);
        if end == End::Record && self.bytes.len() > before && self.bytes.last() == Some(&b'\r') {
            self.bytes.pop();
        }
        let field = self.bytes.get(before..).unwrap_or_default();
        match memchr::memchr(b'\r', field) {
            None => Ok(end),
            Some(_) => Err(self.found(format!(
                "field {} has a carriage return that no line feed follows; end the lines of the \
                 file with a line feed (`tr '\\r' '\\n'` if none has one), or quote the field",
                self.fields.len() + 1
            ))),
        }
    }

    /// Reads a field that starts with a quote.
    fn quoted(&mut self) -> Result<End, ConnectorError> {
        self.text.consume(1);
        loop {
            let buffer = self.text.fill()?;
            if buffer.is_empty() {
                return Err(self.found("a quoted field has no closing quote"));
            }
            let quote = memchr::memchr(b'"', buffer);
            let taken = buffer.get(..quote.unwrap_or(buffer.len())).unwrap_or_default();
            let lines = memchr::memchr_iter(b'\n', taken).count() as u64;
            let count = taken.len() + usize::from(quote.is_some());
            self.bytes.extend_from_slice(taken);
            self.text.consume(count);
            self.text.line += lines;
            self.check_size()?;
            if quote.is_none() {
                continue;
            }
            let delimiter = self.delimiter;
            match self.text.fill()?.first().copied() {
                Some(b'"') => self.bytes.push(b'"'),
                Some(byte) if byte == delimiter => {
                    self.text.consume(1);
                    return Ok(End::Field);
                }
                Some(b'\n') => {
                    self.text.consume(1);
                    return Ok(End::Record);
                }
                None => return Ok(End::Record),
                Some(b'\r') => {
                    self.text.consume(1);
                    return match self.text.fill()?.first() {
                        Some(b'\n') => {
                            self.text.consume(1);
                            Ok(End::Record)
                        }
                        None => Ok(End::Record),
                        Some(_) => {
                            Err(self.found("there is a lone carriage return after a closing quote"))
                        }
                    };
                }
                Some(byte) => {
                    let byte = byte.escape_ascii();
                    let field = self.fields.len() + 1;
                    return Err(
                        self.found(format!("field {field} has {byte} after its closing quote"))
                    );
                }
            }
            self.text.consume(1);
        }
    }
}

impl<'a> Record<'a> {
    pub(super) fn len(&self) -> usize {
        self.fields.len()
    }

    /// Whether the line is empty.
    pub(super) fn is_blank(&self) -> bool {
        self.text.is_empty() && matches!(self.fields, [Field { is_quoted: false, .. }])
    }

    /// Bytes of all fields.
    pub(super) fn size(&self) -> usize {
        self.text.len()
    }

    /// The fields: text, and whether it was quoted.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&'a str, bool)> {
        let text = self.text;
        self.fields.iter().scan(0, move |from, field| {
            // The ends are positions of delimiters, which are ASCII.
            let value = text.get(*from..field.end)?;
            *from = field.end;
            Some((value, field.is_quoted))
        })
    }
}
