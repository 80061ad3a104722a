//! `cargo xtask bench <subsystem>`: measure, compare with the bars, write it down.
//!
//! `forebay bench <subsystem> --json` prints one object (see [`report::Report`]); this task builds
//! it optimised, runs it, prints its figures beside the bars and the source documents' claims, and
//! replaces the subsystem's section of BENCHMARKS.md. A bar that is missed, or whose figure was not
//! measured, fails the task: a figure that was not measured is not a figure.

mod against;
mod bars;
mod cache;
mod connectors;
mod events;
mod intake;
mod inventory;
mod page;
mod pipeline;
mod report;
mod table;

use std::path::PathBuf;

use anyhow::{Context as _, bail};

use crate::command::{FEATURES_WITH_PEERS, PEERS, cargo, output, root, say};
use bars::{Bar, Claim};
use report::{Figure, Report};

/// What one subsystem is measured against.
struct Subsystem {
    name: &'static str,
    bars: &'static [Bar],
    claims: &'static [Claim],
    /// Names of figures, and what each is.
    figures: &'static [(&'static str, &'static str)],
}

/// To add one: a file beside this with its bars, claims and figures, and a line here.
const SUBSYSTEMS: [Subsystem; 6] = [
    Subsystem {
        name: "intake",
        bars: &intake::BARS,
        claims: &intake::CLAIMS,
        figures: &intake::FIGURES,
    },
    Subsystem {
        name: "cache",
        bars: &cache::BARS,
        claims: &cache::CLAIMS,
        figures: &cache::FIGURES,
    },
    Subsystem {
        name: "events",
        bars: &events::BARS,
        claims: &events::CLAIMS,
        figures: &events::FIGURES,
    },
    Subsystem {
        name: "inventory",
        bars: &inventory::BARS,
        claims: &inventory::CLAIMS,
        figures: inventory::FIGURES,
    },
    Subsystem {
        name: "pipeline",
        bars: &pipeline::BARS,
        claims: &pipeline::CLAIMS,
        figures: pipeline::FIGURES,
    },
    Subsystem {
        name: "connectors",
        bars: &connectors::BARS,
        claims: &connectors::CLAIMS,
        figures: connectors::FIGURES,
    },
];

impl Subsystem {
    /// What the figure called `name` is, in the measurement's own words if it has any.
    fn what<'a>(&self, name: &str, figure: &'a Figure) -> &'a str {
        if figure.what.is_empty() {
            let known = self.figures.iter().find(|(known, _)| *known == name);
            known.map_or("", |(_, what)| what)
        } else {
            &figure.what
        }
    }
}

/// Arguments of the task.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Subsystem to measure.
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(SUBSYSTEMS.iter().map(|s| s.name)))]
    subsystem: String,
    /// Cargo profile for the build. Published results use `dist`.
    #[arg(long, default_value = "release")]
    profile: String,
    /// Compare the results in FILE instead of measuring.
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Build this revision too, and compare the working tree with it in alternating runs (only
    /// pipeline).
    #[arg(long, value_name = "REV", conflicts_with_all = ["from", "no_write"])]
    against: Option<String>,
    /// Do not update BENCHMARKS.md.
    #[arg(long)]
    no_write: bool,
    /// Arguments for `forebay bench`.
    #[arg(last = true)]
    rest: Vec<String>,
}

/// The task.
///
/// # Errors
/// The measurement failed, or a bar was missed.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let subsystem = SUBSYSTEMS
        .iter()
        .find(|subsystem| subsystem.name == args.subsystem)
        .with_context(|| format!("no targets for {}", args.subsystem))?;
    if let Some(revision) = &args.against {
        if subsystem.name != "pipeline" {
            bail!("only pipeline can be compared with another revision");
        }
        return against::run(revision, &args.profile, &args.rest);
    }
    let command = command_line(args);
    let json = match &args.from {
        Some(path) => std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?,
        None => measure(args)?,
    };
    let mut report = Report::parse(&json)?;
    if args.from.is_none() {
        report.machine.extend(machine());
    }
    let section = page::section(subsystem, &report, &command, &today());
    say(&section);
    if !args.no_write {
        write(subsystem.name, &section)?;
    }
    let missed: Vec<_> = subsystem
        .bars
        .iter()
        .filter(|bar| !bar.judge(&report).passes())
        .map(|bar| bar.name)
        .collect();
    if !missed.is_empty() {
        bail!("targets missed: {}", missed.join("; "));
    }
    Ok(())
}

