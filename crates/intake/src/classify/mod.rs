//! What a file is, detected from its bytes; its extension only breaks ties.
//!
//! `text` recognises text in its encodings, `binary` everything else by signatures and by what
//! containers hold, `zip` and `ole` the documents and programs that are such archives.
//!
//! Invariants: the result depends on the bytes and the name alone; a declared `Content-Type` is
//! ignored; a type whose signature is known is never given to bytes that lack it; no bytes cause a
//! panic, and reading them is limited.

mod binary;
mod category;
mod ole;
mod text;
mod zip;

use std::collections::HashMap;
use std::io::{Cursor, Read, Seek};
use std::sync::LazyLock;

use file_format::FileFormat;
use parking_lot::Mutex;

use crate::error::IntakeError;
use crate::names::FileName;

pub use category::{Category, category_of, is_active};
pub use text::is_utf8;

/// Number of leading bytes that are examined.
pub const HEAD_SIZE: usize = 8_192;

/// A media type and the category it falls into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Classified {
    /// The media type.
    pub mime: &'static str,
    /// Its category.
    pub category: Category,
}

impl Classified {
    fn of(mime: &'static str) -> Self {
        Self { mime, category: category_of(mime) }
    }
}

const OCTETS: &str = "application/octet-stream";

/// Classifies a file by `head`, its first bytes (up to [`HEAD_SIZE`] are used), and its name.
#[must_use]
pub fn classify(head: &[u8], name: &FileName) -> Classified {
    let head = head.get(..HEAD_SIZE).unwrap_or(head);
    classify_content(head, Cursor::new(head), name)
}

/// Like [`classify`], and looks into containers whose contents are listed further on.
///
/// * `content`: all bytes; `head` is their beginning.
#[must_use]
pub fn classify_content<R: Read + Seek>(head: &[u8], content: R, name: &FileName) -> Classified {
    let head = head.get(..HEAD_SIZE).unwrap_or(head);
    if let Some(body) = text::utf8(head) {
        return text::classify(body, name);
    }
    if let Some(mime) = binary::classify(head, content, name) {
        return Classified::of(mime);
    }
    if let Some(body) = text::other(head) {
        return text::classify(body.as_bytes(), name);
    }
    match by_extension(name) {
        Some(mime) if !mime.starts_with("text/") && !has_signature(name) => Classified::of(mime),
        _ => Classified { mime: OCTETS, category: Category::Other },
    }
}

/// The media type of a format, kept for good: there are a few hundred.
fn media_type(format: FileFormat) -> &'static str {
    static KNOWN: LazyLock<Mutex<HashMap<FileFormat, &'static str>>> =
        LazyLock::new(Mutex::default);
    let mut known = KNOWN.lock();
    known.entry(format).or_insert_with(|| Box::leak(format.media_type().into()))
}

/// Whether a media type is `wanted`, which may end in `/*`.
pub(crate) fn is_of_type(mime: &str, wanted: &str) -> bool {
    match wanted.strip_suffix('*') {
        Some(kind) => mime.starts_with(kind),
        None => mime == wanted,
    }
}

/// Checks the form of a media type that files are selected by: `image/png`, or `image/*` for all of a kind.
///
/// # Errors
/// [`IntakeError`] that shows both forms.
pub fn check_wanted_type(wanted: &str) -> Result<(), IntakeError> {
    let (kind, rest) = wanted.split_once('/').unwrap_or_default();
    let has_stars = kind.contains('*') || (rest.contains('*') && rest != "*");
    if kind.is_empty() || rest.is_empty() || has_stars {
        let message = "a media type is written as in image/png, all of a kind as in image/*";
        return Err(IntakeError::rejected("query", message));
    }
    Ok(())
}

fn by_extension(name: &FileName) -> Option<&'static str> {
    mime_guess::from_ext(&name.extension()?).first_raw()
}

/// Whether the name's extension belongs to a type that its signature would have identified.
fn has_signature(name: &FileName) -> bool {
    name.extension().is_some_and(|extension| infer::is_supported(&extension))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(head: &[u8], name: &str, mime: &'static str, category: Category) {
        let name = FileName::parse(name).unwrap();
        assert_eq!(classify(head, &name), Classified { mime, category }, "{name}");
    }

    #[test]
    fn a_kind_of_media_types_selects_its_types_alone() {
        assert!(is_of_type("image/png", "image/*") && is_of_type("image/png", "image/png"));
        assert!(!is_of_type("imagex/png", "image/*") && !is_of_type("image/png", "image/gif"));
        for form in ["image/png", "image/*", "application/vnd.a+json"] {
            check_wanted_type(form).unwrap();
        }
        for form in ["", "image", "image/", "/png", "*/*", "*/png", "image/p*", "im*ge/png"] {
            check_wanted_type(form).unwrap_err();
        }
    }

    #[test]
    fn content_decides_and_the_extension_only_breaks_ties() {
        let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
        check(png, "a.txt", "image/png", Category::Image);
        check(b"not a picture", "a.png", "text/plain", Category::Text);
        check(b"\0\x01\x02\x03", "a.png", "application/octet-stream", Category::Other);
        check(b"fn main() {}", "a.rs", "text/x-rust", Category::Text);
        check(b"{\"a\":1}", "a.json", "application/json", Category::Json);
        check(b"{\"a\":1}\n", "a.ndjson", "application/x-ndjson", Category::Json);
        check(b"{\"a\":1}", "a", "application/json", Category::Json);
        check(b"plain words", "a.json", "text/plain", Category::Text);
        check(b"%PDF-1.7\n", "a", "application/pdf", Category::Document);
        check(b"PK\x03\x04\x14\0\0\0\0\0", "a.bin", "application/zip", Category::Archive);
        check(b"", "empty", "text/plain", Category::Text);
        let mut elf = [0; 64];
        elf[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\0");
        check(&elf, "a", "application/x-executable", Category::Executable);
    }

    #[test]
    fn pages_and_scripts_in_pictures_are_known_and_active() {
        check(b"  <svg onload=alert(1)>", "a.png", "image/svg+xml", Category::Image);
        check(b"<?xml version='1.0'?><SVG/>", "a.xml", "image/svg+xml", Category::Image);
        check(b"<!DOCTYPE html><script>", "a.jpg", "text/html", Category::Text);
        for active in ["image/svg+xml", "text/html", "application/xhtml+xml", "text/xml", "x/y"] {
            assert!(is_active(active), "{active}");
        }
        for inert in ["image/png", "text/plain", "video/mp4", "application/json"] {
            assert!(!is_active(inert), "{inert}");
        }
    }

    #[test]
    fn a_character_cut_by_the_end_of_the_head_is_still_text() {
        let text = "é".repeat(HEAD_SIZE);
        check(&text.as_bytes()[..HEAD_SIZE - 1], "a", "text/plain", Category::Text);
        // Whatever encoding it is in, no byte of it is a control.
        check(&text.as_bytes()[1..], "a", "text/plain", Category::Text);
    }

    #[test]
    fn category_codes_read_back() {
        for category in Category::ALL {
            assert_eq!(Category::from_code(category as u8), Some(category));
            assert_eq!(Category::parse(category.as_str()), Some(category));
        }
        assert_eq!(Category::from_code(10), None);
    }
}
