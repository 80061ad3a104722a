//! Written events are read back byte for byte, or not at all.

#![expect(clippy::cast_possible_truncation, reason = "numbers of a test are small")]

use std::path::Path;
use std::sync::Arc;

use forebay_base::fs::FileSystem;
use forebay_base::fs::sim::SimFs;
use proptest::prelude::*;

use super::*;
use crate::batch::Batch;
use crate::event::{Draft, EventId};

const PATH: &str = "/s/one.segment";

#[derive(Debug, Clone)]
struct Row {
    time_ns: i64,
    id: u128,
    host: String,
    raw: Vec<u8>,
}

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let id = prop_oneof![any::<u128>(), (0u128..50).prop_map(|low| 7 << 80 | low)];
    let raw = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..120),
        "[a-z]{1,9} [a-z]{1,9}=[0-9]{1,5}".prop_map(String::into_bytes),
    ];
    let row = (-50i64..50, id, "[a-c]", raw).prop_map(|(time_ns, id, host, raw)| Row {
        time_ns,
        id,
        host,
        raw,
    });
    proptest::collection::vec(row, 1..120)
}

fn compression() -> impl Strategy<Value = Compression> {
    prop_oneof![
        Just(Compression::None),
        Just(Compression::Lz4),
        Just(Compression::Zstd { level: 1 }),
    ]
}

/// Leaves by position.
fn leaves(rows: &[Row]) -> Vec<Vec<u8>> {
    let mut batch = Batch::new("s");
    for row in rows {
        let draft = Draft {
            id: Some(EventId(row.id)),
            timestamp_ns: Some(row.time_ns),
            host: row.host.as_str().into(),
            raw: row.raw.as_slice().into(),
            ..Draft::default()
        };
        batch.push(&draft, 0).unwrap();
    }
    batch.leaves().map(<[u8]>::to_vec).collect()
}

fn write(
    fs: &dyn FileSystem,
    rows: &[Row],
    options: SegmentOptions,
    first_seq: u64,
) -> SegmentInfo {
    fs.create_dir_all(Path::new("/s")).unwrap();
    let leaves = leaves(rows);
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|&index| (rows[index].time_ns, index));
    let end = first_seq + rows.len() as u64;
    let mut writer = SegmentWriter::create(fs, Path::new(PATH), first_seq, end, options).unwrap();
    for index in order {
        writer.push(first_seq + index as u64, &leaves[index]).unwrap();
    }
    writer.finish().unwrap()
}

fn options(compression: Compression, block_size: usize) -> SegmentOptions {
    SegmentOptions { compression, block_size, filter_bits_per_key: 10, text_filter: true }
}

/// Every readable leaf, by position; fails if reading does.
fn read_all(fs: &dyn FileSystem) -> Result<Vec<(u64, Vec<u8>)>, SegmentError> {
    let segment = Segment::open(fs, Path::new(PATH))?;
    let mut found = Vec::new();
    for number in 0..segment.blocks().len() {
        let block = segment.read_block(number)?;
        for row in 0..block.len() {
            let mut leaf = Vec::new();
            block.leaf(row, &mut leaf);
            found.push((block.seq(row), leaf));
        }
    }
    found.sort();
    Ok(found)
}

proptest! {
    #[test]
    fn every_event_is_read_back_byte_for_byte_and_found_by_its_id(
        rows in rows(), compression in compression(), block_size in 64usize..4000,
    ) {
        let fs = SimFs::new(1);
        let info = write(&fs, &rows, options(compression, block_size), 1000);
        prop_assert_eq!(info.rows, rows.len() as u64);
        let expected: Vec<_> = (1000u64..).zip(leaves(&rows)).collect();
        prop_assert_eq!(read_all(&fs).unwrap(), expected);
        let segment = Segment::open(&fs, Path::new(PATH)).unwrap();
        prop_assert_eq!(segment.digest().unwrap(), info.digest);
        for (index, row) in rows.iter().enumerate() {
            let id = EventId(row.id);
            let found = segment.find_id(id).unwrap().into_iter().any(|number| {
                let block = segment.read_block(number as usize).unwrap();
                block.rows_of(id).any(|row| block.seq(row) == 1000 + index as u64)
            });
            prop_assert!(found, "{id}");
        }
    }

    #[test]
    fn a_filter_never_hides_a_block_that_has_what_was_asked_for(rows in rows()) {
        let fs = SimFs::new(1);
        write(&fs, &rows, options(Compression::None, 256), 0);
        let segment = Segment::open(&fs, Path::new(PATH)).unwrap();
        for number in 0..segment.blocks().len() {
            let block = segment.read_block(number).unwrap();
            for row in 0..block.len() {
                let original = &rows[block.seq(row) as usize];
                let mut terms = vec![Term::of(Field::Host, original.host.as_bytes())];
                terms.extend(Term::of_needle(&original.raw));
                prop_assert!(segment.may_match(number as u32, &terms).unwrap());
            }
        }
    }
}

fn some_rows() -> Vec<Row> {
    (0..40)
        .map(|index| Row {
            time_ns: index / 3,
            id: u128::from(index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835),
            host: "h".to_owned(),
            raw: format!("event number {index} of a few").into_bytes(),
        })
        .collect()
}

