//! Bytes that are not text: signatures, and what containers hold.
//!
//! The libraries `file-format` and `infer` know the signatures. Here is what they miss, where their
//! names differ from those in general use, and the limit on what is read for them.

use std::io::{self, Read, Seek, SeekFrom};
use std::panic::{AssertUnwindSafe, catch_unwind};

use file_format::FileFormat;

use super::{OCTETS, by_extension, media_type, ole, zip};
use crate::names::FileName;

/// Bytes read of one file at most.
const READ_MAX: usize = 4 << 20;
/// Beginning of a zip archive that is examined.
const ZIP_SIZE: usize = 64 << 10;

/// Names of media types in general use, for those that `file-format` has.
const NAMES: [(&str, &str); 16] = [
    ("application/mp4", "video/mp4"),
    ("application/x-id3v2", "audio/mpeg"),
    ("application/x-dwg", "image/vnd.dwg"),
    ("audio/x-pn-realaudio", "application/vnd.rn-realmedia"),
    ("video/x-pn-realvideo", "application/vnd.rn-realmedia"),
    ("image/avif-sequence", "image/avif"),
    ("audio/ac3", "audio/vnd.dolby.dd-raw"),
    ("audio/x-ms-wma", "video/x-ms-asf"),
    ("video/x-ms-wmv", "video/x-ms-asf"),
    ("application/vnd.ms-package.3dmanufacturing-3dmodel+xml", "model/3mf"),
    ("audio/opus", "audio/ogg"),
    ("application/pgp", "application/pgp-encrypted"),
    ("model/x-stl-ascii", "model/stl"),
    ("model/x-stl-binary", "model/stl"),
    ("application/vnd.apache.avro", "application/avro"),
    ("audio/vnd.wave", "audio/x-wav"),
];

/// Types whose signature many types share: among these the extension decides.
const SHARED: [(&str, &[&str]); 3] = [
    ("image/tiff", &["image/x-"]),
    ("application/zip", &["application/vnd.", "application/java-archive", "application/epub+zip"]),
    ("application/x-cfb", &["application/vnd.ms-", "application/msword", "application/x-msi"]),
];

/// What the bytes are, if their signature is known.
pub(super) fn classify<R: Read + Seek>(
    head: &[u8],
    content: R,
    name: &FileName,
) -> Option<&'static str> {
    let mut content = Limited { content, left: READ_MAX };
    if let Some(mime) = own(head, &mut content) {
        return Some(mime);
    }
    // What was looked at so far moved the position.
    content.rewind().ok()?;
    let found = match by_library(head, &mut content) {
        Some("application/x-cfb") => {
            ole::classify(head, &mut content).or(Some("application/x-cfb"))
        }
        found => found,
    };
    let found = found.or_else(|| infer::get(signature_part(head)).map(|kind| kind.mime_type()));
    // Readers accept a PDF whose header is anywhere in the first KiB (PDF 1.4, H.3.4.1).
    let start = head.get(..1_024).unwrap_or(head);
    let found = found
        .or_else(|| memchr::memmem::find(start, b"%PDF").is_some().then_some("application/pdf"))
        .or_else(|| is_old_tar(head).then_some("application/x-tar"))?;
    let shared = SHARED.iter().find(|(mime, _)| *mime == found).map(|(_, members)| *members);
    let by_name = by_extension(name).filter(|by_name| {
        let mut members = shared.unwrap_or_default().iter();
        members.any(|member| by_name.starts_with(member))
    });
    Some(by_name.unwrap_or(found))
}

/// What `file-format` finds.
fn by_library<R: Read + Seek>(head: &[u8], content: &mut Limited<R>) -> Option<&'static str> {
    let read = AssertUnwindSafe(|| FileFormat::from_reader(&mut *content));
    let format = match catch_unwind(read) {
        Ok(Ok(format)) => format,
        // The contents are not what they begin as, or are too long to be read.
        Ok(Err(_)) => FileFormat::from_bytes(head),
        Err(_) => {
            tracing::warn!("the contents of a file could not be examined");
            return None;
        }
    };
    let found = media_type(format);
    if matches!(found, OCTETS | "text/plain" | "application/x-empty") {
        return None;
    }
    Some(NAMES.iter().find(|(theirs, _)| *theirs == found).map_or(found, |(_, name)| *name))
}

