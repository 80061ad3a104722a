//! Headers are decoded as encoded, and nothing else decodes as one.

use super::*;

const LOG_ID: [u8; 16] = *b"0123456789abcdef";

fn header() -> SegmentHeader {
    SegmentHeader { log_id: LOG_ID, base: 0x1000, prev_base: 0, prev_end: 0xff8, size: 4096 }
}

fn frame() -> FrameHeader {
    FrameHeader { kind: Kind::Entry, payload_len: 5, payload_crc: 7, synced: 0x1040 }
}

#[test]
fn headers_read_back_as_written() {
    assert_eq!(SegmentHeader::decode(&header().encode()), Ok(header()));
    let seed = Seed::new(&LOG_ID);
    assert_eq!(FrameHeader::decode(&frame().encode(seed, 0x1048), seed, 0x1048), Ok(frame()));
}

#[test]
fn any_flipped_bit_of_a_header_is_refused() {
    let seed = Seed::new(&LOG_ID);
    for bit in 0..SEGMENT_HEADER_SIZE * 8 {
        let mut bytes = header().encode();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(SegmentHeader::decode(&bytes).is_err(), "bit {bit}");
    }
    for bit in 0..FRAME_HEADER_SIZE * 8 {
        let mut bytes = frame().encode(seed, 0x1048);
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(FrameHeader::decode(&bytes, seed, 0x1048).is_err(), "bit {bit}");
    }
}

#[test]
fn a_frame_is_only_a_frame_in_its_log_at_its_place() {
    let seed = Seed::new(&LOG_ID);
    let bytes = frame().encode(seed, 0x1048);
    assert!(FrameHeader::decode(&bytes, seed, 0x1050).is_err());
    assert!(FrameHeader::decode(&bytes, Seed::new(&[0; 16]), 0x1048).is_err());
    assert!(FrameHeader::decode(&[0; FRAME_HEADER_SIZE], seed, 0x1048).is_err());
}

#[test]
fn unknown_kinds_and_newer_versions_are_named() {
    let seed = Seed::new(&LOG_ID);
    let mut bytes = frame().encode(seed, 8);
    bytes[12] = 9;
    let crc = seed.checksum(8, &bytes);
    bytes[0..4].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(FrameHeader::decode(&bytes, seed, 8), Err(Fault::Kind { kind: 9 }));
    let mut bytes = header().encode();
    bytes[8] = 2;
    let crc = SegmentHeader::checksum(&bytes);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(SegmentHeader::decode(&bytes), Err(Fault::Version { found: 2, known: 1 }));
}

fn erased(payload_len: u32) -> FrameHeader {
    FrameHeader { payload_len, ..frame() }.erased()
}

#[test]
fn erased_neighbours_join_up_to_the_longest_length_that_can_be_said() {
    let run = erased(5).join(&erased(16)).unwrap();
    assert_eq!((run.size(), run.entries_erased()), (32 + 40, 2));
    assert_eq!(run.join(&erased(0)).unwrap().entries_erased(), 3);
    assert_eq!((run.join(&frame()), frame().join(&run)), (None, None));
    // The length is 32 bits wide and a multiple of eight.
    let most = u32::MAX - 7;
    let long = erased(most - 40).join(&erased(16)).unwrap();
    assert_eq!((long.payload_len, long.size()), (most, u64::from(most) + 24));
    assert_eq!(long.join(&erased(0)), None);
    assert_eq!(erased(u32::MAX - 7).join(&erased(u32::MAX - 7)), None);
}

#[test]
fn only_where_an_entry_can_have_stood_counts_as_swallowed() {
    let run = erased(0).join(&erased(24)).unwrap();
    assert_eq!(run.size(), 72);
    let places: Vec<u64> = (0..80).filter(|at| run.swallowed(1000, 1000 + at)).collect();
    assert_eq!(places, [24, 32, 40, 48]);
    assert!((0..80).all(|at| !erased(48).swallowed(1000, 1000 + at)));
}

#[test]
fn a_run_of_more_entries_than_it_has_room_for_is_refused() {
    let seed = Seed::new(&LOG_ID);
    let run = FrameHeader { payload_crc: 2, ..erased(24) };
    let expected = Fault::Run { entries: 3, size: 48 };
    assert_eq!(FrameHeader::decode(&run.encode(seed, 8), seed, 8), Err(expected));
    let run = FrameHeader { payload_crc: 1, ..run };
    assert_eq!(FrameHeader::decode(&run.encode(seed, 8), seed, 8), Ok(run));
}
