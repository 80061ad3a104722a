//! Files pass the acceptance suite, and what is particular to them.

pub(in crate::connector) mod bucket;
mod damage;
mod feed;
mod interrupted;
mod numbers;
mod sources;

use std::path::Path;
use std::sync::Arc;

use forebay_pgcopy::ContentHash;
use forebay_sdk::acceptance::{self, Capabilities};
use forebay_sdk::connector::{Destination, Source};
use forebay_sdk::hash::Hasher;
use forebay_sdk::registry::{DestinationSettings, SourceSettings};
use forebay_sdk::settings::StreamSettings;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{CsvDestination, NdjsonDestination, ParquetDestination, ParquetSource};

fn stream(name: &str) -> StreamSettings {
    serde_json::from_value(json!({ "name": name })).unwrap()
}

fn source<S: SourceSettings + DeserializeOwned>(settings: Value) -> Arc<dyn Source> {
    serde_json::from_value::<S>(settings).unwrap().source()
}

fn destination<D: DestinationSettings + DeserializeOwned>(settings: Value) -> Arc<dyn Destination> {
    serde_json::from_value::<D>(settings).unwrap().destination()
}

fn parquet(path: &Path) -> Arc<dyn Destination> {
    let settings = json!({ "path": path, "row_group_size": "1MiB" });
    destination::<ParquetDestination>(settings)
}

fn parquet_source(path: &Path) -> Arc<dyn Source> {
    source::<ParquetSource>(json!({ "path": path }))
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
    destination::<CsvDestination>(settings)
}

fn ndjson(settings: serde_json::Value) -> Arc<dyn Destination> {
    destination::<NdjsonDestination>(settings)
}

#[tokio::test]
async fn csv_files_are_a_destination() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    passes(csv(json!({ "path": path.join("plain") }))).await;
    let other = json!({ "path": path.join("b"), "delimiter": ";", "header": false, "null_text": "NULL", "compression": "gzip" });
    passes(csv(other)).await;
}

#[tokio::test]
async fn ndjson_files_are_a_destination() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    passes(ndjson(json!({ "path": path.join("plain") }))).await;
    passes(ndjson(json!({ "path": path.join("z"), "compression": "zstd" }))).await;
}

#[test]
fn settings_are_read_from_a_pipeline_file() {
    let text = "
path: s3://b/${X}
s3: { endpoint: 'http://127.0.0.1:9', path_style: true, access_key_id: a, secret_access_key: b }
compression: gzip
delimiter: ';'
header: false
null_text: 'NULL'
columns: { a: 'numeric(10,2)', b: text }
sample_rows: 5
";
    let settings: super::CsvSource = serde_saphyr::from_str(text).unwrap();
    assert_eq!(
        (settings.null_text.as_str(), settings.delimiter.0, settings.header),
        ("NULL", b';', false)
    );
    assert_eq!(settings.columns["a"], "numeric(10,2)");
    assert!(format!("{settings:?}").contains("***"));
    for wrong in [
        "path: x\ndelimiter: ''",
        "path: x\ndelimiter: ab",
        "path: x\nsample_rows: 0",
        "path: x\nnope: 1",
        "{}",
    ] {
        assert!(serde_saphyr::from_str::<super::CsvSource>(wrong).is_err(), "{wrong}");
    }
    let settings: super::ParquetDestination =
        serde_saphyr::from_str("path: x\nrow_group_size: 1MiB\ncompression: zstd").unwrap();
    assert_eq!(settings.row_group_size.0, 1 << 20);
}

#[tokio::test]
async fn a_directory_of_somebody_else_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    std::fs::create_dir(path.join("t")).unwrap();
    std::fs::write(path.join("t/orders.parquet"), b"mine").unwrap();
    let columns = acceptance::plain_columns();
    let batch = acceptance::rows(&columns, 0..3);
    let refused = acceptance::fill(&parquet(path), "t", &columns, &[&batch]).await;
    let error = chain(&refused.unwrap_err());
    assert!(error.contains("t/orders.parquet exists, but no load wrote it"), "{error}");
    assert_eq!(std::fs::read(path.join("t/orders.parquet")).unwrap(), b"mine");
    // What is no data of the format may lie beside it.
    std::fs::rename(path.join("t/orders.parquet"), path.join("t/README.md")).unwrap();
    acceptance::fill(&parquet(path), "t", &columns, &[&batch]).await.unwrap();
    assert_eq!(std::fs::read(path.join("t/README.md")).unwrap(), b"mine");
}

#[tokio::test]
async fn a_parquet_file_of_others_is_read_with_its_own_types() {
    use arrow::array::{ArrayRef, DictionaryArray, Int8Array, TimestampNanosecondArray};
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, ns: i64| {
        let words: DictionaryArray<arrow::datatypes::Int32Type> =
            ["x", "y", "x"].into_iter().map(Some).collect();
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("small", Arc::new(Int8Array::from(vec![Some(-1), None, Some(127)]))),
            ("word", Arc::new(words)),
            (
                "at",
                Arc::new(
                    TimestampNanosecondArray::from(vec![1_000, ns, 3_000]).with_timezone("+02:00"),
                ),
            ),
        ];
        let batch = arrow::array::RecordBatch::try_from_iter(columns).unwrap();
        let file = std::fs::File::create(directory.path().join(name)).unwrap();
        let mut writer =
            ::parquet::arrow::ArrowWriter::try_new(file, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    };
    file("exact.parquet", 2_000);
    file("finer.parquet", 2_001);
    let source = parquet_source(directory.path());
    let open = acceptance::open_source(&source, &stream("exact.parquet")).await.unwrap();
    let types: Vec<&str> = open.columns().iter().map(|column| &*column.sql_type).collect();
    assert_eq!(types, ["smallint", "text", "timestamp with time zone"]);
    let rows = sources::read(&open).await.unwrap();
    assert_eq!(rows[0].num_rows(), 3);
    let open = acceptance::open_source(&source, &stream("finer.parquet")).await.unwrap();
    let error = chain(&sources::read(&open).await.unwrap_err());
    assert!(error.contains("finer.parquet at row 1 or later, column \"at\""), "{error}");
    std::fs::write(directory.path().join("cut.parquet"), b"PAR1....PAR1").unwrap();
    assert!(acceptance::open_source(&source, &stream("cut.parquet")).await.is_err());
}
