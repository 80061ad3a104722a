//! Documents and programs that are zip archives, known by the first entries of the archive.
//!
//! Only the headers before each entry are read, so that an archive whose end is missing is known too.
//! What is not recognised here may still be by the list at the archive's end.

use std::io::Read as _;

use flate2::bufread::DeflateDecoder;

/// Entries looked at.
const ENTRIES_MAX: usize = 64;
/// Bytes of a list of parts that are decompressed.
const TYPES_SIZE_MAX: u64 = 64 << 10;

/// Types of the main part of an Office Open XML document, and of the document.
const OFFICE: [(&str, &str); 15] = [
    (
        "openxmlformats-officedocument.wordprocessingml.document.main+xml",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ),
    (
        "openxmlformats-officedocument.wordprocessingml.template.main+xml",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.template",
    ),
    ("ms-word.document.macroEnabled.main+xml", "application/vnd.ms-word.document.macroenabled.12"),
    (
        "ms-word.template.macroEnabledTemplate.main+xml",
        "application/vnd.ms-word.template.macroenabled.12",
    ),
    (
        "openxmlformats-officedocument.spreadsheetml.sheet.main+xml",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    ),
    (
        "openxmlformats-officedocument.spreadsheetml.template.main+xml",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.template",
    ),
    ("ms-excel.sheet.macroEnabled.main+xml", "application/vnd.ms-excel.sheet.macroenabled.12"),
    (
        "ms-excel.template.macroEnabled.main+xml",
        "application/vnd.ms-excel.template.macroenabled.12",
    ),
    (
        "ms-excel.sheet.binary.macroEnabled.main",
        "application/vnd.ms-excel.sheet.binary.macroenabled.12",
    ),
    (
        "openxmlformats-officedocument.presentationml.presentation.main+xml",
        "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    ),
    (
        "openxmlformats-officedocument.presentationml.template.main+xml",
        "application/vnd.openxmlformats-officedocument.presentationml.template",
    ),
    (
        "openxmlformats-officedocument.presentationml.slideshow.main+xml",
        "application/vnd.openxmlformats-officedocument.presentationml.slideshow",
    ),
    (
        "ms-powerpoint.presentation.macroEnabled.main+xml",
        "application/vnd.ms-powerpoint.presentation.macroenabled.12",
    ),
    (
        "ms-powerpoint.template.macroEnabled.main+xml",
        "application/vnd.ms-powerpoint.template.macroenabled.12",
    ),
    (
        "ms-powerpoint.slideshow.macroEnabled.main+xml",
        "application/vnd.ms-powerpoint.slideshow.macroenabled.12",
    ),
];

/// Ends of the media types of OpenDocument, as the entry `mimetype` has them.
const OPEN_DOCUMENT: [(&str, &str); 17] = [
    ("text", "application/vnd.oasis.opendocument.text"),
    ("text-template", "application/vnd.oasis.opendocument.text-template"),
    ("text-master", "application/vnd.oasis.opendocument.text-master"),
    ("text-master-template", "application/vnd.oasis.opendocument.text-master-template"),
    ("text-web", "application/vnd.oasis.opendocument.text-web"),
    ("spreadsheet", "application/vnd.oasis.opendocument.spreadsheet"),
    ("spreadsheet-template", "application/vnd.oasis.opendocument.spreadsheet-template"),
    ("presentation", "application/vnd.oasis.opendocument.presentation"),
    ("presentation-template", "application/vnd.oasis.opendocument.presentation-template"),
    ("graphics", "application/vnd.oasis.opendocument.graphics"),
    ("graphics-template", "application/vnd.oasis.opendocument.graphics-template"),
    ("chart", "application/vnd.oasis.opendocument.chart"),
    ("chart-template", "application/vnd.oasis.opendocument.chart-template"),
    ("image", "application/vnd.oasis.opendocument.image"),
    ("image-template", "application/vnd.oasis.opendocument.image-template"),
    ("formula", "application/vnd.oasis.opendocument.formula"),
    ("base", "application/vnd.oasis.opendocument.base"),
];

/// What the archive is, if its first entries show it.
///
/// * `bytes`: the beginning of the archive.
pub(super) fn classify(bytes: &[u8]) -> Option<&'static str> {
    let mut has_iwork = None;
    for entry in Entries(bytes).take(ENTRIES_MAX) {
        match entry.name {
            b"[Content_Types].xml" => {
                if let Some(mime) = office(&entry.content()) {
                    return Some(mime);
                }
            }
            b"mimetype" => {
                if let Some(mime) = open_document(&entry.mimetype()) {
                    return Some(mime);
                }
            }
            b"AndroidManifest.xml" => return Some("application/vnd.android.package-archive"),
            b"Index/Document.iwa" => has_iwork = Some("application/vnd.apple.pages"),
            name if name.starts_with(b"Index/Tables/") && has_iwork.is_some() => {
                has_iwork = Some("application/vnd.apple.numbers");
            }
            name if has_iwork.is_some()
                && (name.starts_with(b"Index/MasterSlide") || name.starts_with(b"Index/Slide")) =>
            {
                return Some("application/vnd.apple.keynote");
            }
            _ => {}
        }
    }
    has_iwork
}

