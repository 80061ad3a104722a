//! The test programs of the workspace, two at a time.
//!
//! `cargo test` runs them one after another, and the longest ones mostly wait for servers. What a program printed
//! is shown when it has ended, so that nothing is mixed; what failed is shown once more at the end.

use std::collections::VecDeque;
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use cargo_metadata::{Message, TargetKind};

use crate::command::{FEATURES, apart, cargo, say, show};

/// Number of programs that run at the same time, each with a thread for each processor.
const AT_ONCE: usize = 2;
/// Packages whose integration tests take longest. They begin first, so that none is left for the end.
const LONGEST: [&str; 8] = [
    "forebay",
    "forebay-events",
    "forebay-postgres",
    "forebay-pipeline",
    "forebay-intake",
    "forebay-inventory",
    "forebay-clickhouse",
    "forebay-wasm",
];
/// What a program prints before the output of the tests that failed.
const FAILURES: &str = "\nfailures:\n";
/// Maximum number of lines of a failed program that are shown once more.
const LINES: usize = 200;

/// A test program that was built.
#[derive(Debug, PartialEq, Eq)]
struct Program {
    /// The package, and the kind of its tests.
    name: String,
    path: PathBuf,
    /// The directory of its package.
    dir: PathBuf,
    /// Its place in the order; those of one rank keep Cargo's order.
    rank: usize,
}

/// A program that has ended.
#[derive(Debug)]
struct Ended {
    name: String,
    took: Duration,
    /// What it printed.
    said: String,
    /// How it ended, if not well.
    failed: Option<String>,
}

/// Builds and runs all tests of the workspace but those in documentation.
///
/// # Errors
/// The workspace does not compile, or tests failed: their programs. All run even when one fails.
pub(super) fn run() -> anyhow::Result<()> {
    let mut programs = build()?;
    programs.sort_by_key(|program| program.rank);
    let count = programs.len();
    let ended = run_all(programs.into(), &|text| say(text))?;
    let failed: Vec<&Ended> = ended.iter().filter(|ended| ended.failed.is_some()).collect();
    for ended in &failed {
        say(format_args!("{}\n{}", line(ended), failures(&ended.said)));
    }
    if !failed.is_empty() {
        let names: Vec<&str> = failed.iter().map(|ended| ended.name.as_str()).collect();
        bail!("tests failed: {}", names.join(", "));
    }
    say(format_args!("{count} test programs passed"));
    Ok(())
}

/// Builds the programs.
fn build() -> anyhow::Result<Vec<Program>> {
    let mut build = cargo();
    build.args(["test", "--workspace", "--features", FEATURES, "--locked", "--no-run"]);
    build.args(["--message-format", "json-render-diagnostics"]).stdout(Stdio::piped());
    let shown = show(&build);
    say(format_args!("$ {shown}"));
    let mut building = build.spawn().with_context(|| format!("cannot start {shown}"))?;
    let said = building.stdout.take().context("the output of cargo is missing")?;
    let mut programs = Vec::new();
    for message in Message::parse_stream(BufReader::new(said)) {
        if let Message::CompilerArtifact(artifact) = message.context("cannot read from cargo")? {
            programs.extend(program(artifact));
        }
    }
    let status = building.wait().with_context(|| format!("cannot wait for {shown}"))?;
    ensure!(status.success(), "{shown} failed ({status})");
    ensure!(!programs.is_empty(), "{shown} built no tests");
    Ok(programs)
}

/// The test program that an artifact is.
fn program(artifact: cargo_metadata::Artifact) -> Option<Program> {
    let path = artifact.executable.filter(|_| artifact.profile.test)?;
    let dir = artifact.manifest_path.parent()?;
    let package = match dir.file_name()? {
        "forebay" | "xtask" => dir.file_name()?.to_owned(),
        directory => format!("forebay-{directory}"),
    };
    let is_integration = artifact.target.kind.contains(&TargetKind::Test);
    let rank = LONGEST.iter().position(|name| is_integration && *name == package);
    let name = match is_integration {
        true => format!("{package} {}", artifact.target.name),
        false => package,
    };
    let rank = rank.unwrap_or(LONGEST.len());
    Some(Program { name, path: path.into(), dir: dir.into(), rank })
}

