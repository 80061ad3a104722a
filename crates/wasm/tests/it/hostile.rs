//! Components that misbehave: each ends in its error, and what comes after it is served.

use std::sync::Arc;
use std::time::Duration;

use forebay_pgcopy::{Column, ContentHash, Wire};
use forebay_sdk::ConnectorError;
use forebay_sdk::batch::{Batch, Rows};
use forebay_sdk::connector::{Destination, Form, LedgerEntry, Load, Round, Unit};
use forebay_sdk::settings::{
    FeedForm, LoadMethod, OnDataError, SchemaEvolution, TargetSettings, WriteMode,
};
use forebay_wasm::{Grants, WasmDestination};
use serde_json::json;

use crate::components::{context, limited, loaded, opening, read, runtime, source, stream};

fn of(mode: &str) -> serde_json::Value {
    json!({ "mode": mode })
}

/// The text of an error and its causes.
fn said(error: &ConnectorError) -> String {
    forebay_base::error_chain::chain(error).to_string()
}

/// Runs a mode of the source, and then a good one: the error of the first.
fn source_fails(
    mode: &str,
    config: &serde_json::Value,
    fails: &'static str,
) -> Option<ConnectorError> {
    let bad = source("trials", config, limited(mode))?;
    let good = source("trials", &of("good"), limited("good"))?;
    let failed = runtime().block_on(async {
        let (context, _cancel) = context();
        let failed = match fails {
            "check" => bad.check().await.map(drop),
            "discover" => bad.discover().await.map(drop),
            _ => match bad.open(&stream("t"), &opening(), &context).await {
                Err(error) => Err(error),
                Ok(open) => read(&open, 0).await.map(drop),
            },
        };
        let open = good.open(&stream("t"), &opening(), &context).await.unwrap();
        assert_eq!(read(&open, 0).await.unwrap(), 20, "after {mode}");
        assert_eq!(read(&open, 1).await.unwrap(), 20, "after {mode}");
        failed
    });
    Some(failed.expect_err(mode))
}

#[test]
fn a_source_that_misbehaves_is_an_error_and_the_next_one_is_served() {
    for (mode, fails, expected) in [
        ("loop-check", "check", "computed for 0.3 s"),
        ("loop-open", "open", "computed for 0.3 s"),
        ("loop-read", "open", "computed for 0.3 s"),
        ("memory-open", "open", "limits.max_memory"),
        ("memory-read", "open", "limits.max_memory"),
        ("trap-check", "check", "which failed"),
        ("trap-open", "open", "which failed"),
        ("trap-attach", "open", "which failed"),
        ("trap-read", "open", "which failed"),
        ("fail-open", "open", "cannot open: as asked"),
        ("fail-read", "open", "cannot read: as asked"),
        ("no-units", "open", "too many units, or none"),
        ("many-units", "open", "too many units, or none"),
        ("sql-type", "open", "not the name of a type"),
        ("odd-wire", "open", "not a form of values"),
        ("huge-batch", "open", "needs more than"),
        ("half-tuple", "open", "rows between the host and a component"),
        ("two-fields", "open", "rows between the host and a component"),
        ("garbage", "open", "rows between the host and a component"),
    ] {
        let Some(error) = source_fails(mode, &of(mode), fails) else { return };
        assert!(said(&error).contains(expected), "{mode}: {}", said(&error));
    }
}

#[test]
fn a_list_that_is_too_large_is_an_error_or_is_limited_by_the_memory_of_the_component() {
    let Some(bad) = source("trials", &of("huge-list"), limited("huge-list")) else { return };
    let found = runtime().block_on(bad.discover());
    match found {
        Ok(found) => assert!(found.len() <= 1_000_000),
        Err(error) => assert!(said(&error).contains("discover"), "{}", said(&error)),
    }
}

#[test]
fn a_name_of_a_column_is_only_a_name() {
    let Some(odd) = source("trials", &of("odd-name"), limited("odd-name")) else { return };
    runtime().block_on(async {
        let (context, _cancel) = context();
        let open = odd.open(&stream("t"), &opening(), &context).await.unwrap();
        assert_eq!(open.columns()[0].name, "id\"); drop table victims; --");
    });
}

#[test]
fn what_is_not_granted_is_not_reached() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let connect = |host: &str| json!({ "mode": "connect", "host": host, "port": port.to_string() });
    let check = |config: &serde_json::Value, grants: Grants| {
        let source = source("trials", config, grants)?;
        Some(runtime().block_on(source.check()))
    };
    let granted = |hosts: &[&str]| Grants {
        hosts: hosts.iter().map(|&host| host.to_owned()).collect(),
        ..limited("good")
    };
    for (host, hosts, expected) in [
        ("127.0.0.1", &[][..], Some("allowed_hosts")),
        ("localhost", &["127.0.0.1"], Some("allowed_hosts")),
        ("127.0.0.1", &["127.0.0.1:1"], Some("allowed_hosts")),
        ("127.0.0.1", &["127.0.0.1"], None),
        ("localhost", &["localhost"], None),
        ("", &["*"], Some("cannot reach")),
        ("a b\n", &["*"], Some("cannot reach")),
    ] {
        let Some(found) = check(&connect(host), granted(hosts)) else { return };
        match (found, expected) {
            (Ok(found), None) => assert_eq!(found, "connected"),
            (Err(error), Some(expected)) => {
                assert!(said(&error).contains(expected), "{host:?}: {}", said(&error));
            }
            (found, _) => panic!("{host:?} with {hosts:?}: {found:?}"),
        }
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("in"), b"12345").unwrap();
    let inside = dir.path().join("in").display().to_string();
    let escape = dir.path().join("../../../../../../etc/passwd").display().to_string();
    let grants = Grants { paths: vec![dir.path().to_owned()], ..limited("good") };
    let file = |path: &str| json!({ "mode": "file", "path": path });
    assert_eq!(check(&file(&inside), grants.clone()).unwrap().unwrap(), "read 5 bytes");
    for path in [escape.as_str(), "/etc/passwd", "", "/", "/dev/zero"] {
        assert!(check(&file(path), grants.clone()).unwrap().is_err(), "{path}");
    }
    assert!(check(&file(&inside), Grants::default()).unwrap().is_err());
}

