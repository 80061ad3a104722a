//! Pipelines from a running server: its documents and events, first all and then from where the
//! last run ended.

use std::fmt::Write as _;
use std::sync::Arc;

use forebay_connectors::forebay::ForebaySource;
use forebay_sdk::acceptance;
use forebay_sdk::connector::{Destination as _, Source};
use forebay_sdk::run::Context;
use forebay_sdk::settings::{LoadMethod, OnDataError, SchemaEvolution, TargetSettings, WriteMode};
use forebay_sqlite::connector::SqliteDestination;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::events_support::post;
use crate::support::{Server, run, run_ok, stderr};

/// A server with a key, and a directory with a pipeline that reads it into SQLite.
struct Setup {
    dir: TempDir,
    server: Server,
    authorization: String,
}

impl Setup {
    fn new(streams: &str, resources: &str) -> Self {
        let dir = TempDir::new().unwrap();
        let new_key = |scope: &str| -> String {
            let args = ["key", "new", "--name", scope, "--scope", scope, "--json"];
            let made: Value = serde_json::from_str(&run_ok(&dir, &args)).unwrap();
            made["key"].as_str().unwrap().to_owned()
        };
        let (reader, writer) = (new_key("read"), new_key("write"));
        let server = Server::start(&dir, &[]);
        let path = dir.path().display();
        std::fs::write(dir.path().join("key"), &reader).unwrap();
        let file = format!(
            "version: 1\npipeline: p\nsource:\n  use: forebay\n  \
             config: {{url: '{}', key: '${{file:{path}/key}}', event_hashes: true}}\n  \
             streams: {streams}\ndestination:\n  use: sqlite\n  \
             config: {{path: '{path}/out.sqlite'}}\n{resources}\n",
            server.url
        );
        std::fs::write(dir.path().join("p.yaml"), file).unwrap();
        Self { dir, server, authorization: format!("authorization: Bearer {writer}\r\n") }
    }

    fn post(&self, path: &str, body: &str) {
        let answer = post(&self.server, path, &self.authorization, body.as_bytes());
        assert!((200..300).contains(&answer.status), "{answer:?}");
    }

    fn run(&self) -> Value {
        serde_json::from_str(&run_ok(&self.dir, &["pipeline", "run", "p.yaml", "--json"])).unwrap()
    }

    /// Returns the only value of a query of the destination.
    fn found<T: rusqlite::types::FromSql>(&self, query: &str) -> T {
        let out = rusqlite::Connection::open(self.dir.path().join("out.sqlite")).unwrap();
        out.query_row(query, [], |row| row.get(0)).unwrap()
    }
}

