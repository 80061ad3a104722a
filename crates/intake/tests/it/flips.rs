//! Every byte of both databases is changed in turn.
//!
//! Whatever the byte: each answer is the right one or an error, and the check is not silent where
//! what SQL reads has changed. Bytes far from any other, in the unused space of a page, carry no data
//! and are left out.

use std::path::Path;

use forebay_intake::documents::decide::Wish;
use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags};

use crate::support::{self, Answer, CATALOGUE, DOCUMENTS};

/// The distance between the bytes that are changed. With `FOREBAY_FLIP_STRIDE=1` every one is, which
/// takes an hour.
fn stride() -> usize {
    let asked = std::env::var("FOREBAY_FLIP_STRIDE").ok().and_then(|text| text.parse().ok());
    asked.filter(|&stride| stride > 0).unwrap_or(211)
}

/// Bytes of which one of the 32 on either side is not zero.
fn used(bytes: &[u8]) -> Vec<usize> {
    let near = |at: usize| &bytes[at.saturating_sub(32)..(at + 33).min(bytes.len())];
    (0..bytes.len()).filter(|&at| near(at).iter().any(|&byte| byte != 0)).collect()
}

/// Everything that SQL reads from a database; `None` if it cannot be read.
fn dump(path: &Path) -> Option<Vec<String>> {
    let read = || -> rusqlite::Result<Vec<String>> {
        let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        let mut all = Vec::new();
        let tables: Vec<String> = db
            .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")?
            .query_map([], |row| row.get(0))?
            .collect::<rusqlite::Result<_>>()?;
        let schema = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name".to_owned();
        let selects = tables.iter().map(|table| format!("SELECT * FROM \"{table}\""));
        for select in std::iter::once(schema).chain(selects) {
            let mut statement = db.prepare(&select)?;
            let columns = statement.column_count();
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                let values = (0..columns).map(|at| row.get::<_, Value>(at));
                all.push(format!("{:?}", values.collect::<rusqlite::Result<Vec<_>>>()?));
            }
        }
        Ok(all)
    };
    read().ok()
}

/// What is wrong with the answers, where something is.
fn wrong(expected: &[(String, Answer)], found: &[(String, Answer)]) -> Option<String> {
    assert_eq!(expected.len(), found.len());
    let differs = expected.iter().zip(found).find(|(expected, found)| {
        // An error is not an answer.
        found.1.is_ok() && expected.1 != found.1
    })?;
    let (expected, found) = differs;
    let text = |answer: &Answer| format!("{answer:?}").chars().take(300).collect::<String>();
    Some(format!("{}: expected {}, found {}", expected.0, text(&expected.1), text(&found.1)))
}

/// Bytes and what each is changed to.
type Changes = Vec<(usize, u8)>;

/// Every byte that carries data, changed in one way.
fn every_byte(whole: &[u8]) -> Changes {
    let changed = |at: usize| whole[at] ^ if at.is_multiple_of(3) { 0xff } else { 1 << (at % 8) };
    used(whole).into_iter().step_by(stride()).map(|at| (at, changed(at))).collect()
}

/// The number of rows of each page, increased: rows that were deleted or moved are there again if
/// their bytes are.
fn every_count(whole: &[u8]) -> Changes {
    let size = usize::from(u16::from_be_bytes([whole[16], whole[17]]));
    // The first page has the header of the database before its own.
    let counts = (0..whole.len() / size).map(|page| page * size + if page == 0 { 100 } else { 0 });
    // Pages of trees: interior and leaf, of tables and of indexes.
    let of_trees = counts.filter(|&at| matches!(whole[at], 2 | 5 | 10 | 13)).map(|at| at + 4);
    of_trees.flat_map(|at| [1, 2, 4].map(|more| (at, whole[at].wrapping_add(more)))).collect()
}

