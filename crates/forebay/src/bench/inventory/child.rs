//! One process that builds an index, and what it cost.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use anyhow::{Context as _, ensure};
use forebay_base::bytes::ByteSize;
use forebay_base::fs::{FileSystem, RealFs};
use forebay_inventory::build::{self, Monitor, OnBadRow, Options};
use forebay_inventory::object::Classes;
use forebay_inventory::source::{self, Settings, Spec};
use serde::{Deserialize, Serialize};

use super::MEMORY;
use crate::child::{cpu_seconds_of, memory_of};

/// What is built.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Build {
    /// What is read.
    #[arg(long)]
    pub(crate) from: String,
    /// Where the index is made.
    #[arg(long)]
    pub(crate) out: PathBuf,
    /// Memory for the build.
    #[arg(long, default_value = MEMORY)]
    pub(crate) memory: ByteSize,
    /// Leave the histograms out.
    #[arg(long)]
    pub(crate) no_histograms: bool,
}

/// What a process that built an index found.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Built {
    pub(crate) objects: u64,
    pub(crate) prefixes: u64,
    pub(crate) bytes: u64,
    pub(crate) runs: u64,
    pub(crate) seconds: f64,
    pub(crate) cpu_seconds: f64,
    pub(crate) peak_rss_bytes: u64,
}

/// Builds an index in a process of its own.
pub(super) fn spawn(from: &str, out: &Path, histograms: bool) -> anyhow::Result<Built> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut command = Command::new(program);
    command.args(["bench", "inventory-build", "--from", from, "--out"]).arg(out);
    if !histograms {
        command.arg("--no-histograms");
    }
    let output = command.output().context("cannot start a build")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "a build failed: {complaint}");
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("a build said nothing: {complaint}"))
}

/// The process.
pub(crate) fn run(args: &Build) -> anyhow::Result<()> {
    let started = Instant::now();
    let classes = Arc::new(Classes::new());
    let spec: Spec = args.from.parse()?;
    let source = source::open(&[spec], &Settings::new(Arc::clone(&classes)))?;
    let fs: Arc<dyn FileSystem> = Arc::new(RealFs);
    let options = options(args.memory, !args.no_histograms)?;
    let monitor = Monitor::default();
    let built = build::build(&fs, source.as_ref(), &classes, &args.out, &options, &monitor)?;
    let pid = std::process::id();
    crate::out::line(serde_json::to_string(&Built {
        objects: built.objects,
        prefixes: built.prefixes,
        bytes: built.bytes,
        runs: built.runs as u64,
        seconds: started.elapsed().as_secs_f64(),
        cpu_seconds: cpu_seconds_of(pid)?,
        peak_rss_bytes: memory_of(pid, "VmHWM")?,
    })?)
}

/// As an index is usually built.
pub(super) fn options(memory: ByteSize, histograms: bool) -> anyhow::Result<Options> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    Ok(Options {
        memory,
        threads: std::thread::available_parallelism().map_or(2, usize::from),
        delimiter: b'/',
        histograms,
        on_bad_row: OnBadRow::Fail,
        on_duplicate: OnBadRow::Fail,
        expect_rows: None,
        replace: true,
        now_ms: u64::try_from(now.as_millis())?,
    })
}
