//! Builds at the limits: few file descriptors, many versions of a key, sums beyond 64 bits.

use std::process::Command;

use forebay_base::bytes::ByteSize;
use forebay_inventory::builder::{BuildError, OnBadRow, Options};
use forebay_inventory::index::Index;
use forebay_inventory::object::{ClassId, Classes, Kind, Month, Object};

use crate::oracle::{Listed, build_at, check, naive, options};

/// Set in the process that has few descriptors.
const FEW: &str = "FOREBAY_TEST_FEW_DESCRIPTORS";
/// How many it has.
const DESCRIPTORS: usize = 30;

fn object(size: u64, version: u64, kind: Kind) -> Object {
    let (modified, class) = (Month::UNKNOWN, ClassId::STANDARD);
    Object { size, version, modified, class, kind }
}

#[test]
fn more_runs_than_file_descriptors_are_merged() {
    if std::env::var_os(FEW).is_some() {
        return build_of_many_runs();
    }
    let itself = std::env::current_exe().unwrap();
    let name = "limits::more_runs_than_file_descriptors_are_merged";
    let output = Command::new("sh")
        .args([
            "-c",
            &format!("ulimit -n {DESCRIPTORS} && exec \"$0\" --exact {name} --test-threads=1"),
        ])
        .arg(itself)
        .env(FEW, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}\n{errors}");
}

fn build_of_many_runs() {
    let classes = Classes::new();
    let kinds = [Kind::Current, Kind::Noncurrent, Kind::DeleteMarker];
    let rows: Vec<_> = (0..60_000_u32)
        .map(|i| {
            let mixed = i.wrapping_mul(2_654_435_761);
            let key = format!("{}/{:02}/{mixed:08}", mixed % 3, mixed % 97);
            (key.into_bytes(), object(mixed.into(), i.into(), kinds[(i % 7 / 5) as usize]))
        })
        .collect();
    let source = Listed(vec![rows]);
    let dir = tempfile::tempdir().unwrap();
    let little = Options { memory: ByteSize(1 << 10), threads: 1, ..options() };
    let built = build_at(dir.path(), &source, &classes, &little).unwrap();
    assert!(built.runs > DESCRIPTORS, "{} runs", built.runs);
    check(&Index::open(dir.path()).unwrap(), &naive(&source, &classes));
    // A key in two of the runs is still found, whatever merge they meet in.
    let mut twice = source;
    let first = twice.0[0][17].clone();
    twice.0[0].push(first);
    let to = dir.path().join("twice");
    let error = build_at(&to, &twice, &classes, &little).unwrap_err();
    assert!(matches!(error, BuildError::Duplicate { count: 1, .. }), "{error}");
    let left: Vec<_> = std::fs::read_dir(&to).unwrap().map(|entry| entry.unwrap()).collect();
    assert!(left.iter().all(|entry| entry.file_name() == "lock"), "{left:?}");
    let skip = Options { on_duplicate: OnBadRow::Skip, ..little };
    let built = build_at(&to, &twice, &classes, &skip).unwrap();
    assert_eq!(built.rows, 60_001);
}

#[test]
fn a_key_with_more_versions_than_the_memory_holds_is_counted_out_of_order() {
    let classes = Classes::new();
    let rows: Vec<_> = (0..20_000)
        .map(|i| {
            let kind = if i == 0 { Kind::Current } else { Kind::Noncurrent };
            (b"a/key".to_vec(), object(i, i, kind))
        })
        .collect();
    let source = Listed(vec![rows]);
    let expected = naive(&source, &classes);
    let dir = tempfile::tempdir().unwrap();
    for (name, memory, in_order) in [("a", 64 << 20, true), ("b", 1 << 20, false)] {
        let dir = dir.path().join(name);
        let options = Options { memory: ByteSize(memory), ..options() };
        let built = build_at(&dir, &source, &classes, &options).unwrap();
        assert_eq!((built.in_order, built.objects), (in_order, 1));
        check(&Index::open(&dir).unwrap(), &expected);
    }
}

#[test]
fn a_sum_beyond_64_bits_is_an_error_however_the_rows_arrive() {
    let classes = Classes::new();
    let largest = (1 << 63) - 1;
    for kind in [Kind::Current, Kind::Noncurrent] {
        for keys in [["a/1", "b/2", "c/3"], ["c/3", "a/1", "b/2"]] {
            let of = |last: u64| {
                let sizes = [largest, largest, last];
                let rows = keys.iter().zip(sizes).zip(1..);
                let rows = rows.map(|((key, size), version)| {
                    (key.as_bytes().to_vec(), object(size, version, kind))
                });
                Listed(vec![rows.collect()])
            };
            let dir = tempfile::tempdir().unwrap();
            let error = build_at(dir.path(), &of(2), &classes, &options()).unwrap_err();
            assert!(matches!(error, BuildError::TooManyBytes), "{error}");
            assert!(error.to_string().contains("more than 18446744073709551615 bytes"), "{error}");
            // One byte less is exact.
            build_at(dir.path(), &of(1), &classes, &options()).unwrap();
            let index = Index::open(dir.path()).unwrap();
            let stats = index.root().unwrap().stats().unwrap();
            assert_eq!(stats.total.bytes.max(stats.noncurrent.bytes), u64::MAX);
            index.verify().unwrap();
        }
    }
}
