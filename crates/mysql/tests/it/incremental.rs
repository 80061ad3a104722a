//! Cursors, and rows that are committed late.

use std::sync::Arc;

use forebay_sdk::connector::{Cursor, Division, Source};
use mysql_async::prelude::Queryable as _;
use serde_json::{Value, json};

use crate::server::{database, ids, open_as, opening, own_database, rows, stream, text};

/// What a run reads after `since`, and where it ends.
async fn run(
    source: &Arc<dyn Source>,
    settings: &Value,
    since: Option<Cursor>,
    division: Division,
) -> Result<(Vec<i64>, Option<Cursor>, Vec<String>), forebay_sdk::ConnectorError> {
    let stream = stream("t", settings.clone());
    let (open, warnings) = open_as(source, &stream, opening(since, division)).await?;
    Ok((ids(&rows(&open).await?), open.cursor(), warnings))
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_read_once_by_columns_of_every_kind() {
    let Some(database) = database() else { return };
    let source = database.source(json!({}));
    for (of, first, later) in [
        ("BIGINT UNSIGNED", ["5", "18446744073709551614"], "18446744073709551615"),
        (
            "DECIMAL(40,20)",
            ["0.1", "12345678901234567890.12345678901234567889"],
            "12345678901234567890.12345678901234567890",
        ),
        ("FLOAT", ["0.1", "0.2"], "0.3"),
        ("DOUBLE", ["0.1", "0.2"], "0.30000000000000004"),
        ("DATE", ["'2024-01-01'", "'2024-02-29'"], "'2024-03-01'"),
        (
            "DATETIME(6)",
            ["'2024-01-01'", "'2024-01-01 00:00:00.000001'"],
            "'2024-01-01 00:00:00.000002'",
        ),
        (
            "TIMESTAMP(6) NULL",
            ["'2024-01-01'", "'2024-01-01 00:00:00.000001'"],
            "'2024-01-01 00:00:00.000002'",
        ),
        ("VARCHAR(20)", ["'a'", "'B'"], "'c'"),
        ("VARBINARY(20)", ["x'00'", "x'fe'"], "x'ff00'"),
    ] {
        let [one, two] = first;
        database.run(&format!(
            "DROP TABLE IF EXISTS t; CREATE TABLE t (id INT PRIMARY KEY, c {of}, INDEX (c)); \
             INSERT INTO t VALUES (7, {one}), (2, {two}), (9, NULL)"
        ));
        let settings = json!({ "sync_mode": "incremental", "cursor_field": "c" });
        let (found, cursor, warnings) =
            run(&source, &settings, None, Division::Stable).await.unwrap();
        assert_eq!(found, [2, 7], "{of}");
        assert!(warnings.iter().any(|it| it.contains("1 rows of t are not read")), "{warnings:?}");
        let again = run(&source, &settings, cursor.clone(), Division::Stable).await.unwrap();
        assert!(again.0.is_empty() && again.1 == cursor, "{of}: {again:?}");
        // One with the last value, and one after it.
        database.run(&format!("INSERT INTO t VALUES (3, {two}), (1, {later})"));
        let (found, last, _) = run(&source, &settings, cursor, Division::Stable).await.unwrap();
        assert_eq!(found, [1, 3], "{of}");
        let end = run(&source, &settings, last, Division::Stable).await.unwrap();
        assert!(end.0.is_empty(), "{of}: {end:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_appears_at_the_last_value_is_refused_or_read_again() {
    let Some(database) = database() else { return };
    database.run("CREATE TABLE t (id INT PRIMARY KEY, c INT); INSERT INTO t VALUES (5, 1), (6, 1)");
    let source = database.source(json!({}));
    let settings = json!({ "sync_mode": "incremental", "cursor_field": "c" });
    let (_, cursor, _) = run(&source, &settings, None, Division::Stable).await.unwrap();
    database.run("INSERT INTO t VALUES (4, 1)");
    let error = text(run(&source, &settings, cursor.clone(), Division::Stable).await);
    assert!(error.contains("1 rows with c = \"1\""), "{error}");
    let (found, ..) = run(&source, &settings, cursor, Division::Any).await.unwrap();
    assert_eq!(found, [4, 5, 6]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_is_committed_late_is_waited_for() {
    let Some(database) = own_database() else { return };
    database.run(
        "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, x INT, \
         at TIMESTAMP(6) DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6))",
    );
    let impatient = database.source(json!({ "wait_for_late_commits": "0s" }));
    let patient = database.source(json!({}));
    for field in ["id", "at"] {
        database.run("TRUNCATE t");
        let settings = json!({ "sync_mode": "incremental", "cursor_field": field });
        let mut late = database.client().await;
        late.query_drop("START TRANSACTION; INSERT INTO t (x) VALUES (1)").await.unwrap();
        database.run("INSERT INTO t (x) VALUES (2)");
        let refused = run(&impatient, &settings, None, Division::Stable).await.unwrap_err();
        assert!(refused.is_retryable(), "{refused:?}");
        let error = forebay_base::error_chain::chain(&refused).to_string();
        assert!(error.contains(&format!("connection {}", late.id())), "{error}");
        // One that only reads is not waited for.
        let mut reader = database.client().await;
        reader.query_drop("START TRANSACTION; SELECT * FROM t").await.unwrap();
        let waiting = run(&patient, &settings, None, Division::Stable);
        let looked = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE '%INNODB_TRX%trx_started%'";
        let committing = async {
            // It commits while the other waits, or before: either way its row has to be read.
            drop(database.query("mysql", looked));
            late.query_drop("COMMIT").await.unwrap();
        };
        let (found, ()) = tokio::join!(waiting, committing);
        assert_eq!(found.unwrap().0, [1, 2], "{field}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_are_written_while_runs_read_are_each_read_once() {
    let Some(database) = own_database() else { return };
    database.run(
        "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, at TIMESTAMP DEFAULT CURRENT_TIMESTAMP)",
    );
    let mut writers = Vec::new();
    for _ in 0..3 {
        let mut client = database.client().await;
        writers.push(tokio::spawn(async move {
            for _ in 0..40 {
                let sql = "START TRANSACTION; INSERT INTO t () VALUES (); DO SLEEP(0.01); COMMIT";
                client.query_drop(sql).await.unwrap();
            }
        }));
    }
    let source = database.source(json!({}));
    let settings = json!({ "sync_mode": "incremental", "cursor_field": "at" });
    let (mut read, mut cursor, mut is_last) = (Vec::new(), None, false);
    while !is_last {
        is_last = writers.iter().all(tokio::task::JoinHandle::is_finished);
        let (found, last, _) = run(&source, &settings, cursor, Division::Stable).await.unwrap();
        read.extend(found);
        cursor = last;
    }
    read.sort_unstable();
    let all: Vec<i64> = database
        .run("SELECT id FROM t ORDER BY id")
        .lines()
        .map(|id| id.parse().unwrap())
        .collect();
    assert_eq!((all.len(), read), (120, all));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_cannot_see_transactions_is_refused_unless_late_rows_may_be_missed() {
    let Some(database) = database() else { return };
    database.run(&format!(
        "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY); INSERT INTO t VALUES (1); \
         CREATE USER IF NOT EXISTS blind@'127.0.0.1' IDENTIFIED BY 'p'; \
         GRANT SELECT ON {}.* TO blind@'127.0.0.1'",
        database.name
    ));
    let settings = json!({ "sync_mode": "incremental", "cursor_field": "id" });
    let blind = database.source(json!({ "user": "blind", "password": "p" }));
    let error = text(run(&blind, &settings, None, Division::Stable).await);
    assert!(error.contains("PROCESS") && error.contains("allow_late_commits"), "{error}");
    let more = json!({ "user": "blind", "password": "p", "allow_late_commits": true });
    let (found, _, warnings) =
        run(&database.source(more), &settings, None, Division::Stable).await.unwrap();
    assert_eq!(found, [1]);
    assert!(warnings.iter().any(|it| it.contains("committed late")), "{warnings:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_and_columns_without_an_order_are_refused() {
    let Some(database) = own_database() else { return };
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY, e ENUM('b', 'a'), j TIME); INSERT INTO t VALUES (1, 'a', '1:00')",
    );
    let source = database.source(json!({}));
    for field in ["e", "j", "nothing"] {
        let settings = json!({ "sync_mode": "incremental", "cursor_field": field });
        let error = text(run(&source, &settings, None, Division::Stable).await);
        assert!(error.contains(&format!("column \"{field}\"")), "{error}");
    }
    database.run("SET GLOBAL read_only = 1");
    let settings = json!({ "sync_mode": "incremental", "cursor_field": "id" });
    let error = text(run(&source, &settings, None, Division::Stable).await);
    assert!(error.contains("replica"), "{error}");
}
