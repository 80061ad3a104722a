//! The pipeline chapter of a tour: copies a list of a tree's files from CSV to Parquet, by a
//! run that is killed, then aggregates it with SQL and compares the result with a plain walk.
//!
//! The list of files is written as several CSV files. A run that copies them to Parquet is killed
//! as soon as one file of them is committed; the next run continues, and the two sides are compared
//! by their content hashes. Then a query counts files and bytes by file name extension, and its
//! rows are compared with counts made while the list was written. Connectors in a sandbox follow, where they are built.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use arrow::array::{Array as _, AsArray as _};
use arrow::datatypes::Int64Type;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Value, json};

use super::HANGS_AFTER;
use super::report::{Report, rate};
use super::sandbox::Sandboxed;
use super::stages::Checks;
use forebay_console::interrupt::Interrupt;
use forebay_console::out::size;

/// Maximum number of files in the list.
const FILES_MAX: usize = 200_000;
/// Number of files the list is divided into.
const CUT_INTO: usize = 8;
/// Interval between checks whether a run has written something.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// A pipeline chapter in progress.
pub(super) struct Chapter<'a> {
    pub(super) tree: &'a Path,
    pub(super) interrupt: &'a Interrupt,
    pub(super) scratch: &'a Path,
}

/// The measurements.
#[derive(Debug, Default)]
pub(super) struct Measured {
    rows: u64,
    bytes: u64,
    took: Duration,
    sandboxed: Sandboxed,
}

/// Files and bytes by the extension of their names.
type Counted = BTreeMap<String, (i64, i64)>;

