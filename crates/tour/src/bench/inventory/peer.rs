//! DuckDB on the same Parquet files.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

use super::Stage;
use super::builds::MIB;
use super::child::Built;
use super::plain::Map;
use crate::bench::Figures;

/// The program that runs DuckDB.
const SCRIPT: &str = include_str!("rollup.py");

/// The result of DuckDB.
#[derive(Debug, Clone, Deserialize)]
struct Measurement {
    /// CPU and elapsed seconds from the first statement to the last row on disk.
    cpu_s: f64,
    wall_s: f64,
    peak_rss_bytes: u64,
    prefixes: u64,
    objects: u64,
    bytes: u64,
    point_ms: f64,
    top_ms: f64,
}

/// The kind of query.
#[derive(Debug, Clone, Copy)]
enum Method {
    /// One statement that counts each object at every prefix of its key.
    Statement,
    /// A program optimised by hand, level by level.
    Levels,
}

/// Aggregates the Parquet files in `data` over all prefixes into the file `out`.
fn run(
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

/// DuckDB's results for one shape, one for each round.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    statement: Vec<Measurement>,
    levels: Vec<Measurement>,
    /// Bytes of the result for each prefix.
    size_per_prefix: f64,
}

impl Rounds {
    /// Measures one round, and checks the sums.
    pub(super) fn measure(
        &mut self,
        stage: &Stage<'_>,
        data: &Path,
        expected: &Map,
    ) -> anyhow::Result<()> {
        let Some(python) = &stage.plan.peer_python else { return Ok(()) };
        let root = expected.get(&b""[..]).context("nothing was generated")?;
        let point = expected.keys().max().context("nothing was generated")?;
        let out = stage.scratch.join("duckdb.parquet");
        let kinds = [(Method::Statement, &mut self.statement), (Method::Levels, &mut self.levels)];
        for (how, taken) in kinds {
            let found = run(python, data, &out, point, how)?;
            let right = found.prefixes == expected.len() as u64
                && (found.objects, found.bytes) == (root.objects(), root.bytes());
            ensure!(right, "DuckDB returned another sum: {found:?}");
            taken.push(found);
        }
        let size = std::fs::metadata(&out).context("DuckDB wrote nothing")?.len();
        self.size_per_prefix = size as f64 / expected.len() as f64;
        Ok(())
    }

    /// Adds the figures of shape `name`, beside those of the builds with histograms and without.
    pub(super) fn report(self, name: &str, full: &[Built], bare: &[Built], figures: &mut Figures) {
        if self.statement.is_empty() {
            return;
        }
        figures.add(&format!("duckdb_{name}_size_per_prefix_bytes"), self.size_per_prefix);
        for (what, built) in [("", full), ("plain_", bare)] {
            let pairs = built.iter().zip(&self.statement);
            let ratios = pairs.map(|(our, their)| our.cpu_seconds / their.cpu_s).collect();
            figures.median(&format!("{name}_{what}cpu_of_duckdb_ratio"), ratios);
        }
        let pairs = full.iter().zip(&self.levels);
        let ratios = pairs.map(|(our, their)| our.cpu_seconds / their.cpu_s).collect();
        figures.median(&format!("{name}_cpu_of_tuned_duckdb_ratio"), ratios);
        let seconds = self.levels.iter().map(|found| found.cpu_s).collect();
        figures.median(&format!("tuned_duckdb_{name}_cpu_s"), seconds);
        let mut median = |what: &str, of: &dyn Fn(&Measurement) -> f64| {
            let samples = self.statement.iter().map(of).collect();
            figures.median(&format!("duckdb_{name}_{what}"), samples);
        };
        median("cpu_s", &|found| found.cpu_s);
        median("s", &|found| found.wall_s);
        median("peak_memory_mib", &|found| found.peak_rss_bytes as f64 / MIB);
        median("point_query_ms", &|found| found.point_ms);
        median("top_100_ms", &|found| found.top_ms);
    }
}
