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

/// A build to run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Build {
    /// Number of objects that it must index.
    pub(super) objects: u64,
    /// Whether the index has histograms.
    pub(super) histograms: bool,
    /// Limit on open files, below that of this process.
    pub(super) open_files: Option<u32>,
}

impl Build {
    /// With histograms and the usual limit on open files.
    pub(super) const fn new(objects: u64) -> Self {
        Self { objects, histograms: true, open_files: None }
    }

    /// Runs `forebay inventory build` in a child process.
    pub(super) fn run(&self, from: &Path, out: &Path) -> anyhow::Result<Built> {
        let program =
            std::env::current_exe().context("cannot determine the path of this program")?;
        let mut command = match self.open_files {
            None => Command::new(program),
            Some(files) => {
                let mut shell = Command::new("sh");
                shell
                    .arg("-c")
                    .arg(format!("ulimit -n {files} && exec \"$0\" \"$@\""))
                    .arg(program);
                shell
            }
        };
        command.args(["inventory", "build", "--json", "--replace", "--memory", MEMORY, "--from"]);
        command.arg(from).arg("--out").arg(out);
        if !self.histograms {
            command.arg("--no-histograms");
        }
        let output = command.output().context("cannot start a build")?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "a build failed: {complaint}");
        let built: Built = serde_json::from_slice(&output.stdout)
            .with_context(|| format!("a build reported nothing: {complaint}"))?;
        ensure!(built.objects == self.objects, "only {} objects were indexed", built.objects);
        Ok(built)
    }
}