/// The file's bytes, changed, in a new file system.
fn with_bytes(bytes: &[u8]) -> SimFs {
    let fs = SimFs::new(1);
    fs.create_dir_all(Path::new("/s")).unwrap();
    let file = fs.create_new(Path::new(PATH)).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    fs
}

fn bytes_of(fs: &SimFs) -> Vec<u8> {
    let file = fs.open(Path::new(PATH), forebay_base::fs::Access::Read).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn no_flipped_bit_is_returned_as_data_and_every_one_changes_the_digest() {
    for compression in [Compression::None, Compression::Zstd { level: 1 }] {
        let fs = SimFs::new(1);
        let info = write(&fs, &some_rows(), options(compression, 512), 0);
        let (bytes, expected) = (bytes_of(&fs), read_all(&fs).unwrap());
        for place in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[place] ^= 1 << (place % 8);
            let fs = with_bytes(&bytes);
            if let Ok(found) = read_all(&fs) {
                assert_eq!(found, expected, "byte {place}");
            }
            if let Ok(segment) = Segment::open(&fs, Path::new(PATH)) {
                assert_ne!(segment.digest().unwrap(), info.digest, "byte {place}");
                for row in some_rows() {
                    // Whatever a damaged page of ids contains, an existing event is never denied
                    // without an error.
                    if let Ok(blocks) = segment.find_id(EventId(row.id)) {
                        assert!(!blocks.is_empty(), "byte {place}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let fs = SimFs::new(1);
    write(&fs, &some_rows(), options(Compression::Lz4, 512), 0);
    let bytes = bytes_of(&fs);
    for end in 0..bytes.len() {
        let fs = with_bytes(&bytes[..end]);
        assert!(Segment::open(&fs, Path::new(PATH)).is_err(), "{end}");
    }
}

#[test]
fn rows_out_of_order_or_of_other_positions_are_refused() {
    let fs: Arc<dyn FileSystem> = Arc::new(SimFs::new(1));
    fs.create_dir_all(Path::new("/s")).unwrap();
    let leaves = leaves(&some_rows());
    let options = options(Compression::None, 512);
    let mut writer = SegmentWriter::create(&*fs, Path::new(PATH), 5, 50, options).unwrap();
    writer.push(6, &leaves[6]).unwrap();
    for (seq, leaf) in [(5, &leaves[0]), (6, &leaves[6]), (4, &leaves[9]), (50, &leaves[9])] {
        assert!(matches!(writer.push(seq, leaf), Err(SegmentError::Row { .. })));
    }
    assert!(writer.push(7, b"no leaf").is_err());
}

#[test]
fn hashes_of_pruned_events_are_read_back_by_position() {
    let fs = SimFs::new(1);
    fs.create_dir_all(Path::new("/s")).unwrap();
    let options = options(Compression::None, 512);
    let mut writer = SegmentWriter::create(&fs, Path::new(PATH), 0, 100, options).unwrap();
    let hash = |seq: u64| crate::merkle::leaf_hash(&seq.to_le_bytes());
    for seq in (0..100).step_by(7) {
        writer.push_stub(seq, hash(seq)).unwrap();
    }
    writer.finish().unwrap();
    let segment = Segment::open(&fs, Path::new(PATH)).unwrap();
    let found = segment.stubs(10..50).unwrap();
    assert_eq!(found, (14..50).step_by(7).map(|seq| (seq, hash(seq))).collect::<Vec<_>>());
    assert_eq!(segment.stubs(0..100).unwrap().len(), 15);
}

#[test]
fn a_block_is_never_larger_than_can_be_read_whatever_size_is_asked_for() {
    let fs = SimFs::new(1);
    let rows: Vec<Row> = (0..60_000u64)
        .map(|index| Row {
            time_ns: 0,
            id: u128::from(index).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835),
            host: "h".to_owned(),
            raw: vec![b'x'; 64],
        })
        .collect();
    let info = write(&fs, &rows, options(Compression::None, usize::MAX), 0);
    assert_eq!(read_all(&fs).unwrap().len() as u64, info.rows);
}

#[test]
fn one_block_whose_ids_reach_far_is_found_and_leaves_the_others_alone() {
    let fs = SimFs::new(1);
    let mut rows: Vec<Row> = (0..4000u64)
        .map(|index| Row {
            time_ns: index as i64,
            id: u128::from(index + 1) << 64,
            host: "h".to_owned(),
            raw: b"of some length, so that there are many blocks".to_vec(),
        })
        .collect();
    rows[3].id = u128::MAX;
    write(&fs, &rows, options(Compression::None, 512), 0);
    let segment = Segment::open(&fs, Path::new(PATH)).unwrap();
    assert!(segment.blocks().len() > 200, "several groups");
    for row in &rows {
        let id = EventId(row.id);
        let found = segment.find_id(id).unwrap();
        assert!(found.len() <= 2, "{found:?}");
        let has = |&number: &u32| {
            segment.read_block(number as usize).unwrap().rows_of(id).next().is_some()
        };
        assert_eq!(found.iter().filter(|number| has(number)).count(), 1);
    }
    assert_eq!(segment.find_id(EventId(5)).unwrap(), Vec::<u32>::new());
}
