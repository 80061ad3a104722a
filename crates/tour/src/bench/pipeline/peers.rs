//! Other tools on the same tables: dlt and Sling into the other database, ConnectorX, DuckDB and ADBC
//! into Parquet.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

use super::Stage;
use super::copies::{Ours, by_us, file_head, run};
use crate::bench::Figures;

/// The program that runs the tools.
const SCRIPT: &str = include_str!("peers.py");

/// The result of a tool.
#[derive(Debug, Clone, Deserialize)]
struct Did {
    seconds: f64,
    rows: u64,
}

fn ask(stage: &Stage<'_>, python: &Path, tool: &str, table: &str) -> anyhow::Result<Did> {
    let out = stage.scratch.join("peer");
    let output = Command::new(python)
        .args(["-c", SCRIPT, tool, table, &stage.server.port.to_string()])
        .arg(&out)
        .output()
        .with_context(|| format!("cannot start {}", python.display()))?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{tool} failed: {complaint}");
    let said = String::from_utf8_lossy(&output.stdout);
    let last = said.lines().last().unwrap_or_default();
    serde_json::from_str(last)
        .with_context(|| format!("{tool} reported nothing: {said} {complaint}"))
}

/// Measures them and Forebay.
pub(super) fn measure(
    stage: &Stage<'_>,
    python: &Path,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    let rows = stage.plan.rows as f64;
    for tool in ["sling", "dlt"] {
        (stage.note)(&format!("copying, compared with {tool}"));
        let (mut rate, mut ratio) = (Vec::new(), Vec::new());
        // The slow ones are run less often.
        for _ in 0..stage.plan.rounds.div_ceil(2).min(3) {
            let did = ask(stage, python, tool, "t")?;
            ensure!(did.rows == stage.plan.rows, "{tool} copied {} rows", did.rows);
            let (seconds, _) = by_us(stage, Ours::of("t"))?;
            rate.push(rows / did.seconds);
            ratio.push(did.seconds / seconds);
        }
        figures.median(&format!("{tool}_rows_per_s"), rate);
        figures.median(&format!("copy_of_{tool}_ratio"), ratio);
    }
    parquet(stage, python, figures)
}

/// Measures copies into Parquet: the fastest of the others in each round is the one compared.
fn parquet(stage: &Stage<'_>, python: &Path, figures: &mut Figures) -> anyhow::Result<()> {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    let rows = stage.plan.rows as f64;
    (stage.note)("into Parquet, compared with ConnectorX, DuckDB and ADBC");
    let tools = ["connectorx", "duckdb", "adbc"];
    let (mut rates, mut ours, mut ratio) = ([const { Vec::new() }; 3], Vec::new(), Vec::new());
    for _ in 0..stage.plan.rounds {
        let mut fastest = f64::INFINITY;
        for (tool, rates) in tools.iter().zip(&mut rates) {
            let did = ask(stage, python, tool, "t")?;
            ensure!(did.rows == stage.plan.rows, "{tool} wrote {} rows", did.rows);
            fastest = fastest.min(did.seconds);
            rates.push(rows / did.seconds);
        }
        let seconds = into_parquet(stage)?;
        ours.push(rows / seconds);
        ratio.push(fastest / seconds);
    }
    for (tool, rates) in tools.iter().zip(rates) {
        figures.median(&format!("{tool}_parquet_rows_per_s"), rates);
    }
    figures.median("parquet_rows_per_s", ours);
    figures.median("parquet_of_fastest_ratio", ratio);
    Ok(())
}

/// Copies by Forebay, as a whole process; both sides are then compared by their content hashes.
fn into_parquet(stage: &Stage<'_>) -> anyhow::Result<f64> {
    let out = stage.scratch.join("parquet");
    if out.exists() {
        std::fs::remove_dir_all(&out).context("cannot empty the directory of the Parquet files")?;
    }
    let file = format!(
        "{}  streams: [{{name: t, partition_key: id}}]\ndestination:\n  use: parquet\n  config: {{path: {:?}}}\n",
        file_head(stage),
        out
    );
    let (seconds, report) = run(stage, &file)?;
    let written = report.get("rows").and_then(serde_json::Value::as_u64);
    ensure!(written == Some(stage.plan.rows), "{written:?} rows were written");
    let program = std::env::current_exe().context("cannot determine the path of this program")?;
    let verified = Command::new(program)
        .args(["pipeline", "verify"])
        .arg(stage.scratch.join("bench.yaml"))
        .output()
        .context("cannot start the verification")?;
    let found = String::from_utf8_lossy(&verified.stdout);
    ensure!(verified.status.success(), "the Parquet files differ from the table: {found}");
    Ok(seconds)
}
