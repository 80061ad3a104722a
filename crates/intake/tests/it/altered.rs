//! Views that were altered, lost, or replaced by other ones.

use std::path::Path;

use forebay_intake::documents::PageLimits;
use forebay_intake::documents::decide::Wish;
use forebay_intake::{IntakeError, OpenError};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::support::{
    CATALOGUE, DOCUMENTS, block_on, check, copy, directory, findings, furnish, key, namespace,
    open, order, post, put, remove, replace, settle,
};

fn furnished() -> TempDir {
    let dir = directory();
    furnish(dir.path());
    settle(dir.path());
    dir
}

fn documents_of(dir: &Path, name: &str) -> Result<usize, String> {
    let intake = open(dir).unwrap();
    let page = block_on(intake.documents(&namespace(name), None, PageLimits::default()));
    intake.close().unwrap();
    page.map(|page| page.unwrap().documents.len()).map_err(|error| error.to_string())
}

/// Stores enough documents that some of them leave the log, and closes.
///
/// * `word`: a word in every document.
fn reclaimed(dir: &Path, word: &str) {
    let intake = open(dir).unwrap();
    block_on(async {
        for batch in 0..8 {
            let lines: Vec<String> = (0..1_000)
                .map(|n| {
                    format!(r#"{{"n":{},"word":"{word}","pad":"{n:0>60}"}}"#, batch * 1_000 + n)
                })
                .collect();
            post(&intake, "many", Wish::Table, &lines.join("\n")).await;
        }
    });
    // What is applied becomes durable, and may leave the log, at the next start.
    intake.close().unwrap();
    drop(intake);
    let intake = open(dir).unwrap();
    block_on(intake.reclaim()).unwrap();
    intake.close().unwrap();
    drop(intake);
    settle(dir);
    let left = check(dir).unwrap().log_bytes;
    assert!(left < 500_000, "{left} bytes are in the log: none of 800,000 have left it");
    assert_eq!(findings(dir), Vec::<String>::new());
}

#[test]
fn an_altered_document_is_an_error_and_found() {
    let dir = furnished();
    let dir = dir.path();
    let path = dir.join(DOCUMENTS);
    // The row has the text twice: in its column, and in the document.
    replace(&path, b"\"AMOUNT-100\"", b"\"AMOUNT-900\"");
    let found = findings(dir);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("the row with id 1 of the namespace orders"), "{found:?}");
    let intake = open(dir).unwrap();
    block_on(async {
        let error = intake.document(&namespace("orders"), 1).await.unwrap_err();
        assert!(matches!(error, IntakeError::ViewDamaged { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("row with id 1") && text.contains("forebay fsck"), "{text}");
        let page = intake.documents(&namespace("orders"), None, PageLimits::default()).await;
        assert!(matches!(page, Err(IntakeError::ViewDamaged { .. })), "{page:?}");
        // The others are what they were.
        let second = intake.document(&namespace("orders"), 2).await.unwrap().unwrap();
        assert_eq!(second.raw, order(101).as_bytes());
    });
    intake.close().unwrap();
}

#[test]
fn an_altered_column_is_found() {
    let dir = furnished();
    let path = dir.path().join(DOCUMENTS);
    replace(&path, b"customer 103", b"customer 903");
    let found = findings(dir.path());
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("the row with id 4 of the namespace orders"), "{found:?}");
}

#[test]
fn rows_exchanged_or_removed_by_sql_are_errors_and_found() {
    for change in [
        "UPDATE orders SET _id = 100 WHERE _id = 3; UPDATE orders SET _id = 3 WHERE _id = 4;
         UPDATE orders SET _id = 4 WHERE _id = 100;",
        "DELETE FROM orders WHERE _id = 3",
        "DELETE FROM orders WHERE _id = 9",
        "DELETE FROM orders",
        "INSERT INTO orders (_id, _received_ms, _checksum, _document) VALUES (10, 1, 1, '{}')",
        "UPDATE _forebay_state SET position = 5",
        "UPDATE _forebay_namespaces SET row_count = 8, last_id = 8",
        "DELETE FROM _forebay_namespaces WHERE namespace = 'orders'",
        "DELETE FROM _forebay_columns WHERE name = 'units'",
        "UPDATE _forebay_columns SET path = 'unit' WHERE name = 'units'",
    ] {
        let dir = furnished();
        let path = dir.path().join(DOCUMENTS);
        Connection::open(&path).unwrap().execute_batch(change).unwrap();
        assert!(!findings(dir.path()).is_empty(), "{change}");
        match open(dir.path()) {
            Err(error) => {
                let is_damage = matches!(error, OpenError::DocumentsDamaged { .. });
                assert!(is_damage, "{change}: {error:?}");
            }
            Ok(intake) => {
                let orders = namespace("orders");
                let page = block_on(intake.documents(&orders, None, PageLimits::default()));
                assert!(matches!(page, Err(IntakeError::ViewDamaged { .. })), "{change}: {page:?}");
                intake.close().unwrap_or_default();
            }
        }
    }
}

#[test]
fn an_altered_name_is_found_and_the_next_start_answers_to_the_right_one() {
    let dir = furnished();
    let dir = dir.path();
    replace(&dir.join(CATALOGUE), b"small-3.txt", b"small-9.txt");
    let found = findings(dir);
    assert!(found[0].starts_with("catalogue: "), "{found:?}");
    assert!(found[0].contains("notes/small-9.txt"), "{found:?}");
    let intake = open(dir).unwrap();
    block_on(async {
        assert!(intake.find(&key("notes", "small-3.txt")).await.unwrap().is_some());
        assert!(intake.find(&key("notes", "small-9.txt")).await.unwrap().is_none());
    });
    intake.close().unwrap();
    drop(intake);
    assert!(dir.join("catalogue-damaged.sqlite").exists());
    assert_eq!(findings(dir), Vec::<String>::new());
}

#[test]
fn a_catalogue_altered_by_sql_is_found_and_built_again() {
    for change in [
        "UPDATE files SET name = 'other' WHERE name = 'small-0.txt'",
        "DELETE FROM files WHERE name = 'small-0.txt'",
        "UPDATE files SET mime = 'text/html'",
        "UPDATE blobs SET refs = 0",
        "DELETE FROM blobs",
        "DELETE FROM requests",
        "UPDATE requests SET fingerprint = zeroblob(32)",
        "UPDATE meta SET value = 1 WHERE key = 'position'",
        "UPDATE meta SET value = 0 WHERE key = 'documents_erased'; DELETE FROM meta WHERE key = 'files'",
        "DELETE FROM meta",
        "DROP INDEX files_by_digest; CREATE INDEX files_by_digest ON files (digest) WHERE first = 1",
    ] {
        let dir = furnished();
        let path = dir.path().join(CATALOGUE);
        Connection::open(&path).unwrap().execute_batch(change).unwrap();
        assert!(!findings(dir.path()).is_empty(), "{change}");
        let intake = open(dir.path()).unwrap();
        let found = block_on(intake.find(&key("notes", "small-0.txt"))).unwrap().unwrap();
        assert_eq!(found.record.mime, "text/plain", "{change}");
        let large = block_on(intake.find(&key("photos", "large.bin"))).unwrap().unwrap();
        assert!(intake.read(&large).is_ok(), "{change}: the blob's file was removed");
        intake.close().unwrap();
        drop(intake);
        assert_eq!(findings(dir.path()), Vec::<String>::new(), "{change}");
    }
}

#[test]
fn a_document_database_deleted_before_anything_left_the_log_is_reported_and_built_again() {
    let dir = furnished();
    remove(dir.path(), DOCUMENTS);
    let found = findings(dir.path());
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("the log has all 27 documents"), "{found:?}");
    assert_eq!(documents_of(dir.path(), "orders"), Ok(9));
    assert_eq!(findings(dir.path()), Vec::<String>::new());
}

