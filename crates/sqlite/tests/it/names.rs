//! Whatever the keys, they become columns and never SQL.

use std::collections::HashSet;

use forebay_pgcopy::quote_identifier;
use forebay_sink::conformance::key;
use forebay_sink::{ColumnType, Document, Field, Position, RowSink as _, Sink as _, Value};
use forebay_sqlite::{OwnedValue, SqliteSink};
use proptest::collection::vec;
use proptest::prelude::*;
use rusqlite::Connection;

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn quoting_gives_back_the_name(name in "[^\0]{1,40}") {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(&format!("CREATE TABLE t ({} INTEGER)", quote_identifier(&name))).unwrap();
        let found: String =
            db.query_row("SELECT name FROM pragma_table_info('t')", [], |row| row.get(0)).unwrap();
        prop_assert_eq!(found, name);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_keys_can_be_columns_and_change_nothing_else(keys in vec(key(), 1..30)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sink.sqlite");
        let keys: Vec<String> = keys.into_iter().collect::<HashSet<_>>().into_iter().collect();
        let fields: Vec<Field<'_>> =
            keys.iter().map(|key| Field { path: key, ty: ColumnType::Text }).collect();
        let values: Vec<Value<'_>> = keys.iter().map(|key| Value::Text(key)).collect();
        let mut sink = SqliteSink::open(&path).unwrap();
        let mut writer = sink.row_writer(Position(1), "t", &fields).unwrap();
        writer.write(&Document { id: 1, received_ms: 0, raw: b"{}" }, &values).unwrap();
        prop_assert_eq!(writer.finish().unwrap().refused, vec![]);
        sink.commit(Position(1)).unwrap();

        let reader = sink.reader().unwrap();
        prop_assert_eq!(reader.check().unwrap(), vec![]);
        prop_assert_eq!(reader.namespaces().unwrap().len(), 1);
        let page = reader.rows("t", None, Default::default()).unwrap();
        for (column, value) in page.schema.columns().iter().zip(&page.rows[0].values) {
            prop_assert_eq!(value, &OwnedValue::Text(column.path.clone()));
        }
        let tables: i64 = Connection::open(&path).unwrap()
            .query_row("SELECT count(*) FROM sqlite_schema WHERE type = 'table'", [], |row| row.get(0))
            .unwrap();
        prop_assert_eq!(tables, 6, "five of the sink's own and one namespace");
    }
}

/// A writer of `fields`, of which each gets its own path as its value.
fn write(sink: &mut SqliteSink, at: u64, paths: &[&str]) {
    let fields: Vec<_> = paths.iter().map(|path| Field { path, ty: ColumnType::Text }).collect();
    let values: Vec<_> = paths.iter().map(|path| Value::Text(path)).collect();
    let mut writer = sink.row_writer(Position(at), "t", &fields).unwrap();
    writer.write(&Document { id: at, received_ms: 0, raw: b"{}" }, &values).unwrap();
    assert_eq!(writer.finish().unwrap().refused, vec![]);
    sink.commit(Position(at)).unwrap();
}

#[test]
fn names_that_every_table_of_sqlite_has_can_be_columns_from_the_start_and_later() {
    const PATHS: [&str; 6] = ["rowid", "oid", "_rowid_", "ROWID", "rowid ", "main.oid"];
    let dir = tempfile::tempdir().unwrap();
    for (number, first) in [&["n"][..], &["oid", "_rowid"], &PATHS].into_iter().enumerate() {
        let mut sink = SqliteSink::open(&dir.path().join(format!("{number}.sqlite"))).unwrap();
        write(&mut sink, 1, first);
        write(&mut sink, 2, &PATHS);
        let reader = sink.reader().unwrap();
        assert_eq!(reader.check().unwrap(), vec![]);
        let page = reader.rows("t", None, Default::default()).unwrap();
        for (column, value) in page.schema.columns().iter().zip(&page.rows[1].values) {
            let path = Some(column.path.clone()).filter(|path| PATHS.contains(&&**path));
            assert_eq!(*value, path.map_or(OwnedValue::Null, OwnedValue::Text), "{column:?}");
        }
        assert_eq!(page.rows[1].id, 2);
    }
}
