//! Published vectors: the tree of eight leaves used to test implementations of Certificate
//! Transparency.

use std::convert::Infallible;

use forebay_events::merkle::{
    Hash, LeafHashes, Tree, leaf_hash, verify_consistency, verify_inclusion,
};

const LEAVES: [&[u8]; 8] =
    [b"", b"\x00", b"\x10", b" !", b"01", b"@ABC", b"PQRSTUVW", b"`abcdefghijklmno"];

const ROOTS: [&str; 8] = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
];

/// Index, size, path.
const INCLUSIONS: [(u64, u64, &[&str]); 5] = [
    (0, 1, &[]),
    (
        0,
        8,
        &[
            "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
            "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
            "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
        ],
    ),
    (
        5,
        8,
        &[
            "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
            "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
            "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        ],
    ),
    (2, 3, &["fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"]),
    (
        1,
        5,
        &[
            "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
            "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
            "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        ],
    ),
];

/// Sizes, path.
const CONSISTENCIES: [(u64, u64, &[&str]); 5] = [
    (1, 1, &[]),
    (
        1,
        8,
        &[
            "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
            "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
            "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
        ],
    ),
    (
        6,
        8,
        &[
            "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
            "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
            "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        ],
    ),
    (
        2,
        5,
        &[
            "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
            "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        ],
    ),
    (
        6,
        7,
        &[
            "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
            "b08693ec2e721597130641e8211e7eedccb4c26413963eee6c1e2ed16ffb1a5f",
            "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        ],
    ),
];

/// No tile is complete, so no leaf is requested.
struct Nowhere;

impl LeafHashes for Nowhere {
    type Error = Infallible;

    fn leaf_hashes(&self, first: u64, count: usize) -> Result<Vec<Hash>, Infallible> {
        panic!("asked for {count} leaves from {first}")
    }
}

fn tree() -> Tree {
    let mut tree = Tree::new();
    tree.push(&LEAVES.map(leaf_hash));
    tree
}

fn root(size: u64) -> Hash {
    ROOTS[usize::try_from(size - 1).unwrap()].parse().unwrap()
}

fn hashes(texts: &[&str]) -> Vec<Hash> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[test]
fn published_roots() {
    for size in 1..=8 {
        assert_eq!(tree().root_at(size, &Nowhere).unwrap(), root(size));
    }
    assert_eq!(tree().root(), root(8));
}

#[test]
fn published_inclusion_proofs() {
    for (index, size, path) in INCLUSIONS {
        let path = hashes(path);
        assert_eq!(tree().inclusion_path(index, size, &Nowhere).unwrap(), path);
        let leaf = leaf_hash(LEAVES[usize::try_from(index).unwrap()]);
        verify_inclusion(index, size, &leaf, &path, &root(size)).unwrap();
        for (wrong_index, wrong_size) in
            [(index + 1, size), (index ^ 2, size), (index, size * 2), (index, size / 2)]
        {
            verify_inclusion(wrong_index, wrong_size, &leaf, &path, &root(size)).unwrap_err();
        }
    }
}

#[test]
fn published_consistency_proofs() {
    for (first, second, path) in CONSISTENCIES {
        let path = hashes(path);
        assert_eq!(tree().consistency_path(first, second, &Nowhere).unwrap(), path);
        verify_consistency(first, second, &path, &root(first), &root(second)).unwrap();
        if first == second {
            continue;
        }
        verify_consistency(first, second, &path, &root(second), &root(first)).unwrap_err();
        verify_consistency(first, second, &[], &root(first), &root(second)).unwrap_err();
        for (wrong_first, wrong_second) in
            [(first - 1, second), (first + 1, second), (first ^ 2, second), (first, second * 2)]
        {
            verify_consistency(wrong_first, wrong_second, &path, &root(first), &root(second))
                .unwrap_err();
        }
    }
}
