//! SQLite passes the acceptance suite, and what is particular to it.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{AsArray as _, RecordBatch};
use arrow::datatypes::Int64Type;
use forebay_pgcopy::Column;
use forebay_sdk::acceptance::{self, Capabilities};
use forebay_sdk::connector::{
    Destination, Division, Form, LedgerEntry, Load, Opening, Source, Unit,
};
use forebay_sdk::hash::Hasher;
use forebay_sdk::run::{Budget, Context, Outlet};
use forebay_sdk::settings::{OnDataError, StreamSettings, TargetSettings, WriteMode};
use forebay_sdk::{Batch, Rows};
use rusqlite::Connection;
use serde_json::json;

use super::{SqliteDestination, SqliteSource};

fn source(path: &Path) -> Arc<dyn Source> {
    Arc::new(SqliteSource::new(serde_json::from_value(json!({ "path": path })).unwrap()))
}

fn destination(path: &Path) -> Arc<dyn Destination> {
    let settings = serde_json::from_value(json!({ "path": path })).unwrap();
    Arc::new(SqliteDestination::new(&settings))
}

fn stream(name: &str) -> StreamSettings {
    serde_json::from_value(json!({ "name": name })).unwrap()
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source())
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

#[tokio::test]
async fn a_file_of_sqlite_is_a_destination() {
    let directory = tempfile::tempdir().unwrap();
    let destination = destination(&directory.path().join("a b.sqlite"));
    let capabilities = Capabilities { replace: true, upsert: true };
    if let Err(failure) = acceptance::destination(&destination, capabilities).await {
        panic!("{}", chain(&failure));
    }
}

#[tokio::test]
async fn a_table_of_sqlite_is_a_source() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let columns = acceptance::columns();
    let batch = acceptance::rows(&columns, 0..300);
    acceptance::fill(&destination(&path), "t \"x\"", &columns, &[&batch]).await.unwrap();
    // Types whose values are kept, but not the name of the type, are hashed as what they are read as.
    let mut hasher = Hasher::new(&columns).unwrap();
    hasher.add(&batch).unwrap();
    if let Err(failure) =
        acceptance::source(&source(&path), &stream("t \"x\""), hasher.content()).await
    {
        panic!("{}", chain(&failure));
    }
}

#[tokio::test]
async fn columns_are_what_is_found_where_that_is_not_what_is_declared() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let connection = Connection::open(&path).unwrap();
    connection
        .execute_batch(
            "CREATE TABLE t (a INTEGER PRIMARY KEY, b INT, c BOOLEAN, d, e DATE, f SMALLINT, g REAL,
                 h VARCHAR(3) NOT NULL, i DECIMAL(4,2), j DATETIME, k BLOB);
             INSERT INTO t VALUES (1, 1, 1, 1, '2024-01-02', 7, 1, 'abcdef', 1.5, 17, x'00'),
                 (2, 'x', 0, 1.5, '2024-01-03', 70000, 'NaN', 'b', 2, 18, NULL);
             CREATE VIEW v AS SELECT a, h FROM t;",
        )
        .unwrap();
    let discovered = source(&path).discover().await.unwrap();
    let names: Vec<&str> = discovered.iter().map(|stream| &*stream.name).collect();
    assert_eq!(names, ["t", "v"]);
    assert_eq!(discovered[0].primary_key, ["a"]);
    let open = acceptance::open_source(&source(&path), &stream("t")).await.unwrap();
    let types: Vec<(&str, bool)> =
        open.columns().iter().map(|column| (&*column.sql_type, column.nullable)).collect();
    let expected = [
        ("bigint", false),
        ("text", true),
        ("boolean", true),
        ("double precision", true),
        ("date", true),
        ("bigint", true),
        ("double precision", true),
        ("character varying(3)", false),
        ("numeric", true),
        ("bigint", true),
        ("bytea", true),
    ];
    assert_eq!(types, expected);
}

/// What comes back of each column, where that is not what went in.
#[tokio::test]
async fn every_value_is_read_back_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    for (at, column) in acceptance::columns().into_iter().enumerate().skip(1) {
        let path = directory.path().join(format!("db{at}"));
        let columns = [column];
        let batch = acceptance::rows(&columns, 0..30);
        acceptance::fill(&destination(&path), "t", &columns, &[&batch]).await.unwrap();
        let open = acceptance::open_source(&source(&path), &stream("t")).await.unwrap();
        let (context, _cancel) = Context::new("test");
        let (mut out, mut batches) = Outlet::new(Budget::new(1 << 20), context).unwrap();
        open.read(0, &mut out).await.unwrap();
        drop(out);
        let read = batches.recv().await.unwrap().unwrap();
        let Rows::Records(read) = &read.rows else { panic!("tuples") };
        let (is, was) = (read.column(0), batch.column(0));
        // Money is a number without a unit there.
        if columns[0].sql_type != "money" {
            assert_eq!(open.columns()[0].sql_type, columns[0].sql_type);
        }
        assert_eq!(is, was, "{}", columns[0].sql_type);
    }
}

