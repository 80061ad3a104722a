//! SQLite passes the acceptance suite, and what is particular to it.

use std::path::Path;
use std::sync::Arc;

use rusqlite::Connection;
use serde_json::json;

use super::{SqliteDestination, SqliteSource};
use crate::acceptance::{self, Capabilities};
use crate::config::StreamSettings;
use crate::connector::{Destination, Source};
use crate::native::hash::Hasher;

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
        let (context, _cancel) = crate::run::Context::new("test");
        let (mut out, mut batches) =
            crate::run::Outlet::new(crate::run::Budget::new(1 << 20), context);
        open.read(0, &mut out).await.unwrap();
        drop(out);
        let read = batches.recv().await.unwrap();
        let crate::Rows::Records(read) = &read.rows else { panic!("tuples") };
        let (is, was) = (read.column(0), batch.column(0));
        // Money is a number without a unit there.
        if columns[0].sql_type != "money" {
            assert_eq!(open.columns()[0].sql_type, columns[0].sql_type);
        }
        assert_eq!(is, was, "{}", columns[0].sql_type);
    }
}
