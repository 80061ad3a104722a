//! The text of a file, for the index and for excerpts.
//!
//! Text formats are those of [`is_text`]; the text of a larger file than [`TEXT_SIZE_MAX`] is not
//! indexed. Bytes are read as UTF-8, as UTF-16 after a byte order mark, or else, if no character beyond
//! ASCII is UTF-8, as Windows-1252, which has the characters of Latin-1; what is none of them is replaced.
//! Of HTML, scripts, styles and tags are left out by a scanner that is no parser: it is good enough to
//! find words, and nothing it returns is ever shown as markup.
//!
//! Invariants: bytes are read from where every read takes them, with their checksums verified; no
//! input makes the scanner fail, and its output is no longer than its input. The text that bytes have never
//! changes within a version of the index.

use std::io;

use bytes::Bytes;
use encoding_rs::WINDOWS_1252;

use crate::catalogue::{BlobLocation, BlobRecord};
use crate::error::IntakeError;
use crate::shared::Shared;

/// Maximum size of a file whose text is indexed, in bytes.
pub const TEXT_SIZE_MAX: u64 = 10 << 20;

/// Whether files of a media type are text.
pub(super) fn is_text(mime: &str) -> bool {
    mime.starts_with("text/")
        || mime.ends_with("+xml")
        || mime.ends_with("+json")
        || matches!(
            mime,
            "application/json"
                | "application/javascript"
                | "application/sql"
                | "application/toml"
                | "application/x-ndjson"
                | "application/x-sh"
                | "application/x-tex"
                | "application/x-yaml"
                | "application/xml"
        )
}

/// Whether the text of a file is indexed.
pub(super) fn is_indexed(mime: &str, size: u64) -> bool {
    size > 0 && size <= TEXT_SIZE_MAX && is_text(mime)
}

/// The text in the bytes of a file.
pub(super) fn text_of(bytes: &[u8], mime: &str) -> String {
    let text = decoded(bytes);
    let mut text = match mime {
        "text/html" | "application/xhtml+xml" => without_markup(&text),
        _ => text,
    };
    if text.contains('\0') {
        text = text.replace('\0', " ");
    }
    text
}

/// Reads the bytes of a file whose text is indexed. Blocks.
///
/// # Errors
/// [`IntakeError`]: they cannot be read, or differ from what was stored.
pub(super) fn read(shared: &Shared, blob: &BlobRecord) -> Result<Bytes, IntakeError> {
    let damaged = |found: String| IntakeError::Damaged { digest: blob.digest.to_hex(), found };
    match blob.place {
        BlobLocation::Entry(lsn) => shared.read_packed(blob, lsn),
        BlobLocation::Erased => Err(damaged("they were erased".to_owned())),
        BlobLocation::File => {
            let failed = |source: io::Error| match source.kind() {
                io::ErrorKind::InvalidData => damaged(source.to_string()),
                _ => IntakeError::Blob { act: "read", source },
            };
            let opened = shared.blobs.open(blob.digest);
            let reader =
                opened.and_then(|found| found.reader(blob.size, blob.digest)).map_err(failed)?;
            let mut bytes = Vec::new();
            let mut at = 0;
            while at < blob.size.min(TEXT_SIZE_MAX) {
                let read = reader.read(at, blob.size).map_err(failed)?;
                at += read.len() as u64;
                bytes.extend_from_slice(&read);
            }
            Ok(bytes.into())
        }
    }
}

