//! Random trees and trees of awkward shapes, read in order and out of order, in much memory and in
//! little.

use std::collections::BTreeSet;

use forebay_base::bytes::ByteSize;
use forebay_inventory::builder::{BuildError, OnBadRow, Options};
use forebay_inventory::index::Index;
use forebay_inventory::object::{Classes, Kind, Month, Object};
use proptest::prelude::*;

use crate::oracle::{Listed, build_at, check, check_largest, naive, options};

fn object(i: u64, classes: &Classes) -> Object {
    let names = ["STANDARD", "STANDARD_IA", "GLACIER", "COLD", "WARM"];
    let mixed = i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    Object {
        size: (mixed >> 20) >> (mixed % 44),
        version: i,
        modified: Month::from_number(u16::try_from(mixed >> 56).unwrap()),
        class: classes.id(names[usize::try_from(mixed >> 8).unwrap() % 5]).unwrap(),
        kind: match mixed >> 16 & 7 {
            0 => Kind::DeleteMarker,
            1 => Kind::Noncurrent,
            _ => Kind::Current,
        },
    }
}

/// Builds in several ways; each has to say what the plain way says.
fn check_all(keys: &[Vec<u8>]) {
    let classes = Classes::new();
    let rows: Vec<_> =
        keys.iter().zip(0..).map(|(key, i)| (key.clone(), object(i, &classes))).collect();
    let mixed = Listed(rows.chunks(rows.len() / 3 + 1).map(<[_]>::to_vec).collect());
    let mut rows = rows;
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    let in_order = Listed(rows.chunks(rows.len() / 3 + 1).map(<[_]>::to_vec).collect());
    let expected = naive(&mixed, &classes);
    let dir = tempfile::tempdir().unwrap();
    let little = Options { memory: ByteSize(1 << 10), ..options() };
    for (name, source, options) in
        [("a", &in_order, options()), ("b", &mixed, options()), ("c", &mixed, little)]
    {
        let dir = dir.path().join(name);
        let built = build_at(&dir, source, &classes, &options).unwrap();
        assert_eq!(built.rows, keys.len() as u64);
        assert_eq!(built.objects, expected[&Vec::new()].total().objects);
        if name == "a" {
            assert!(built.in_order && built.runs == 0);
        }
        let index = Index::open(&dir).unwrap();
        check(&index, &expected);
        let some = expected.keys().step_by(expected.len() / 4 + 1);
        some.for_each(|prefix| check_largest(&index, &expected, prefix));
        for absent in ["b//x/", "a", "/", "zzz/", "a/a/a/a/a/a/a/a/a/a/"] {
            let found = index.get(absent.as_bytes()).unwrap();
            assert_eq!(found.is_some(), expected.contains_key(absent.as_bytes()));
        }
        let files: BTreeSet<_> =
            std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(files.len(), 6, "{files:?}");
    }
}

fn component() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => Just(b"a".to_vec()),
        2 => Just(b"b".to_vec()),
        1 => Just(Vec::new()),
        1 => Just(b"a-b".to_vec()),
        1 => Just(vec![0]),
        1 => Just(vec![0xFF, 0xFE]),
        2 => proptest::collection::vec(any::<u8>().prop_filter("a slash", |b| *b != b'/'), 0..12),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_random_tree_is_counted_as_the_plain_way_counts_it(
        keys in proptest::collection::vec(
            proptest::collection::vec(component(), 1..7).prop_map(|parts| parts.join(&b'/')),
            0..120,
        )
    ) {
        let keys: Vec<_> = keys.into_iter().filter(|key| !key.is_empty()).collect();
        check_all(&keys);
    }
}

#[test]
fn an_empty_inventory_has_the_empty_prefix() {
    check_all(&[]);
}

#[test]
fn a_prefix_with_very_many_children_is_paged_in_every_order() {
    let keys: Vec<Vec<u8>> =
        (0..9000_u32).map(|i| format!("all/{:05}/x", i * 7919 % 9000).into_bytes()).collect();
    check_all(&keys);
}

#[test]
fn a_deep_path_and_a_long_key_are_counted_at_every_prefix() {
    let deep = "d/".repeat(1000) + "x";
    let slashes = "/".repeat(1024);
    let long = "k".repeat(4096);
    let keys = [deep.as_str(), &slashes, &long, "d/d/y"].map(|key| key.as_bytes().to_vec());
    check_all(&keys);
}

