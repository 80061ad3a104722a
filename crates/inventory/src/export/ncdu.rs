//! The tree of prefixes in ncdu's export format (`-o`, format 1), to be opened with `ncdu -f`.
//!
//! A prefix is a directory. Its direct objects are one file at its end, since an index does not
//! know single objects, and its noncurrent versions another one; at the maximum depth of an export
//! these files include everything below. ncdu needs a name for everything, so that of an empty
//! component is "(empty)".
//!
//! The disk usage (`dsize`), which ncdu sorts by, is that of all versions: what is stored and
//! billed. The apparent size (`asize`) is that of the current objects: what a reader sees.

use std::borrow::Cow;
use std::io::{BufWriter, Write};

use super::{ExportError, Walk};
use crate::format::histogram::Amount;
use crate::index::Totals;
use crate::render::percent_encoded;

pub(super) fn write(
    walk: &mut Walk<'_, '_>,
    now_ms: u64,
    out: impl Write,
) -> Result<(), ExportError> {
    let mut out = BufWriter::with_capacity(1 << 16, out);
    let (version, seconds) = (env!("CARGO_PKG_VERSION"), now_ms / 1000);
    let program = format!("\"progname\":\"forebay\",\"progver\":\"{version}\"");
    write!(out, "[1,2,{{{program},\"timestamp\":{seconds}}}")?;
    // For each open directory, what is in none of its subdirectories so far.
    let mut open: Vec<Totals> = Vec::new();
    let mut top = None;
    while let Some(found) = walk.next()? {
        let depth = found.node.depth();
        let deeper = depth.saturating_sub(*top.get_or_insert(depth));
        while open.len() as u64 > deeper {
            close(&mut out, &mut open)?;
        }
        let totals = found.node.totals()?;
        if let Some(above) = open.last_mut() {
            subtract(&mut above.current, totals.current);
            subtract(&mut above.noncurrent, totals.noncurrent);
            above.delete_markers = above.delete_markers.saturating_sub(totals.delete_markers);
        }
        let name = if open.is_empty() {
            root(&found.prefix, found.node.delimiter())
        } else {
            component(found.node.name())
        };
        write!(out, ",\n[{{\"name\":")?;
        put_json(&mut out, &name)?;
        write!(out, "}}")?;
        open.push(totals);
    }
    while !open.is_empty() {
        close(&mut out, &mut open)?;
    }
    out.write_all(b"]\n")?;
    out.flush()?;
    Ok(())
}

fn subtract(from: &mut Amount, part: Amount) {
    from.objects = from.objects.saturating_sub(part.objects);
    from.bytes = from.bytes.saturating_sub(part.bytes);
}

/// Ends a directory with its direct objects.
fn close(out: &mut impl Write, open: &mut Vec<Totals>) -> Result<(), ExportError> {
    let own = open.pop().unwrap_or_default();
    let (current, old) = (own.current, own.noncurrent);
    put_file(out, current.objects, "object", current.bytes, current.bytes)?;
    put_file(out, old.objects, "noncurrent version", 0, old.bytes)?;
    put_file(out, own.delete_markers, "delete marker", 0, 0)?;
    out.write_all(b"]")?;
    Ok(())
}

/// A file for this many of something, unless there are none.
fn put_file(
    out: &mut impl Write,
    count: u64,
    what: &str,
    apparent: u64,
    stored: u64,
) -> Result<(), ExportError> {
    if count > 0 {
        let plural = if count == 1 { "" } else { "s" };
        let sizes = format!("\"asize\":{apparent},\"dsize\":{stored}");
        write!(out, ",\n{{\"name\":\"({count} {what}{plural})\",{sizes}}}")?;
    }
    Ok(())
}

/// The name of the first directory, which ncdu shows as a path.
fn root(prefix: &[u8], delimiter: u8) -> Cow<'_, str> {
    let path = prefix.strip_suffix(&[delimiter]).unwrap_or(prefix);
    let path = text(path);
    if path.starts_with('/') { path } else { format!("/{path}").into() }
}

fn component(name: &[u8]) -> Cow<'_, str> {
    if name.is_empty() { "(empty)".into() } else { text(name) }
}

/// As text; percent-encoded if it is not UTF-8.
fn text(name: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(name).map_or_else(|_| percent_encoded(name).into(), Cow::Borrowed)
}

fn put_json(out: &mut impl Write, text: &str) -> Result<(), ExportError> {
    serde_json::to_writer(out, text).map_err(|error| ExportError::Write(error.into()))
}
