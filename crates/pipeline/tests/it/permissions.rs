//! What a pipeline file permits its connectors.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::Path;
use std::time::Duration;

use forebay_pipeline::config::{self, Limits, LoadError, PipelineFile};

fn known(name: &str) -> Result<String, String> {
    match name {
        "HERE" => Ok("secret".to_owned()),
        _ => Err(format!("{name} is not set")),
    }
}

/// A file from a PostgreSQL of this address into `dir`, with more said of the source and of the destination.
fn load(dir: &Path, url: &str, source: &str, destination: &str) -> Result<PipelineFile, LoadError> {
    let path = dir.join("p.yaml");
    let out = dir.display();
    let text = format!(
        "version: 1
pipeline: p
source:
  use: postgres
  config: {{ url: '{url}' }}
  {source}
  streams: [{{ name: t }}]
destination:
  use: ndjson
  config: {{ path: '{out}/out' }}
  {destination}
"
    );
    std::fs::write(&path, text).unwrap();
    config::load(&path, &forebay_connectors::registry(), &known)
}

const DB: &str = "postgres://ann:${HERE}@a.db.example.org:5433/x";

#[test]
fn a_file_that_names_what_it_does_not_permit_is_refused_with_the_field() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    for (source, destination, field) in [
        ("permissions: {network: {allowed_hosts: [db.example.org]}}", "", "network.allowed_hosts"),
        ("permissions: {network: {allowed_hosts: ['*:5432']}}", "", "network.allowed_hosts"),
        ("permissions: {env: {allowed_vars: [THERE]}}", "", "env.allowed_vars"),
        ("", "permissions: {fs: {allowed_preopens: [/srv]}}", "fs.allowed_preopens"),
    ] {
        let error = load(dir, DB, source, destination).unwrap_err().to_string();
        assert!(error.contains(&format!("`permissions.{field}`")), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }
    let never = load(dir, DB, "limits: {timeout_seconds: 0}", "").unwrap_err().to_string();
    assert!(never.contains("limits.timeout_seconds: invalid value"), "{never}");
    assert_eq!(never.matches("line").count(), 0, "the place stands before it: {never}");
    let unknown = load(dir, DB, "permissions: {net: {}}", "").unwrap_err().to_string();
    assert!(unknown.contains("net"), "{unknown}");
}

#[test]
fn a_file_that_names_what_it_permits_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let source = "permissions: {network: {allowed_hosts: ['*.example.org:5433']}, env: {allowed_vars: [HERE]}}";
    let destination = format!(
        "permissions: {{network: {{allowed_hosts: []}}, fs: {{allowed_preopens: ['{}']}}}}\n  \
         limits: {{max_memory: 1MiB, timeout_seconds: 5}}",
        dir.display()
    );
    let file = load(dir, DB, source, &destination).unwrap();
    assert_eq!(file.destination.limits.timeout(), Some(Duration::from_secs(5)));
    assert_eq!(file.source.limits, Limits::default());
}

#[test]
fn permissions_hold_wherever_they_stand_beside_the_settings() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("p.yaml");
    let text = "version: 1
pipeline: p
source:
  permissions: {fs: {allowed_preopens: [/srv/in]}}
  use: csv
  streams: [{ name: t.csv }]
  config: { path: /srv/other }
destination: { use: sqlite, config: { path: /srv/out.sqlite } }
";
    std::fs::write(&path, text).unwrap();
    let error =
        config::load(&path, &forebay_connectors::registry(), &known).unwrap_err().to_string();
    assert!(error.contains("fs.allowed_preopens"), "{error}");
    assert!(error.contains("/srv/other"), "{error}");
}
