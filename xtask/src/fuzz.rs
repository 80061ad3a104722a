//! `cargo xtask fuzz`: builds every fuzz target and runs each for a few seconds.
//!
//! This is not a search: it shows that every target builds, accepts its seeds and all earlier
//! findings, and survives the first thousands of inputs derived from them, which are always the
//! same: a change that passes here passes in CI. For a search use `--seed 0`, more time and more
//! inputs, or `cargo +nightly fuzz run TARGET` (`fuzz/README.md`).
//!
//! The targets are built with this toolchain and libFuzzer's coverage, but without a sanitizer,
//! which needs a nightly compiler and three times as long. Overflows and wrong indexes still panic.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};

use crate::command::{cargo, platform, root, run as run_command, say};

/// Compiler flags for libFuzzer's coverage, as in `cargo fuzz`.
const COVERAGE: [&str; 6] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Ccodegen-units=16",
];
/// Memory limit of a target, in MiB, and time limit of one input in seconds.
const MEMORY_MAX_MIB: u32 = 2_048;
const INPUT_MAX_S: u32 = 20;
/// Extra time for a target: it reads its seeds, and writes its findings.
const SLACK: Duration = Duration::from_secs(60);
/// Maximum number of printed output lines of a failed target.
const LINES: usize = 40;

/// Arguments of the task.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Number of seconds to run each target.
    #[arg(long, default_value_t = 5, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    seconds: u32,
    /// Run at most COUNT inputs for each target.
    #[arg(long, default_value_t = 100_000, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    inputs: u32,
    /// Seed of the random numbers. The same seed gives the same inputs; 0 chooses a new seed for
    /// each run.
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    seed: u32,
    /// Run only these targets.
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
}

/// How a target ended.
struct Ended {
    name: String,
    /// Number of inputs it ran.
    runs: u64,
    failed: Option<String>,
}

/// The task.
///
/// # Errors
/// A target does not build, does not exist, or failed.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let fuzz = root().join("fuzz");
    let known = targets(&fuzz)?;
    if let Some(unknown) = args.targets.iter().find(|name| !known.contains(name)) {
        bail!("unknown fuzz target {unknown}; the targets are: {}", known.join(", "));
    }
    let begun = Instant::now();
    let built = build(&fuzz, &args.targets)?;
    say(format_args!("fuzz: built in {} s", begun.elapsed().as_secs()));
    let chosen = known.into_iter();
    let chosen = chosen.filter(|name| args.targets.is_empty() || args.targets.contains(name));
    let ended = run_all(&fuzz, &built, chosen.collect(), args)?;
    let failed: Vec<&str> =
        ended.iter().filter(|ended| ended.failed.is_some()).map(|ended| &*ended.name).collect();
    if !failed.is_empty() {
        bail!("fuzz: failed: {}", failed.join(", "));
    }
    say(format_args!("fuzz: {} targets passed in {} s", ended.len(), begun.elapsed().as_secs()));
    Ok(())
}

/// The names of all targets: their files.
fn targets(fuzz: &Path) -> anyhow::Result<Vec<String>> {
    let dir = fuzz.join("fuzz_targets");
    let entries =
        std::fs::read_dir(&dir).with_context(|| format!("cannot read {}", dir.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        let path = entry.context("cannot read the fuzz targets")?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
        }
    }
    names.sort();
    ensure!(!names.is_empty(), "there is no fuzz target in {}", dir.display());
    Ok(names)
}

/// Builds the targets; returns their directory.
fn build(fuzz: &Path, targets: &[String]) -> anyhow::Result<PathBuf> {
    let into = target_dir()?.join("fuzz");
    // Named, so that build scripts and macros are not instrumented.
    let platform = platform()?;
    let mut build = cargo();
    build.current_dir(fuzz).args(["build", "--locked", "--profile", "smoke"]);
    build.args(["--target", &platform]);
    match targets {
        [] => drop(build.arg("--bins")),
        named => drop(build.args(named.iter().flat_map(|name| ["--bin", name]))),
    }
    build.env("CARGO_TARGET_DIR", &into).env("CARGO_ENCODED_RUSTFLAGS", COVERAGE.join("\u{1f}"));
    run_command(&mut build)?;
    Ok(into.join(platform).join("smoke"))
}

/// The target directory of this workspace.
fn target_dir() -> anyhow::Result<PathBuf> {
    let mut ask = cargo_metadata::MetadataCommand::new();
    let metadata = ask.current_dir(root()).no_deps().exec();
    Ok(metadata
        .context("cannot get the target directory from cargo")?
        .target_directory
        .into_std_path_buf())
}

