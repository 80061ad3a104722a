//! The list of one backup (`docs/formats/backup.md`): lines of JSON, the last with the SHA-256 of those before.
//!
//! Invariant: a list is returned only if it is whole, and its paths and sizes are plausible.

use std::fs::File;
use std::io::{BufRead, BufWriter, Read as _, Write as _};

use anyhow::{Context as _, bail, ensure};
use forebay_base::image::is_safe;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{CHUNK_SIZE, ChunkId};

const FORMAT: &str = "forebay-backup";
const VERSION: u32 = 1;
/// Maximum length of a line, in bytes.
const LINE_SIZE_MAX: u64 = 64 << 10;
/// Maximum number of files and of chunks: what does not fit is refused, not gathered in memory.
const ENTRIES_MAX: usize = 100_000_000;

/// What a list says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Header {
    format: String,
    version: u32,
    /// Name of the backup.
    pub(crate) id: String,
    /// When it was begun, in milliseconds since 1970.
    pub(crate) created_ms: u64,
    /// Version of the program that made it.
    pub(crate) forebay: String,
}

/// What distinguishes a file from others, and from itself after a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Stamp {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) mtime_s: i64,
    pub(crate) mtime_ns: i64,
    pub(crate) length: u64,
    /// How many of its bytes were read.
    pub(crate) counted: u64,
}

/// A file of a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Path below the data directory.
    pub(crate) path: String,
    /// Its bytes up to the last that is not zero, which the chunks have.
    pub(crate) bytes: u64,
    /// Its size with the zeros that follow.
    pub(crate) size: u64,
    pub(crate) stamp: Stamp,
    pub(crate) chunks: Vec<ChunkId>,
}

/// The last line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Totals {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
}

/// A whole list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct List {
    pub(crate) header: Header,
    pub(crate) entries: Vec<Entry>,
    pub(crate) totals: Totals,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
enum Line {
    Header(Header),
    File { path: String, bytes: u64, size: u64, stamp: Stamp },
    Chunk(String),
    End { totals: Totals, sha256: String },
}

impl Header {
    pub(crate) fn new(id: String, created_ms: u64) -> Self {
        let forebay = env!("CARGO_PKG_VERSION").to_owned();
        Self { format: FORMAT.to_owned(), version: VERSION, id, created_ms, forebay }
    }
}

/// Number of chunks of a file.
fn chunk_count(bytes: u64) -> u64 {
    bytes.div_ceil(CHUNK_SIZE as u64)
}

impl Entry {
    /// Its chunks with their sizes.
    pub(crate) fn sized_chunks(&self) -> impl Iterator<Item = (ChunkId, usize)> {
        let sizes = (0..).map(|at: u64| {
            let left = self.bytes.saturating_sub(at * CHUNK_SIZE as u64);
            usize::try_from(left).unwrap_or(usize::MAX).min(CHUNK_SIZE)
        });
        self.chunks.iter().copied().zip(sizes)
    }
}

/// Writes a list.
#[derive(Debug)]
pub(crate) struct ListWriter {
    to: BufWriter<File>,
    hasher: Sha256,
    totals: Totals,
}

impl ListWriter {
    pub(crate) fn begin(file: File, header: &Header) -> anyhow::Result<Self> {
        let totals = Totals { files: 0, bytes: 0 };
        let mut writer = Self { to: BufWriter::new(file), hasher: Sha256::new(), totals };
        writer.write(&Line::Header(header.clone()))?;
        Ok(writer)
    }

    pub(crate) fn add(&mut self, entry: &Entry) -> anyhow::Result<()> {
        let Entry { path, bytes, size, stamp, chunks } = entry;
        let (path, bytes) = (path.clone(), *bytes);
        self.write(&Line::File { path, bytes, size: *size, stamp: *stamp })?;
        for chunk in chunks {
            self.write(&Line::Chunk(hex::encode(chunk)))?;
        }
        self.totals.files += 1;
        self.totals.bytes += bytes;
        Ok(())
    }

    /// Writes the end and syncs. Returns the file with the list.
    pub(crate) fn finish(mut self) -> anyhow::Result<(Totals, File)> {
        let sha256 = hex::encode(self.hasher.clone().finalize());
        self.write(&Line::End { totals: self.totals, sha256 })?;
        let file = self.to.into_inner().context("cannot write the list")?;
        file.sync_all().context("cannot sync the list")?;
        Ok((self.totals, file))
    }

    fn write(&mut self, line: &Line) -> anyhow::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.hasher.update(&text);
        self.to.write_all(&text).context("cannot write the list")
    }
}

