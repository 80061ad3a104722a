//! Entry points for fuzz targets: any bytes go in, nothing panics, and what decodes is encoded to
//! the same bytes.

use std::path::Path;

use forebay_base::checksum::crc32c;
use forebay_base::fs::sim::SimFs;
use forebay_base::fs::{Access, FileSystem};

use crate::batch::Batch;
use crate::event::{Draft, EventId};
use crate::format::request::RequestNote;
use crate::format::{entry, leaf};
use crate::merkle::Hash;
use crate::segment::fuzzing::{FOOTER_SIZE, HEADER_SIZE, block};
use crate::segment::{Compression, Field, Segment, SegmentOptions, SegmentWriter, Term};

/// Any bytes as an entry of the log.
///
/// # Panics
/// If the decoded entry is not encoded to the same bytes: a bug.
pub fn log_entry(data: &[u8]) {
    let Ok(batch) = entry::decode(data) else { return };
    let count = u32::try_from(batch.ends.len()).unwrap_or_default();
    let start = entry::start(batch.first_seq, count, batch.note, batch.code);
    if let Some(Ok(note)) = batch.note.map(RequestNote::decode) {
        assert_eq!(Some(note.encode().as_slice()), batch.note);
    }
    assert_eq!([&start[..], &entry::ends(&batch.ends), batch.leaves].concat(), data);
    let mut start = 0;
    for &end in &batch.ends {
        let bytes = batch.leaves.get(start..end as usize).unwrap_or_default();
        if let Ok(parts) = leaf::split(bytes) {
            let mut again = Vec::new();
            leaf::join(&parts, &mut again);
            assert_eq!(again, bytes);
        }
        start = end as usize;
    }
}

/// Decodes any bytes as a decompressed block of a segment.
pub fn segment_block(data: &[u8]) {
    if let Ok(block) = block(data.to_vec()) {
        let mut out = Vec::new();
        for row in 0..block.len() + 1 {
            block.leaf(row, &mut out);
            out.clear();
            block.rows_of(block.id(row)).for_each(drop);
        }
    }
}

/// Reads a segment's file with arbitrary edits, after which the checksums of footer, index and one
/// block are corrected.
///
/// # Panics
/// If the simulated disk fails, or what is read is impossible: a bug.
pub fn segment(data: &[u8]) {
    let Some((&choice, edits)) = data.split_first() else { return };
    let (disk, path) = (SimFs::new(1), Path::new("/s"));
    write(&disk, path, choice);
    let Ok(file) = disk.open(path, Access::ReadWrite) else { return };
    let mut bytes = vec![0; usize::try_from(file.len().unwrap_or_default()).unwrap_or(0)];
    file.read_exact_at(&mut bytes, 0).unwrap_or_default();
    edit(&mut bytes, edits, choice & 4 != 0);
    file.write_all_at(&bytes, 0).unwrap_or_default();
    let Ok(segment) = Segment::open(&disk, path) else { return };
    let info = segment.info();
    let mut out = Vec::new();
    for (number, asked) in (0..segment.blocks().len().min(64)).zip(0u32..) {
        segment.may_match(asked, &[Term::of(Field::Word, b"user")]).ok();
        let Ok(block) = segment.read_block(number) else { continue };
        assert!(
            segment
                .misplaced(number, &block)
                .is_none_or(|seq| (0..block.len()).any(|row| block.seq(row) == seq))
        );
        for row in 0..block.len() {
            out.clear();
            block.leaf(row, &mut out);
        }
    }
    for id in 0..4u128 {
        segment.find_id(EventId(id * 0x1234_5678_9abc)).ok();
    }
    assert!(segment.blocks_of_seq(info.first_seq..info.end_seq).len() <= segment.blocks().len());
    segment.stubs(info.first_seq..info.end_seq).ok();
}

fn write(disk: &SimFs, path: &Path, choice: u8) {
    let options = SegmentOptions {
        compression: match choice % 3 {
            0 => Compression::None,
            1 => Compression::Lz4,
            _ => Compression::Zstd { level: 1 },
        },
        block_size: 300,
        filter_bits_per_key: 10,
        text_filter: true,
    };
    let mut batch = Batch::new("s");
    for number in 0..40i64 {
        let id = EventId((number as u128 * 7_919) % 41 * 0x1234_5678_9abc);
        let raw = format!("user {number}").into_bytes();
        let draft = Draft { id: Some(id), raw: raw.into(), ..Draft::default() };
        batch.push(&draft, number).unwrap_or_default();
    }
    let written = SegmentWriter::create(disk, path, 100, 150, options).and_then(|mut writer| {
        for (seq, leaf) in (100..).zip(batch.leaves()) {
            writer.push(seq, leaf)?;
        }
        for seq in 140..145 {
            writer.push_stub(seq, Hash::default())?;
        }
        writer.finish()
    });
    assert!(written.is_ok(), "{written:?}");
}

/// Applies edits of four bytes each (offset from the front or the back, how, value), and corrects
/// the checksums.
fn edit(bytes: &mut [u8], edits: &[u8], from_end: bool) {
    for step in edits.as_chunks::<4>().0 {
        let place = usize::from(u16::from_le_bytes([step[0], step[1]])) % bytes.len().max(1);
        let place = if from_end { bytes.len() - 1 - place } else { place };
        if let Some(byte) = bytes.get_mut(place) {
            *byte = if step[2] & 1 == 0 { step[3] } else { *byte ^ (1 << (step[3] % 8)) };
        }
    }
    let Some(at) = bytes.len().checked_sub(FOOTER_SIZE) else { return };
    let salt = bytes.get(..HEADER_SIZE).map_or(0, crc32c);
    let offset = bytes.get(at + 56..at + 64).and_then(|bytes| bytes.try_into().ok());
    let offset = usize::try_from(offset.map_or(0, u64::from_le_bytes)).unwrap_or(usize::MAX);
    fix(bytes, offset, at, salt);
    let end = bytes.len();
    fix(bytes, at, end, 0);
    // The first block, wherever the index places it.
    let field = |bytes: &[u8], at: usize| {
        let found = bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
        Some(u32::from_le_bytes(found) as usize)
    };
    if let (Some(first), Some(size)) =
        (field(bytes, offset), field(bytes, offset.saturating_add(8)))
    {
        fix(bytes, first, first.saturating_add(size), salt);
    }
}

/// Puts the checksum of `from..to` into its last four bytes.
fn fix(bytes: &mut [u8], from: usize, to: usize, salt: u32) {
    let Some(part) = bytes.get_mut(from..to) else { return };
    let Some((checked, stored)) = part.split_last_chunk_mut::<4>() else { return };
    *stored = (crc32c(checked) ^ salt).to_le_bytes();
}
