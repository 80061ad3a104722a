//! Rows of prefixes as CSV, with a header.

use std::io::{BufWriter, Write};

use super::rows::{Columns, ENCODED, PREFIX};
use super::{ExportError, Walk};
use crate::index::Index;
use crate::render::percent_encoded;

pub(super) fn write(
    index: &Index,
    walk: &mut Walk<'_, '_>,
    out: impl Write,
) -> Result<(), ExportError> {
    let columns = Columns::new(index);
    let mut out = BufWriter::with_capacity(1 << 16, out);
    write!(out, "{PREFIX},{ENCODED}")?;
    for name in &columns.names {
        write!(out, ",{name}")?;
    }
    out.write_all(b"\n")?;
    let mut numbers = Vec::new();
    while let Some(found) = walk.next()? {
        columns.fill(&found.node, &mut numbers)?;
        match std::str::from_utf8(&found.prefix) {
            Ok(text) => {
                put_text(&mut out, text)?;
                out.write_all(b",")?;
            }
            Err(_) => {
                put_text(&mut out, &String::from_utf8_lossy(&found.prefix))?;
                write!(out, ",{}", percent_encoded(&found.prefix))?;
            }
        }
        for number in &numbers {
            write!(out, ",{number}")?;
        }
        out.write_all(b"\n")?;
    }
    out.flush()?;
    Ok(())
}

/// A field, in quotes if necessary. The empty prefix is quoted, too, since it is a text.
fn put_text(out: &mut impl Write, text: &str) -> Result<(), ExportError> {
    let plain = |byte: u8| !matches!(byte, b'"' | b',' | b'\n' | b'\r');
    if !text.is_empty() && text.bytes().all(plain) && text.trim() == text {
        out.write_all(text.as_bytes())?;
    } else {
        write!(out, "\"{}\"", text.replace('"', "\"\""))?;
    }
    Ok(())
}
