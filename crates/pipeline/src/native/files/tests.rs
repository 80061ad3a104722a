//! Files pass the acceptance suite, and what is particular to them.

use std::path::Path;
use std::sync::Arc;

use serde_json::json;

use crate::acceptance::{self, Capabilities};
use crate::config::{StreamSettings, TargetSettings};
use crate::connector::{Destination, Load, Source, Unit};
use crate::native::hash::Hasher;
use crate::run::Context;

fn stream(name: &str) -> StreamSettings {
    serde_json::from_value(json!({ "name": name })).unwrap()
}

fn parquet(path: &Path) -> Arc<dyn Destination> {
    let settings = json!({ "path": path, "row_group_size": "1MiB" });
    super::parquet_destination(&serde_json::from_value(settings).unwrap())
}

fn parquet_source(path: &Path) -> Arc<dyn Source> {
    super::parquet_source(&serde_json::from_value(json!({ "path": path })).unwrap())
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source())
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

async fn passes(destination: Arc<dyn Destination>) {
    let capabilities = Capabilities { replace: true, upsert: false };
    if let Err(failure) = acceptance::destination(&destination, capabilities).await {
        panic!("{}", chain(&failure));
    }
}

/// Loads rows of all types in two units.
async fn fill(destination: &Arc<dyn Destination>) -> forebay_pgcopy::ContentHash {
    let columns = acceptance::columns();
    let (context, _cancel) = Context::new("test");
    let settings = TargetSettings {
        pipeline: "p".into(),
        stream: "s".into(),
        into: "t".into(),
        write_mode: Default::default(),
        primary_key: Vec::new(),
        on_data_error: Default::default(),
        schema_evolution: Default::default(),
        load_method: Default::default(),
    };
    let unit = |name: &str| Unit { name: name.into(), from: None, to: None, rows: None, bytes: None };
    let load = Load {
        id: "1".into(),
        fingerprint: String::new(),
        units: vec![unit("a"), unit("b")],
        since: None,
        is_stable: true,
        is_finished: false,
        cursor: None,
    };
    let target = destination.open(&settings, &columns, &context).await.unwrap();
    target.prepare(&load).await.unwrap();
    let mut hasher = Hasher::new(&columns).unwrap();
    for (name, ids) in [("a", 0..200), ("b", 200..300)] {
        let batch = acceptance::rows(&columns, ids);
        hasher.add(&batch).unwrap();
        let mut writer = target.writer(&load, &unit(name)).await.unwrap();
        let rows = crate::Rows::Records(batch);
        writer.write(crate::Batch::unbounded(rows)).await.unwrap();
        let entry = crate::connector::LedgerEntry {
            pipeline: "p".into(),
            stream: "s".into(),
            load: "1".into(),
            run: "r".into(),
            unit: name.into(),
            rows: 0,
            dead: 0,
            hash: String::new(),
        };
        writer.commit(entry).await.unwrap();
    }
    target.finish(&load).await.unwrap();
    hasher.content()
}

#[tokio::test]
async fn parquet_files_are_a_destination() {
    let directory = tempfile::tempdir().unwrap();
    passes(parquet(directory.path())).await;
}

#[tokio::test]
async fn parquet_files_are_a_source() {
    let directory = tempfile::tempdir().unwrap();
    let content = fill(&parquet(directory.path())).await;
    let source = parquet_source(directory.path());
    for name in ["t", "t/*.parquet", "**/part-*"] {
        if let Err(failure) = acceptance::source(&source, &stream(name), content).await {
            panic!("{name}: {}", chain(&failure));
        }
    }
}