impl Chapter<'_> {
    /// Runs the chapter.
    pub(super) fn run(&self, report: &mut Report) -> anyhow::Result<Measured> {
        report.chapter("The pipeline")?;
        let dir = self.scratch.join("pipeline");
        std::fs::create_dir_all(dir.join("list"))
            .context("cannot create a directory for the list")?;
        let (rows, counted) = self.write_list(&dir.join("list"))?;
        let mut measured = Measured { rows, ..Measured::default() };
        self.copy(report, &dir, &mut measured)?;
        if cfg!(feature = "sql") {
            self.query(report, &dir, &counted)?;
        } else {
            report.line("  SQL is left out of this build; `--features full` adds it.")?;
        }
        measured.sandboxed = self.sandbox(report)?;
        Ok(measured)
    }

    /// Writes the list of files; returns their number and the expected aggregate.
    fn write_list(&self, into: &Path) -> anyhow::Result<(u64, Counted)> {
        let mut counted = Counted::new();
        let mut lists = vec![String::from("path,ending,bytes,modified_s\n"); CUT_INTO];
        let entries = walkdir::WalkDir::new(self.tree).into_iter().filter_map(Result::ok);
        let files = entries.filter(|entry| entry.file_type().is_file()).filter_map(|entry| {
            let size = i64::try_from(entry.metadata().ok()?.len()).ok()?;
            let modified = entry.metadata().ok()?.modified().ok()?;
            let modified = modified.duration_since(std::time::UNIX_EPOCH).ok()?.as_secs();
            Some((entry.path().to_str()?.to_owned(), size, modified))
        });
        let mut rows = 0;
        for (index, (path, size, modified)) in files.take(FILES_MAX).enumerate() {
            self.interrupt.check()?;
            let ending = Path::new(&path).extension().and_then(|it| it.to_str()).unwrap_or("");
            let ending = if ending.is_empty() { "none" } else { ending };
            let count = counted.entry(ending.to_owned()).or_insert((0, 0));
            count.0 += 1;
            count.1 += size;
            let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
            if let Some(list) = lists.get_mut(index % CUT_INTO) {
                writeln!(list, "{},{},{size},{modified}", quoted(&path), quoted(ending))?;
            }
            rows += 1;
        }
        for (index, list) in lists.iter().enumerate() {
            let path = into.join(format!("files-{index}.csv"));
            std::fs::write(&path, list)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok((rows, counted))
    }

    /// Copies the list to Parquet, through a kill.
    fn copy(&self, report: &mut Report, dir: &Path, measured: &mut Measured) -> anyhow::Result<()> {
        let out = dir.join("parquet");
        let file = format!(
            "version: 1\npipeline: tour-copy\nsource:\n  use: csv\n  config:\n    path: {:?}\n    columns: \
             {{path: text, ending: text, bytes: bigint, modified_s: bigint}}\n  streams: [{{name: \
             'files-*.csv', into: files}}]\ndestination:\n  use: parquet\n  config: {{path: {out:?}}}\n\
             resources: {{parallelism: 1}}\n",
            dir.join("list")
        );
        let path = dir.join("copy.yaml");
        std::fs::write(&path, file).context("cannot write a pipeline file")?;
        let was_killed = self.kill_early(dir, &path, &out.join("files"))?;
        let begun = Instant::now();
        let run = self.run_file(dir, &path)?;
        measured.took = begun.elapsed();
        measured.bytes = run["bytes"].as_u64().unwrap_or(0);
        let stream = &run["streams"][0];
        let before = stream["units_before"].as_u64().unwrap_or(0);
        report.line(format_args!(
            "  {} files listed in {CUT_INTO} CSV files, into Parquet: {}",
            measured.rows,
            if was_killed {
                format!("killed with SIGKILL, continued after {before} committed units")
            } else {
                "completed before it could be killed".to_owned()
            }
        ))?;
        let verified = self.verify(dir, &path)?;
        let rows = verified["streams"][0]["destination_rows"].as_u64().unwrap_or(0);
        let mut problems = Vec::new();
        if verified["same"] != json!(true) {
            problems.push(format!("CSV and Parquet differ: {verified}"));
        }
        if rows != measured.rows {
            problems.push(format!("{rows} rows in Parquet, but {} were listed", measured.rows));
        }
        let mut checks = Checks::new(report);
        checks.add("rows on both sides, by content hash", measured.rows, problems)?;
        let rows = checks.rows();
        report.section("pipeline_copy", rows);
        Ok(())
    }

    /// Compares both sides of a pipeline; returns the report.
    pub(super) fn verify(&self, dir: &Path, file: &Path) -> anyhow::Result<Value> {
        let verified = self.command(dir).args(["verify", "--json"]).arg(file).output();
        let verified = verified.context("cannot start a verification")?;
        let complaint = String::from_utf8_lossy(&verified.stderr);
        serde_json::from_slice(&verified.stdout).with_context(|| {
            format!("a verification ({}) printed no report: {complaint}", verified.status)
        })
    }

    /// Starts a run and kills it as soon as it has committed something; returns whether it was
    /// still running.
    pub(super) fn kill_early(&self, dir: &Path, file: &Path, out: &Path) -> anyhow::Result<bool> {
        let log = self.scratch.join("pipeline.log");
        let errors = std::fs::File::create(&log)
            .with_context(|| format!("cannot write {}", log.display()))?;
        let mut run = self.command(dir);
        run.args(["run", "--json"]).arg(file).stdout(Stdio::null()).stderr(errors);
        let mut run = Run(run.spawn().context("cannot start a run")?);
        let begun = Instant::now();
        loop {
            self.interrupt.check()?;
            let is_there = std::fs::read_dir(out).is_ok_and(|mut entries| {
                entries.any(|entry| {
                    entry.is_ok_and(|entry| {
                        entry.path().extension().is_some_and(|it| it == "parquet")
                    })
                })
            });
            if let Some(status) = run.0.try_wait().context("cannot wait for a run")? {
                ensure!(status.success(), "{} failed ({status})", file.display());
                return Ok(false);
            }
            if is_there {
                run.0.kill().context("cannot kill a run")?;
                run.0.wait().context("cannot wait for a run")?;
                return Ok(true);
            }
            let limit = HANGS_AFTER;
            ensure!(begun.elapsed() < limit, "nothing was committed within {} s", limit.as_secs());
            std::thread::park_timeout(POLL_INTERVAL);
        }
    }

    /// Counts by extension in SQL, and compares with the counts made while the list was written.
    fn query(&self, report: &mut Report, dir: &Path, counted: &Counted) -> anyhow::Result<()> {
        let (from, out) = (dir.join("parquet"), dir.join("endings"));
        let file = format!(
            "version: 1\npipeline: tour-query\nsource:\n  use: parquet\n  config: {{path: {from:?}}}\n  \
             streams: [{{name: 'files/*.parquet', into: files}}]\ntransforms:\n  - sql:\n      query: >\n        \
             select ending, count(*) as files, cast(sum(bytes) as bigint) as bytes from files group by \
             ending\n      into: endings\ndestination:\n  use: parquet\n  config: {{path: {out:?}}}\n  \
             write_mode: replace\n"
        );
        let path = dir.join("query.yaml");
        std::fs::write(&path, file).context("cannot write a pipeline file")?;
        self.run_file(dir, &path)?;
        let found = read_counts(&out.join("endings"))?;
        let mut largest: Vec<_> = found.iter().collect();
        largest.sort_by_key(|(_, (_, bytes))| -bytes);
        for (ending, (files, bytes)) in largest.into_iter().take(3) {
            let bytes = u64::try_from(*bytes).unwrap_or(0);
            report.line(format_args!("    {:>10}  .{ending}, {files} files", size(bytes)))?;
        }
        let problems = counted
            .iter()
            .filter(|(ending, count)| found.get(*ending) != Some(count))
            .map(|(ending, count)| {
                format!(".{ending}: counted {count:?}, SQL returned {:?}", found.get(ending))
            });
        let mut problems: Vec<String> = problems.collect();
        if found.len() != counted.len() {
            problems.push(format!(
                "SQL returned {} groups instead of {}",
                found.len(),
                counted.len()
            ));
        }
        let mut checks = Checks::new(report);
        checks.add(
            "groups counted in SQL, compared with a walk",
            counted.len() as u64,
            problems,
        )?;
        let rows = checks.rows();
        report.section("pipeline_query", rows);
        Ok(())
    }

    /// Returns `forebay pipeline`, without settings from the environment.
    fn command(&self, dir: &Path) -> Command {
        let mut command = self.program(dir);
        command.arg("pipeline");
        command
    }

    /// Returns `forebay`, without settings from the environment.
    pub(super) fn program(&self, dir: &Path) -> Command {
        // The binary is this running program; its path was checked at the start.
        let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("forebay"));
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"FOREBAY_") {
                command.env_remove(name);
            }
        }
        command.current_dir(dir).stdin(Stdio::null());
        command
    }

    /// Runs a file to its end; returns its report.
    pub(super) fn run_file(&self, dir: &Path, file: &Path) -> anyhow::Result<Value> {
        let output = self.command(dir).args(["run", "--json"]).arg(file).output();
        let output = output.context("cannot start a run")?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{} failed: {complaint}", file.display());
        serde_json::from_slice(&output.stdout).context("a run printed no report")
    }
}