fn command_line(args: &Args) -> String {
    let rest =
        if args.rest.is_empty() { String::new() } else { format!(" -- {}", args.rest.join(" ")) };
    format!("cargo xtask bench {} --profile {}{rest}", args.subsystem, args.profile)
}

/// Cargo's task (`run` or `build`) for the program with these features.
fn forebay(task: &str, features: &str, profile: &str) -> std::process::Command {
    let mut command = cargo();
    command.args([task, "--quiet", "--locked", "--package", "forebay"]);
    command.args(["--features", features, "--profile", profile]);
    command
}

fn measure(args: &Args) -> anyhow::Result<String> {
    // The others have no part that the default build leaves out, and it is built in half the time.
    let features = match args.subsystem.as_str() {
        "pipeline" | "connectors" => FEATURES_WITH_PEERS,
        _ => PEERS,
    };
    let mut command = forebay("run", features, &args.profile);
    command.args(["--", "bench", &args.subsystem, "--json"]);
    if args.subsystem == "intake" {
        command.arg("--versitygw").arg(versitygw()?);
    }
    if args.subsystem == "events" {
        command.arg("--peers").arg(events_peers()?);
    }
    if args.subsystem == "inventory" {
        command.arg("--peer-python").arg(venv("duckdb-2.0.0", &[DUCKDB])?);
    }
    if args.subsystem == "connectors" {
        crate::connectors::build_all(crate::connectors::RELEASE)?;
        command.arg("--components").arg(crate::connectors::dir());
    }
    if args.subsystem == "pipeline" {
        let python = venv("pipeline-1", &PIPELINE_PEERS)?;
        command.arg("--lineitem").arg(lineitem(&python)?);
        command.arg("--peer-python").arg(python);
    }
    output(command.args(&args.rest))
}

/// Builds the program that puts the events' load on other engines, and returns where it is.
///
/// RocksDB's own sources are compiled once, which takes minutes and needs clang's library.
fn events_peers() -> anyhow::Result<PathBuf> {
    if !has_libclang() {
        crate::setup::install(&["libclang-dev", "g++"]);
    }
    let folder = root().join("bench/events");
    let target = root().join("target/peers");
    let mut command = cargo();
    command.args(["build", "--quiet", "--release", "--locked", "--manifest-path"]);
    command.arg(folder.join("Cargo.toml")).env("CARGO_TARGET_DIR", &target);
    output(&mut command).context(
        "cannot build the event store's peers; RocksDB needs clang: apt-get install libclang-dev",
    )?;
    Ok(target.join("release/events-peers"))
}

/// Builds versitygw once; returns where it is.
fn versitygw() -> anyhow::Result<PathBuf> {
    let dir = crate::versitygw::peer();
    let program = dir.join("versitygw");
    if !program.exists() {
        let mut go = crate::versitygw::build_into(&dir);
        output(&mut go).context("cannot build versitygw, which needs Go: https://go.dev/dl")?;
    }
    Ok(program)
}

/// DuckDB as it comes from PyPI, of the version the figures are of.
const DUCKDB: &str = "duckdb==2.0.0";