fn documents(ids: std::ops::Range<u32>) -> String {
    ids.fold(String::new(), |mut text, id| {
        writeln!(text, r#"{{"name": "n {id}", "n": {id}, "deep": {{"x": 0.50}}, "id": "own"}}"#)
            .unwrap();
        text
    })
}

#[test]
fn documents_are_copied_in_units_and_then_from_the_last() {
    let small = "resources: {checkpoint_interval_bytes: 4KiB, parallelism: 2}";
    let stream = "[{name: collections/orders, sync_mode: incremental, cursor_field: id}]";
    let setup = Setup::new(stream, small);
    setup.post("/v1/documents/orders?target=table", &documents(0..1_500));
    setup.post("/v1/documents/other?target=collection", &documents(0..10));
    let first = setup.run();
    assert_eq!(first["rows"], 1_500, "{first}");
    assert!(first["streams"][0]["units"].as_u64().unwrap() > 3, "{first}");
    assert_eq!(setup.run()["rows"], 0);
    setup.post("/v1/documents/orders?target=table", &documents(1_500..1_700));
    assert_eq!(setup.run()["rows"], 200);
    let sum: i64 = setup.found("select sum(n) from orders");
    assert_eq!(sum, (0..1_700).sum::<i64>());
    assert_eq!(setup.found::<i64>("select count(distinct id) from orders"), 1_700);
    let document: String = setup.found("select document from orders where n = 7");
    assert_eq!(document, r#"{"name": "n 7", "n": 7, "deep": {"x": 0.50}, "id": "own"}"#);
    assert_eq!(setup.found::<String>("select field_id from orders limit 1"), "own");
    let verified = run(&setup.dir, &["pipeline", "verify", "p.yaml"]);
    assert!(verified.status.success(), "{}", stderr(&verified));
    let discovered = run_ok(&setup.dir, &["pipeline", "discover", "p.yaml"]);
    assert!(discovered.contains("collections/other"), "{discovered}");
}

#[test]
fn events_come_in_the_order_they_were_accepted_even_those_that_are_late() {
    let stream = "[{name: events/auth, sync_mode: incremental, cursor_field: position}]";
    let setup = Setup::new(stream, "resources: {checkpoint_interval_bytes: 1KiB, parallelism: 2}");
    let lines = |times: &[u32]| {
        let line = |time: &u32| {
            let time = format!("2026-01-01T00:00:{time:02}Z");
            json!({ "timestamp": time, "message": format!("at {time}") }).to_string()
        };
        times.iter().map(line).collect::<Vec<_>>().join("\n")
    };
    let times: Vec<u32> = (10..60).collect();
    setup.post("/v1/events?stream=auth", &lines(&times));
    setup.post("/v1/events?stream=other", &lines(&[1, 2]));
    assert_eq!(setup.run()["rows"], 50);
    // Older than everything read before.
    setup.post("/v1/events?stream=auth", &lines(&[3, 4]));
    let second = setup.run();
    assert_eq!(second["rows"], 2, "{second}");
    assert_eq!(setup.run()["rows"], 0);
    assert_eq!(setup.found::<i64>("select count(distinct position) from auth"), 52);
    assert_eq!(setup.found::<i64>("select count(*) from auth where payload is not null"), 52);
    assert_eq!(setup.found::<i64>("select min(length(hash)) from auth"), 64);
    let others: i64 = setup.found("select count(*) from auth where stream <> 'auth'");
    assert_eq!(others, 0);
}

/// The destination of a stream.
fn copied(into: &str) -> TargetSettings {
    TargetSettings {
        pipeline: "p".into(),
        stream: into.into(),
        into: into.into(),
        write_mode: WriteMode::Append,
        primary_key: Vec::new(),
        on_data_error: OnDataError::Fail,
        schema_evolution: SchemaEvolution::default(),
        load_method: LoadMethod::Copy,
        feed: forebay_sdk::settings::FeedForm::Apply,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forebay_passes_the_acceptance_suite() {
    let setup = Setup::new("[{name: collections/orders}, {name: events}]", "");
    setup.post("/v1/documents/orders?target=table", &documents(0..300));
    let line = |n: u32| format!("line {n} \u{e4} {}\n", "x".repeat(50));
    setup.post("/v1/events?stream=a", &(0..300).map(line).collect::<String>());
    setup.run();
    let key = std::fs::read_to_string(setup.dir.path().join("key")).unwrap();
    let settings = json!({ "url": setup.server.url, "key": key, "event_hashes": true });
    let settings = serde_json::from_value(settings).unwrap();
    let source: Arc<dyn Source> = Arc::new(ForebaySource::new(settings));
    let out = json!({ "path": setup.dir.path().join("out.sqlite") });
    let sqlite = SqliteDestination::new(&serde_json::from_value(out).unwrap());
    for (name, into) in [("collections/orders", "orders"), ("events", "events")] {
        let stream = serde_json::from_value(json!({ "name": name })).unwrap();
        let open = acceptance::open_source(&source, &stream).await.unwrap();
        assert!(open.units().len() > 2, "{:?}", open.units());
        // The content in SQLite, hashed independently.
        let (context, _cancel) = Context::new("test");
        let target = sqlite.open(&copied(into), open.columns(), &context).await.unwrap();
        let content = target.content().await.unwrap();
        assert_eq!(content.rows, 300);
        if let Err(failure) = acceptance::source(&source, &stream, content).await {
            let causes =
                std::iter::successors(Some(&failure as &dyn std::error::Error), |it| it.source());
            panic!("{name}: {}", causes.map(ToString::to_string).collect::<Vec<_>>().join(": "));
        }
    }
}

#[test]
fn unreadable_sources_are_reported() {
    let setup = Setup::new("[{name: collections/nowhere}]", "");
    let fails = |with: &str| {
        let output = run(&setup.dir, &["pipeline", "run", "p.yaml"]);
        assert!(!output.status.success());
        assert!(stderr(&output).contains(with), "{}", stderr(&output));
    };
    fails("document namespace nowhere");
    let path = setup.dir.path().join("p.yaml");
    let file = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, file.replace("collections/nowhere", "tables/x")).unwrap();
    fails("a Forebay has no stream \"tables/x\"");
    std::fs::write(setup.dir.path().join("key"), "fbk_wrong").unwrap();
    std::fs::write(&path, file.replace("collections/nowhere", "events")).unwrap();
    fails("401");
    std::fs::write(&path, file.replace("http://127.0.0.1", "http://192.0.2.1")).unwrap();
    fails("an unencrypted connection");
}
