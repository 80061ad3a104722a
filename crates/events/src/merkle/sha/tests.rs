//! The bulk hashes compared with those of the `sha2` crate.

use proptest::prelude::*;

use super::*;

fn bytes(len: usize, salt: usize) -> Vec<u8> {
    (0..len).map(|i| u8::try_from((i * 131 + salt * 17 + len) % 251).unwrap()).collect()
}

fn check(leaves: &[Vec<u8>]) {
    let mut bulk = vec![Hash([7; 32])];
    leaf_hashes(leaves.iter().map(Vec::as_slice), &mut bulk);
    let single: Vec<Hash> = leaves.iter().map(|leaf| leaf_hash(leaf)).collect();
    assert_eq!(bulk[0], Hash([7; 32]));
    assert_eq!(bulk[1..], single);
}

#[test]
fn every_length_is_hashed_as_alone() {
    check(&(0..300).map(|len| bytes(len, 0)).collect::<Vec<_>>());
    for len in 0..300 {
        check(&[bytes(len, 1)]);
        check(&[bytes(len, 2), bytes(len, 3)]);
        check(&[bytes(len, 4), bytes(len, 5), bytes(len, 6)]);
    }
}

#[test]
fn uneven_neighbours_are_hashed_as_alone() {
    let lengths = [0, 1, 54, 55, 56, 62, 63, 64, 118, 119, 120, 127, 183, 299, 4096];
    for first in lengths {
        for second in lengths {
            check(&[bytes(first, 0), bytes(second, 1)]);
            check(&[bytes(first, 0), bytes(second, 1), bytes(first, 2)]);
        }
    }
}

#[test]
fn groups_of_every_size_and_evenness_are_hashed_as_alone() {
    for count in 0..50 {
        check(&(0..count).map(|i| bytes(100 + i % 20, i)).collect::<Vec<_>>());
        check(&(0..count).map(|i| bytes(i * i, i)).collect::<Vec<_>>());
        check(
            &(0..count).map(|i| bytes(if i % 16 == 3 { 5000 } else { 10 }, i)).collect::<Vec<_>>(),
        );
    }
}

#[test]
fn nodes_of_pairs_are_hashed_as_alone() {
    for count in 0..70 {
        let children: Vec<Hash> = (0..count).map(|i| leaf_hash(&bytes(8, i))).collect();
        let mut bulk = Vec::new();
        node_hashes(&children, &mut bulk);
        let single: Vec<Hash> =
            children.chunks_exact(2).map(|pair| node_hash(&pair[0], &pair[1])).collect();
        assert_eq!(bulk, single);
    }
}

#[test]
fn a_standard_hash_of_nothing() {
    let nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    assert_eq!(empty_root().to_string(), nothing);
    let mut none = Vec::new();
    leaf_hashes([], &mut none);
    assert!(none.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_batch_is_hashed_as_alone(
        leaves in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..600), 0..40)
    ) {
        check(&leaves);
    }
}
