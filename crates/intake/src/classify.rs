//! What a file is, read from its first bytes; its extension only breaks ties.
//!
//! Invariants: the result depends on the bytes and the name alone; a declared `Content-Type` is
//! ignored; a type whose signature is known is never given to bytes that lack it; text is only what
//! decodes as UTF-8 without control characters.

use crate::names::FileName;

/// Number of leading bytes that are examined.
pub const HEAD_SIZE: usize = 8_192;

/// The broad kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Category {
    /// Anything that matches no other category.
    Other = 0,
    /// Still pictures, raster and vector.
    Image = 1,
    /// Moving pictures.
    Video = 2,
    /// Sound.
    Audio = 3,
    /// PDF, office documents, books, e-mail.
    Document = 4,
    /// Packed or compressed containers.
    Archive = 5,
    /// Plain text and source code.
    Text = 6,
    /// JSON and NDJSON.
    Json = 7,
    /// Typefaces.
    Font = 8,
    /// Programs and libraries.
    Executable = 9,
}

impl Category {
    /// Every category, in the order of their codes.
    pub const ALL: [Self; 10] = [
        Self::Other,
        Self::Image,
        Self::Video,
        Self::Audio,
        Self::Document,
        Self::Archive,
        Self::Text,
        Self::Json,
        Self::Font,
        Self::Executable,
    ];

    /// The word used in answers, filters and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Other => "other",
            Self::Image => "image",
            Self::Video => "video",
            Self::Audio => "audio",
            Self::Document => "document",
            Self::Archive => "archive",
            Self::Text => "text",
            Self::Json => "json",
            Self::Font => "font",
            Self::Executable => "executable",
        }
    }

    /// The category of a stored code.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// The category of a word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|category| category.as_str() == word)
    }
}

/// A media type and the category it falls into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Classified {
    /// The media type.
    pub mime: &'static str,
    /// Its category.
    pub category: Category,
}

const OCTETS: Classified =
    Classified { mime: "application/octet-stream", category: Category::Other };

/// Classifies a file by `head`, its first bytes (up to [`HEAD_SIZE`] are used), and its name.
#[must_use]
pub fn classify(head: &[u8], name: &FileName) -> Classified {
    let head = head.get(..HEAD_SIZE).unwrap_or(head);
    let text = is_text(head);
    if text {
        return classify_text(head, name);
    }
    if let Some(kind) = infer::get(signature_part(head)) {
        return Classified { mime: kind.mime_type(), category: category_of(kind.mime_type()) };
    }
    // Readers accept a PDF whose header is anywhere in the first KiB (PDF 1.4, H.3.4.1).
    if memchr::memmem::find(head.get(..1_024).unwrap_or(head), b"%PDF").is_some() {
        return Classified { mime: "application/pdf", category: Category::Document };
    }
    match by_extension(name) {
        Some(mime) if !mime.starts_with("text/") && !has_signature(name) => {
            Classified { mime, category: category_of(mime) }
        }
        _ => OCTETS,
    }
}

/// The part of the head in which a signature may be: up to the end of tar's, the furthest one,
/// except for containers that name their contents further on (zip and OLE: office documents; EBML:
/// video). A PDF's is searched for separately.
fn signature_part(head: &[u8]) -> &[u8] {
    let long = [&b"PK"[..], b"\xD0\xCF\x11\xE0", b"\x1A\x45\xDF\xA3"];
    if long.iter().any(|start| head.starts_with(start)) {
        return head;
    }
    head.get(..264).unwrap_or(head)
}

/// Whether `text`'s bytes are UTF-8 (a character cut at the end is allowed) and free of controls.
fn is_text(head: &[u8]) -> bool {
    let valid = match std::str::from_utf8(head) {
        Ok(_) => true,
        Err(error) => {
            error.error_len().is_none() && head.len() - error.valid_up_to() < 4 && head.len() > 3
        }
    };
    valid
        && head
            .iter()
            .all(|&b| b >= 0x20 && b != 0x7F || matches!(b, b'\t' | b'\n' | b'\r' | 0x0C | 0x1B))
}