#[test]
fn a_document_database_deleted_after_the_log_was_reclaimed_is_found_with_or_without_the_catalogue()
{
    let dir = directory();
    let dir = dir.path();
    reclaimed(dir, "first");
    remove(dir, DOCUMENTS);
    for lost in [false, true] {
        if lost {
            remove(dir, CATALOGUE);
        }
        let found = findings(dir);
        assert!(
            found.iter().any(|found| found.contains("is missing: it held 8000 documents")),
            "{lost}: {found:?}"
        );
        let refused = open(dir);
        assert!(matches!(refused, Err(OpenError::DocumentsLost { .. })), "{lost}: {refused:?}");
        // The refused start has made an empty one.
        let found = findings(dir);
        assert!(
            found.iter().any(|found| found.contains("emptied or replaced by an older copy")),
            "{lost}: {found:?}"
        );
        remove(dir, DOCUMENTS);
    }
}

#[test]
fn an_older_copy_of_the_document_database_is_found_after_the_log_was_reclaimed() {
    let dir = directory();
    let dir = dir.path();
    furnish(dir);
    let older = directory();
    std::fs::copy(dir.join(DOCUMENTS), older.path().join(DOCUMENTS)).unwrap();
    reclaimed(dir, "first");
    remove(dir, DOCUMENTS);
    copy(older.path(), dir);
    let found = findings(dir);
    assert!(found.iter().any(|found| found.contains("replaced by an older copy")), "{found:?}");
    let refused = open(dir);
    assert!(matches!(refused, Err(OpenError::DocumentsLost { .. })), "{refused:?}");
}

