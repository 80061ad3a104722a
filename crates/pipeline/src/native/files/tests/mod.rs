//! Files pass the acceptance suite, and what is particular to them.

mod bucket;
mod interrupted;
mod sources;

use std::path::Path;
use std::sync::Arc;

use forebay_pgcopy::ContentHash;
use serde_json::json;

use crate::acceptance::{self, Capabilities};
use crate::config::StreamSettings;
use crate::connector::{Destination, Source};
use crate::native::hash::Hasher;

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
async fn fill(destination: &Arc<dyn Destination>) -> ContentHash {
    let columns = acceptance::columns();
    let (first, second) =
        (acceptance::rows(&columns, 0..200), acceptance::rows(&columns, 200..300));
    acceptance::fill(destination, "t", &columns, &[&first, &second]).await.unwrap();
    let mut hasher = Hasher::new(&columns).unwrap();
    hasher.add(&first).unwrap();
    hasher.add(&second).unwrap();
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

fn csv(settings: serde_json::Value) -> Arc<dyn Destination> {
    super::csv_destination(&serde_json::from_value(settings).unwrap())
}

fn ndjson(settings: serde_json::Value) -> Arc<dyn Destination> {
    super::ndjson_destination(&serde_json::from_value(settings).unwrap())
}

#[tokio::test]
async fn csv_files_are_a_destination() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    passes(csv(json!({ "path": path.join("plain") }))).await;
    let other = json!({ "path": path.join("b"), "delimiter": ";", "header": false, "null": "NULL", "compression": "gzip" });
    passes(csv(other)).await;
}

#[tokio::test]
async fn ndjson_files_are_a_destination() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    passes(ndjson(json!({ "path": path.join("plain") }))).await;
    passes(ndjson(json!({ "path": path.join("z"), "compression": "zstd" }))).await;
}