#[test]
fn a_directory_spread_over_many_runs_is_one() {
    let keys: Vec<Vec<u8>> = (0..60_000_u32)
        .map(|i| format!("logs/{:02}/{:08}", i % 7, i.wrapping_mul(2_654_435_761)).into_bytes())
        .collect();
    check_all(&keys);
}

/// What the packages of a Debian have: files, and the directories they are in as objects beside them.
const PACKAGES: &str = "/var/lib/dpkg/info";

#[test]
fn the_files_that_packages_list_are_counted_as_the_plain_way_counts_them() {
    let mut keys = BTreeSet::new();
    for entry in std::fs::read_dir(PACKAGES).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "list") {
            let list = std::fs::read(&path).unwrap();
            // Several packages have a directory, and it is listed once.
            let listed = list.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            keys.extend(listed.map(<[u8]>::to_vec));
        }
        if keys.len() > 20_000 {
            break;
        }
    }
    if keys.is_empty() {
        return forebay_testing::left_out(&format!("there are no lists of packages in {PACKAGES}"));
    }
    check_all(&keys.into_iter().collect::<Vec<_>>());
}

fn failed(keys: &[&[u8]], options: &Options) -> BuildError {
    let classes = Classes::new();
    let object = Object { version: 0, ..object(2, &classes) };
    let source = Listed(vec![keys.iter().map(|key| (key.to_vec(), object)).collect()]);
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("index");
    let error = build_at(&to, &source, &classes, options).unwrap_err();
    assert!(Index::open(&to).is_err());
    let left: Vec<_> = std::fs::read_dir(&to).unwrap().map(|entry| entry.unwrap()).collect();
    assert!(left.iter().all(|entry| entry.file_name() == "lock"), "{left:?}");
    error
}

#[test]
fn a_key_listed_twice_is_an_error_in_order_and_out_of_order() {
    for keys in [[b"a/x".as_slice(), b"a/x", b"b"], [b"b", b"a/x", b"a/x"], [b"a/x", b"b", b"a/x"]]
    {
        let error = failed(&keys, &options());
        assert!(matches!(error, BuildError::Duplicate { count: 1, .. }), "{error}");
    }
}

#[test]
fn keys_no_index_takes_are_bad_rows() {
    let long = vec![b'k'; 4097];
    let deep = b"/".repeat(100_000);
    for key in [&b""[..], &long, &deep, &b"/".repeat(1025)] {
        let error = failed(&[b"good", key], &options());
        let BuildError::BadRow(row) = error else { panic!("{error}") };
        assert_eq!((row.row, row.field.as_str()), (2, "key"), "{}", row.reason);
    }
    let classes = Classes::new();
    let rows = [&b"a/x"[..], b"", b"a/y"].map(|key| (key.to_vec(), object(2, &classes)));
    let dir = tempfile::tempdir().unwrap();
    let skip = Options { on_bad_row: OnBadRow::Skip, ..options() };
    let built =
        build_at(&dir.path().join("i"), &Listed(vec![rows.to_vec()]), &classes, &skip).unwrap();
    assert_eq!((built.bad_rows, built.rows, built.bad_rows_shown.len()), (1, 3, 1));
}

#[test]
fn an_index_is_replaced_only_when_that_is_wanted() {
    let classes = Classes::new();
    let dir = tempfile::tempdir().unwrap();
    let of = |key: &str| {
        let object = Object { kind: Kind::Current, ..object(2, &classes) };
        Listed(vec![vec![(key.as_bytes().to_vec(), object)]])
    };
    build_at(dir.path(), &of("a/x"), &classes, &options()).unwrap();
    let old = Index::open(dir.path()).unwrap();
    let again = build_at(dir.path(), &of("b/x"), &classes, &options());
    assert!(matches!(again, Err(BuildError::Exists(_))));
    let replace = Options { replace: true, ..options() };
    build_at(dir.path(), &of("b/x"), &classes, &replace).unwrap();
    assert!(Index::open(dir.path()).unwrap().get(b"b/").unwrap().is_some());
    assert!(old.get(b"a/").unwrap().is_some(), "one that is open stays as it was");
    let wrong = Options { expect_rows: Some(2), ..replace };
    assert!(matches!(
        build_at(dir.path(), &of("c/x"), &classes, &wrong),
        Err(BuildError::Rows { expected: 2, found: 1 })
    ));
    assert!(Index::open(dir.path()).unwrap().get(b"b/").unwrap().is_some());
    std::fs::write(dir.path().join("letter.txt"), "dear").unwrap();
    assert!(matches!(
        build_at(dir.path(), &of("c/x"), &classes, &replace),
        Err(BuildError::Foreign { .. })
    ));
}
