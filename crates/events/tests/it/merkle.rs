//! The tree compared with a slow implementation of the definitions of RFC 9162, section 2.1.

use std::cell::RefCell;
use std::collections::HashMap;
use std::convert::Infallible;
use std::ops::Range;

use forebay_events::merkle::{
    Hash, LeafHashes, PathError, TILE_WIDTH, Tree, VerifyError, empty_root, leaf_hash, leaf_hashes,
    verify_consistency, verify_inclusion,
};
use proptest::prelude::*;
use sha2::{Digest, Sha256};

/// `MTH`, `PATH` and `SUBPROOF` as the RFC defines them; a range is hashed once.
struct Naive<'a> {
    leaves: &'a [Hash],
    known: RefCell<HashMap<Range<usize>, Hash>>,
}

impl<'a> Naive<'a> {
    fn new(leaves: &'a [Hash]) -> Self {
        Self { leaves, known: RefCell::default() }
    }

    fn split(range: &Range<usize>) -> usize {
        let mut k = 1;
        while k * 2 < range.len() {
            k *= 2;
        }
        range.start + k
    }

    fn mth(&self, range: Range<usize>) -> Hash {
        if range.is_empty() {
            return Hash(Sha256::digest([]).into());
        }
        if range.len() == 1 {
            return self.leaves[range.start];
        }
        let known = self.known.borrow().get(&range).copied();
        known.unwrap_or_else(|| {
            let middle = Self::split(&range);
            let mut bytes = vec![1];
            bytes.extend(self.mth(range.start..middle).0);
            bytes.extend(self.mth(middle..range.end).0);
            let hash = Hash(Sha256::digest(&bytes).into());
            self.known.borrow_mut().insert(range, hash);
            hash
        })
    }

    fn root(&self, size: usize) -> Hash {
        self.mth(0..size)
    }

    fn path(&self, leaf: usize, range: Range<usize>) -> Vec<Hash> {
        if range.len() == 1 {
            return Vec::new();
        }
        let middle = Self::split(&range);
        let (left, right) = (range.start..middle, middle..range.end);
        let (on, beside) = if leaf < middle { (left, right) } else { (right, left) };
        let mut path = self.path(leaf, on);
        path.push(self.mth(beside));
        path
    }

    fn subproof(&self, size: usize, range: Range<usize>) -> Vec<Hash> {
        if size == range.end {
            return if range.start == 0 { Vec::new() } else { vec![self.mth(range)] };
        }
        let middle = Self::split(&range);
        let (left, right) = (range.start..middle, middle..range.end);
        let (on, beside) = if size <= middle { (left, right) } else { (right, left) };
        let mut proof = self.subproof(size, on);
        proof.push(self.mth(beside));
        proof
    }
}

/// Leaves kept whole; counts what was asked.
struct Leaves {
    hashes: Vec<Hash>,
    asked: RefCell<Vec<u64>>,
}

impl LeafHashes for Leaves {
    type Error = Infallible;

    fn leaf_hashes(&self, first: u64, count: usize) -> Result<Vec<Hash>, Infallible> {
        self.asked.borrow_mut().push(first);
        assert!(first % TILE_WIDTH as u64 + count as u64 <= TILE_WIDTH as u64, "one tile");
        let first = usize::try_from(first).unwrap();
        Ok(self.hashes[first..first + count].to_vec())
    }
}

fn leaves(count: usize) -> Leaves {
    let texts: Vec<Vec<u8>> = (0..count).map(|i| format!("event {i}").into_bytes()).collect();
    let mut hashes = Vec::new();
    leaf_hashes(texts.iter().map(Vec::as_slice), &mut hashes);
    Leaves { hashes, asked: RefCell::default() }
}

fn tree_of(leaves: &Leaves) -> Tree {
    let mut tree = Tree::new();
    tree.push(&leaves.hashes);
    tree
}

fn n(value: usize) -> u64 {
    value as u64
}

#[test]
fn a_leaf_and_a_node_hash_as_the_standard_says() {
    let mut bytes = vec![0];
    bytes.extend(b"an event");
    assert_eq!(leaf_hash(b"an event").0, <[u8; 32]>::from(Sha256::digest(&bytes)));
    assert_eq!(empty_root(), Naive::new(&[]).root(0));
    assert_eq!(Tree::new().root(), empty_root());
}

