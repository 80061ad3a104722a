//! One snapshot, whatever happens meanwhile.

use forebay_sdk::connector::Division;
use mysql_async::prelude::Queryable as _;
use serde_json::json;

use crate::server::{database, ids, open, open_as, opening, rows, stream, text, unit};

#[tokio::test(flavor = "multi_thread")]
async fn units_are_read_as_the_table_was_when_it_was_opened_and_its_definition_waits() {
    let Some(database) = database() else { return };
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(100)); \
         INSERT INTO t SELECT seq * 10, REPEAT('x', 100) FROM seq_1_to_1000",
    );
    let source = database.source(json!({}));
    let opening = opening(None, Division::Stable);
    let (open, _) = open_as(&source, &stream("t", json!({})), opening).await.unwrap();
    assert!(open.units().len() > 1 && open.units_are_stable(), "{:?}", open.units());
    let first = unit(&open, 0).await.unwrap();
    database.run(
        "UPDATE t SET name = 'other' WHERE id % 20 = 0; DELETE FROM t WHERE id > 5000; \
         INSERT INTO t VALUES (-5, 'new'), (7, 'new'), (9999, 'new')",
    );
    let mut client = database.client().await;
    client.query_drop("SET lock_wait_timeout = 1").await.unwrap();
    let altered = client.query_drop("ALTER TABLE t DROP COLUMN name").await;
    assert!(altered.unwrap_err().to_string().contains("Lock wait timeout"));
    let found = rows(&open).await.unwrap();
    assert_eq!(ids(&found), (1..=1000).map(|id| id * 10).collect::<Vec<_>>());
    assert!(found.iter().all(|row| row["name"].as_str().unwrap().len() == 100));
    assert_eq!(unit(&open, 0).await.unwrap(), first);
    drop(open);
    // The session ends in the background; the statement waits for it.
    client.query_drop("SET lock_wait_timeout = 30").await.unwrap();
    client.query_drop("ALTER TABLE t DROP COLUMN name").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_every_size_are_divided_and_every_row_is_in_one_unit() {
    let Some(database) = database() else { return };
    for (name, sql, values) in [
        ("signed", "BIGINT", "(-9223372036854775808), (-1), (0), (9223372036854775807)"),
        ("large", "BIGINT UNSIGNED", "(0), (9223372036854775808), (18446744073709551615)"),
        ("small", "TINYINT UNSIGNED", "(0), (1), (255)"),
    ] {
        database.run(&format!(
            "CREATE TABLE {name} (k {sql} PRIMARY KEY, pad CHAR(1) DEFAULT ''); \
             INSERT INTO {name} (k) VALUES {values}; ANALYZE TABLE {name}"
        ));
        let source = database.source(json!({}));
        let opening = opening(None, Division::Stable);
        let (open, _) = open_as(&source, &stream(name, json!({})), opening.clone()).await.unwrap();
        assert!(open.units().len() > 1, "{:?}", open.units());
        let found = rows(&open).await.unwrap();
        assert_eq!(found.len(), values.matches('(').count(), "{name}: {found:?}");
        let again = Division::As(open.units().to_vec());
        let again = crate::server::opening(None, again);
        let (again, _) = open_as(&source, &stream(name, json!({})), again).await.unwrap();
        assert_eq!(rows(&again).await.unwrap(), found);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_without_snapshots_is_refused() {
    let Some(database) = database() else { return };
    database.run("CREATE TABLE t (id INT PRIMARY KEY) ENGINE=MyISAM");
    let error = text(open(&database.source(json!({})), "t").await);
    assert!(error.contains("MyISAM") && error.contains("ENGINE=InnoDB"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_key_divides_rows_with_and_without_a_value() {
    let Some(database) = database() else { return };
    database.run(
        "CREATE TABLE t (id CHAR(36) PRIMARY KEY, k INT, pad VARCHAR(100)); \
         INSERT INTO t SELECT UUID(), IF(seq % 7 = 0, NULL, seq), REPEAT('x', 100) FROM seq_1_to_1000",
    );
    let source = database.source(json!({}));
    let by = |key: &str| stream("t", json!({ "partition_key": key }));
    let (open, _) = open_as(&source, &by("k"), opening(None, Division::Stable)).await.unwrap();
    assert!(open.units().len() > 1);
    assert_eq!(rows(&open).await.unwrap().len(), 1000);
    let error = text(open_as(&source, &by("id"), opening(None, Division::Stable)).await);
    assert!(error.contains("not an integer"), "{error}");
}
