//! Compound files (OLE) whose root does not say which program wrote them: known by the names of their
//! streams.
//!
//! The class of the root, which Office sets, is checked by the library `file-format`; other writers leave
//! it empty.

use std::io::{Read, Seek, SeekFrom};

/// Bytes of the directory that are examined.
const DIRECTORY_SIZE: u64 = 64 << 10;
/// Size of an entry: its name in UTF-16, 64 bytes, and then what it is.
const ENTRY_SIZE: usize = 128;
/// Where in an entry the size of its name is, with the zero at its end.
const NAME_SIZE_AT: usize = 64;

/// Streams that only one kind of document has.
const STREAMS: [(&str, &str); 8] = [
    ("WordDocument", "application/msword"),
    ("Workbook", "application/vnd.ms-excel"),
    ("Book", "application/vnd.ms-excel"),
    ("PowerPoint Document", "application/vnd.ms-powerpoint"),
    ("VisioDocument", "application/vnd.visio"),
    ("__nameid_version1.0", "application/vnd.ms-outlook"),
    ("__properties_version1.0", "application/vnd.ms-outlook"),
    ("Quill", "application/vnd.ms-publisher"),
];

/// What a compound file is, if a stream shows it.
///
/// * `head`: its beginning.
pub(super) fn classify<R: Read + Seek>(head: &[u8], content: &mut R) -> Option<&'static str> {
    let u16_at = |at: usize| Some(u16::from_le_bytes(*head.get(at..)?.first_chunk()?));
    let sector = u32::from_le_bytes(*head.get(48..)?.first_chunk()?);
    let sector_size = if u16_at(26)? == 3 { 512 } else { 4_096 };
    content.seek(SeekFrom::Start(sector_size * (1 + u64::from(sector)))).ok()?;
    let mut directory = Vec::new();
    // A directory that is cut shows what it has.
    let _cut = content.take(DIRECTORY_SIZE).read_to_end(&mut directory);
    directory.chunks_exact(ENTRY_SIZE).find_map(|entry| {
        let size = u16::from_le_bytes(*entry.get(NAME_SIZE_AT..)?.first_chunk()?);
        let (units, _) = entry.get(..usize::from(size).checked_sub(2)?)?.as_chunks::<2>();
        let name = char::decode_utf16(units.iter().map(|unit| u16::from_le_bytes(*unit)));
        let name = name.collect::<Result<String, _>>().ok()?;
        STREAMS.iter().find(|(stream, _)| *stream == name).map(|(_, mime)| *mime)
    })
}
