//! How columns changed: recorded with the change, covered by a checksum, and absent from older layouts.

use std::path::Path;

use forebay_base::rows::{RowHasher, RowSet};
use forebay_sink::{
    ColumnType, Document, DocumentSink as _, Field, Position, RowSink as _, Sink as _, Value,
};
use forebay_sqlite::{COLUMN_CHANGES_MAX, ColumnChange, SqliteReader, SqliteSink};
use rusqlite::Connection;

fn field(path: &str, ty: ColumnType) -> Field<'_> {
    Field { path, ty }
}

/// Writes one row with NULL in the column of each field.
fn write(sink: &mut SqliteSink, at: u64, fields: &[Field<'_>]) {
    let document = Document { id: at, received_ms: at, raw: b"{}" };
    sink.set_received(i64::try_from(at).unwrap() * 1_000);
    let mut writer = sink.row_writer(Position(at), "t", fields).unwrap();
    writer.write(&document, &vec![Value::Null; fields.len()]).unwrap();
    writer.finish().unwrap();
}

/// A table that got two columns, one more, and then lost one while another was widened.
fn furnish(path: &Path) -> SqliteSink {
    let mut sink = SqliteSink::open(path).unwrap();
    let (a, b) = (field("a", ColumnType::Integer), field("b", ColumnType::Text));
    write(&mut sink, 1, &[a, b]);
    write(&mut sink, 2, &[a, b, field("c.d", ColumnType::Boolean)]);
    sink.commit(Position(2)).unwrap();
    sink.set_received(3_000);
    let fields = [field("a", ColumnType::Real), field("c.d", ColumnType::Boolean)];
    sink.reshape(Position(3), "t", &fields, &mut |_, _| {}).unwrap();
    sink.commit(Position(3)).unwrap();
    sink
}

fn changes(sink: &SqliteSink) -> Vec<ColumnChange> {
    let reader = sink.reader().unwrap();
    assert_eq!(reader.check().unwrap(), []);
    let (info, history) = reader.schema_history("t").unwrap().unwrap();
    assert_eq!(Some(&history.schema), sink.schema("t"));
    assert_eq!(info.name, "t");
    history.changes
}

fn place() -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sink.sqlite");
    (dir, path)
}

#[test]
fn every_column_that_was_added_widened_or_removed_is_recorded_in_order() {
    let (_dir, path) = place();
    let mut sink = furnish(&path);
    let change = |number, at, after_id, (path, name): (&str, &str), before, after| ColumnChange {
        number,
        at,
        changed_ms: at * 1_000,
        after_id,
        path: path.into(),
        name: name.into(),
        before,
        after,
    };
    use ColumnType::{Boolean, Integer, Real, Text};
    let expected = [
        change(1, 1, None, ("a", "a"), None, Some(Integer)),
        change(2, 1, None, ("b", "b"), None, Some(Text)),
        change(3, 2, Some(1), ("c.d", "c_d"), None, Some(Boolean)),
        change(4, 3, Some(2), ("b", "b"), Some(Text), None),
        change(5, 3, Some(2), ("a", "a"), Some(Integer), Some(Real)),
    ];
    assert_eq!(changes(&sink), expected);
    assert_eq!(sink.reader().unwrap().schema_history("u").unwrap(), None);

    // A change that was rolled back was not made.
    write(&mut sink, 4, &[field("e", Text)]);
    sink.roll_back().unwrap();
    assert_eq!(changes(&sink), expected);
    // Nothing is recorded where nothing changes.
    write(&mut sink, 4, &[field("a", Real)]);
    sink.commit(Position(4)).unwrap();
    assert_eq!(changes(&sink), expected);
    // Another process continues.
    drop(sink);
    let mut sink = SqliteSink::open(&path).unwrap();
    write(&mut sink, 5, &[field("e", Text)]);
    sink.commit(Position(5)).unwrap();
    assert_eq!(changes(&sink)[5], change(6, 5, Some(4), ("e", "e"), None, Some(Text)));

    sink.clear(Position(6), "t", 5).unwrap();
    sink.commit(Position(6)).unwrap();
    assert_eq!(changes(&sink), []);
}

#[test]
fn the_newest_changes_are_kept_up_to_a_limit() {
    let (_dir, path) = place();
    let mut sink = SqliteSink::open(&path).unwrap();
    let mut last = 0;
    // The column changes its type with each write.
    for at in 1..=COLUMN_CHANGES_MAX + 3 {
        let ty = if at % 2 == 0 { ColumnType::Text } else { ColumnType::Integer };
        sink.reshape(Position(at), "t", &[field("a", ty)], &mut |_, _| {}).unwrap();
        let document = Document { id: at, received_ms: at, raw: b"{}" };
        if at == 1 {
            sink.write_documents(Position(at), "t", &[document]).unwrap();
        }
        last = at;
    }
    sink.commit(Position(last)).unwrap();
    let changes = changes(&sink);
    let numbers: Vec<u64> = changes.iter().map(|change| change.number).collect();
    assert_eq!(numbers, (4..=last).collect::<Vec<_>>());
}

