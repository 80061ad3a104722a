//! Cuts an input into records: lines, counted messages, or the elements of a JSON document.

use std::io::{self, Cursor, ErrorKind, Read};

use forebay_events::input::{
    ElementSplitter, Elements, Format, RECORD_SIZE_MAX, Record, Records, Splitter,
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
    let begin = peek(&mut input)?;
    let document = document || is_array(&begin, format);
    let input = Cursor::new(begin).chain(input);
    Ok(if document {
        Box::new(Elements::new(input, RECORD_SIZE_MAX))
    } else {
        Box::new(Records::new(input, splitter(format)))
    })
}

fn splitter(format: Format) -> Splitter {
    let counted = matches!(format, Format::Auto | Format::Syslog);
    Splitter::new(RECORD_SIZE_MAX, counted)
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
                let visible = begin.iter().filter(|byte| !byte.is_ascii_whitespace()).take(2);
                if visible.count() < 2 && begin.len() < PEEK_SIZE {
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
        self.by = if self.document || is_array(begin, self.format) {
            By::Elements(ElementSplitter::new(RECORD_SIZE_MAX))
        } else {
            By::Lines(splitter(self.format))
        };
    }
}

/// Returns the first bytes of a body, up to the second that is not white space, if they come soon.
fn peek(body: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut begin = Vec::new();
    let mut piece = [0; PEEK_SIZE];
    loop {
        let count = match body.read(&mut piece) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            other => other?,
        };
        begin.extend_from_slice(piece.get(..count).unwrap_or_default());
        let visible = begin.iter().filter(|byte| !byte.is_ascii_whitespace()).take(2).count();
        if count == 0 || visible == 2 || begin.len() >= PEEK_SIZE {
            return Ok(begin);
        }
    }
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
        let texts: [&str; 7] = [
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
    fn an_array_is_distinguished_from_a_line_that_begins_with_a_bracket() {
        assert!(is_array(b" \n[ {\"a\":1}]", Format::Auto));
        assert!(is_array(b"[]", Format::Auto));
        assert!(is_array(b"[1]", Format::Ndjson));
        assert!(!is_array(b"[2026-11-21] started", Format::Auto));
        assert!(!is_array(b"[{", Format::Raw));
        assert!(!is_array(b"", Format::Ndjson));
    }
}