/// What neither library knows or distinguishes.
fn own<R: Read + Seek>(head: &[u8], content: &mut Limited<R>) -> Option<&'static str> {
    if head.starts_with(b"PK\x03\x04") {
        return zip::classify(head).or_else(|| {
            let mut more = Vec::new();
            content.rewind().ok()?;
            content.by_ref().take(ZIP_SIZE as u64).read_to_end(&mut more).ok()?;
            zip::classify(&more)
        });
    }
    if let Some(size) = id3_size(head) {
        let mut after = [0; 2];
        content.seek(SeekFrom::Start(size)).ok()?;
        content.read_exact(&mut after).ok()?;
        // A frame of ADTS: 12 bits set, layer 0.
        return (after[0] == 0xFF && after[1] & 0xF6 == 0xF0).then_some("audio/aac");
    }
    if head.starts_with(b"II*\0") || head.starts_with(b"MM\0*") {
        let has = |maker: &[u8]| memchr::memmem::find(head, maker).is_some();
        return has(b"NIKON").then_some("image/x-nikon-nef");
    }
    if head.starts_with(b"$FL2@(#)") || head.starts_with(b"$FL3@(#)") {
        return Some("application/x-spss-sav");
    }
    if head.starts_with(b"\xFF\xFF\0\0\x07\0\0\0\x04\0\0\0") {
        return Some("application/x-jmp-data");
    }
    if head.starts_with(b"\x04\0\0\0")
        && head.get(16..).is_some_and(|at| at.starts_with(b"{\"files\":"))
    {
        return Some("application/x-asar");
    }
    None
}

/// Size of an ID3v2 tag with its header.
fn id3_size(head: &[u8]) -> Option<u64> {
    let rest = head.strip_prefix(b"ID3")?;
    let sizes = rest.get(3..7)?;
    let size = sizes.iter().fold(0, |size, &byte| size << 7 | u64::from(byte & 0x7F));
    Some(size + 10)
}

/// Whether this is a tar archive of before POSIX, which has no signature: its checksum is right.
fn is_old_tar(head: &[u8]) -> bool {
    let Some(header) = head.get(..512) else { return false };
    let (before, rest) = header.split_at(148);
    let (stored, after) = rest.split_at(8);
    let mut digits = stored.iter().filter(|byte| !matches!(byte, b' ' | 0)).peekable();
    if digits.peek().is_none() {
        return false;
    }
    let stored = digits.try_fold(0, |number, digit| {
        matches!(digit, b'0'..=b'7').then(|| number << 3 | u64::from(digit - b'0'))
    });
    let Some(stored) = stored else { return false };
    let sum: u64 = before.iter().chain(after).map(|&byte| u64::from(byte)).sum();
    // The checksum counts as eight spaces.
    header.first() != Some(&0) && stored == sum + 8 * u64::from(b' ')
}

/// The part of the head in which a signature may be: up to the end of tar's, the furthest one,
/// except for containers that name their contents further on.
fn signature_part(head: &[u8]) -> &[u8] {
    let long = [&b"PK"[..], b"\xD0\xCF\x11\xE0", b"\x1A\x45\xDF\xA3"];
    if long.iter().any(|start| head.starts_with(start)) {
        return head;
    }
    head.get(..264).unwrap_or(head)
}

/// Content of which only so much is read.
struct Limited<R> {
    content: R,
    left: usize,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let size = buf.len().min(self.left);
        if size == 0 && !buf.is_empty() {
            return Err(io::Error::other("too much would have to be read"));
        }
        let read = self.content.read(buf.get_mut(..size).unwrap_or_default())?;
        self.left -= read;
        Ok(read)
    }
}