#[test]
fn every_root_and_every_inclusion_proof_up_to_257_leaves() {
    let leaves = leaves(257);
    let tree = tree_of(&leaves);
    let naive = Naive::new(&leaves.hashes);
    for size in 0..=257 {
        let d = &leaves.hashes[..size];
        let root = naive.root(size);
        assert_eq!(tree.root_at(n(size), &leaves).unwrap(), root, "{size}");
        let mut grown = Tree::new();
        grown.push(d);
        assert_eq!(grown.root(), root, "{size}");
        for (index, leaf) in d.iter().enumerate() {
            let path = tree.inclusion_path(n(index), n(size), &leaves).unwrap();
            assert_eq!(path, naive.path(index, 0..size), "{index} of {size}");
            verify_inclusion(n(index), n(size), leaf, &path, &root).unwrap();
        }
    }
}

#[test]
fn every_consistency_proof_up_to_257_leaves() {
    let leaves = leaves(257);
    let tree = tree_of(&leaves);
    let naive = Naive::new(&leaves.hashes);
    let roots: Vec<Hash> = (0..=257).map(|size| naive.root(size)).collect();
    for second in 0..=257 {
        for first in 0..=second {
            let path = tree.consistency_path(n(first), n(second), &leaves).unwrap();
            if first > 0 {
                let expected = naive.subproof(first, 0..second);
                assert_eq!(path, expected, "{first} to {second}");
            }
            verify_consistency(n(first), n(second), &path, &roots[first], &roots[second]).unwrap();
        }
    }
}

/// Around the edges of tiles, and of tiles of tiles.
#[test]
fn proofs_across_tiles_are_those_of_the_definition() {
    let leaves = leaves(65_536 + 3);
    let tree = tree_of(&leaves);
    assert_eq!(tree.tile_roots().len(), 256);
    assert_eq!(tree.size(), 65_539);
    let sizes = [1, 255, 256, 257, 511, 512, 513, 767, 1000, 65_535, 65_536, 65_537, 65_539];
    let naive = Naive::new(&leaves.hashes);
    for (at, &size) in sizes.iter().enumerate() {
        let root = naive.root(size);
        assert_eq!(tree.root_at(n(size), &leaves).unwrap(), root, "{size}");
        for index in [0, 1, 254, 255, 256, 257, 511, 512, 999, 65_535, 65_536, size - 1] {
            if index < size {
                leaves.asked.borrow_mut().clear();
                let path = tree.inclusion_path(n(index), n(size), &leaves).unwrap();
                assert!(leaves.asked.borrow().len() <= 2, "two tiles at most");
                assert_eq!(path, naive.path(index, 0..size), "{index} of {size}");
                verify_inclusion(n(index), n(size), &leaves.hashes[index], &path, &root).unwrap();
            }
        }
        for &first in &sizes[..at] {
            leaves.asked.borrow_mut().clear();
            let path = tree.consistency_path(n(first), n(size), &leaves).unwrap();
            assert!(leaves.asked.borrow().len() <= 2, "two tiles at most");
            assert_eq!(path, naive.subproof(first, 0..size), "{first} to {size}");
            let first_root = naive.root(first);
            verify_consistency(n(first), n(size), &path, &first_root, &root).unwrap();
        }
    }
}

#[test]
fn roots_and_consistency_of_whole_tiles_need_no_leaf() {
    let leaves = leaves(1500);
    let tree = tree_of(&leaves);
    for size in [0, 256, 512, 1024, 1280, 1281, 1500] {
        tree.root_at(size, &leaves).unwrap();
        tree.consistency_path(256, size.max(256), &leaves).unwrap();
    }
    tree.inclusion_path(1400, 1500, &leaves).unwrap();
    tree.tile(0, 5, 220, &leaves).unwrap();
    assert!(leaves.asked.borrow().is_empty(), "all of it is in memory");
}

#[test]
fn a_tree_put_together_again_grows_the_same() {
    let leaves = leaves(70_000);
    let all = tree_of(&leaves);
    for cut in [0, 1, 255, 256, 257, 65_535, 65_536, 65_700, 70_000] {
        let mut before = Tree::new();
        before.push(&leaves.hashes[..cut]);
        let parts = (before.tile_roots().to_vec(), before.edge().to_vec());
        let mut again = Tree::from_parts(parts.0, parts.1).unwrap();
        assert_eq!(again, before);
        again.push(&leaves.hashes[cut..]);
        assert_eq!(again, all);
    }
    assert!(Tree::from_parts(Vec::new(), leaves.hashes[..256].to_vec()).is_err());
}