/// Runs programs and shows what they print.
fn run_all(
    programs: VecDeque<Program>,
    show: &(dyn Fn(&str) + Sync),
) -> anyhow::Result<Vec<Ended>> {
    let (queue, all) = (Mutex::new(programs), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        let work = || -> anyhow::Result<()> {
            loop {
                let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                let Some(program) = next else { return Ok(()) };
                show(&format!("{}: ...", program.name));
                let ended = run_one(program)?;
                let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
                show(&format!("{}\n{}", ended.said, line(&ended)));
                all.push(ended);
            }
        };
        let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            match thread.join() {
                Ok(ended) => ended?,
                Err(_) => bail!("a thread that ran tests panicked"),
            }
        }
        Ok(())
    })?;
    Ok(all.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Runs a program as Cargo does: in the directory of its package.
fn run_one(program: Program) -> anyhow::Result<Ended> {
    let Program { name, path, dir, .. } = program;
    let output = tempfile::NamedTempFile::new().context("cannot create a file for output")?;
    let into = |file: &File| file.try_clone().context("cannot share a file for output");
    let mut test = Command::new(&path);
    apart(&mut test);
    test.current_dir(&dir).env("CARGO_MANIFEST_DIR", &dir).stdin(Stdio::null());
    test.stdout(into(output.as_file())?).stderr(into(output.as_file())?);
    let begun = Instant::now();
    let status = test.status().with_context(|| format!("cannot start {}", path.display()))?;
    let said = std::fs::read(output.path()).context("cannot read what tests printed")?;
    let said = String::from_utf8_lossy(&said).into_owned();
    let failed = (!status.success()).then(|| status.to_string());
    Ok(Ended { name, took: begun.elapsed(), said, failed })
}

fn line(ended: &Ended) -> String {
    let seconds = ended.took.as_secs_f64();
    match &ended.failed {
        None => format!("{}: passed in {seconds:.1} s", ended.name),
        Some(how) => format!("{}: FAILED in {seconds:.1} s ({how})", ended.name),
    }
}

/// What a program says of the tests that failed, at its end.
fn failures(said: &str) -> String {
    let from = said.find(FAILURES).map_or(0, |at| at + FAILURES.len());
    let lines: Vec<&str> = said.get(from..).unwrap_or_default().lines().collect();
    let last = lines.len().saturating_sub(LINES);
    lines.get(last..).unwrap_or_default().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(dir: &std::path::Path, name: &str, text: &str) -> Program {
        use std::os::unix::fs::PermissionsExt as _;
        let path = dir.join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        Program { name: name.to_owned(), path, dir: dir.to_owned(), rank: 0 }
    }

    #[test]
    fn all_programs_run_and_those_that_failed_are_known() {
        let dir = tempfile::tempdir().unwrap();
        let programs = [
            script(dir.path(), "sound", "echo ok; pwd"),
            script(
                dir.path(),
                "failing",
                "echo 'test a ... FAILED'; printf '\\nfailures:\\nwhy\\n'; exit 101",
            ),
            script(dir.path(), "last", "echo \"${CARGO_PKG_NAME:-none}\" >&2"),
        ];
        let mut ended = run_all(VecDeque::from(programs), &|_| {}).unwrap();
        ended.sort_by(|a, b| a.name.cmp(&b.name));
        let [failing, last, sound] = ended.as_slice() else { panic!("{ended:?}") };
        assert!(failing.failed.as_deref().is_some_and(|how| how.contains("101")), "{failing:?}");
        assert_eq!(failures(&failing.said), "why");
        assert_eq!((last.failed.as_deref(), last.said.as_str()), (None, "none\n"));
        let place = dir.path().canonicalize().unwrap();
        assert_eq!(sound.said, format!("ok\n{}\n", place.display()));
    }

    #[test]
    fn a_program_without_a_list_of_failures_is_shown_whole_to_a_limit() {
        let said = (0..300).map(|line| format!("{line}\n")).collect::<String>();
        let shown = failures(&said);
        assert_eq!((shown.lines().next(), shown.lines().count()), (Some("100"), LINES));
    }
}