fn office(types: &str) -> Option<&'static str> {
    OFFICE.iter().find(|(part, _)| types.contains(part)).map(|(_, mime)| *mime)
}

fn open_document(mimetype: &[u8]) -> Option<&'static str> {
    let end = mimetype.trim_ascii_end().strip_prefix(b"application/vnd.oasis.opendocument.")?;
    OPEN_DOCUMENT.iter().find(|(name, _)| name.as_bytes() == end).map(|(_, mime)| *mime)
}

/// The entries of an archive from its beginning on. One whose size is not known ends before the next header.
struct Entries<'a>(&'a [u8]);

struct Entry<'a> {
    name: &'a [u8],
    is_deflated: bool,
    /// Size of what is stored, if it is known.
    size: Option<usize>,
    /// What follows the header: the content, and what comes after it.
    rest: &'a [u8],
}

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        let bytes = self.0;
        if !bytes.starts_with(b"PK\x03\x04") {
            return None;
        }
        let u16_at = |at: usize| {
            let two = bytes.get(at..)?.first_chunk()?;
            Some(usize::from(u16::from_le_bytes(*two)))
        };
        let size = u32::from_le_bytes(*bytes.get(18..)?.first_chunk()?);
        let (flags, method) = (u16_at(6)?, u16_at(8)?);
        let (name_size, extra_size) = (u16_at(26)?, u16_at(28)?);
        let name = bytes.get(30..30 + name_size)?;
        let rest = bytes.get(30 + name_size + extra_size..)?;
        // With the third flag, the size comes after the content: archives that were written as a stream.
        let is_known = flags & 8 == 0 || size > 0;
        let size = usize::try_from(size).ok().filter(|_| is_known);
        let end = size.or_else(|| find(rest, b"PK\x03\x04"));
        self.0 = end.and_then(|end| rest.get(end..)).unwrap_or_default();
        Some(Entry { name, is_deflated: method == 8, size, rest })
    }
}

impl Entry<'_> {
    /// The content of an entry that has a media type, as far as it is there.
    fn mimetype(&self) -> Vec<u8> {
        if self.is_deflated {
            return self.content().into_bytes();
        }
        // A size that follows the content begins with this mark.
        let size = self.size.or_else(|| find(self.rest, b"PK\x07\x08")).unwrap_or(usize::MAX);
        self.rest.get(..size).unwrap_or(self.rest).to_vec()
    }

    /// The content as text, as much as is there of it.
    fn content(&self) -> String {
        let mut text = Vec::new();
        if self.is_deflated {
            // What was decompressed before an error counts: the bytes may be cut.
            let _cut = DeflateDecoder::new(self.rest).take(TYPES_SIZE_MAX).read_to_end(&mut text);
        } else {
            let size = usize::try_from(TYPES_SIZE_MAX).unwrap_or(usize::MAX);
            text.extend_from_slice(self.rest.get(..size).unwrap_or(self.rest));
        }
        String::from_utf8_lossy(&text).into_owned()
    }
}