fn settings(into: &str, write_mode: WriteMode) -> TargetSettings {
    TargetSettings {
        pipeline: "p".into(),
        stream: "s".into(),
        into: into.into(),
        write_mode,
        primary_key: if write_mode == WriteMode::Upsert { vec!["id".into()] } else { Vec::new() },
        on_data_error: Default::default(),
        schema_evolution: Default::default(),
        load_method: Default::default(),
        feed: forebay_sdk::settings::FeedForm::Apply,
    }
}

/// Loads rows as one unit.
async fn load(
    path: &Path,
    settings: &TargetSettings,
    columns: &[Column],
    batch: RecordBatch,
    id: &str,
) -> forebay_sdk::connector::Result<LedgerEntry> {
    let (context, _cancel) = Context::new("r");
    let unit = Unit { name: "u".into(), from: None, to: None, rows: None, bytes: None };
    let load = Load {
        id: id.into(),
        fingerprint: String::new(),
        units: vec![unit.clone()],
        since: None,
        is_stable: true,
        round: forebay_sdk::connector::Round::default(),
        is_finished: false,
        cursor: None,
    };
    let target = destination(path).open(settings, columns, &context).await?;
    target.prepare(&load).await?;
    let mut writer = target.writer(&load, &unit).await?;
    writer.write(Batch::unbounded(Rows::Records(batch))).await?;
    let entry = LedgerEntry {
        pipeline: "p".into(),
        stream: "s".into(),
        load: id.into(),
        run: "r".into(),
        unit: "u".into(),
        rows: 0,
        dead: 0,
        hash: String::new(),
    };
    let entry = writer.commit(entry).await?;
    target.finish(&load).await?;
    Ok(entry)
}

fn one<T: rusqlite::types::FromSql>(path: &Path, sql: &str) -> T {
    Connection::open(path).unwrap().query_row(sql, [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn rows_a_table_does_not_take_are_put_aside_and_the_others_go_through() {
    let directory = tempfile::tempdir().unwrap();
    let columns = acceptance::plain_columns();
    let batch = acceptance::rows(&columns, 0..10);
    for (mode, letters) in [(OnDataError::Fail, 0), (OnDataError::Skip, 0), (OnDataError::Dlq, 3)] {
        let path = directory.path().join(format!("{mode:?}"));
        let connection = Connection::open(&path).unwrap();
        let table = "CREATE TABLE t (id BIGINT CHECK (id % 3 <> 1) NOT NULL, note TEXT, \
                     amount DOUBLE PRECISION, \"is it\" BOOLEAN)";
        connection.execute_batch(table).unwrap();
        let settings = TargetSettings { on_data_error: mode, ..settings("t", WriteMode::Append) };
        let loaded = load(&path, &settings, &columns, batch.clone(), "1").await;
        if mode == OnDataError::Fail {
            let error = chain(&loaded.unwrap_err());
            assert!(error.contains("refuses a row"), "{error}");
            assert_eq!(one::<u32>(&path, "SELECT count(*) FROM t"), 0);
            assert_eq!(one::<u32>(&path, "SELECT count(*) FROM _forebay_ledger"), 0);
            continue;
        }
        let entry = loaded.unwrap();
        assert_eq!((entry.rows, entry.dead), (7, 3));
        let (context, _cancel) = Context::new("r");
        let target = destination(&path).open(&settings, &columns, &context).await.unwrap();
        let content = target.content().await.unwrap();
        assert_eq!((content.rows, content.to_string()), (7, entry.hash));
        assert_eq!(one::<u32>(&path, "SELECT count(*) FROM _forebay_dead_letters"), letters);
        if mode == OnDataError::Dlq {
            let row: String = one(&path, "SELECT row FROM _forebay_dead_letters ORDER BY position");
            assert!(row.starts_with("{\"id\":1,\"note\":"), "{row}");
        }
    }
}

#[tokio::test]
async fn a_table_follows_the_columns_that_come_and_refuses_others() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let all = acceptance::plain_columns();
    let append = settings("t", WriteMode::Append);
    load(&path, &append, &all[..2], acceptance::rows(&all[..2], 0..3), "1").await.unwrap();
    load(&path, &append, &all, acceptance::rows(&all, 3..6), "2").await.unwrap();
    assert_eq!(one::<u32>(&path, "SELECT count(*) FROM t WHERE amount IS NOT NULL"), 2);
    // A column that does not come any more has its default.
    load(&path, &append, &all[..2], acceptance::rows(&all[..2], 6..9), "3").await.unwrap();
    assert_eq!(one::<u32>(&path, "SELECT count(*) FROM t"), 9);
    let mut other = all.clone();
    other[1] = forebay_sdk::values::types::column("note", "bigint").unwrap();
    let refused = load(&path, &append, &other, acceptance::rows(&other, 0..1), "4").await;
    let error = chain(&refused.unwrap_err());
    assert!(error.contains("column \"note\" of t is TEXT, but bigint in the source"), "{error}");
    assert_eq!(one::<u32>(&path, "SELECT count(*) FROM t"), 9);
    let replace = settings("t", WriteMode::Replace);
    load(&path, &replace, &other, acceptance::rows(&other, 0..1), "5").await.unwrap();
    assert_eq!(one::<u32>(&path, "SELECT count(*) FROM t"), 1);
}

#[tokio::test]
async fn replacing_keeps_what_others_made_of_the_table() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let columns = acceptance::plain_columns();
    let replace = settings("t", WriteMode::Replace);
    load(&path, &replace, &columns, acceptance::rows(&columns, 0..3), "1").await.unwrap();
    let made = "CREATE INDEX i ON t (id); CREATE VIEW v AS SELECT id FROM t";
    Connection::open(&path).unwrap().execute_batch(made).unwrap();
    load(&path, &replace, &columns, acceptance::rows(&columns, 5..9), "2").await.unwrap();
    assert_eq!(one::<u32>(&path, "SELECT count(*) FROM sqlite_schema WHERE name IN ('i', 'v')"), 2);
    assert_eq!(one::<u32>(&path, "SELECT min(id) FROM v"), 5);
    // With other columns the table is another; the view finds it by its name.
    load(&path, &replace, &columns[..2], acceptance::rows(&columns[..2], 7..9), "3").await.unwrap();
    assert_eq!(one::<u32>(&path, "SELECT min(id) FROM v"), 7);
}

#[tokio::test]
async fn upsert_needs_an_index_and_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let columns = acceptance::plain_columns();
    let append = settings("t", WriteMode::Append);
    load(&path, &append, &columns, acceptance::rows(&columns, 0..3), "1").await.unwrap();
    let upsert = settings("t", WriteMode::Upsert);
    let refused = load(&path, &upsert, &columns, acceptance::rows(&columns, 0..3), "2").await;
    let error = chain(&refused.unwrap_err());
    assert!(error.contains("has no unique index of (\"id\")"), "{error}");
    Connection::open(&path).unwrap().execute_batch("CREATE UNIQUE INDEX i ON t (id)").unwrap();
    load(&path, &upsert, &columns, acceptance::rows(&columns, 2..5), "3").await.unwrap();
    assert_eq!(one::<u32>(&path, "SELECT count(*) FROM t"), 5);
}

