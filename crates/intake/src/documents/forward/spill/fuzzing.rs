//! Access for the fuzz targets to private functions. Not part of the public interface.

use std::path::Path;

use forebay_base::fs::FileSystem as _;
use forebay_base::fs::sim::SimFs;
use forebay_log::Lsn;

use super::format::{Header, Spilled, decode_document, push_commit, push_json};
use super::segment::SegmentReader;

/// The log that the segments belong to.
const LOG: [u8; 16] = [7; 16];

/// Reads bytes as a spill segment and, after a generated header, as lines of one. Returns how many
/// bytes of the first reading were valid.
///
/// # Panics
/// A commit differs after it was read, written and read again.
#[must_use]
pub fn spill_segment(bytes: &[u8]) -> u64 {
    if let Some(commit) = Spilled::decode(bytes) {
        let mut line = Vec::new();
        if push_commit(&mut line, &commit.head()).is_ok() {
            assert_eq!(Spilled::decode(&line), Some(commit));
        }
    }
    let _document = decode_document(&mut bytes.to_vec(), Lsn(7), "n");
    let mut lines = Vec::new();
    if push_json(&mut lines, &Header::new(LOG, Lsn(0))).is_ok() {
        lines.extend_from_slice(bytes);
        whole(&lines);
    }
    whole(bytes)
}

/// Number of valid bytes of a segment.
fn whole(bytes: &[u8]) -> u64 {
    let (disk, path) = (SimFs::new(1), Path::new("segment"));
    let Ok(file) = disk.create_new(path) else { return 0 };
    if file.write_all_at(bytes, 0).is_err() {
        return 0;
    }
    let mut reader = SegmentReader::new(path, file, LOG);
    while let Ok(Some(_)) = reader.next() {}
    reader.whole()
}