#[test]
fn tiles_are_those_of_the_specification() {
    // The example of C2SP tlog-tiles: a tree of 70,000 leaves.
    let leaves = leaves(70_000);
    let tree = tree_of(&leaves);
    assert_eq!(tree.tile(0, 272, 256, &leaves).unwrap(), leaves.hashes[272 * 256..273 * 256]);
    assert_eq!(tree.tile(0, 273, 112, &leaves).unwrap(), leaves.hashes[273 * 256..]);
    assert_eq!(tree.tile(0, 3, 7, &leaves).unwrap(), leaves.hashes[768..775]);
    let above: Vec<Hash> =
        leaves.hashes.chunks_exact(256).map(|tile| Naive::new(tile).root(256)).collect();
    assert_eq!(tree.tile(1, 0, 256, &leaves).unwrap(), above[..256]);
    assert_eq!(tree.tile(1, 1, 17, &leaves).unwrap(), above[256..]);
    assert_eq!(tree.tile(2, 0, 1, &leaves).unwrap(), [Naive::new(&above).root(256)]);

    let beyond =
        [(0, 273, 113), (0, 274, 1), (1, 1, 18), (1, 2, 1), (2, 0, 2), (2, 1, 1), (3, 0, 1)];
    let huge = [(0, u64::MAX, 256), (1, u64::MAX, 256), (63, 0, 1), (63, u64::MAX, 256)];
    for (level, index, width) in beyond.into_iter().chain(huge) {
        let error = tree.tile(level, index, width, &leaves).unwrap_err();
        assert!(matches!(error, PathError::Beyond { size: 70_000, .. }), "{error:?}");
    }
    for (level, width) in [(0, 0), (0, 257), (64, 1), (u32::MAX, 1)] {
        let error = tree.tile(level, 0, width, &leaves).unwrap_err();
        assert_eq!(error, PathError::NoTile { level, width });
    }
}

#[test]
fn sizes_beyond_the_tree_are_errors() {
    let leaves = leaves(300);
    let tree = tree_of(&leaves);
    for size in [301, 512, 1 << 40, u64::MAX] {
        let beyond = PathError::Beyond { asked: size, size: 300 };
        assert_eq!(tree.root_at(size, &leaves), Err(beyond.clone()));
        assert_eq!(tree.inclusion_path(0, size, &leaves), Err(beyond.clone()));
        assert_eq!(tree.consistency_path(1, size, &leaves), Err(beyond));
    }
    let index = PathError::Index { index: 300, size: 300 };
    assert_eq!(tree.inclusion_path(300, 300, &leaves), Err(index));
    let order = PathError::Order { first: 3, second: 2 };
    assert_eq!(tree.consistency_path(3, 2, &leaves), Err(order));
}

#[test]
fn a_changed_leaf_is_found_before_it_gets_into_a_proof() {
    let mut leaves = leaves(600);
    let tree = tree_of(&leaves);
    leaves.hashes.swap(300, 301);
    let error = tree.inclusion_path(400, 600, &leaves).unwrap_err();
    assert!(matches!(error, PathError::Changed { first: 256, .. }), "{error:?}");
    tree.inclusion_path(3, 600, &leaves).unwrap();

    struct Short;
    impl LeafHashes for Short {
        type Error = Infallible;
        fn leaf_hashes(&self, _: u64, _: usize) -> Result<Vec<Hash>, Infallible> {
            Ok(Vec::new())
        }
    }
    let error = tree.inclusion_path(400, 600, &Short).unwrap_err();
    assert_eq!(error, PathError::Count { first: 256, expected: 256, found: 0 });
}