#[tokio::test]
async fn incremental_continues_after_the_last_row_and_its_tie_breaker() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let connection = Connection::open(&path).unwrap();
    connection
        .execute_batch(
            "CREATE TABLE t (id INTEGER PRIMARY KEY, at TEXT);
             INSERT INTO t VALUES (1, 'b'), (2, 'a'), (3, NULL), (4, 'b');",
        )
        .unwrap();
    let stream: StreamSettings = serde_json::from_value(json!({
        "name": "t", "sync_mode": "incremental", "cursor_field": "at", "tie_breaker_field": "id"
    }))
    .unwrap();
    let open = async |since| {
        let opening = Opening {
            form: Form::PlainRecords,
            since,
            division: Division::Stable,
            unit_size: 1 << 20,
            batch_size: 1 << 20,
            memory: 32 << 20,
            parallelism: 1,
            snapshot: None,
        };
        let (context, _cancel) = Context::new("test");
        let open = source(&path).open(&stream, &opening, &context).await.unwrap();
        let warnings = context.warnings();
        let is_noted = warnings.iter().all(|warning| open.notes().contains(warning));
        assert!(is_noted, "{warnings:?}");
        let (mut out, mut batches) = Outlet::new(Budget::new(1 << 20), context).unwrap();
        if !open.units().is_empty() {
            open.read(0, &mut out).await.unwrap();
        }
        drop(out);
        let mut ids = Vec::new();
        while let Some(batch) = batches.recv().await.unwrap() {
            let Rows::Records(records) = &batch.rows else { panic!("tuples") };
            ids.extend(records.column(0).as_primitive::<Int64Type>().values().iter().copied());
        }
        (ids, open.cursor(), warnings)
    };
    let (ids, first, warnings) = open(None).await;
    assert_eq!((ids, warnings), (vec![1, 2, 3, 4], vec![]));
    let (ids, same, warnings) = open(first.clone()).await;
    assert_eq!((ids, &same), (vec![], &first));
    // One that the first run has read.
    let [warning] = &*warnings else { panic!("{warnings:?}") };
    assert!(warning.starts_with("1 rows of t have no value in \"at\""), "{warning}");
    connection
        .execute_batch("INSERT INTO t VALUES (5, 'a'), (6, 'b'), (7, 'c'), (8, NULL), (9, NULL)")
        .unwrap();
    let (ids, next, warnings) = open(first).await;
    assert_eq!(ids, [6, 7]);
    let [warning] = &*warnings else { panic!("{warnings:?}") };
    assert!(warning.starts_with("3 rows of t have no value in \"at\""), "{warning}");
    assert_eq!(next.unwrap().value, "text c");
}