fn classify_text(head: &[u8], name: &FileName) -> Classified {
    let body = head.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(head);
    let body = body.trim_ascii_start();
    let extension = name.extension();
    let start = body.get(..1_024).unwrap_or(body);
    if starts_with_tag(start, b"<svg") || start.starts_with(b"<?xml") && contains(start, b"<svg") {
        return Classified { mime: "image/svg+xml", category: Category::Image };
    }
    if starts_with_tag(start, b"<!doctype html") || starts_with_tag(start, b"<html") {
        return Classified { mime: "text/html", category: Category::Text };
    }
    if matches!(body.first(), Some(b'{' | b'[')) {
        match extension.as_deref() {
            Some("ndjson" | "jsonl") => {
                return Classified { mime: "application/x-ndjson", category: Category::Json };
            }
            Some("json" | "geojson" | "webmanifest" | "map" | "har" | "ipynb") => {
                return Classified { mime: "application/json", category: Category::Json };
            }
            None if looks_like_json(body) => {
                return Classified { mime: "application/json", category: Category::Json };
            }
            _ => {}
        }
    }
    if start.starts_with(b"%PDF-") {
        return Classified { mime: "application/pdf", category: Category::Document };
    }
    if let Some(mime) = by_extension(name)
        && is_textual(mime)
    {
        let category = if mime == "application/json" { Category::Text } else { category_of(mime) };
        let mime = if mime == "application/json" { "text/plain" } else { mime };
        return Classified { mime, category };
    }
    if start.starts_with(b"<?xml") {
        return Classified { mime: "text/xml", category: Category::Text };
    }
    if start.starts_with(b"#!") {
        return Classified { mime: "text/x-shellscript", category: Category::Text };
    }
    Classified { mime: "text/plain", category: Category::Text }
}

/// A first quoted key or an array's first value is enough to distinguish JSON from other text in
/// braces.
fn looks_like_json(body: &[u8]) -> bool {
    let rest = body.get(1..).unwrap_or_default().trim_ascii_start();
    match (body.first(), rest.first()) {
        (Some(b'{'), Some(b'"' | b'}')) => true,
        (Some(b'['), Some(b'{' | b'[' | b'"' | b']')) => true,
        (Some(b'['), Some(b)) => b.is_ascii_digit(),
        _ => false,
    }
}

fn starts_with_tag(start: &[u8], tag: &[u8]) -> bool {
    start.get(..tag.len()).is_some_and(|s| s.eq_ignore_ascii_case(tag))
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window.eq_ignore_ascii_case(needle))
}

fn by_extension(name: &FileName) -> Option<&'static str> {
    mime_guess::from_ext(&name.extension()?).first_raw()
}

/// Whether the name's extension belongs to a type that its signature would have identified.
fn has_signature(name: &FileName) -> bool {
    name.extension().is_some_and(|extension| infer::is_supported(&extension))
}

fn is_textual(mime: &str) -> bool {
    mime.starts_with("text/")
        || mime.ends_with("+xml") && mime != "image/svg+xml"
        || mime.ends_with("+json")
        || matches!(
            mime,
            "application/json"
                | "application/javascript"
                | "application/toml"
                | "application/x-sh"
                | "application/xml"
                | "application/sql"
                | "application/x-yaml"
                | "application/x-tex"
        )
}

/// The category of a media type.
#[must_use]
pub fn category_of(mime: &str) -> Category {
    match mime.split('/').next() {
        Some("image") => return Category::Image,
        Some("video") => return Category::Video,
        Some("audio") => return Category::Audio,
        Some("font") => return Category::Font,
        Some("text") => return Category::Text,
        _ => {}
    }
    let has = |words: &[&str]| words.iter().any(|word| mime.contains(word));
    if has(&["json"]) {
        Category::Json
    } else if has(&["font"]) {
        Category::Font
    } else if has(&[
        "pdf",
        "msword",
        "officedocument",
        "opendocument",
        "ms-excel",
        "ms-powerpoint",
        "epub",
        "mobipocket",
        "rtf",
        "postscript",
        "outlook",
    ]) {
        Category::Document
    } else if has(&[
        "zip",
        "x-tar",
        "compress",
        "x-7z",
        "rar",
        "x-xz",
        "zstd",
        "x-bzip",
        "x-lz",
        "x-archive",
        "debian",
        "x-rpm",
        "x-cpio",
        "ms-cab",
        "par2",
        "x-unix-archive",
    ]) {
        Category::Archive
    } else if has(&[
        "executable",
        "mach",
        "x-dex",
        "wasm",
        "java",
        "llvm",
        "x-sharedlib",
        "x-msdownload",
    ]) {
        if mime == "application/javascript" { Category::Text } else { Category::Executable }
    } else if is_textual(mime) {
        Category::Text
    } else {
        Category::Other
    }
}

/// Whether a browser could execute what a response of this type holds, so that it must be served
/// as an attachment in a sandbox.
///
/// Only types known to be inert are shown inline; everything else is treated as active.
#[must_use]
pub fn is_active(mime: &str) -> bool {
    let inert = (mime.starts_with("image/") && mime != "image/svg+xml")
        || mime.starts_with("audio/")
        || mime.starts_with("video/")
        || mime.starts_with("font/")
        || matches!(mime, "text/plain" | "application/json" | "application/x-ndjson");
    !inert
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(head: &[u8], name: &str, mime: &'static str, category: Category) {
        let name = FileName::parse(name).unwrap();
        assert_eq!(classify(head, &name), Classified { mime, category }, "{name}");
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
        check(&text.as_bytes()[1..], "a", "application/octet-stream", Category::Other);
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
