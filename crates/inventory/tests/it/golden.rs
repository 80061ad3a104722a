//! Indexes of earlier versions of the format, which stay as they were written and are still read.

use std::path::{Path, PathBuf};

use forebay_inventory::builder::Options;
use forebay_inventory::index::{Index, SortBy};
use forebay_inventory::object::{Classes, Kind, Month, Object};

use crate::oracle::{Listed, build_at, check, check_largest, naive, options};

/// An index of [`rows`] in version 1 of the format.
fn version_1() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/index-v1")
}

/// What is in the indexes: a prefix with many children, some with noncurrent versions.
fn rows(classes: &Classes) -> Listed {
    let rows = (0..600_u64).map(|i| {
        let mixed = i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let key = match i % 3 {
            0 => format!("wide/{:03}/x", i * 7 % 200),
            1 => format!("wide/{:03}/y", i / 3),
            _ => format!("deep/{}/{}/{i}", i % 2, i % 5),
        };
        let kind = match mixed % 5 {
            0 => Kind::Noncurrent,
            1 => Kind::DeleteMarker,
            _ => Kind::Current,
        };
        let class = ["STANDARD", "GLACIER", "OWN"][usize::try_from(mixed % 3).unwrap()];
        let object = Object {
            size: mixed % 100_000 * (1 + mixed % 7),
            version: i,
            modified: Month::from_number(u16::try_from(600 + mixed % 60).unwrap()),
            class: classes.id(class).unwrap(),
            kind,
        };
        (key.into_bytes(), object)
    });
    Listed(vec![rows.collect()])
}

#[test]
fn an_index_of_version_1_answers_as_one_of_today_and_is_replaced_by_it() {
    let classes = Classes::new();
    let source = rows(&classes);
    let expected = naive(&source, &classes);
    let old = Index::open(&version_1()).unwrap();
    assert_eq!(old.meta().version, 1);
    let dir = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(version_1()).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), dir.path().join(entry.file_name())).unwrap();
    }
    build_at(dir.path(), &source, &classes, &Options { replace: true, ..options() }).unwrap();
    let new = Index::open(dir.path()).unwrap();
    assert_eq!((new.meta().version, new.meta().generation), (2, 2));
    let files = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(files, 6, "the files of the old one are gone");
    for index in [&old, &new] {
        check(index, &expected);
        for prefix in [&b""[..], b"wide/", b"deep/1/"] {
            check_largest(index, &expected, prefix);
        }
    }
    let wide = old.get(b"wide/").unwrap().unwrap();
    assert!(wide.child_count() > 128 && !old.current_only());
    let names = |index: &Index, by| -> Vec<Vec<u8>> {
        let wide = index.get(b"wide/").unwrap().unwrap();
        let page = wide.page(by, 0, 20).unwrap();
        page.nodes.iter().map(|node| node.name().to_vec()).collect()
    };
    assert_eq!(names(&old, SortBy::Billed), names(&new, SortBy::Billed));
    assert_ne!(names(&new, SortBy::Billed), names(&new, SortBy::Bytes));
}