fn decoded(bytes: &[u8]) -> String {
    let units = |rest: &[u8], unit: fn([u8; 2]) -> u16| {
        let units = rest.chunks_exact(2).map(|pair| unit(pair.try_into().unwrap_or_default()));
        char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
    };
    match bytes {
        [0xFF, 0xFE, rest @ ..] => units(rest, u16::from_le_bytes),
        [0xFE, 0xFF, rest @ ..] => units(rest, u16::from_be_bytes),
        [0xEF, 0xBB, 0xBF, rest @ ..] => String::from_utf8_lossy(rest).into_owned(),
        _ if is_one_byte_each(bytes) => {
            WINDOWS_1252.decode_without_bom_handling(bytes).0.into_owned()
        }
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}

/// Whether no character beyond ASCII is UTF-8, and there is one.
fn is_one_byte_each(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err() && bytes.utf8_chunks().all(|chunk| chunk.valid().is_ascii())
}

/// Elements whose content is not text.
const HIDDEN: [&str; 2] = ["script", "style"];

/// Entities that are replaced; the others stay as they are.
const ENTITIES: [(&str, &str); 6] = [
    ("&amp;", "&"),
    ("&lt;", "<"),
    ("&gt;", ">"),
    ("&quot;", "\""),
    ("&nbsp;", " "),
    ("&#39;", "'"),
];

/// Replaces tags and comments by spaces, leaves out scripts and styles, and decodes a few entities.
fn without_markup(html: &str) -> String {
    let mut text = String::with_capacity(html.len());
    let mut rest = html;
    while let Some(at) = rest.find(['<', '&']) {
        let (before, from) = rest.split_at(at);
        text.push_str(before);
        rest = if let Some(entity) = ENTITIES.iter().find(|(name, _)| from.starts_with(name)) {
            text.push_str(entity.1);
            from.get(entity.0.len()..).unwrap_or_default()
        } else if let Some(after) = after_markup(from) {
            text.push(' ');
            after
        } else {
            // Not markup: a lone character.
            text.push_str(from.get(..1).unwrap_or_default());
            from.get(1..).unwrap_or_default()
        };
    }
    text.push_str(rest);
    text
}

/// What follows the tag, comment, script or style that `html` begins with; `None` if it begins with
/// none.
fn after_markup(html: &str) -> Option<&str> {
    if let Some(comment) = html.strip_prefix("<!--") {
        return Some(comment.split_once("-->").map_or("", |(_, after)| after));
    }
    let inside = html.strip_prefix('<')?;
    if !inside.starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '/' | '!' | '?')) {
        return None;
    }
    let (tag, after) = inside.split_once('>').unwrap_or((inside, ""));
    let name_end = tag.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(tag.len());
    let name = tag.get(..name_end).unwrap_or_default();
    let Some(hidden) = HIDDEN.iter().find(|hidden| hidden.eq_ignore_ascii_case(name)) else {
        return Some(after);
    };
    if tag.ends_with('/') {
        return Some(after);
    }
    let mut rest = after;
    while let Some((_, close)) = rest.split_once("</") {
        let is_end = close.get(..hidden.len()).is_some_and(|end| end.eq_ignore_ascii_case(hidden));
        if is_end {
            return Some(close.split_once('>').map_or("", |(_, after)| after));
        }
        rest = close;
    }
    Some("")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_is_read_in_the_encoding_that_it_has() {
        assert_eq!(text_of(b"\xEF\xBB\xBFplain", "text/plain"), "plain");
        assert_eq!(text_of(b"\xFF\xFEh\0i\0", "text/plain"), "hi");
        assert_eq!(text_of(b"\xFE\xFF\0h\0i\0", "text/plain"), "hi");
        assert_eq!(
            text_of(b"K\xE4se f\xFCr 5 \x80\0", "text/plain"),
            "K\u{e4}se f\u{fc}r 5 \u{20ac} "
        );
        let mixed = "\u{e9}".bytes().chain(*b"a\xFFb\0c").collect::<Vec<_>>();
        assert_eq!(text_of(&mixed, "text/plain"), "\u{e9}a\u{FFFD}b c");
    }

    #[test]
    fn html_keeps_its_words_and_loses_its_markup() {
        let html = "<!DOCTYPE html><!-- no --><STYLE>p{}</style><p class=\"x\">a &lt; b</p>1 < 2 \
                    <script>if (a</b) no()</script >&amp; end<br";
        let words: Vec<_> =
            text_of(html.as_bytes(), "text/html").split_whitespace().map(str::to_owned).collect();
        assert_eq!(words, ["a", "<", "b", "1", "<", "2", "&", "end"]);
        assert_eq!(text_of(html.as_bytes(), "text/xml"), html);
    }

    proptest! {
        #[test]
        fn no_html_makes_the_scanner_fail(html in "[<>/!&a-cé;\\- \"script]{0,80}") {
            prop_assert!(without_markup(&html).len() <= html.len());
        }
    }
}
