//! Blocks are restored, are small, and are not trusted.

use super::*;
use proptest::prelude::*;

fn compressed(value: &[u8]) -> Option<Vec<u8>> {
    let mut block = b"before".to_vec();
    append_compressed(value, value.len() + value.len() / 2 + 64, &mut block)
        .then(|| block.split_off(6))
}

fn read_back(block: &[u8], size: usize) -> Option<Vec<u8>> {
    let mut out = b"before".to_vec();
    let done = append_plain(block, size, &mut out);
    assert!(out.starts_with(b"before") && (done || out.len() == 6));
    done.then(|| out.split_off(6))
}

fn records(count: u32) -> Vec<u8> {
    let record = |n: u32| {
        let mixed = n.wrapping_mul(0x9E37_79B1);
        format!(
            "{{\"id\":{},\"gate\":\"{}\",\"open\":{}}},",
            mixed % 99_991,
            n % 7,
            n.is_multiple_of(3)
        )
    };
    (0..count).map(record).collect::<String>().into_bytes()
}

#[test]
fn a_block_of_another_length_or_cut_anywhere_is_refused() {
    let text = records(60);
    let block = compressed(&text).unwrap();
    assert!(block.len() < text.len() * 2 / 3);
    assert_eq!(read_back(&block, text.len()).unwrap(), text);
    assert!(read_back(&block, text.len() - 1).is_none());
    assert!(read_back(&block, text.len() + 1).is_none());
    for cut in 0..block.len() {
        // Truncation moves the end of the literals into the literals or the steps.
        assert_ne!(read_back(&block[..cut], text.len()).as_ref(), Some(&text), "cut at {cut}");
    }
}

#[test]
fn repetition_of_any_period_takes_next_to_nothing() {
    for period in [1usize, 2, 3, 7, 31, 32, 33, 77, 1_000] {
        let value: Vec<u8> =
            (0..85_000).map(|n| (n % period * 31 % 251).to_le_bytes()[0]).collect();
        let block = compressed(&value).unwrap();
        assert!(block.len() < period + 150, "{} bytes for period {period}", block.len());
        assert_eq!(read_back(&block, value.len()).unwrap(), value);
    }
}

#[test]
fn long_stretches_without_a_match_come_back() {
    let mut state = 1u64;
    let mut noise = |size: usize| -> Vec<u8> {
        let mut byte = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.to_le_bytes()[5]
        };
        (0..size).map(|_| byte()).collect()
    };
    for size in [0, 1, 14, 15, 16, 17, 33, 70_000] {
        let part = noise(size);
        for value in [part.clone(), [&part[..], &records(40), &part].concat()] {
            let block = compressed(&value).unwrap();
            assert_eq!(read_back(&block, value.len()).unwrap(), value, "{size} bytes");
        }
    }
}

#[test]
fn what_does_not_fit_the_room_is_not_compressed() {
    let (text, mut out) = (records(60), b"before".to_vec());
    let size = compressed(&text).unwrap().len();
    assert!(!append_compressed(&text, size - 1, &mut out));
    assert_eq!(out, b"before");
    assert!(append_compressed(&text, size, &mut out));
}

proptest! {
    #[test]
    fn every_value_comes_back(
        parts in proptest::collection::vec((0usize..3_000, 0usize..300, any::<u8>()), 0..200)
    ) {
        // Pieces of the existing value, and new bytes between them.
        let mut value = records(20);
        for (from, len, fresh) in parts {
            let from = from % value.len();
            let len = len.min(value.len() - from);
            value.extend_from_within(from..from + len);
            value.push(fresh);
        }
        let block = compressed(&value).unwrap();
        prop_assert_eq!(read_back(&block, value.len()).unwrap(), value);
    }

    #[test]
    fn hostile_blocks_never_give_bytes_that_were_not_written(
        changes in proptest::collection::vec((0usize..2_000, any::<u8>()), 1..8)
    ) {
        let text = records(60);
        let mut block = compressed(&text).unwrap();
        for (at, byte) in changes {
            let at = at % block.len();
            block[at] = byte;
        }
        if let Some(read) = read_back(&block, text.len()) {
            prop_assert_eq!(read.len(), text.len());
        }
    }

    #[test]
    fn any_bytes_may_be_read_as_a_block(
        block in proptest::collection::vec(any::<u8>(), 0..400), count in 0u8..40, size in 0usize..3_000
    ) {
        let block = [&[count, 0, 0, 0][..], &block].concat();
        if let Some(read) = read_back(&block, size) {
            prop_assert_eq!(read.len(), size);
        }
    }
}
