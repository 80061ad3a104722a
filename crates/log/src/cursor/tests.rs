//! A walk over a segment stops at the first frame that is not whole.

use std::path::Path;

use forebay_base::fs::{FileSystem, sim::SimFs};

use super::*;

const SEED_ID: [u8; 16] = [7; 16];

/// A cursor over a file that holds `bytes`, read as far as `limit`.
fn cursor(bytes: &[u8], limit: u64) -> Cursor {
    let disk = SimFs::new(0);
    let file = disk.create_new(Path::new("/s")).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    let mut cursor = Cursor::new(file, "/s".into(), Seed::new(&SEED_ID), 0);
    cursor.set_range(0, limit);
    cursor
}

fn header(payload_len: u32) -> [u8; FRAME_HEADER_SIZE] {
    let header = FrameHeader { kind: Kind::Entry, payload_len, payload_crc: 0, synced: 0 };
    header.encode(Seed::new(&SEED_ID), 0)
}

fn fault(cursor: &mut Cursor) -> Fault {
    match cursor.next() {
        Err(WalkError::Corrupt(corrupt)) => corrupt.fault,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_length_beyond_the_segment_is_refused_without_memory_for_it() {
    let mut bytes = header(u32::MAX).to_vec();
    bytes.resize(4096, 0);
    let mut cursor = cursor(&bytes, 4096);
    assert!(matches!(fault(&mut cursor), Fault::Length { room: 4096, .. }));
    assert!(cursor.buf.capacity() <= CHUNK_SIZE);
}

#[test]
fn a_length_beyond_the_file_is_refused() {
    let mut cursor = cursor(&header(5000), 8192);
    assert!(matches!(fault(&mut cursor), Fault::Short { expected: 8192, found: 24 }));
}

#[test]
fn a_rest_too_small_for_a_header_is_refused() {
    let mut cursor = cursor(&header(0), 8);
    assert!(matches!(fault(&mut cursor), Fault::Length { room: 8, .. }));
}

#[test]
fn a_large_entry_does_not_keep_its_memory() {
    let seed = Seed::new(&SEED_ID);
    let large = vec![3; 4 << 20];
    let mut bytes = Vec::new();
    for payload in [&large[..], &[1; 8]] {
        let header = FrameHeader {
            kind: Kind::Entry,
            payload_len: u32::try_from(payload.len()).unwrap(),
            payload_crc: crc32c(payload),
            synced: 0,
        };
        bytes.extend(header.encode(seed, bytes.len() as u64));
        bytes.extend(payload);
    }
    let mut cursor = cursor(&bytes, bytes.len() as u64);
    assert_eq!(cursor.next().unwrap().unwrap().payload, large);
    assert_eq!(cursor.next().unwrap().unwrap().payload, [1; 8]);
    assert!(cursor.next().unwrap().is_none());
    assert!(cursor.buf.capacity() <= CHUNK_SIZE);
}
