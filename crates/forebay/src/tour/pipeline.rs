//! The pipeline's chapter of a tour: what lies below a tree of this machine, from CSV into Parquet, by a
//! run that is killed on its way, and from there through SQL; compared with a plain walk.
//!
//! The list of files is written as CSV, cut into several. A run that copies them into Parquet is killed as
//! soon as a file of them is committed; the next goes on, and the two sides are compared by their content
//! hashes. Then a query over the whole of it counts files and bytes by the endings of names, and its rows
//! are compared with counts made while the list was written.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use arrow::array::{Array as _, AsArray as _};
use arrow::datatypes::Int64Type;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Value, json};

use super::interrupt::Interrupt;
use super::report::{Report, rate};
use super::stages::Checks;
use crate::out::size;

/// Files of the list at most.
const FILES_MAX: usize = 200_000;
/// How many the list is cut into.
const CUT_INTO: usize = 8;

/// A pipeline chapter under way.
pub(super) struct Chapter<'a> {
    pub(super) tree: &'a Path,
    pub(super) interrupt: &'a Interrupt,
    pub(super) scratch: &'a Path,
}

/// What was measured.
#[derive(Debug, Default)]
pub(super) struct Measured {
    rows: u64,
    bytes: u64,
    took: Duration,
}

/// Files and bytes by the ending of their names.
type Counted = BTreeMap<String, (i64, i64)>;

impl Chapter<'_> {
    /// Makes the chapter.
    pub(super) fn run(&self, report: &mut Report) -> anyhow::Result<Measured> {
        report.chapter("The pipeline")?;
        let dir = self.scratch.join("pipeline");
        std::fs::create_dir_all(dir.join("list"))
            .context("cannot make a directory for the list")?;
        let (rows, counted) = self.write_list(&dir.join("list"))?;
        let mut measured = Measured { rows, ..Measured::default() };
        self.copy(report, &dir, &mut measured)?;
        if cfg!(feature = "sql") {
            self.query(report, &dir, &counted)?;
        }
        Ok(measured)
    }

    /// Writes the list of files; how many there are, and what is to come of them.
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

    /// The list into Parquet, through a kill.
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
        let told = self.run_file(dir, &path)?;
        measured.took = begun.elapsed();
        measured.bytes = told["bytes"].as_u64().unwrap_or(0);
        let stream = &told["streams"][0];
        let before = stream["units_before"].as_u64().unwrap_or(0);
        report.line(format_args!(
            "  {} files listed in {CUT_INTO} CSV files, into Parquet: {}",
            measured.rows,
            if was_killed {
                format!(
                    "killed with SIGKILL on the way, gone on after {before} units that were there"
                )
            } else {
                "done before it could be killed".to_owned()
            }
        ))?;
        let verified = self.command(dir).args(["verify", "--json"]).arg(&path).output();
        let verified = verified.context("cannot start a verification")?;
        let verified: Value =
            serde_json::from_slice(&verified.stdout).context("a verification said nothing")?;
        let rows = verified["streams"][0]["destination_rows"].as_u64().unwrap_or(0);
        let mut problems = Vec::new();
        if verified["same"] != json!(true) {
            problems.push(format!("CSV and Parquet differ: {verified}"));
        }
        if rows != measured.rows {
            problems.push(format!("{rows} rows are in Parquet, {} were listed", measured.rows));
        }
        let mut checks = Checks::new(report);
        checks.add("rows on both sides, by content hash", measured.rows, problems)?;
        let rows = checks.rows();
        report.section("pipeline_copy", rows);
        Ok(())
    }

    /// Starts a run and kills it as soon as something of it is there; whether it was still running.
    fn kill_early(&self, dir: &Path, file: &Path, out: &Path) -> anyhow::Result<bool> {
        let mut run = self.command(dir);
        run.args(["run", "--json"]).arg(file).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = run.spawn().context("cannot start a run")?;
        loop {
            self.interrupt.check()?;
            let is_there = std::fs::read_dir(out).is_ok_and(|mut entries| {
                entries.any(|entry| {
                    entry.is_ok_and(|entry| {
                        entry.path().extension().is_some_and(|it| it == "parquet")
                    })
                })
            });
            if child.try_wait().context("cannot wait for a run")?.is_some() {
                return Ok(false);
            }
            if is_there {
                child.kill().context("cannot kill a run")?;
                child.wait().context("cannot wait for a run")?;
                return Ok(true);
            }
        }
    }

    /// Counts by endings in SQL, compared with what was counted while the list was written.
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
                format!(".{ending}: counted {count:?}, SQL says {:?}", found.get(ending))
            });
        let mut problems: Vec<String> = problems.collect();
        if found.len() != counted.len() {
            problems.push(format!("SQL found {} endings of {}", found.len(), counted.len()));
        }
        let mut checks = Checks::new(report);
        checks.add("groups counted in SQL, beside a walk", counted.len() as u64, problems)?;
        let rows = checks.rows();
        report.section("pipeline_query", rows);
        Ok(())
    }

    /// `forebay pipeline`, which knows nothing of settings outside.
    fn command(&self, dir: &Path) -> Command {
        // Its own file is this program, which runs; that it is found was checked at the start.
        let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("forebay"));
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"FOREBAY_") {
                command.env_remove(name);
            }
        }
        command.current_dir(dir).stdin(Stdio::null()).arg("pipeline");
        command
    }

    /// Runs a file to its end; its report.
    fn run_file(&self, dir: &Path, file: &Path) -> anyhow::Result<Value> {
        let output = self.command(dir).args(["run", "--json"]).arg(file).output();
        let output = output.context("cannot start a run")?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{} failed: {complaint}", file.display());
        serde_json::from_slice(&output.stdout).context("a run said nothing")
    }
}

/// The rows of the query, from its Parquet files.
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
            let (files, bytes) = number(1).zip(number(2)).context("the counts are no numbers")?;
            for row in 0..endings.len() {
                counts.insert(endings.value(row).to_owned(), (files.value(row), bytes.value(row)));
            }
        }
    }
    Ok(counts)
}

impl Measured {
    /// Rows that were copied.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// Adds the figures.
    pub(super) fn tell(&self, report: &mut Report) {
        report.count("pipeline_rows", "rows copied by the pipeline", self.rows);
        let copied = rate(self.bytes as f64 / 1e6, self.took);
        report.measure("pipeline_mb_per_s", "CSV to Parquet, the run that went on", copied, "MB/s");
    }
}