/// Reads a list, which is refused if it is not whole.
///
/// # Errors
/// It cannot be read, is damaged, or of another version.
pub(crate) fn read(mut lines: impl BufRead) -> anyhow::Result<List> {
    let mut hasher = Sha256::new();
    let next = |lines: &mut dyn BufRead, hasher: &mut Sha256| {
        let mut text = Vec::new();
        lines.take(LINE_SIZE_MAX).read_until(b'\n', &mut text)?;
        ensure!(text.last() == Some(&b'\n'), "it ends inside a line, or a line is too long");
        let before: [u8; 32] = hasher.clone().finalize().into();
        hasher.update(&text);
        anyhow::Ok((serde_json::from_slice::<Line>(&text)?, before))
    };
    let (Line::Header(header), _) = next(&mut lines, &mut hasher)? else {
        bail!("it has no header")
    };
    ensure!(header.format == FORMAT, "it is not the list of a backup");
    ensure!(
        header.version == VERSION,
        "it has version {}; this program reads version {VERSION}",
        header.version
    );
    let mut entries: Vec<Entry> = Vec::new();
    let (mut count, mut total) = (0_usize, 0_u64);
    let is_complete = |entries: &[Entry]| {
        let last = entries.last();
        last.is_none_or(|entry| chunk_count(entry.bytes) == entry.chunks.len() as u64)
    };
    loop {
        count += 1;
        ensure!(count <= ENTRIES_MAX, "it has more than {ENTRIES_MAX} lines");
        match next(&mut lines, &mut hasher)? {
            (Line::Header(_), _) => bail!("it has two headers"),
            (Line::File { path, bytes, size, stamp }, _) => {
                ensure!(is_complete(&entries), "a file lacks chunks");
                ensure!(is_safe(&path), "{path:?} is not a path inside a data directory");
                ensure!(bytes <= size, "{path:?} has more bytes than its size");
                total = total.checked_add(bytes).context("its sizes are too large")?;
                entries.push(Entry { path, bytes, size, stamp, chunks: Vec::new() });
            }
            (Line::Chunk(text), _) => {
                let mut chunk = [0; 32];
                hex::decode_to_slice(&text, &mut chunk).context("a chunk has no valid name")?;
                let entry = entries.last_mut().context("a chunk belongs to no file")?;
                let room = chunk_count(entry.bytes) > entry.chunks.len() as u64;
                ensure!(room, "{:?} has too many chunks", entry.path);
                entry.chunks.push(chunk);
            }
            (Line::End { totals, sha256 }, before) => {
                ensure!(sha256 == hex::encode(before), "its SHA-256 does not match");
                ensure!(is_complete(&entries), "a file lacks chunks");
                let found = Totals { files: entries.len() as u64, bytes: total };
                ensure!(totals == found, "its totals do not match");
                ensure!(lines.fill_buf()?.is_empty(), "something follows its end");
                return Ok(List { header, entries, totals });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, bytes: u64) -> Entry {
        let stamp =
            Stamp { device: 1, inode: 2, mtime_s: 3, mtime_ns: 4, length: bytes, counted: 1 };
        let chunks = (0..chunk_count(bytes)).map(|at| [u8::try_from(at).unwrap(); 32]).collect();
        Entry { path: path.to_owned(), bytes, size: bytes + 7, stamp, chunks }
    }

    fn written(entries: &[Entry]) -> Vec<u8> {
        let file = tempfile::NamedTempFile::new().unwrap();
        let header = Header::new("20260101T000000Z-0a0b0c0d".to_owned(), 5);
        let mut writer = ListWriter::begin(file.reopen().unwrap(), &header).unwrap();
        entries.iter().for_each(|entry| writer.add(entry).unwrap());
        writer.finish().unwrap();
        std::fs::read(file.path()).unwrap()
    }

    #[test]
    fn a_list_is_read_as_it_was_written() {
        let entries = [entry("a", 0), entry("b/c", 9_000_000), entry("d", 4 << 20)];
        let list = read(&written(&entries)[..]).unwrap();
        assert_eq!(list.entries, entries);
        let sizes: Vec<_> = list.entries[1].sized_chunks().map(|(_, size)| size).collect();
        assert_eq!(sizes, [4 << 20, 4 << 20, 9_000_000 - (8 << 20)]);
    }

    #[test]
    fn a_list_that_was_cut_or_changed_is_refused() {
        let list = written(&[entry("a", 10), entry("b", 5_000_000)]);
        for at in 0..list.len() {
            assert!(read(&list[..at]).is_err(), "cut at {at}");
            let mut changed = list.clone();
            changed[at] ^= 1;
            assert!(read(&changed[..]).is_err(), "changed at {at}");
        }
        for more in [&b"\n"[..], b"{}\n", &list] {
            assert!(read(&[&list[..], more].concat()[..]).is_err(), "{more:?}");
        }
        for path in ["", "/etc/passwd", "../x", "a/../../b", "a//b", "a/."] {
            assert!(read(&written(&[entry(path, 1)])[..]).is_err(), "{path:?}");
        }
    }
}