fn flip(hash: &Hash, bit: usize) -> Hash {
    let mut hash = *hash;
    hash.0[bit / 8] ^= 1 << (bit % 8);
    hash
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn however_it_was_pushed_the_tree_is_the_same(cuts in proptest::collection::vec(0..600_usize, 1..12)) {
        let leaves = leaves(cuts.iter().sum());
        let mut tree = Tree::new();
        let mut at = 0;
        for cut in cuts {
            tree.push(&leaves.hashes[at..at + cut]);
            at += cut;
        }
        prop_assert_eq!(&tree, &tree_of(&leaves));
        prop_assert_eq!(tree.root(), Naive::new(&leaves.hashes).root(at));
    }

    #[test]
    fn one_flipped_bit_disproves_an_inclusion(
        size in 1..400_usize, index in any::<prop::sample::Index>(), bit in 0..256_usize,
        at in any::<prop::sample::Index>(),
    ) {
        let leaves = leaves(size);
        let index = index.index(size);
        let naive = Naive::new(&leaves.hashes);
        let (leaf, root) = (leaves.hashes[index], naive.root(size));
        let path = naive.path(index, 0..size);
        let verify = |index, size, leaf: &Hash, path: &[Hash], root: &Hash| {
            verify_inclusion(n(index), n(size), leaf, path, root).is_ok()
        };
        prop_assert!(verify(index, size, &leaf, &path, &root));
        prop_assert!(!verify(index, size, &flip(&leaf, bit), &path, &root));
        prop_assert!(!verify(index, size, &leaf, &path, &flip(&root, bit)));
        if !path.is_empty() {
            let at = at.index(path.len());
            let mut other = path.clone();
            other[at] = flip(&other[at], bit);
            prop_assert!(!verify(index, size, &leaf, &other, &root));
            let mut other = path.clone();
            other.remove(at);
            prop_assert!(!verify(index, size, &leaf, &other, &root));
        }
        let mut longer = path.clone();
        longer.insert(at.index(path.len() + 1), root);
        prop_assert!(!verify(index, size, &leaf, &longer, &root));
        for other in (0..size).filter(|&other| other != index) {
            prop_assert!(!verify(other, size, &leaf, &path, &root));
        }
    }

    #[test]
    fn one_flipped_bit_disproves_consistency(
        second in 2..400_usize, first in any::<prop::sample::Index>(), bit in 0..256_usize,
        at in any::<prop::sample::Index>(),
    ) {
        let leaves = leaves(second);
        let first = 1 + first.index(second - 1);
        let naive = Naive::new(&leaves.hashes);
        let (old, new) = (naive.root(first), naive.root(second));
        let path = naive.subproof(first, 0..second);
        let verify = |path: &[Hash], old: &Hash, new: &Hash| {
            verify_consistency(n(first), n(second), path, old, new).is_ok()
        };
        prop_assert!(verify(&path, &old, &new));
        prop_assert!(!verify(&path, &flip(&old, bit), &new));
        prop_assert!(!verify(&path, &old, &flip(&new, bit)));
        let at = at.index(path.len());
        let mut other = path.clone();
        other[at] = flip(&other[at], bit);
        prop_assert!(!verify(&other, &old, &new));
        other.remove(at);
        prop_assert!(!verify(&other, &old, &new));
        let mut longer = path.clone();
        longer.insert(at, new);
        prop_assert!(!verify(&longer, &old, &new));
    }

    #[test]
    fn no_input_breaks_the_verifiers(
        index in any::<u64>(), size in any::<u64>(), first in 0..70_u64, shift in 0..64_u32,
        path in proptest::collection::vec(any::<[u8; 32]>().prop_map(Hash), 0..70),
    ) {
        let root = Hash([1; 32]);
        let answers = [
            verify_inclusion(index, size, &root, &path, &root),
            verify_inclusion(u64::MAX >> shift, u64::MAX, &root, &path, &root),
            verify_consistency(index, size, &path, &root, &root),
            verify_consistency(first, u64::MAX >> shift, &path, &root, &root),
            verify_consistency(1 << shift, u64::MAX, &path, &root, &root),
        ];
        prop_assert!(answers.iter().all(Result::is_err) || path.is_empty());
    }
}

#[test]
fn what_fails_is_named() {
    let leaves = leaves(5);
    let naive = Naive::new(&leaves.hashes);
    let (path, root) = (naive.path(2, 0..5), naive.root(5));
    let verify = |index, path: &[Hash]| verify_inclusion(index, 5, &leaves.hashes[2], path, &root);
    assert_eq!(verify(2, &path), Ok(()));
    assert_eq!(verify(5, &path), Err(VerifyError::Beyond { index: 5, size: 5 }));
    assert!(matches!(verify(2, &path[1..]), Err(VerifyError::PathLength { long: false, .. })));
    assert!(matches!(verify(1, &path), Err(VerifyError::Root { .. })));
    let long = [&path[..], &path[..]].concat();
    assert!(matches!(verify(2, &long), Err(VerifyError::PathLength { long: true, .. })));
    let shrunk = verify_consistency(3, 2, &[], &root, &root);
    assert_eq!(shrunk, Err(VerifyError::Shrunk { first: 3, second: 2 }));
}