#[test]
fn a_change_of_a_column_that_was_altered_is_found() {
    for sql in [
        "DELETE FROM _forebay_column_changes",
        "DELETE FROM _forebay_column_changes WHERE number = 5",
        "DELETE FROM _forebay_column_changes WHERE number = 1",
        "UPDATE _forebay_column_changes SET changed_ms = 1 WHERE number = 3",
        "UPDATE _forebay_column_changes SET at = 9 WHERE number = 3",
        "UPDATE _forebay_column_changes SET after_id = NULL WHERE number = 3",
        "UPDATE _forebay_column_changes SET path = 'x' WHERE number = 3",
        "UPDATE _forebay_column_changes SET name = 'x' WHERE number = 3",
        "UPDATE _forebay_column_changes SET type_before = 'text' WHERE number = 3",
        "UPDATE _forebay_column_changes SET type = 'unknown' WHERE number = 3",
        "UPDATE _forebay_column_changes SET number = 6 WHERE number = 5",
        "INSERT INTO _forebay_column_changes SELECT namespace, 6, at, changed_ms, after_id, path,
           name, type_before, type FROM _forebay_column_changes WHERE number = 5",
    ] {
        let (_dir, path) = place();
        drop(furnish(&path));
        Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        let reader = SqliteReader::open(&path).unwrap();
        assert!(reader.schema_history("t").is_err(), "{sql}");
        let found = reader.check().unwrap();
        assert_eq!(found[0].namespace.as_deref(), Some("t"), "{sql}: {found:?}");
    }
    // One of a namespace that does not exist is seen by the check alone.
    let (_dir, path) = place();
    drop(furnish(&path));
    let sql =
        "INSERT INTO _forebay_column_changes VALUES ('u', 1, 1, 1, 1, 'p', 'n', NULL, 'text')";
    Connection::open(&path).unwrap().execute_batch(sql).unwrap();
    let found = SqliteReader::open(&path).unwrap().check().unwrap();
    assert!(
        found[0].found.contains("1 changes of columns of namespaces that do not exist"),
        "{found:?}"
    );
}

#[test]
fn a_database_of_layout_4_is_upgraded_keeps_every_checksum_and_has_no_history() {
    let (_dir, path) = place();
    let sink = furnish(&path);
    let (identity, extents) = (sink.identity(), sink.extents());
    drop(sink);
    let db = Connection::open(&path).unwrap();
    remove_history(&db);
    db.execute_batch("PRAGMA user_version = 4").unwrap();
    drop(db);
    let mut sink = SqliteSink::open(&path).unwrap();
    assert_eq!((sink.identity(), sink.extents()), (identity, extents));
    assert_eq!(changes(&sink), []);
    write(&mut sink, 9, &[field("e", ColumnType::Text)]);
    sink.commit(Position(9)).unwrap();
    let changes = changes(&sink);
    assert_eq!((changes.len(), changes[0].number, &*changes[0].path), (1, 1, "e"));
}

/// Removes what layout 5 added, and computes the checksums over it as the documentation of the format
/// defines them. The database must have no row that was changed.
pub(crate) fn remove_history(db: &Connection) {
    db.execute_batch("DROP TABLE _forebay_column_changes").unwrap();
    let mut set = RowSet::default();
    let mut hasher = RowHasher::default();
    let mut statement = db
        .prepare(
            "SELECT namespace, table_name, row_count, first_id, last_id, rows_digest, rewritten_at,
               undecided FROM _forebay_namespaces",
        )
        .unwrap();
    let mut rows = statement.query([]).unwrap();
    while let Some(row) = rows.next().unwrap() {
        let text = |index| row.get::<_, String>(index).unwrap();
        let number = |index| row.get::<_, Option<i64>>(index).unwrap();
        let (namespace, table) = (text(0), text(1));
        hasher.start().text(b"_forebay_columns").text(namespace.as_bytes());
        let mut columns = db
            .prepare(
                "SELECT path, name, type FROM _forebay_columns WHERE namespace = ?1 ORDER BY ordinal",
            )
            .unwrap();
        let mut columns = columns.query([&namespace]).unwrap();
        while let Some(column) = columns.next().unwrap() {
            for index in 0..3 {
                hasher.text(column.get::<_, String>(index).unwrap().as_bytes());
            }
        }
        let sql = "SELECT sql FROM sqlite_schema WHERE name = ?1";
        let sql: String = db.query_row(sql, [&table], |row| row.get(0)).unwrap();
        let schema_checksum = hasher.text(sql.as_bytes()).finish().cast_signed();
        hasher.start().text(b"_forebay_namespaces");
        hasher.text(namespace.as_bytes()).text(table.as_bytes());
        for value in [number(2), number(3), number(4), number(5), Some(schema_checksum)] {
            integer(&mut hasher, value);
        }
        if number(6).is_some() || number(7) != Some(0) {
            integer(&mut hasher, number(6));
            integer(&mut hasher, number(7));
        }
        let checksum = hasher.finish();
        set.insert(checksum);
        let update = "UPDATE _forebay_namespaces SET schema_checksum = ?2, checksum = ?3 WHERE namespace = ?1";
        db.execute(update, (&namespace, schema_checksum, checksum.cast_signed())).unwrap();
    }
    let (identity, position): (Vec<u8>, Option<i64>) = db
        .query_row("SELECT identity, position FROM _forebay_state", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .unwrap();
    hasher.start().text(b"_forebay_state").blob(&identity);
    integer(&mut hasher, position);
    hasher.integer(set.count.cast_signed()).integer(set.digest.cast_signed());
    let update = "UPDATE _forebay_state SET namespaces_digest = ?1, checksum = ?2";
    let checksum = hasher.finish().cast_signed();
    db.execute(update, (set.digest.cast_signed(), checksum)).unwrap();
}

fn integer(hasher: &mut RowHasher, value: Option<i64>) {
    match value {
        Some(value) => hasher.integer(value),
        None => hasher.null(),
    };
}