/// Runs targets in parallel, one per processor.
fn run_all(
    fuzz: &Path,
    built: &Path,
    targets: VecDeque<String>,
    args: &Args,
) -> anyhow::Result<Vec<Ended>> {
    let at_once = std::thread::available_parallelism().map_or(1, usize::from);
    let (queue, all) = (Mutex::new(targets), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..at_once)
            .map(|_| {
                scope.spawn(|| -> anyhow::Result<()> {
                    loop {
                        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                        let Some(name) = next else { return Ok(()) };
                        let ended = run_one(fuzz, built, name, args)?;
                        say(line(&ended));
                        all.lock().unwrap_or_else(PoisonError::into_inner).push(ended);
                    }
                })
            })
            .collect();
        for thread in threads {
            match thread.join() {
                Ok(ended) => ended?,
                Err(_) => bail!("a thread that ran fuzz targets panicked"),
            }
        }
        Ok(())
    })?;
    Ok(all.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn run_one(fuzz: &Path, built: &Path, name: String, args: &Args) -> anyhow::Result<Ended> {
    let (corpus, artifacts) = (fuzz.join("corpus").join(&name), fuzz.join("artifacts").join(&name));
    for dir in [&corpus, &artifacts] {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    }
    let limit = Duration::from_secs(u64::from(args.seconds)) + SLACK;
    // It ends itself if one input hangs, and is killed if it hangs otherwise.
    let mut run = Command::new("timeout");
    run.args(["-k", "5", &limit.as_secs().to_string()]).arg(built.join(&name));
    run.arg(format!("-max_total_time={}", args.seconds));
    run.arg(format!("-runs={}", args.inputs)).arg(format!("-seed={}", args.seed));
    run.arg(format!("-rss_limit_mb={MEMORY_MAX_MIB}")).arg(format!("-timeout={INPUT_MAX_S}"));
    run.arg(format!("-artifact_prefix={}/", artifacts.display())).arg("-print_final_stats=1");
    if let Some(words) = dictionary(&name) {
        run.arg(format!("-dict={}", fuzz.join("dictionaries").join(words).display()));
    }
    run.arg(&corpus);
    let seeds = fuzz.join("seeds").join(&name);
    if seeds.is_dir() {
        run.arg(seeds);
    }
    let output = run.output().with_context(|| format!("cannot start {name}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let failed = (!output.status.success()).then(|| {
        let lines: Vec<&str> = said.lines().collect();
        let last = lines.get(lines.len().saturating_sub(LINES)..).unwrap_or_default();
        format!("{}\n{}", output.status, last.join("\n"))
    });
    Ok(Ended { runs: runs(&said), name, failed })
}

/// The dictionary of a target, if there is one.
fn dictionary(name: &str) -> Option<&'static str> {
    (name == "ops_cache").then_some("cache.dict")
}

/// The number of inputs that ran, from libFuzzer's last lines.
fn runs(said: &str) -> u64 {
    let line = said.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

fn line(ended: &Ended) -> String {
    match &ended.failed {
        None => format!("{:<28} passed, {} inputs", ended.name, ended.runs),
        Some(why) => format!("{:<28} FAILED: {why}", ended.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_is_built_documented_and_every_seed_belongs_to_one() {
        let fuzz = root().join("fuzz");
        let names = targets(&fuzz).unwrap();
        let manifest = std::fs::read_to_string(fuzz.join("Cargo.toml")).unwrap();
        let page = std::fs::read_to_string(fuzz.join("README.md")).unwrap();
        for name in &names {
            assert!(manifest.contains(&format!("\nname = \"{name}\"\n")), "{name} is not built");
            assert!(page.contains(&format!("`{name}`")), "{name} is not in fuzz/README.md");
        }
        for entry in std::fs::read_dir(fuzz.join("seeds")).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(names.contains(&name), "seeds of {name}, which is no target");
        }
    }

    #[test]
    fn a_target_that_crashes_or_hangs_has_failed() {
        let dir = tempfile::tempdir().unwrap();
        let script = |name: &str, text: &str| {
            use std::os::unix::fs::PermissionsExt as _;
            let path = dir.path().join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            let args = Args { seconds: 1, inputs: 1, seed: 1, targets: Vec::new() };
            run_one(dir.path(), dir.path(), name.to_owned(), &args).unwrap()
        };
        let sound = script("sound", "echo stat::number_of_executed_units: 12 >&2");
        assert_eq!((sound.runs, sound.failed), (12, None));
        let crashed = script("crashed", "echo a panic >&2; exit 77");
        assert!(crashed.failed.is_some_and(|why| why.contains("a panic")));
    }
}