impl<R: Seek> Seek for Limited<R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        // So does a loop of seeking end.
        self.left = self.left.saturating_sub(16);
        self.content.seek(to)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::super::classify_content;
    use super::*;

    fn mime(bytes: &[u8], name: &str) -> &'static str {
        classify_content(bytes, Cursor::new(bytes), &FileName::parse(name).unwrap()).mime
    }

    /// A compound file of one directory, whose root has this class.
    fn compound(class: [u8; 16], stream: &str) -> Vec<u8> {
        let mut bytes = vec![0; 512 * 40];
        bytes[..8].copy_from_slice(b"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1");
        bytes[26] = 3;
        // Far behind what is examined of other files.
        bytes[48] = 30;
        let directory = 512 * 31;
        let mut entry = |at: usize, name: &str| {
            let units: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
            bytes[at..at + units.len()].copy_from_slice(&units);
            bytes[at + 64] = u8::try_from(units.len() + 2).unwrap();
        };
        entry(directory, "Root Entry");
        entry(directory + 128, stream);
        bytes[directory + 80..directory + 96].copy_from_slice(&class);
        bytes
    }

    #[test]
    fn compound_files_are_known_by_their_class_or_their_streams() {
        let excel = [0x20, 8, 2, 0, 0, 0, 0, 0, 0xC0, 0, 0, 0, 0, 0, 0, 0x46];
        let installer = [0x84, 0x10, 0x0C, 0, 0, 0, 0, 0, 0xC0, 0, 0, 0, 0, 0, 0, 0x46];
        for (class, stream, expected) in [
            (excel, "x", "application/vnd.ms-excel"),
            (installer, "x", "application/x-msi"),
            ([0; 16], "WordDocument", "application/msword"),
            ([0; 16], "Workbook", "application/vnd.ms-excel"),
            ([0; 16], "PowerPoint Document", "application/vnd.ms-powerpoint"),
            ([0; 16], "__properties_version1.0", "application/vnd.ms-outlook"),
            ([0; 16], "else", "application/x-cfb"),
        ] {
            let bytes = compound(class, stream);
            for name in ["a", "a.bin", "a.png"] {
                assert_eq!(mime(&bytes, name), expected, "{stream} {name}");
            }
        }
        assert_eq!(mime(&compound([0; 16], "else"), "a.xls"), "application/vnd.ms-excel");
    }

    #[test]
    fn sound_behind_a_tag_is_what_follows_the_tag() {
        let tagged = |after: &[u8]| {
            let mut bytes = b"ID3\x03\0\0\0\0\x01\0".to_vec();
            bytes.extend([0; 128]);
            bytes.extend(after);
            bytes.extend([0; 64]);
            bytes
        };
        assert_eq!(mime(&tagged(b"fLaC"), "a"), "audio/flac");
        assert_eq!(mime(&tagged(&[0xFF, 0xF1, 0x50, 0x80]), "a.mp3"), "audio/aac");
        assert_eq!(mime(&tagged(&[0xFF, 0xFB, 0x90, 0x64]), "a"), "audio/mpeg");
        assert_eq!(mime(&tagged(b"else"), "a"), "audio/mpeg");
    }

    #[test]
    fn what_has_no_signature_at_its_beginning_is_found() {
        let mut tar = vec![0; 1_024];
        tar[..5].copy_from_slice(b"a.txt");
        tar[100..107].copy_from_slice(b"0000644");
        tar[124..135].copy_from_slice(b"00000000005");
        let sum: u64 = tar.iter().take(512).map(|&byte| u64::from(byte)).sum::<u64>() + 8 * 32;
        tar[148..154].copy_from_slice(format!("{sum:06o}").as_bytes());
        assert_eq!(mime(&tar, "a"), "application/x-tar");
        tar[0] = b'b';
        assert_eq!(mime(&tar, "a"), "application/octet-stream");
        assert_eq!(mime(b"$FL2@(#) SPSS DATA FILE\0\x01", "a"), "application/x-spss-sav");
        let mut asar = b"\x04\0\0\0<\0\0\x008\0\0\x001\0\0\0".to_vec();
        asar.extend(b"{\"files\":{}}\0\0");
        assert_eq!(mime(&asar, "a"), "application/x-asar");
    }

    #[test]
    fn the_extension_decides_among_types_of_one_signature_and_among_no_others() {
        let tiff = b"II*\0\x08\0\0\0\0\0\0\0\0\0\0\0";
        assert_eq!(mime(tiff, "a"), "image/tiff");
        assert_eq!(mime(tiff, "a.png"), "image/tiff");
        let zip = b"PK\x03\x04\x14\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0a";
        assert_eq!(mime(zip, "a.html"), "application/zip");
        assert_eq!(mime(zip, "a.epub"), "application/epub+zip");
        assert_eq!(mime(zip, "a.docx").rsplit('.').next(), Some("document"));
    }

    #[test]
    fn no_bytes_and_no_loop_of_a_container_take_more_than_the_limit() {
        struct Endless(u64, std::rc::Rc<std::cell::Cell<u64>>);
        impl Read for Endless {
            fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
                self.1.set(self.1.get() + buf.len() as u64);
                for byte in buf.iter_mut() {
                    *byte = u8::try_from(self.0 % 251).unwrap_or(0);
                    self.0 += 1;
                }
                Ok(buf.len())
            }
        }
        impl Seek for Endless {
            fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
                self.0 = match to {
                    SeekFrom::Start(at) => at,
                    SeekFrom::End(by) => (1_u64 << 40).saturating_add_signed(by),
                    SeekFrom::Current(by) => self.0.saturating_add_signed(by),
                };
                Ok(self.0)
            }
        }
        for start in [
            &b"PK\x03\x04"[..],
            b"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1",
            b"\x1A\x45\xDF\xA3",
            b"ID3\x03\0\0",
            b"\0\0\0\x20ftypisom",
            b".RMF",
            b"MZ",
            b"SQLite format 3\0",
            b"\x30\x26\xB2\x75\x8E\x66\xCF\x11\xA6\xD9\x00\xAA\x00\x62\xCE\x6C",
        ] {
            let mut head = start.to_vec();
            head.resize(8_192, 1);
            let read = std::rc::Rc::default();
            let name = FileName::parse("a").unwrap();
            let found = classify_content(&head, Endless(0, std::rc::Rc::clone(&read)), &name);
            assert!(found.mime.contains('/'));
            assert!(read.get() <= READ_MAX as u64, "{start:?}: {}", read.get());
        }
    }
}
