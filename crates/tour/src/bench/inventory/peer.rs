//! DuckDB on the same Parquet files.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

/// The program that runs DuckDB.
const SCRIPT: &str = include_str!("rollup.py");

/// The result of DuckDB.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Measurement {
    /// CPU and elapsed seconds from the first statement to the last row on disk.
    pub(super) cpu_s: f64,
    pub(super) wall_s: f64,
    pub(super) peak_rss_bytes: u64,
    pub(super) prefixes: u64,
    pub(super) objects: u64,
    pub(super) bytes: u64,
    pub(super) point_ms: f64,
    pub(super) top_ms: f64,
}

/// The kind of query.
#[derive(Debug, Clone, Copy)]
pub(super) enum Method {
    /// One statement that counts each object at every prefix of its key.
    Statement,
    /// A program optimised by hand, level by level.
    Levels,
}

/// Aggregates the Parquet files in `data` over all prefixes into the file `out`.
pub(super) fn run(
    python: &Path,
    data: &Path,
    out: &Path,
    point: &[u8],
    how: Method,
) -> anyhow::Result<Measurement> {
    let output = Command::new(python)
        .args(["-c", SCRIPT])
        .arg(data)
        .arg(out)
        .arg(String::from_utf8_lossy(point).as_ref())
        .arg(match how {
            Method::Statement => "statement",
            Method::Levels => "levels",
        })
        .output()
        .with_context(|| format!("cannot start {}", python.display()))?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "DuckDB failed: {complaint}");
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("DuckDB reported nothing: {complaint}"))
}
