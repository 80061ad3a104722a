//! The connector of a tour that runs in a sandbox, where it is built: a source as a WebAssembly component fills Parquet
//! files, by a run that is killed, and the files are compared with the source by content hash.
//!
//! `cargo xtask connectors` builds components beside this program. A tour without them says so, and is whole.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::pipeline::Chapter;
use super::report::Report;
use super::stages::Checks;

/// Number of rows that the source makes.
const ROWS: u64 = 400_000;
/// Number of units that they are divided into.
const UNITS: u64 = 8;

/// The measurements.
#[derive(Debug, Default)]
pub(super) struct Sandboxed {
    rows: u64,
    took: Duration,
}

/// The component, if it is built.
fn component() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let file = program.parent()?.parent()?.join("connectors").join("sequence.wasm");
    file.is_file().then_some(file)
}

impl Chapter<'_> {
    /// Copies rows from a component, if it is built.
    pub(super) fn sandbox(&self, report: &mut Report) -> anyhow::Result<Sandboxed> {
        if !cfg!(feature = "wasm") {
            report.line("  Connectors in a sandbox are left out of this build; `--features full` adds them.")?;
            return Ok(Sandboxed::default());
        }
        let Some(component) = component() else {
            report.line(
                "  No connector in a sandbox is built; `cargo xtask connectors` builds some.",
            )?;
            return Ok(Sandboxed::default());
        };
        let dir = self.scratch.join("sandbox");
        std::fs::create_dir_all(&dir).context("cannot create a directory for components")?;
        self.install(&dir, &component)?;
        let (path, out) = (dir.join("sandbox.yaml"), dir.join("parquet"));
        let file = format!(
            "version: 1\npipeline: tour-sandbox\nsource:\n  use: wasm:sequence\n  config: {{rows: {ROWS}, \
             rows_per_unit: {}}}\n  streams: [{{name: numbers}}]\ndestination:\n  use: parquet\n  config: {{path: {out:?}}}\nresources: {{parallelism: 1}}\n",
            ROWS / UNITS
        );
        std::fs::write(&path, file).context("cannot write a pipeline file")?;
        let was_killed = self.kill_early(&dir, &path, &out.join("numbers"))?;
        let begun = Instant::now();
        let run = self.run_file(&dir, &path)?;
        let took = begun.elapsed();
        let stream = run.pointer("/streams/0").cloned().unwrap_or_default();
        let before = stream.get("units_before").and_then(Value::as_u64).unwrap_or(0);
        report.line(format_args!(
            "  {ROWS} rows from a connector in a sandbox, into Parquet: {}",
            if was_killed {
                format!("killed with SIGKILL, continued after {before} committed units")
            } else {
                "completed before it could be killed".to_owned()
            }
        ))?;
        self.compare(report, &dir, &path)?;
        let rows = stream.get("rows").and_then(Value::as_u64).unwrap_or(0);
        Ok(Sandboxed { rows, took })
    }

    fn install(&self, dir: &Path, component: &Path) -> anyhow::Result<()> {
        let installed = self.program(dir).args(["connector", "install"]).arg(component).output();
        let installed = installed.context("cannot install a component")?;
        let complaint = String::from_utf8_lossy(&installed.stderr);
        ensure!(
            installed.status.success(),
            "{} was not installed: {complaint}",
            component.display()
        );
        Ok(())
    }

    /// Compares both sides by their content hashes, and the number of rows with the one asked for.
    fn compare(&self, report: &mut Report, dir: &Path, file: &Path) -> anyhow::Result<()> {
        let verified = self.verify(dir, file)?;
        let rows = verified.pointer("/streams/0/destination_rows").and_then(Value::as_u64);
        let mut problems = Vec::new();
        if verified.get("same") != Some(&json!(true)) {
            problems.push(format!("the component and Parquet differ: {verified}"));
        }
        if rows != Some(ROWS) {
            problems.push(format!("{rows:?} rows in Parquet, but {ROWS} were made"));
        }
        let mut checks = Checks::new(report);
        checks.add("rows on both sides, by content hash", ROWS, problems)?;
        let rows = checks.rows();
        report.section("pipeline_sandbox", rows);
        Ok(())
    }
}

impl Sandboxed {
    /// Adds the figures to the report, if there are any.
    pub(super) fn add_figures(&self, report: &mut Report) {
        if self.rows > 0 {
            report.count(
                "sandbox_rows",
                "rows from a connector in a sandbox, the continued run",
                self.rows,
            );
            report.measure(
                "sandbox_rows_per_s",
                "from a component to Parquet, the continued run",
                super::report::rate(self.rows as f64, self.took),
                "/s",
            );
        }
    }
}
