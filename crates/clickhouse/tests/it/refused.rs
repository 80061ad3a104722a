//! What cannot be done, and how it is reported.

use forebay_sdk::ConnectorError;
use forebay_sdk::registry::DestinationSettings as _;
use forebay_sdk::settings::WriteMode;
use forebay_testing::ClickHouse;
use serde_json::json;

use crate::server::{Database, copy, open, target, text};
use crate::values::rows;

#[tokio::test]
async fn errors_of_the_server_say_what_to_change_and_no_password() {
    let Some(database) = Database::create() else { return };
    for (more, word) in [
        (json!({ "password": "schluessel" }), "set `user` and `password`"),
        (json!({ "user": "unknown42" }), "set `user` and `password`"),
        (json!({ "database": "no such database" }), "set `database`"),
    ] {
        let error = database.destination(more).check().await.unwrap_err();
        assert!(!error.is_retryable());
        let error = text(&error);
        assert!(error.contains(word), "{error}");
        assert!(!error.contains("schluessel") && !error.contains("geheim42"), "{error}");
    }
    let port = forebay_testing::free_port();
    let unnamed = database.settings(port, json!({})).destination();
    let error = unnamed.check().await.unwrap_err();
    assert!(matches!(error, ConnectorError::Unreachable { .. }), "{}", text(&error));
    for word in [&format!("ClickHouse at 127.0.0.1:{port}"), "check `url`"] {
        assert!(text(&error).contains(word), "{}", text(&error));
    }
    let found = database.destination(json!({})).check().await.unwrap();
    assert!(found.starts_with("ClickHouse 2") && found.contains("Atomic"), "{found}");
}

#[tokio::test]
async fn tables_that_do_not_take_units_exactly_once_are_refused_before_anything_is_written() {
    let Some(database) = Database::create() else { return };
    let destination = database.destination(json!({}));
    let (columns, _) = rows("bigint", &[]);
    for (engine, mode, word) in [
        ("MergeTree PARTITION BY id % 2 ORDER BY id", WriteMode::Append, "without PARTITION BY"),
        ("MergeTree PARTITION BY id % 2 ORDER BY id", WriteMode::Replace, "without PARTITION BY"),
        ("Memory", WriteMode::Append, "engine Memory"),
        ("SummingMergeTree ORDER BY id", WriteMode::Append, "engine SummingMergeTree"),
        ("ReplacingMergeTree ORDER BY id", WriteMode::Upsert, "let Forebay create the table"),
        ("MergeTree ORDER BY id", WriteMode::Upsert, "let Forebay create the table"),
    ] {
        database.query("DROP TABLE IF EXISTS t");
        database.query(&format!("CREATE TABLE t (id Int64, v Nullable(Int64)) ENGINE = {engine}"));
        let error = open(&destination, &target("t", mode), &columns).await.err().unwrap();
        assert!(text(&error).contains(word), "{engine}: {}", text(&error));
    }
    database.query("DROP TABLE t");
    for reserved in ["", "_forebay_ledger"] {
        let error = open(&destination, &target(reserved, WriteMode::Append), &columns).await.err();
        assert!(text(&error.unwrap()).contains("`into`"), "{reserved}");
    }
    let left = database.query("SELECT name FROM system.tables WHERE database = currentDatabase()");
    assert_eq!(left, "");
}

#[tokio::test]
async fn replace_needs_a_database_whose_tables_can_be_exchanged() {
    let Some(database) = Database::create() else { return };
    let made = database.server.try_query("default", "CREATE DATABASE flat ENGINE = Memory");
    made.unwrap();
    let destination = database.destination(json!({ "database": "flat" }));
    let (columns, _) = rows("bigint", &[]);
    let error = open(&destination, &target("t", WriteMode::Replace), &columns).await.err().unwrap();
    assert!(text(&error).contains("ENGINE = Atomic"), "{}", text(&error));
}

#[tokio::test]
async fn a_certificate_is_verified_by_the_trusted_ones() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (certificate, key) = (dir.path().join("ca.pem"), dir.path().join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let Some(server) = ClickHouse::start_encrypted(&certificate, &key) else { return };
    let destination = |host: &str, ca: Option<&std::path::Path>| {
        let settings = json!({
            "url": format!("https://{host}:{}", server.port()), "user": server.user(),
            "password": server.password(), "tls_ca_file": ca,
        });
        serde_json::from_value::<forebay_clickhouse::Settings>(settings).unwrap().destination()
    };
    assert!(destination("localhost", Some(&certificate)).check().await.is_ok());
    for (host, ca) in [("localhost", None), ("127.0.0.1", Some(certificate.as_path()))] {
        let error = text(&destination(host, ca).check().await.unwrap_err());
        assert!(error.contains("certificate"), "{error}");
    }
    let missing = dir.path().join("missing.pem");
    let error = text(&destination("localhost", Some(&missing)).check().await.unwrap_err());
    assert!(error.contains("missing.pem"), "{error}");
}

#[tokio::test]
async fn a_table_that_is_removed_during_a_load_is_not_created_half() {
    let Some(database) = Database::create() else { return };
    let destination = database.destination(json!({}));
    let settings = target("t", WriteMode::Replace);
    let (columns, batch) = rows("bigint", &["1"]);
    let load = crate::server::load("l", &["a"]);
    let opened = open(&destination, &settings, &columns).await.unwrap();
    opened.prepare(&load).await.unwrap();
    crate::server::write(&opened, &settings, &load, "a", std::slice::from_ref(&batch))
        .await
        .unwrap();
    let next = database.query("SELECT name FROM system.tables WHERE database = currentDatabase() AND startsWith(name, '_forebay_next_')");
    database.query(&format!("DROP TABLE `{next}`"));
    let error = text(&opened.finish(&load).await.unwrap_err());
    assert!(error.contains("no longer exists"), "{error}");
    assert_eq!(database.query("EXISTS TABLE t"), "0");
    // The next load begins again.
    copy(&destination, &settings, &columns, "l2", &[batch]).await.unwrap();
    assert_eq!(database.count("SELECT count() FROM t"), 1);
}
