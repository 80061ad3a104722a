//! A process that builds an index, and its resource usage.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

/// Memory of a build.
const MEMORY: &str = "256MiB";

/// The report of a process that built an index.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct Built {
    pub(super) objects: u64,
    pub(super) prefixes: u64,
    pub(super) runs: u64,
    pub(super) index_bytes: u64,
    pub(super) seconds: f64,
    pub(super) cpu_seconds: f64,
    pub(super) peak_rss_bytes: u64,
}

/// Runs `forebay inventory build` in a child process.
pub(super) fn spawn(from: &Path, out: &Path, histograms: bool) -> anyhow::Result<Built> {
    let program = std::env::current_exe().context("cannot determine the path of this program")?;
    let mut command = Command::new(program);
    command.args(["inventory", "build", "--json", "--replace", "--memory", MEMORY, "--from"]);
    command.arg(from).arg("--out").arg(out);
    if !histograms {
        command.arg("--no-histograms");
    }
    let output = command.output().context("cannot start a build")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "a build failed: {complaint}");
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("a build reported nothing: {complaint}"))
}
