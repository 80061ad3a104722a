//! The broad kinds of files, by media type, and which of them a browser could execute.

use super::text::is_textual;

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
