//! Cuts an input into records: lines, counted messages, or the elements of a JSON document.

use std::io::{self, Cursor, ErrorKind, Read};

use forebay_events::input::{
    ENVELOPE_SIZE_MAX, ElementSplitter, Elements, Encoding, Format, RECORD_SIZE_MAX, Record,
    Records, Splitter,
};

/// Maximum white space skipped to find the input's first bytes.
const PEEK_SIZE: usize = 4096;

/// Cuts an input into records.
pub trait Cut {
    /// Returns the next record; `None` at the end.
    ///
    /// # Errors
    /// Those of the input.
    fn next(&mut self) -> io::Result<Option<Record<'_>>>;
}

impl<R: Read> Cut for Records<R> {
    fn next(&mut self) -> io::Result<Option<Record<'_>>> {
        Self::next(self)
    }
}

impl<R: Read> Cut for Elements<R> {
    fn next(&mut self) -> io::Result<Option<Record<'_>>> {
        Self::next(self)
    }
}

/// Returns the records of an input.
///
/// * `document`: it is one or several JSON documents, whatever its first bytes are.
///
/// # Errors
/// Its beginning cannot be read.
pub fn records<'a>(
    mut input: impl Read + 'a,
    format: Format,
    document: bool,
) -> io::Result<Box<dyn Cut + 'a>> {
    let begin = peek(&mut input, format)?;
    let document = document || is_document(&begin, format);
    let input = Cursor::new(begin).chain(input);
    Ok(if document {
        Box::new(Elements::new(input, ENVELOPE_SIZE_MAX))
    } else {
        Box::new(Records::new(input, splitter(format)))
    })
}

/// Returns the bytes of an input that may be compressed, decompressed. The format `raw` takes any
/// bytes as they are.
///
/// # Errors
/// The beginning cannot be read, or the input is in a binary format that holds no lines.
pub fn decompressed<'a>(
    mut input: impl Read + 'a,
    format: Format,
) -> io::Result<Box<dyn Read + 'a>> {
    if format == Format::Raw {
        return Ok(Box::new(input));
    }
    let mut begin = Vec::with_capacity(Encoding::MAGIC_SIZE);
    input.by_ref().take(Encoding::MAGIC_SIZE as u64).read_to_end(&mut begin)?;
    let encoding =
        Encoding::detect(&begin).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
    let input = Cursor::new(begin).chain(input);
    match encoding {
        Some(encoding) => encoding.reader(input),
        None => Ok(Box::new(input)),
    }
}

fn splitter(format: Format) -> Splitter {
    let counted = matches!(format, Format::Auto | Format::Syslog);
    // A line of JSON may be an envelope of many events.
    let limit = if format.is_json() { ENVELOPE_SIZE_MAX } else { RECORD_SIZE_MAX };
    Splitter::new(limit, counted)
}

/// Cuts an input that arrives in pieces into the same records.
pub(super) struct Cutter {
    format: Format,
    document: bool,
    by: By,
}

enum By {
    /// The first bytes do not identify the form yet.
    Unknown(Vec<u8>),
    Lines(Splitter),
    Elements(ElementSplitter),
}

impl Cutter {
    /// * `document`: as in [`records`].
    pub(super) fn new(format: Format, document: bool) -> Self {
        Self { format, document, by: By::Unknown(Vec::new()) }
    }

    /// Returns the number of bytes held between two pieces.
    pub(super) fn held(&self) -> usize {
        match &self.by {
            By::Unknown(begin) => begin.capacity(),
            By::Lines(splitter) => splitter.held(),
            By::Elements(splitter) => splitter.held(),
        }
    }

