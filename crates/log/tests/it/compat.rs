//! Logs written by earlier versions are read for ever: the files under `golden` are never rewritten.

use std::{path::Path, sync::Arc};

use forebay_base::fs::{FileSystem, RealFs};
use forebay_log::{Log, Lsn, Options, ReadError, check};

use crate::workload::read_all;

fn payload(i: u8) -> Vec<u8> {
    vec![i; usize::from(i) * 7]
}

/// How the golden files were made, for the day a version 2 needs its own.
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

#[test]
fn version_1_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1");
    for entry in RealFs.list(&golden).unwrap() {
        std::fs::copy(golden.join(&entry.name), dir.path().join(&entry.name)).unwrap();
    }
    let checked = check(&RealFs, dir.path(), &mut |damage| panic!("{damage}")).unwrap();
    assert_eq!((checked.entries, checked.erased, checked.tail), (11, 1, None));
    let (log, recovery) = Log::open(Arc::new(RealFs), dir.path(), Options::default()).unwrap();
    assert!(recovery.clean && recovery.segments == 2);
    let found: Vec<_> = read_all(&log).into_iter().map(|(_, payload)| payload).collect();
    let expected: Vec<_> = (0..12).filter(|i| *i != 1).map(payload).collect();
    assert_eq!(found, expected);
    assert!(matches!(log.read(Lsn(64 + 24)), Err(ReadError::Erased { .. })));
}
