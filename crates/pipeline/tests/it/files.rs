//! From files to a database and back, by the pipeline file alone.

use std::fs;
use std::path::Path;

use forebay_pipeline::config;
use forebay_pipeline::run::{Options, Pipeline, Report};
use forebay_sdk::run::Context;

/// Runs the pipeline of a text.
async fn run(directory: &Path, name: &str, text: &str) -> Report {
    let path = directory.join(format!("{name}.yaml"));
    fs::write(&path, text).expect("a directory of the test");
    let resolve: &'static forebay_sdk::settings::Resolve<'static> = Box::leak(Box::new({
        let directory = directory.display().to_string();
        move |name: &str| match name {
            "DIR" => Ok(directory.clone()),
            _ => Err(format!("{name} is not set")),
        }
    }));
    let file = config::load(&path, &forebay_connectors::registry(), resolve)
        .unwrap_or_else(|error| panic!("{error}"));
    let (context, _cancel) = Context::new("run");
    let pipeline = Pipeline::new(&file);
    let report = pipeline.run(Options::default(), &context).await;
    let report = report.unwrap_or_else(|error| panic!("{name}: {}", chain(&error)));
    // Files that were not read again cannot be compared with all that is there.
    if !text.contains("incremental") {
        let verification = pipeline.verify(&context).await;
        let verification = verification.unwrap_or_else(|error| panic!("{name}: {}", chain(&error)));
        assert!(verification.same, "{name}: {:?}", verification.streams);
    }
    report
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source())
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

#[tokio::test]
async fn rows_go_from_csv_through_parquet_sqlite_and_ndjson_and_are_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    fs::create_dir_all(dir.join("in")).unwrap();
    for (name, from) in [("a.csv", 0), ("b.csv", 5_000)] {
        let rows: String = (from..from + 5_000)
            .map(|id| format!("{id},\"name, {id}\",{}.50,2024-05-{:02}\n", id % 97, id % 28 + 1))
            .collect();
        fs::write(dir.join("in").join(name), format!("id,name,price,day\n{rows}")).unwrap();
    }
    let steps = [
        ("csv", "in", "'*.csv'", "parquet", "lake", "replace"),
        ("parquet", "lake", "orders", "sqlite", "db.sqlite", "append"),
        ("sqlite", "db.sqlite", "orders", "csv", "csv", "append"),
        ("csv", "csv", "orders", "sqlite", "upsert.sqlite", "upsert"),
        ("sqlite", "upsert.sqlite", "orders", "ndjson", "lines", "replace"),
    ];
    let mut hashes = Vec::new();
    for (at, (from, path, stream, to, into, mode)) in steps.into_iter().enumerate() {
        let key = if mode == "upsert" { "primary_key: [id]" } else { "" };
        let compression = ["none", "lz4", "zstd"][at % 3];
        let text = format!(
            "version: 1
pipeline: step-{at}
source:
  use: {from}
  config: {{ path: '${{DIR}}/{path}' }}
  streams: [{{ name: {stream}, into: orders }}]
destination:
  use: {to}
  config: {{ path: '${{DIR}}/{into}' }}
  write_mode: {mode}
  {key}
resources: {{ checkpoint_interval_bytes: 64KiB, max_batch_bytes: 16KiB, max_memory: 1MiB, parallelism: 2, compression: {compression}, max_inflight_batches: 3 }}
"
        );
        let report = run(dir, &format!("step-{at}"), &text).await;
        assert_eq!(report.rows, 10_000, "{from} to {to}");
        hashes.push(report.streams[0].content_hash.clone());
    }
    assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
}

#[tokio::test]
async fn incremental_runs_load_new_files_and_nothing_where_there_are_none() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let text = "version: 1
pipeline: new-files
source:
  use: ndjson
  config: { path: '${DIR}/in' }
  streams: [{ name: '*.ndjson', into: t, sync_mode: incremental, cursor_field: last_modified }]
destination:
  use: sqlite
  config: { path: '${DIR}/db' }
";
    fs::create_dir_all(dir.join("in")).unwrap();
    let mut rows = Vec::new();
    for name in ["b", "c", "", "a"] {
        if !name.is_empty() {
            let path = dir.join("in").join(format!("{name}.ndjson"));
            fs::write(&path, "{\"id\": 1}\n{\"id\": 2}\n").unwrap();
            let second = 1_000 + rows.len() as u64;
            let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(second);
            fs::File::options().write(true).open(path).unwrap().set_modified(at).unwrap();
        }
        rows.push(run(dir, "new-files", text).await.rows);
    }
    assert_eq!(rows, [2, 2, 0, 2]);
}