fn find(bytes: &[u8], mark: &[u8; 4]) -> Option<usize> {
    bytes.windows(mark.len()).position(|window| window == mark)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn entry(name: &str, content: &[u8], deflated: bool) -> Vec<u8> {
        let stored = if deflated {
            let mut encoder =
                flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(content).unwrap();
            encoder.finish().unwrap()
        } else {
            content.to_vec()
        };
        let mut bytes = b"PK\x03\x04\x14\0\0\0".to_vec();
        bytes.extend(if deflated { [8, 0] } else { [0, 0] });
        bytes.extend([0; 8]);
        bytes.extend(u32::try_from(stored.len()).unwrap().to_le_bytes());
        bytes.extend(u32::try_from(content.len()).unwrap().to_le_bytes());
        bytes.extend(u16::try_from(name.len()).unwrap().to_le_bytes());
        bytes.extend([0, 0]);
        bytes.extend(name.as_bytes());
        bytes.extend(stored);
        bytes
    }

    #[test]
    fn office_documents_are_known_by_the_type_of_their_main_part() {
        for (part, expected) in OFFICE {
            let types =
                format!("<Types><Override ContentType=\"application/vnd.{part}\"/></Types>");
            for deflated in [false, true] {
                let mut bytes = entry("_rels/.rels", b"<x/>", deflated);
                bytes.extend(entry("[Content_Types].xml", types.as_bytes(), deflated));
                assert_eq!(classify(&bytes), Some(expected));
            }
        }
    }

    #[test]
    fn open_documents_are_known_by_their_entry_mimetype() {
        for (_, expected) in OPEN_DOCUMENT {
            let mut bytes = entry("mimetype", expected.as_bytes(), false);
            bytes.extend(entry("content.xml", b"<x/>", true));
            assert_eq!(classify(&bytes), Some(expected));
        }
        assert_eq!(classify(&entry("mimetype", b"application/epub+zip", false)), None);
    }

    /// An entry of an archive that was written as a stream: its size comes after the content.
    fn streamed(name: &str, content: &[u8], deflated: bool) -> Vec<u8> {
        let mut bytes = entry(name, content, deflated);
        bytes[6] = 8;
        bytes[18..26].fill(0);
        bytes.extend(b"PK\x07\x08");
        bytes.extend([0; 12]);
        bytes
    }

    #[test]
    fn documents_that_were_written_as_a_stream_are_known() {
        for (part, expected) in OFFICE {
            let types = format!("<Override ContentType=\"application/vnd.{part}\"/>");
            let mut bytes = streamed("docProps/app.xml", b"<x/>", true);
            bytes.extend(streamed("_rels/.rels", b"", false));
            bytes.extend(streamed("[Content_Types].xml", types.as_bytes(), true));
            assert_eq!(classify(&bytes), Some(expected));
        }
        for (_, expected) in OPEN_DOCUMENT {
            for deflated in [false, true] {
                let mut bytes = streamed("mimetype", expected.as_bytes(), deflated);
                bytes.extend(streamed("content.xml", b"<x/>", true));
                assert_eq!(classify(&bytes), Some(expected));
            }
        }
        let mut bytes = streamed("META-INF/MANIFEST.MF", b"1", true);
        bytes.extend(streamed("AndroidManifest.xml", b"2", true));
        assert_eq!(classify(&bytes), Some("application/vnd.android.package-archive"));
    }

    #[test]
    fn other_archives_are_left_to_their_lists() {
        assert_eq!(classify(&entry("a.txt", b"words", true)), None);
        assert_eq!(classify(&entry("[Content_Types].xml", b"<Types/>", true)), None);
        let mut pages = entry("Index/Document.iwa", b"", false);
        assert_eq!(classify(&pages), Some("application/vnd.apple.pages"));
        pages.extend(entry("Index/Slide-1.iwa", b"", false));
        assert_eq!(classify(&pages), Some("application/vnd.apple.keynote"));
    }

    #[test]
    fn no_cut_or_flipped_byte_is_more_than_unknown() {
        let mut whole = entry("_rels/.rels", b"<x/>", true);
        whole.extend(streamed("a/b.xml", b"<y/>", true));
        whole.extend(entry("[Content_Types].xml", b"<Types>".repeat(9).as_slice(), true));
        for cut in 0..whole.len() {
            assert_eq!(classify(&whole[..cut]), None);
            let mut flipped = whole.clone();
            flipped[cut] ^= 0xFF;
            assert_eq!(classify(&flipped), None);
        }
    }
}