#[tokio::test]
async fn a_cursor_that_nothing_can_follow_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let connection = Connection::open(&path).unwrap();
    let table = "CREATE TABLE t (id INTEGER PRIMARY KEY, at REAL); INSERT INTO t VALUES (1, 1.5), (2, 9e999)";
    connection.execute_batch(table).unwrap();
    let stream: StreamSettings = serde_json::from_value(json!({
        "name": "t", "sync_mode": "incremental", "cursor_field": "at"
    }))
    .unwrap();
    let refused = acceptance::open_source(&source(&path), &stream).await.map(drop).unwrap_err();
    let refused = chain(&refused);
    assert!(refused.contains("no later value is greater"), "{refused}");
}

#[tokio::test]
async fn a_source_sees_one_moment_of_a_file_that_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let columns = acceptance::plain_columns();
    let append = settings("t", WriteMode::Append);
    let batch = acceptance::rows(&columns, 0..400);
    load(&path, &append, &columns, batch.clone(), "1").await.unwrap();
    let open = acceptance::open_source(&source(&path), &stream("t")).await.unwrap();
    assert!(open.units().len() > 1, "{:?}", open.units());
    load(&path, &append, &columns, batch.clone(), "2").await.unwrap();
    let mut rows = 0;
    for unit in 0..open.units().len() {
        let (context, _cancel) = Context::new("test");
        let (mut out, mut batches) = Outlet::new(Budget::new(1 << 20), context).unwrap();
        open.read(unit, &mut out).await.unwrap();
        drop(out);
        while let Some(batch) = batches.recv().await.unwrap() {
            rows += batch.rows.count();
        }
    }
    assert_eq!(rows, 400);
}

#[tokio::test]
async fn what_a_killed_writer_left_is_rolled_back_before_a_file_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let (live, killed) = (directory.path().join("live"), directory.path().join("killed"));
    let writer = Connection::open(&live).unwrap();
    writer
        .execute_batch(
            "PRAGMA journal_mode = delete; PRAGMA cache_size = 2;
             CREATE TABLE t (id INTEGER PRIMARY KEY, s TEXT);
             WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500)
             INSERT INTO t SELECT i, hex(zeroblob(200)) FROM n;
             BEGIN; UPDATE t SET s = 'half' WHERE id < 400",
        )
        .unwrap();
    // The files as a kill in this transaction leaves them.
    for suffix in ["", "-journal"] {
        let file = |path: &Path| format!("{}{suffix}", path.display());
        std::fs::copy(file(&live), file(&killed)).unwrap();
    }
    let read_only = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let refused = Connection::open_with_flags(&killed, read_only).unwrap();
    let refused = refused.query_row("SELECT count(*) FROM t", [], |row| row.get::<_, i64>(0));
    assert!(refused.unwrap_err().to_string().contains("readonly"), "nothing is left to roll back");

    let into = settings("t", WriteMode::Append);
    assert!(destination(&killed).last_load(&into).await.unwrap().is_none());
    assert_eq!(one::<i64>(&killed, "SELECT count(*) FROM t WHERE s = 'half'"), 0);
    assert_eq!(one::<i64>(&killed, "SELECT count(*) FROM t"), 500);
}

#[tokio::test]
async fn a_file_that_was_only_begun_gets_a_write_ahead_log() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("begun");
    std::fs::write(&path, "").unwrap();
    destination(&path).check().await.unwrap();
    assert_eq!(one::<String>(&path, "PRAGMA journal_mode"), "wal");
}

#[tokio::test]
async fn what_is_no_file_or_no_table_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let memory = source(Path::new(":memory:"));
    assert!(memory.check().await.is_err());
    let path = directory.path().join("text");
    std::fs::write(&path, "no database, but long enough to be looked at").unwrap();
    assert!(source(&path).check().await.is_err());
    let path = directory.path().join("missing");
    assert!(source(&path).check().await.is_err() && !path.exists());
    assert!(destination(&path).check().await.unwrap().contains("will be created"));
    assert!(!path.exists());
    for name in ["sqlite_x", "_forebay_ledger", ""] {
        let columns = acceptance::plain_columns();
        let (context, _cancel) = Context::new("r");
        let target = settings(name, WriteMode::Append);
        assert!(destination(&path).open(&target, &columns, &context).await.is_err(), "{name}");
    }
}