    /// Passes every record that ends in `piece` to `take`.
    ///
    /// # Errors
    /// Those of `take`.
    pub(super) fn feed<E>(
        &mut self,
        piece: &[u8],
        take: &mut dyn FnMut(&Record<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut rest = piece;
        match &mut self.by {
            By::Unknown(begin) => {
                begin.extend_from_slice(piece);
                if !is_decisive(begin, self.format) {
                    return Ok(());
                }
                let begin = std::mem::take(begin);
                self.decide(&begin);
                self.feed(&begin, take)
            }
            By::Lines(splitter) => {
                while let Some(record) = splitter.next(&mut rest) {
                    take(&record)?;
                }
                Ok(())
            }
            By::Elements(splitter) => {
                while let Some(record) = splitter.next(&mut rest) {
                    take(&record)?;
                }
                Ok(())
            }
        }
    }

    /// Ends the input: passes on the record it ended in.
    ///
    /// # Errors
    /// Those of `take`.
    pub(super) fn finish<E>(
        &mut self,
        take: &mut dyn FnMut(&Record<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if let By::Unknown(begin) = &mut self.by {
            let begin = std::mem::take(begin);
            self.decide(&begin);
            self.feed(&begin, take)?;
        }
        let last = match &mut self.by {
            By::Unknown(_) => None,
            By::Lines(splitter) => splitter.finish(),
            By::Elements(splitter) => splitter.finish(),
        };
        last.map_or(Ok(()), |record| take(&record))
    }

    fn decide(&mut self, begin: &[u8]) {
        self.by = if self.document || is_document(begin, self.format) {
            By::Elements(ElementSplitter::new(ENVELOPE_SIZE_MAX))
        } else {
            By::Lines(splitter(self.format))
        };
    }
}

/// Returns the first bytes of a body that show how it is cut, if they come soon.
fn peek(body: &mut impl Read, format: Format) -> io::Result<Vec<u8>> {
    let mut begin = Vec::new();
    let mut piece = [0; PEEK_SIZE];
    loop {
        let count = match body.read(&mut piece) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            other => other?,
        };
        begin.extend_from_slice(piece.get(..count).unwrap_or_default());
        if count == 0 || is_decisive(&begin, format) {
            return Ok(begin);
        }
    }
}

/// Returns whether the first bytes show how a body is cut: up to the second that is not white
/// space, or, of a JSON object, to the end of its line.
fn is_decisive(begin: &[u8], format: Format) -> bool {
    if begin.len() >= PEEK_SIZE {
        return true;
    }
    let line = begin.trim_ascii_start();
    if format.is_json() && line.starts_with(b"{") {
        return line.contains(&b'\n');
    }
    line.iter().filter(|byte| !byte.is_ascii_whitespace()).take(2).count() == 2
}

/// Returns whether a body is one JSON document rather than lines: an array of objects, or an object
/// that is written over several lines.
fn is_document(begin: &[u8], format: Format) -> bool {
    is_array(begin, format) || is_indented(begin, format)
}

/// Returns whether the first line of a body opens a JSON object and ends within it, where only a
/// document may have a line end.
fn is_indented(begin: &[u8], format: Format) -> bool {
    let begin = begin.trim_ascii_start();
    let Some(end) = begin.iter().position(|byte| *byte == b'\n') else { return false };
    let line = begin.get(..end).unwrap_or_default().trim_ascii();
    format.is_json() && line.starts_with(b"{") && matches!(line.last(), Some(b'{' | b'[' | b','))
}

/// Returns whether a body of a JSON format, or of any, begins like an array of objects.
fn is_array(begin: &[u8], format: Format) -> bool {
    let mut visible = begin.iter().filter(|byte| !byte.is_ascii_whitespace());
    let array = visible.next() == Some(&b'[');
    match format {
        // A plain line may begin with a bracket.
        Format::Auto => array && matches!(visible.next(), Some(b'{' | b']')),
        format => array && format.is_json(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_any_size_give_the_records_of_the_whole() {
        let texts: [&str; 9] = [
            "{\n  \"Records\": [\n    {\"a\": 1},\n    {\"b\": 2}\n  ]\n}\n",
            "{\"a\": [\n1]}\n{\"b\": 2}",
            "one\ntwo\r\n\nthree",
            " \n[ {\"a\": 1}, 7, {\"b\": [\"}\"]} ]\n",
            "{\"a\": 1}\n{\"b\": 2}\n",
            "[2026-11-21] started\nnext\n",
            "7 <1>1 abcd 5 <2>xy",
            "[{\"a\": 1} {\"b\": 2}]",
            "",
        ];
        for (text, document) in texts.iter().flat_map(|text| [(text, false), (text, true)]) {
            let mut whole = Vec::new();
            let mut cut = records(text.as_bytes(), Format::Auto, document).unwrap();
            while let Some(record) = cut.next().unwrap() {
                whole.push((record.line, record.bytes.to_vec(), record.fault));
            }
            for size in [1, 2, 3, 7, 4096] {
                let mut found = Vec::new();
                let mut take = |record: &Record<'_>| {
                    found.push((record.line, record.bytes.to_vec(), record.fault.clone()));
                    Ok::<(), ()>(())
                };
                let mut cutter = Cutter::new(Format::Auto, document);
                for piece in text.as_bytes().chunks(size) {
                    cutter.feed(piece, &mut take).unwrap();
                }
                cutter.finish(&mut take).unwrap();
                assert_eq!(found, whole, "{text:?} in pieces of {size}");
            }
        }
    }

    #[test]
    fn an_object_over_several_lines_is_one_document() {
        assert!(is_document(b" {\n \"a\": 1\n}", Format::Auto));
        assert!(is_document(b"{ \"Records\": [\r\n{", Format::Ndjson));
        assert!(is_document(b"{\"a\": 1,\n\"b\": 2}", Format::Ocsf));
        assert!(!is_document(b"{\"a\": 1}\n{\"b\": 2}", Format::Auto));
        assert!(!is_document(b"{\"a\": 1\n{\"b\": 2}", Format::Auto));
        assert!(!is_document(b"{\n", Format::Syslog));
    }

    #[test]
    fn a_compressed_input_is_decompressed_and_another_binary_one_refused() {
        let text = b"{\"a\": 1}\n";
        // Of `gzip -n`, in one stored block.
        let mut gzip = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 1, 9, 0, 0xf6, 0xff];
        gzip.extend_from_slice(text);
        gzip.truncate(gzip.len() - 1);
        let read = |bytes: &[u8], format| {
            let mut read = Vec::new();
            decompressed(bytes, format)?.read_to_end(&mut read).map(|_| read)
        };
        assert_eq!(read(text, Format::Auto).unwrap(), text);
        assert_eq!(read(&gzip, Format::Raw).unwrap(), gzip);
        // The checksum at its end is missing.
        assert!(read(&gzip, Format::Auto).is_err());
        assert!(read(b"PK\x03\x04 an archive", Format::Auto).is_err());
    }

    #[test]
    fn an_array_is_distinguished_from_a_line_that_begins_with_a_bracket() {
        assert!(is_array(b" \n[ {\"a\":1}]", Format::Auto));
        assert!(is_array(b"[]", Format::Auto));
        assert!(is_array(b"[1]", Format::Ndjson));
        assert!(!is_array(b"[2026-11-21] started", Format::Auto));
        assert!(!is_array(b"[{", Format::Raw));
        assert!(!is_array(b"", Format::Ndjson));
    }
}
