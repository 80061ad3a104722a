//! Queries beside the writer: what they see, and what they keep SQLite from reusing.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

fn named(lsn: u64) -> AppliedChange {
    let name = format!("name-{lsn:04}");
    let stored = Some(BlobLocation::Entry(lsn));
    change(lsn, Change::Put { file: file(lsn, &name, name.as_bytes()), stored, keeps: false })
}

fn digest(lsn: u64) -> Digest {
    Digest::of(format!("name-{lsn:04}").as_bytes())
}

#[test]
fn a_query_sees_every_transaction_that_was_committed_before_it() {
    const LAST: u64 = 400;
    let (_dir, mut catalogue, reader) = open();
    let committed = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                loop {
                    let lsn = committed.load(Ordering::Acquire);
                    assert!(lsn == 0 || reader.blob(digest(lsn)).unwrap().is_some(), "{lsn}");
                    if lsn == LAST {
                        return;
                    }
                }
            });
        }
        for lsn in 1..=LAST {
            catalogue.apply(&[named(lsn)], lsn + 1).unwrap();
            committed.store(lsn, Ordering::Release);
        }
    });
    assert_eq!(reader.totals().unwrap().files, LAST);
}

#[test]
fn idle_connections_do_not_make_the_log_of_the_database_grow() {
    const PAGE: u64 = 4_096;
    let (dir, mut catalogue, reader) = open();
    catalogue.connection.pragma_update(None, "wal_autocheckpoint", 16).unwrap();
    for lsn in 1..=200 {
        catalogue.apply(&[named(lsn)], lsn + 1).unwrap();
        assert!(reader.blob(digest(lsn)).unwrap().is_some());
    }
    let size = std::fs::metadata(dir.path().join("catalogue.sqlite-wal")).unwrap().len();
    assert!(size < 100 * PAGE, "{size} bytes");
}

#[test]
fn a_query_that_fails_leaves_a_connection_that_answers() {
    let (_dir, mut catalogue, reader) = open();
    catalogue.apply(&[named(1)], 2).unwrap();
    for _ in 0..3 {
        let failed = reader.ask("fail", |connection| {
            Ok(connection.query_row("SELECT abs(-9223372036854775808)", [], |_| Ok(()))?)
        });
        assert!(failed.is_err());
        assert!(reader.blob(digest(1)).unwrap().is_some());
    }
}
