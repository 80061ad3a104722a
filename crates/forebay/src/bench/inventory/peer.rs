//! DuckDB on the same Parquet files.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

/// What DuckDB does, and how it is asked.
const SCRIPT: &str = include_str!("rollup.py");

/// What DuckDB found.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Found {
    /// Processor and other seconds from the first statement to the last row on disk.
    pub(super) cpu_s: f64,
    pub(super) wall_s: f64,
    pub(super) peak_rss_bytes: u64,
    pub(super) prefixes: u64,
    pub(super) objects: u64,
    pub(super) bytes: u64,
    pub(super) point_ms: f64,
    pub(super) top_ms: f64,
}

/// How DuckDB is asked.
#[derive(Debug, Clone, Copy)]
pub(super) enum How {
    /// By one statement that counts each object at every prefix of its key.
    Statement,
    /// By a program tuned by hand, level by level.
    Levels,
}

/// Rolls the Parquet files in `data` up over all prefixes into the file `out`.
pub(super) fn run(
    python: &Path,
    data: &Path,
    out: &Path,
    point: &[u8],
    how: How,
) -> anyhow::Result<Found> {
    let output = Command::new(python)
        .args(["-c", SCRIPT])
        .arg(data)
        .arg(out)
        .arg(String::from_utf8_lossy(point).as_ref())
        .arg(match how {
            How::Statement => "statement",
            How::Levels => "levels",
        })
        .output()
        .with_context(|| format!("cannot start {}", python.display()))?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "DuckDB failed: {complaint}");
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("DuckDB said nothing: {complaint}"))
}
