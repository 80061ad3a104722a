//! Pipelines from a MariaDB: the oracle is its own client.

use std::process::Stdio;

use forebay_testing::MariaDb;
use tempfile::TempDir;

use crate::support::{forebay, run, run_ok, stderr};

/// A server with a database `shop`, and a user who may read it.
fn server() -> Option<MariaDb> {
    let server = MariaDb::start()?;
    server.query(
        "mysql",
        "CREATE DATABASE shop; CREATE USER reader@'127.0.0.1' IDENTIFIED BY 'geheim42'; \
         GRANT SELECT ON shop.* TO reader@'127.0.0.1'; GRANT PROCESS ON *.* TO reader@'127.0.0.1'",
    );
    Some(server)
}

/// A directory with a pipeline into SQLite.
fn pipeline(server: &MariaDb, streams: &str, more: &str) -> TempDir {
    let dir = TempDir::new().unwrap();
    let path = dir.path().display();
    std::fs::write(dir.path().join("password"), "geheim42\n").unwrap();
    let file = format!(
        "version: 1\npipeline: p\nsource:\n  use: mysql\n  config:\n    \
         url: mysql://reader@127.0.0.1:{}/shop\n    password: ${{file:{path}/password}}\n  \
         streams: {streams}\ndestination:\n  use: sqlite\n  config: {{ path: '{path}/out.sqlite' }}\n{more}",
        server.port()
    );
    std::fs::write(dir.path().join("p.yaml"), file).unwrap();
    dir
}

fn rows(dir: &TempDir) -> u64 {
    let report = run_ok(dir, &["pipeline", "run", "p.yaml", "--json"]);
    serde_json::from_str::<serde_json::Value>(&report).unwrap()["rows"].as_u64().unwrap()
}

/// The only value of a query of the destination.
fn found<T: rusqlite::types::FromSql>(dir: &TempDir, sql: &str) -> T {
    let out = rusqlite::Connection::open(dir.path().join("out.sqlite")).unwrap();
    out.query_row(sql, [], |row| row.get(0)).unwrap()
}

#[test]
fn tables_are_listed_copied_and_verified_and_the_next_runs_copy_what_is_new() {
    let Some(server) = server() else { return };
    server.query(
        "shop",
        "CREATE TABLE orders (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, amount DECIMAL(30,4), note TEXT, \
         day DATE, changed TIMESTAMP(6) DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6)); \
         INSERT INTO orders (amount, note, day) SELECT seq / 7, CONCAT('é ', seq), '2024-02-29' FROM seq_1_to_1000; \
         CREATE VIEW large AS SELECT id, amount FROM orders WHERE id > 900",
    );
    let streams =
        "[{ name: orders, sync_mode: incremental, cursor_field: changed }, { name: large }]";
    let dir = pipeline(&server, streams, "");
    let listed = run_ok(&dir, &["pipeline", "discover", "p.yaml"]);
    assert!(listed.contains("orders") && listed.contains("decimal(30,4)"), "{listed}");
    assert!(run_ok(&dir, &["pipeline", "check", "p.yaml"]).contains("MariaDB"));
    assert_eq!(rows(&dir), 1_100);
    drop(run_ok(&dir, &["pipeline", "run", "p.yaml"]));
    let row = "select id || '|' || amount || '|' || note || '|' || day from orders where id = 700";
    assert_eq!(found::<String>(&dir, row), "700|100.0000|é 700|2024-02-29");
    server.query(
        "shop",
        "UPDATE orders SET note = 'new' WHERE id <= 5; INSERT INTO orders (note) VALUES ('new')",
    );
    // The view is copied completely in every run.
    assert_eq!(rows(&dir), 6 + 101);
    assert_eq!(found::<i64>(&dir, "select count(*) from orders where note = 'new'"), 6);
    assert_eq!(found::<i64>(&dir, "select count(*) from orders"), 1_006);
}

#[test]
fn a_run_that_is_killed_at_every_commit_copies_each_row_once() {
    let Some(server) = server() else { return };
    server.query(
        "shop",
        "CREATE TABLE t (id INT PRIMARY KEY, pad VARCHAR(200)); \
         INSERT INTO t SELECT seq, REPEAT(MD5(seq), 6) FROM seq_1_to_60000; ANALYZE TABLE t",
    );
    let resources = "resources: { checkpoint_interval_bytes: 1MiB, max_batch_bytes: 64KiB }\n";
    let dir = pipeline(&server, "[{ name: t }]", resources);
    let committed = || {
        let out = rusqlite::Connection::open(dir.path().join("out.sqlite")).ok()?;
        out.query_row("select count(*) from t", [], |row| row.get::<_, i64>(0)).ok()
    };
    let (mut kills, mut seen) = (0, 0);
    while kills < 4 {
        let mut running = forebay(&dir)
            .args(["pipeline", "run", "p.yaml"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        while committed().unwrap_or(0) <= seen && running.try_wait().unwrap().is_none() {}
        if running.try_wait().unwrap().is_some() {
            break;
        }
        running.kill().unwrap();
        running.wait().unwrap();
        (kills, seen) = (kills + 1, committed().unwrap_or(0));
    }
    assert!(kills > 0, "the run had several commits");
    if seen < 60_000 {
        drop(run_ok(&dir, &["pipeline", "run", "p.yaml"]));
    }
    assert_eq!(found::<i64>(&dir, "select count(*) from t"), 60_000);
    assert_eq!(found::<i64>(&dir, "select count(distinct id) from t"), 60_000);
    let sum: String = server.query("shop", "SELECT SUM(CRC32(pad)) > 0, SUM(LENGTH(pad)) FROM t");
    assert_eq!(sum, format!("1\t{}", found::<i64>(&dir, "select sum(length(pad)) from t")));
}

#[test]
fn what_cannot_be_done_is_refused_without_the_password() {
    let Some(server) = server() else { return };
    server.query("shop", "CREATE TABLE t (id INT PRIMARY KEY)");
    let dir = pipeline(&server, "[{ name: t, sync_mode: cdc }]", "  write_mode: upsert\n");
    let failed = run(&dir, &["pipeline", "run", "p.yaml"]);
    let text = stderr(&failed);
    assert!(!failed.status.success() && text.contains("does not report changes"), "{text}");
    std::fs::write(dir.path().join("password"), "schluessel").unwrap();
    let failed = run(&dir, &["pipeline", "check", "p.yaml"]);
    let text = stderr(&failed);
    assert!(!failed.status.success() && text.contains("Access denied"), "{text}");
    assert!(!text.contains("schluessel") && !text.contains("geheim42"), "{text}");
    let dir = pipeline(&server, "[{ name: t }]", "");
    let file = std::fs::read_to_string(dir.path().join("p.yaml")).unwrap();
    let section = "source:\n  permissions: { network: { allowed_hosts: [db.example.org] } }";
    std::fs::write(dir.path().join("p.yaml"), file.replace("source:", section)).unwrap();
    let refused = run(&dir, &["pipeline", "run", "p.yaml"]);
    assert!(stderr(&refused).contains("permissions.network.allowed_hosts"), "{}", stderr(&refused));
}