/// What the pipeline is compared with, as it comes from PyPI, and what makes TPC-H's tables.
const PIPELINE_PEERS: [&str; 11] = [
    "dlt[postgres]==1.31.0",
    "sqlalchemy",
    "sling-linux-amd64==1.4.11",
    "psycopg2-binary",
    "tpchgen-cli==4.0.0",
    "connectorx==0.4.6",
    "pyarrow",
    "duckdb==1.5.5",
    "duckdb-extensions==1.5.5",
    "duckdb-extension-postgres-scanner==1.5.5",
    "adbc-driver-postgresql",
];

/// Installs packages of PyPI into a separate virtual environment, once; returns its Python.
fn venv(name: &str, packages: &[&str]) -> anyhow::Result<PathBuf> {
    let dir = root().join("target/peers").join(name);
    let python = dir.join("bin/python");
    let ready = dir.join("ready");
    if !ready.exists() {
        let mut venv = std::process::Command::new("python3");
        output(venv.args(["-m", "venv", "--clear"]).arg(&dir))
            .context("cannot create a virtual environment, which needs python3-venv")?;
        let mut pip = std::process::Command::new(&python);
        pip.args(["-m", "pip", "--disable-pip-version-check", "install", "-q"]).args(packages);
        output(&mut pip).with_context(|| format!("cannot download {}", packages.join(", ")))?;
        std::fs::write(&ready, "").with_context(|| format!("cannot write to {}", dir.display()))?;
    }
    Ok(python)
}

/// TPC-H's lineitem of about a million rows, as `|`-separated values; made once.
fn lineitem(python: &std::path::Path) -> anyhow::Result<PathBuf> {
    let dir = root().join("target/peers/tpch");
    let file = dir.join("lineitem.csv");
    if !file.exists() {
        std::fs::create_dir_all(&dir)
            .with_context(|| format!("cannot create {}", dir.display()))?;
        let program = python.with_file_name("tpchgen-cli");
        let mut make = std::process::Command::new(program);
        make.args(["tbl", "-s", "0.17", "--tables", "lineitem", "--output-dir"]).arg(&dir);
        output(&mut make).context("cannot create TPC-H's lineitem")?;
        let made = std::fs::read_to_string(dir.join("lineitem.tbl"))
            .context("cannot read lineitem.tbl")?;
        // A bar at the end of a line is one field too many for COPY.
        let lines: String =
            made.lines().flat_map(|line| [line.strip_suffix('|').unwrap_or(line), "\n"]).collect();
        std::fs::write(&file, lines).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(file)
}

fn write(name: &str, section: &str) -> anyhow::Result<()> {
    let path = root().join("BENCHMARKS.md");
    let failed = || format!("cannot update {}", path.display());
    let before = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => page::EMPTY.to_owned(),
        Err(error) => return Err(error).with_context(failed),
    };
    std::fs::write(&path, page::replace(&before, name, section)?).with_context(failed)
}

/// Whether clang's library lies where Debian puts it, or where the environment says.
fn has_libclang() -> bool {
    let llvm = std::fs::read_dir("/usr/lib").into_iter().flatten().filter_map(Result::ok);
    std::env::var_os("LIBCLANG_PATH").is_some()
        || llvm
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("llvm-"))
            .any(|entry| entry.path().join("lib/libclang.so").exists())
}

/// What is worth knowing about the machine a figure was taken on.
fn machine() -> Vec<(String, String)> {
    let field = |path: &str, key: &str| {
        let text = std::fs::read_to_string(path).ok()?;
        let line = text.lines().find(|line| line.starts_with(key))?;
        let value = line.split_once(':').map_or(line, |(_, value)| value);
        Some(value.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    let cores = std::thread::available_parallelism().ok().map(|count| count.to_string());
    [
        ("processor", field("/proc/cpuinfo", "model name")),
        ("cores", cores),
        ("memory", field("/proc/meminfo", "MemTotal")),
        ("kernel", field("/proc/sys/kernel/osrelease", "")),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name.to_owned(), value?)))
    .collect()
}

/// The date in UTC.
fn today() -> String {
    let now = jiff::Timestamp::now().to_string();
    now.split('T').next().unwrap_or(&now).to_owned()
}
