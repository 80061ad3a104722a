//! Cuts an input into records: lines, counted messages, or the elements of a JSON document, whichever
//! it is.

use std::io::{self, Cursor, ErrorKind, Read};

use forebay_events::input::{Elements, Format, RECORD_SIZE_MAX, Record, Records, Splitter};

/// White space looked through for the input's first bytes.
const PEEK_SIZE: usize = 4096;

/// Something that cuts an input into records.
pub(crate) trait Cut {
    /// The next record; `None` at the end.
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

/// The records of an input.
///
/// * `document`: it is one JSON document, or several, whatever it begins with.
///
/// # Errors
/// Its beginning cannot be read.
pub(crate) fn records<'a>(
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
        let counted = matches!(format, Format::Auto | Format::Syslog);
        Box::new(Records::new(input, Splitter::new(RECORD_SIZE_MAX, counted)))
    })
}

/// The first bytes of a body: up to and with two that are no white space, where there are some soon.
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

/// Whether a body of a format in JSON, or of any, begins like an array of objects.
fn is_array(begin: &[u8], format: Format) -> bool {
    let mut visible = begin.iter().filter(|byte| !byte.is_ascii_whitespace());
    let array = visible.next() == Some(&b'[');
    match format {
        Format::Ndjson | Format::Ocsf | Format::Suricata | Format::Zeek => array,
        // A plain line may well begin with a bracket.
        Format::Auto => array && matches!(visible.next(), Some(b'{' | b']')),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_is_told_from_a_line_that_begins_with_a_bracket() {
        assert!(is_array(b" \n[ {\"a\":1}]", Format::Auto));
        assert!(is_array(b"[]", Format::Auto));
        assert!(is_array(b"[1]", Format::Ndjson));
        assert!(!is_array(b"[2026-11-21] started", Format::Auto));
        assert!(!is_array(b"[{", Format::Raw));
        assert!(!is_array(b"", Format::Ndjson));
    }
}