#[test]
fn a_document_database_of_another_store_is_found_whether_or_not_the_log_has_its_documents() {
    for reclaims in [false, true] {
        let [one, other] = [("first", directory()), ("other", directory())].map(|(word, dir)| {
            if reclaims {
                reclaimed(dir.path(), word);
            } else {
                let intake = open(dir.path()).unwrap();
                let body = format!("{{\"word\":\"{word}\"}}");
                block_on(post(&intake, "many", Wish::Table, &body));
                intake.close().unwrap();
                drop(intake);
                settle(dir.path());
            }
            dir
        });
        // Each is as its own store left it: every checksum in it matches.
        std::fs::copy(other.path().join(DOCUMENTS), one.path().join(DOCUMENTS)).unwrap();
        let found = findings(one.path());
        let kind = if reclaims { "are not those that were stored" } else { "that the log has" };
        assert!(found.iter().any(|found| found.contains(kind)), "{reclaims}: {found:?}");
    }
}

#[test]
fn what_was_recorded_before_an_erasure_survives_later_ones() {
    let dir = directory();
    let dir = dir.path();
    for _ in 0..3 {
        reclaimed(dir, "again");
    }
    remove(dir, CATALOGUE);
    let intake = open(dir).unwrap();
    block_on(async {
        put(&intake, &key("notes", "a"), b"bytes", false).await;
        let info = intake.namespaces().await.unwrap();
        assert_eq!(info[0].row_count, 24_000);
    });
    intake.close().unwrap();
    drop(intake);
    assert_eq!(findings(dir), Vec::<String>::new());
    remove(dir, DOCUMENTS);
    let found = findings(dir);
    assert!(found.iter().any(|found| found.contains("it held 24000 documents")), "{found:?}");
}

#[test]
fn a_catalogue_that_says_what_the_log_does_not_is_found() {
    let [one, other] = ["one", "two"].map(|name| {
        let dir = directory();
        let intake = open(dir.path()).unwrap();
        block_on(put(&intake, &key("notes", name), b"the same bytes", false));
        intake.close().unwrap();
        drop(intake);
        settle(dir.path());
        dir
    });
    std::fs::copy(other.path().join(CATALOGUE), one.path().join(CATALOGUE)).unwrap();
    let found = findings(one.path());
    let names = ["\"notes/one\" is in the log and missing here", "\"notes/two\" is not in the log"];
    for name in names {
        assert!(found.iter().any(|found| found.contains(name)), "{found:?}");
    }
}

#[test]
fn a_database_that_is_no_database_is_a_finding_and_an_error_with_a_way_out() {
    let dir = furnished();
    let dir = dir.path();
    for (name, part) in [(CATALOGUE, 0..100), (DOCUMENTS, 0..100), (DOCUMENTS, 8192..9000)] {
        let kept = std::fs::read(dir.join(name)).unwrap();
        let mut bytes = kept.clone();
        bytes[part.clone()].fill(0xa5);
        std::fs::write(dir.join(name), bytes).unwrap();
        assert!(!findings(dir).is_empty(), "{name} {part:?}");
        match open(dir) {
            Ok(intake) => {
                assert_eq!(name, CATALOGUE);
                assert!(block_on(intake.find(&key("notes", "again.txt"))).unwrap().is_some());
                intake.close().unwrap();
            }
            Err(error) => {
                assert!(matches!(error, OpenError::DocumentsDamaged { .. }), "{error:?}");
                assert!(error.to_string().contains("forebay fsck"), "{error}");
                std::fs::write(dir.join(name), kept).unwrap();
            }
        }
    }
}

#[test]
fn a_catalogue_of_the_previous_version_is_built_again_and_keeps_what_was_erased() {
    let dir = directory();
    let dir = dir.path();
    reclaimed(dir, "first");
    // As version 3 had it: no checksums, and the log without the entry that version 4 writes.
    let db = Connection::open(dir.join(CATALOGUE)).unwrap();
    let erased: i64 = db
        .query_row("SELECT value FROM meta WHERE key = 'documents_erased'", [], |row| row.get(0))
        .unwrap();
    assert!(erased > 0);
    db.execute_batch(
        "ALTER TABLE files DROP COLUMN checksum; ALTER TABLE blobs DROP COLUMN checksum;
         ALTER TABLE requests DROP COLUMN checksum;
         DELETE FROM meta WHERE key NOT IN ('position', 'documents_erased');
         INSERT INTO meta VALUES ('schema', 3);",
    )
    .unwrap();
    drop(db);
    assert_eq!(documents_of(dir, "many"), Ok(1_000));
    assert_eq!(findings(dir), Vec::<String>::new());
    remove(dir, DOCUMENTS);
    assert!(!findings(dir).is_empty());
    assert!(matches!(open(dir), Err(OpenError::DocumentsLost { .. })));
}