#[test]
fn a_million_lines_are_neither_an_error_nor_kept() {
    // Both call the host without an end for longer than the limit of computing.
    let grants = Grants { busy: Duration::from_secs(60), ..limited("good") };
    for mode in ["log", "warn"] {
        let Some(source) = source("trials", &of(mode), grants.clone()) else { return };
        assert!(runtime().block_on(source.check()).is_ok(), "{mode}");
    }
    let Some(source) = source("trials", &of("time"), grants) else { return };
    let said = runtime().block_on(source.check()).unwrap();
    let mut parts = said.split(' ');
    assert!(parts.next().unwrap().parse::<u64>().unwrap() > 1_700_000_000_000_000, "{said}");
    assert_eq!((parts.next(), parts.next()), (Some("4096"), Some("true")));
}

#[test]
fn a_run_that_is_cancelled_ends_a_component_that_computes() {
    let grants = Grants { busy: Duration::from_secs(3_600), ..limited("good") };
    let Some(bad) = source("trials", &of("loop-open"), grants) else { return };
    runtime().block_on(async {
        let (context, cancel) = context();
        cancel.cancel();
        let failed = bad.open(&stream("t"), &opening(), &context).await.err().unwrap();
        assert!(matches!(failed, ConnectorError::Stopped), "{failed:?}");
    });
}

#[test]
fn a_component_that_computes_leaves_room_for_others_on_its_thread() {
    let Some(bad) = source("trials", &of("loop-check"), limited("loop-check")) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let ticks = async {
            for _ in 0..5 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        // Both end, on one thread.
        let (failed, ()) = tokio::join!(bad.check(), ticks);
        assert!(failed.is_err());
    });
}

fn id() -> Vec<Column> {
    vec![Column {
        name: "id".into(),
        sql_type: "integer".into(),
        wire: Wire::Int4,
        nullable: false,
    }]
}

fn settings() -> TargetSettings {
    TargetSettings {
        pipeline: "p".into(),
        stream: "t".into(),
        into: "t".into(),
        write_mode: WriteMode::Append,
        primary_key: Vec::new(),
        on_data_error: OnDataError::Fail,
        schema_evolution: SchemaEvolution::default(),
        load_method: LoadMethod::Copy,
        feed: FeedForm::Apply,
    }
}

fn batch() -> Batch {
    let tuples = [0, 1, 0, 0, 0, 4, 0, 0, 0, 7];
    let mut hash = ContentHash::default();
    hash.add(&tuples);
    Batch::unbounded(Rows::Tuples(bytes::Bytes::copy_from_slice(&tuples), hash))
}

/// Writes a unit of one row; the error.
async fn written(destination: &Arc<dyn Destination>) -> Result<LedgerEntry, ConnectorError> {
    let (context, _cancel) = context();
    let unit = Unit { name: "u".into(), from: None, to: None, rows: None, bytes: None };
    let load = Load {
        id: "l".into(),
        fingerprint: "f".into(),
        units: vec![unit.clone()],
        since: None,
        is_stable: true,
        round: Round::default(),
        is_finished: false,
        cursor: None,
    };
    let target = destination.open(&settings(), &id(), &context).await?;
    target.prepare(&load).await?;
    let mut writer = target.writer(&load, &unit).await?;
    writer.write(batch()).await?;
    let entry = LedgerEntry {
        pipeline: "p".into(),
        stream: "t".into(),
        load: "l".into(),
        run: "r".into(),
        unit: "u".into(),
        rows: 0,
        dead: 0,
        hash: String::new(),
    };
    writer.commit(entry).await
}

#[test]
fn a_destination_that_says_it_stored_other_rows_is_not_believed() {
    for (mode, expected) in [
        ("trap-write", "which failed"),
        ("loop-write", "computed for 0.3 s"),
        ("trap-commit", "which failed"),
        ("lie-rows", "was given 1"),
        ("lie-hash", "was given 1"),
    ] {
        let Some(loaded) = loaded("trials", limited(mode)) else { return };
        let config = of(mode).to_string().into();
        let destination: Arc<dyn Destination> =
            Arc::new(WasmDestination::new(loaded, config, Form::Tuples));
        let error = runtime().block_on(written(&destination)).expect_err(mode);
        assert!(said(&error).contains(expected), "{mode}: {}", said(&error));
    }
}