/// A run in a child process, which ends when this is dropped.
struct Run(Child);

impl Drop for Run {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            // A caller that drops it while it runs is already failing and reports why.
            self.0.kill().and_then(|()| self.0.wait()).map(drop).unwrap_or_default();
        }
    }
}

/// Returns the rows of the query, from its Parquet files.
fn read_counts(dir: &Path) -> anyhow::Result<Counted> {
    let mut counts = Counted::new();
    let entries =
        std::fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?;
    for entry in entries {
        let path = entry.context("cannot read a directory")?.path();
        if path.extension().is_none_or(|extension| extension != "parquet") {
            continue;
        }
        let file = std::fs::File::open(&path)
            .with_context(|| format!("cannot open {}", path.display()))?;
        for batch in ParquetRecordBatchReaderBuilder::try_new(file)?.build()? {
            let batch = batch?;
            let endings = arrow::compute::cast(batch.column(0), &arrow::datatypes::DataType::Utf8)?;
            let endings = endings.as_string::<i32>();
            let number = |column: usize| batch.column(column).as_primitive_opt::<Int64Type>();
            let (files, bytes) = number(1).zip(number(2)).context("the counts are not numbers")?;
            for row in 0..endings.len() {
                counts.insert(endings.value(row).to_owned(), (files.value(row), bytes.value(row)));
            }
        }
    }
    Ok(counts)
}

impl Measured {
    /// Returns the number of rows copied.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// Adds the figures to the report.
    pub(super) fn add_figures(&self, report: &mut Report) {
        report.count("pipeline_rows", "rows copied by the pipeline", self.rows);
        let copied = rate(self.bytes as f64 / 1e6, self.took);
        report.measure("pipeline_mb_per_s", "CSV to Parquet, the continued run", copied, "MB/s");
        self.sandboxed.add_figures(report);
    }
}
