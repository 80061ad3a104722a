//! Logs written by earlier versions stay readable: the files under `golden` are never rewritten.

use std::{path::Path, sync::Arc};

use forebay_base::fs::{FileSystem, RealFs};
use forebay_log::{Log, Lsn, Options, ReadError, check};

use crate::workload::read_all;

fn payload(i: u8) -> Vec<u8> {
    vec![i; usize::from(i) * 7]
}

/// How the golden files were created, for the day a version 2 needs its own.
#[expect(dead_code, reason = "documents, and once made, the golden files")]
fn make(dir: &Path) {
    let options = Options { segment_size: 512, ..Options::default() };
    let (log, _) = Log::open(Arc::new(RealFs), dir, options).unwrap();
    for i in 0..12 {
        log.append(&[&payload(i)]).unwrap();
    }
    log.sync().unwrap();
    log.erase(Lsn(0), &mut |lsn| lsn == Lsn(64 + 24)).unwrap();
}

/// How the golden files with runs of erased entries were created.
#[expect(dead_code, reason = "documents, and once made, the golden files")]
fn make_runs(dir: &Path) {
    let options = Options { segment_size: 1024, ..Options::default() };
    let (log, _) = Log::open(Arc::new(RealFs), dir, options).unwrap();
    for i in 0..16 {
        log.append(&[&payload(i)]).unwrap();
    }
    log.sync().unwrap();
    let mut i = 0;
    log.erase(Lsn(0), &mut |_| {
        i += 1;
        (3..=6).contains(&i) || i == 8
    })
    .unwrap();
}

/// Copies golden files to a directory where they can be opened.
fn copy(name: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    for entry in RealFs.list(&golden).unwrap() {
        std::fs::copy(golden.join(&entry.name), dir.path().join(&entry.name)).unwrap();
    }
    dir
}

#[test]
fn version_1_is_read() {
    let dir = copy("v1");
    let checked = check(&RealFs, dir.path(), &mut |damage| panic!("{damage}")).unwrap();
    assert_eq!((checked.entries, checked.erased, checked.tail), (11, 1, None));
    let (log, recovery) = Log::open(Arc::new(RealFs), dir.path(), Options::default()).unwrap();
    assert!(recovery.clean && recovery.segments == 2);
    let found: Vec<_> = read_all(&log).into_iter().map(|(_, payload)| payload).collect();
    let expected: Vec<_> = (0..12).filter(|i| *i != 1).map(payload).collect();
    assert_eq!(found, expected);
    assert!(matches!(log.read(Lsn(64 + 24)), Err(ReadError::Erased { .. })));
}

#[test]
fn version_1_with_runs_of_erased_entries_is_read() {
    let dir = copy("v1-runs");
    let checked = check(&RealFs, dir.path(), &mut |damage| panic!("{damage}")).unwrap();
    assert_eq!((checked.entries, checked.erased, checked.tail), (11, 5, None));
    let (log, _) = Log::open(Arc::new(RealFs), dir.path(), Options::default()).unwrap();
    let found: Vec<_> = read_all(&log).into_iter().map(|(_, payload)| payload).collect();
    let expected: Vec<_> = (0..16).filter(|i| !matches!(i, 2..=5 | 7)).map(payload).collect();
    assert_eq!(found, expected);
    let mut lsn = 64;
    for i in 0..8 {
        let erased = matches!(log.read(Lsn(lsn)), Err(ReadError::Erased { .. }));
        assert_eq!(erased, matches!(i, 2..=5 | 7));
        let mut reader = log.reader(Lsn(lsn));
        let first = reader.next().unwrap().unwrap().payload.to_vec();
        assert_eq!(
            first,
            payload(match i {
                2..=5 => 6,
                7 => 8,
                other => other,
            })
        );
        lsn += 24 + (u64::from(i) * 7).next_multiple_of(8);
    }
}