/// * `found_min`: how many of ten changes the check has to find at least.
fn change(name: &str, changes: fn(&[u8]) -> Changes, found_min: usize) {
    let kept = support::directory();
    support::furnish(kept.path());
    support::settle(kept.path());
    std::fs::remove_file(kept.path().join("reserve")).unwrap();
    let place = support::directory();
    let dir = place.path();
    support::copy(kept.path(), dir);
    let expected = {
        let intake = support::open(dir).unwrap();
        let answers = support::ask(&intake, dir);
        intake.close().unwrap();
        answers
    };
    assert!(expected.iter().all(|(_, answer)| answer.is_ok()), "{expected:?}");
    let restore = || {
        for view in [CATALOGUE, DOCUMENTS, "catalogue-damaged.sqlite"] {
            support::remove(dir, view);
        }
        std::fs::remove_dir_all(dir.join("log")).unwrap();
        support::copy(kept.path(), dir);
    };
    restore();
    assert_eq!(support::findings(dir), Vec::<String>::new());
    let whole = std::fs::read(kept.path().join(name)).unwrap();
    let before = dump(&kept.path().join(name)).unwrap();
    let (mut failures, mut found, mut tried) = (Vec::new(), 0, 0);
    for (at, byte) in changes(&whole) {
        let mut bytes = whole.clone();
        bytes[at] = byte;
        tried += 1;
        restore();
        std::fs::write(dir.join(name), &bytes).unwrap();
        let changed = dump(&dir.join(name)).as_ref() != Some(&before);
        restore();
        std::fs::write(dir.join(name), &bytes).unwrap();
        // A check that cannot be completed is not silent either.
        let silent = support::check(dir).is_ok_and(|report| report.findings.is_empty());
        found += usize::from(!silent);
        if changed && silent {
            failures.push(format!("byte {at}: the check says nothing"));
        }
        restore();
        std::fs::write(dir.join(name), &bytes).unwrap();
        // A start that is refused says what to do.
        if let Ok(intake) = support::open(dir) {
            if let Some(what) = wrong(&expected, &support::ask(&intake, dir)) {
                failures.push(format!("byte {at}: {what}"));
            }
            // The database may be too damaged even to be closed in order.
            intake.close().unwrap_or_default();
        }
    }
    assert!(failures.is_empty(), "{} of {tried}:\n{}", failures.len(), failures.join("\n"));
    let enough = found * 10 >= tried * found_min;
    assert!(tried > 0 && enough, "of {tried} changed bytes {found} were found");
}

/// SQLite takes what comes before a damaged frame of a write-ahead log: an older state. The log makes
/// it the newest again, or the start is refused.
#[test]
fn a_byte_changed_in_a_write_ahead_log_is_never_answered_with() {
    for name in [CATALOGUE, DOCUMENTS] {
        let kept = support::directory();
        support::furnish(kept.path());
        support::settle(kept.path());
        let place = support::directory();
        // One change more, left in the write-ahead log as by a process that was killed.
        let intake = support::open(kept.path()).unwrap();
        support::block_on(async {
            let key = support::key("notes", "late.txt");
            support::put(&intake, &key, b"late", false).await;
            support::post(&intake, "orders", Wish::Table, &support::order(109)).await;
            intake.totals().await.unwrap();
            intake.namespaces().await.unwrap();
        });
        support::copy(kept.path(), place.path());
        let expected = support::ask(&intake, kept.path());
        intake.close().unwrap();
        drop(intake);
        let dir = place.path();
        let wal = format!("{name}-wal");
        let whole = support::directory();
        support::copy(dir, whole.path());
        let bytes = std::fs::read(whole.path().join(&wal)).unwrap();
        assert!(bytes.len() > 4_000, "{wal}: {} bytes", bytes.len());
        let mut opened = 0;
        for at in used(&bytes).into_iter().step_by(stride() * 5) {
            for view in [CATALOGUE, DOCUMENTS, "catalogue-damaged.sqlite"] {
                support::remove(dir, view);
            }
            std::fs::remove_dir_all(dir.join("log")).unwrap();
            support::copy(whole.path(), dir);
            let mut altered = bytes.clone();
            altered[at] ^= 1 << (at % 8);
            std::fs::write(dir.join(&wal), altered).unwrap();
            support::remove_shared_memory(dir);
            if let Ok(intake) = support::open(dir) {
                opened += 1;
                let found = support::ask(&intake, dir);
                assert_eq!(wrong(&expected, &found), None, "{wal}: byte {at}");
                intake.close().unwrap_or_default();
            }
        }
        assert!(opened > 0, "{wal}");
    }
}

#[test]
fn a_byte_changed_in_the_catalogue_is_found_and_never_answered_with() {
    change(CATALOGUE, every_byte, 5);
}

#[test]
fn a_byte_changed_in_the_document_database_is_found_and_never_answered_with() {
    change(DOCUMENTS, every_byte, 5);
}

/// A row that was deleted has a checksum that is right.
#[test]
fn a_changed_number_of_rows_brings_back_nothing_that_was_deleted() {
    for name in [CATALOGUE, DOCUMENTS] {
        change(name, every_count, 9);
    }
}
