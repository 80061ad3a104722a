//! Connections that are cut, statements that are killed, and readers that go away.

use std::sync::Arc;

use forebay_sdk::connector::{Division, SourceStream};
use forebay_sdk::run::{Budget, Context, Inlet, Outlet};
use forebay_sdk::{ConnectorError, Rows};
use forebay_sink::conformance::{Cut, Proxy};
use mysql_async::prelude::Queryable as _;
use serde_json::json;

use crate::server::{
    Database, database, ids, open, open_as, opening, own_database, rows, stream, text, unit,
};

/// A table of about 20 MB.
fn fill(database: &Database) {
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY, pad VARCHAR(1000)); \
         INSERT INTO t SELECT seq, REPEAT('x', 1000) FROM seq_1_to_20000",
    );
}

/// Reads a unit as far as its first batch.
async fn begun(
    open: &Arc<dyn SourceStream>,
) -> (tokio::task::JoinHandle<Result<(), ConnectorError>>, Inlet) {
    let (context, _cancel) = Context::new("test");
    let (mut outlet, mut inlet) = Outlet::new(Budget::new(16 << 10), context).unwrap();
    let open = Arc::clone(open);
    let reading = tokio::spawn(async move { open.read(0, &mut outlet).await });
    let first = inlet.recv().await.unwrap().unwrap();
    assert!(matches!(first.rows, Rows::Records(_)));
    (reading, inlet)
}

/// Takes the rest of a unit, and returns how its reading ended.
async fn rest(
    (reading, mut inlet): (tokio::task::JoinHandle<Result<(), ConnectorError>>, Inlet),
) -> Result<(), ConnectorError> {
    while inlet.recv().await.unwrap().is_some() {}
    reading.await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_query_is_an_error_that_may_pass_and_the_snapshot_stays() {
    let Some(database) = database() else { return };
    fill(&database);
    let open = open(&database.source(json!({})), "t").await.unwrap();
    let reading = begun(&open).await;
    database.run("DELETE FROM t WHERE id > 100");
    let find = format!(
        "SELECT id FROM information_schema.processlist WHERE db = '{}' AND info LIKE 'SELECT%FROM `t`'",
        database.name
    );
    let id = database.query("mysql", &find);
    database.query("mysql", &format!("KILL QUERY {id}"));
    let error = rest(reading).await.unwrap_err();
    assert!(error.is_retryable(), "{error:?}");
    assert_eq!(unit(&open, 0).await.unwrap().len(), 20_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_connection_is_replaced_if_the_units_are_stable_and_the_columns_are_the_same() {
    let Some(database) = database() else { return };
    fill(&database);
    let proxy = Proxy::before(database.port());
    let source = database.source(json!({ "port": proxy.port }));
    let (open, _) =
        open_as(&source, &stream("t", json!({})), opening(None, Division::Stable)).await.unwrap();
    unit(&open, 0).await.unwrap();
    proxy.cut(Cut { request: b"FROM `t` WHERE", arrives: true });
    let error = unit(&open, 1).await.unwrap_err();
    assert!(proxy.has_cut() && error.is_retryable(), "{error:?}");
    database.run("DELETE FROM t WHERE id = 20000");
    let found = rows(&open).await.unwrap();
    assert_eq!(found.len(), 19_999);
    // It keeps the definition from being changed.
    drop(open);
    let (open, _) =
        open_as(&source, &stream("t", json!({})), opening(None, Division::Stable)).await.unwrap();
    proxy.cut(Cut { request: b"FROM `t` WHERE", arrives: false });
    assert!(unit(&open, 1).await.unwrap_err().is_retryable());
    database.run("ALTER TABLE t MODIFY pad VARCHAR(2000)");
    let error = unit(&open, 1).await.unwrap_err();
    assert!(!error.is_retryable() && error.to_string().contains("columns have changed"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_restarts_is_read_on_except_where_rows_could_be_others() {
    let Some(database) = own_database() else { return };
    fill(&database);
    let source = database.source(json!({}));
    let incremental = json!({ "sync_mode": "incremental", "cursor_field": "id" });
    let (new, _) =
        open_as(&source, &stream("t", incremental), opening(None, Division::Stable)).await.unwrap();
    let whole = open(&source, "t").await.unwrap();
    let reading = begun(&whole).await;
    database.restart();
    assert!(rest(reading).await.unwrap_err().is_retryable());
    assert_eq!(ids(&unit(&whole, 0).await.unwrap()), (1..=20_000).collect::<Vec<_>>());
    assert!(unit(&new, 0).await.unwrap_err().is_retryable());
    let error = unit(&new, 0).await.unwrap_err();
    assert!(!error.is_retryable() && error.to_string().contains("snapshot"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reading_that_is_abandoned_or_cancelled_leaves_no_statement_at_the_server() {
    let Some(database) = database() else { return };
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (1); \
         CREATE VIEW slow AS SELECT id, SLEEP(3600) AS s FROM t",
    );
    let find = format!(
        "SELECT COUNT(*) FROM information_schema.processlist WHERE db = '{}' AND info LIKE '%FROM `slow`%'",
        database.name
    );
    for is_cancelled in [false, true] {
        let open = open(&database.source(json!({})), "slow").await.unwrap();
        let (context, cancel) = Context::new("test");
        let (mut outlet, _inlet) = Outlet::new(Budget::new(1 << 20), context).unwrap();
        let reading = tokio::spawn(async move { open.read(0, &mut outlet).await });
        while database.query("mysql", &find) != "1" {}
        if is_cancelled {
            cancel.cancel();
            assert!(matches!(reading.await.unwrap(), Err(ConnectorError::Stopped)));
        } else {
            reading.abort();
            assert!(reading.await.unwrap_err().is_cancelled());
        }
        while database.query("mysql", &find) != "0" {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_or_refuses_is_named_without_the_password() {
    let Some(database) = database() else { return };
    let port = forebay_testing::free_port();
    let absent = database.source(json!({ "port": port, "password": "geheim" }));
    let error = absent.check().await.unwrap_err();
    let chain = forebay_base::error_chain::chain(&error).to_string();
    assert!(error.is_retryable() && chain.contains(&port.to_string()), "{chain}");
    let refused = database.source(json!({ "user": "stranger", "password": "geheim" }));
    let error = refused.check().await.unwrap_err();
    let chain = forebay_base::error_chain::chain(&error).to_string();
    assert!(!error.is_retryable() && chain.contains("Access denied"), "{chain}");
    assert!(!format!("{chain} {error:?}").contains("geheim"));
    let url = format!("mysql://root@127.0.0.1:{}/{}", database.port(), database.name);
    let settings: forebay_mysql::Settings = serde_json::from_value(json!({ "url": url })).unwrap();
    let source = forebay_sdk::registry::SourceSettings::source(&settings);
    let answer = source.check().await.unwrap();
    assert!(answer.starts_with("MariaDB ") && answer.contains(&database.name), "{answer}");
    let nowhere = database.source(json!({ "database": "nowhere" }));
    assert!(text(nowhere.check().await).contains("nowhere"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_that_sends_anything_is_an_error() {
    let Some(database) = database() else { return };
    let mut client = database.client().await;
    client.query_drop("DO 1").await.unwrap();
    for bytes in [
        &b""[..],
        b"\x00\x00\x00\x00",
        b"\x01\x00\x00\x00\xff",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let answer = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            std::io::Write::write_all(&mut socket, bytes).unwrap();
        });
        let error = database.source(json!({ "port": port })).check().await.unwrap_err();
        assert!(error.is_retryable(), "{bytes:?}: {error:?}");
        answer.join().unwrap();
    }
}
