//! Rows that change: what is remembered of them is verified, and older layouts have none of it.

use std::path::Path;

use forebay_sink::{Document, DocumentSink as _, Position, RowSink as _, Sink as _};
use forebay_sqlite::{Change, ChangeKind, SqliteReader, SqliteSink};
use rusqlite::Connection;

fn document(id: u64) -> Document<'static> {
    Document { id, received_ms: 1, raw: b"{}" }
}

/// Rows 1 to 8, of which 3 was replaced and 5 and 8 were deleted; and a namespace that was dropped.
fn furnish(path: &Path) -> SqliteSink {
    let mut sink = SqliteSink::open(path).unwrap();
    let rows: Vec<Document<'_>> = (1..9).map(document).collect();
    sink.write_documents(Position(1), "t", &rows).unwrap();
    sink.write_documents(Position(1), "gone", &rows).unwrap();
    sink.commit(Position(1)).unwrap();
    let new = Document { id: 3, received_ms: 9, raw: b"{\"a\":1}" };
    sink.replace(Position(2), "t", &[], &new, &[]).unwrap();
    sink.remove(Position(3), "t", 5).unwrap();
    sink.remove(Position(4), "t", 8).unwrap();
    sink.clear(Position(5), "gone", 8).unwrap();
    sink.commit(Position(5)).unwrap();
    sink
}

fn place() -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sink.sqlite");
    (dir, path)
}

#[test]
fn changes_are_read_in_order_after_a_position() {
    let (_dir, path) = place();
    let sink = furnish(&path);
    let reader = sink.reader().unwrap();
    assert_eq!(reader.check().unwrap(), []);
    let change = |id, at, kind| Change { id, at, kind };
    let all = [
        change(3, 2, ChangeKind::Replaced),
        change(5, 3, ChangeKind::Deleted),
        change(8, 4, ChangeKind::Deleted),
    ];
    for after in 0..6 {
        let page = reader.changes("t", after, 2).unwrap();
        let expected: Vec<Change> = all.into_iter().filter(|one| one.at > after).collect();
        assert_eq!(page.more, expected.len() > 2);
        assert_eq!(page.changes, expected.into_iter().take(2).collect::<Vec<_>>());
        assert_eq!(page.position, Some(Position(5)));
    }
    let dropped = reader.changes("gone", 4, 2).unwrap();
    assert_eq!((dropped.dropped_at, dropped.dropped_id), (Some(5), Some(8)));
    assert_eq!(reader.changes("gone", 5, 2).unwrap().dropped_at, None);
    let infos = reader.namespaces().unwrap();
    let dropped: Vec<bool> = infos.iter().map(|info| info.is_dropped).collect();
    assert_eq!(dropped, [true, false]);
    assert_eq!(reader.document("t", 5).unwrap(), None);
    assert_eq!(reader.newest_change("t", 3).unwrap(), Some(2));
}

#[test]
fn what_was_held_before_rows_changed_is_compared_in_number() {
    let (_dir, path) = place();
    let mut sink = SqliteSink::open(&path).unwrap();
    let rows: Vec<Document<'_>> = (1..9).map(document).collect();
    sink.write_documents(Position(1), "t", &rows).unwrap();
    sink.commit(Position(1)).unwrap();
    let extents = sink.extents();
    drop(sink);
    std::fs::remove_file(&path).unwrap();
    let reader = furnish(&path).reader().unwrap();
    let mut held = extents.clone();
    assert_eq!(reader.check_against(&held, Position(1)).unwrap(), []);
    held[0].rows.count += 1;
    assert_eq!(reader.check_against(&held, Position(1)).unwrap().len(), 1);
    // After the newest change, everything is compared.
    let damage = reader.check_against(&extents, Position(5)).unwrap();
    assert_eq!(damage.len(), 1, "{damage:?}");
    held[0].namespace = "gone".into();
    assert_eq!(reader.check_against(&held, Position(1)).unwrap(), [], "dropped since");
}

#[test]
fn a_change_that_was_altered_is_found() {
    for (sql, is_seen_by_reads) in [
        ("DELETE FROM _forebay_changes WHERE id = 5", true),
        ("DELETE FROM _forebay_changes WHERE id = 3", false),
        ("UPDATE _forebay_changes SET kind = 1 WHERE id = 5", true),
        ("UPDATE _forebay_changes SET at = 7 WHERE id = 5", true),
        ("UPDATE _forebay_changes SET id = 6 WHERE id = 5", true),
        ("INSERT INTO _forebay_changes VALUES ('other', 1, 1, 2, 0)", false),
        ("DELETE FROM t WHERE _id = 4", true),
        ("UPDATE _forebay_namespaces SET deleted_count = 3 WHERE namespace = 't'", true),
        ("UPDATE _forebay_namespaces SET dropped_id = 7 WHERE namespace = 'gone'", true),
    ] {
        let (_dir, path) = place();
        drop(furnish(&path));
        Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        let reader = SqliteReader::open(&path).unwrap();
        let found = reader.check();
        assert!(found.as_ref().map_or(true, |damage| !damage.is_empty()), "{sql}: {found:?}");
        let read = reader.documents("t", None, Default::default());
        let listed = reader.namespaces();
        assert_eq!(read.is_err() || listed.is_err(), is_seen_by_reads, "{sql}: {read:?}");
    }
}

#[test]
fn a_database_of_layout_3_is_upgraded_and_keeps_every_checksum() {
    let (_dir, path) = place();
    let mut sink = SqliteSink::open(&path).unwrap();
    sink.write_documents(Position(1), "t", &[document(1), document(2)]).unwrap();
    sink.set_undecided("t", true).unwrap();
    sink.commit(Position(1)).unwrap();
    let (identity, extents) = (sink.identity(), sink.extents());
    drop(sink);
    let columns = [
        "change_count",
        "changes_digest",
        "deleted_count",
        "changed_at",
        "removed_at",
        "dropped_at",
        "dropped_id",
    ];
    let db = Connection::open(&path).unwrap();
    crate::history::remove_history(&db);
    for column in columns {
        let sql = format!("ALTER TABLE _forebay_namespaces DROP COLUMN {column}");
        db.execute_batch(&sql).unwrap();
    }
    db.execute_batch("DROP TABLE _forebay_changes; PRAGMA user_version = 3").unwrap();
    drop(db);
    let mut sink = SqliteSink::open(&path).unwrap();
    assert_eq!((sink.identity(), sink.extents()), (identity, extents));
    assert_eq!(sink.reader().unwrap().check().unwrap(), []);
    assert!(sink.reader().unwrap().namespaces().unwrap()[0].undecided);
    sink.remove(Position(2), "t", 2).unwrap();
    sink.commit(Position(2)).unwrap();
    assert_eq!(sink.reader().unwrap().check().unwrap(), []);
}
