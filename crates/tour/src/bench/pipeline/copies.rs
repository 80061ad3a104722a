//! Copies from one database to another, by Forebay and by psql.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::Stage;
use crate::bench::Figures;

/// Rows of the copies that compare INSERT and COPY, and of the small table of the earlier
/// description.
const HUNDRED_THOUSAND: u64 = 100_000;
const TEN_THOUSAND: u64 = 10_000;

/// Seven columns, about a hundred bytes.
const TABLE: &str = "(id bigint primary key, customer int not null, status text not null, amount double precision not null,
    placed timestamptz not null, email text not null, note text)";
const ROWS: &str = "select g, (g::bigint * 7919) % 100000, (array['new', 'paid', 'sent', 'closed'])[1 + g % 4],
    round((g % 100000)::numeric / 7, 2)::float8, timestamptz '2026-01-01' + g * interval '1 second',
    'customer' || (g::bigint * 7919) % 100000 || '@example.org', case when g % 10 > 0 then 'order ' || g || ' of today' end
    from generate_series(1, N) g";

/// `lineitem` of TPC-H, as its specification has it.
const LINEITEM: &str = "create table lineitem (l_orderkey bigint not null, l_partkey bigint not null,
    l_suppkey bigint not null, l_linenumber int not null, l_quantity numeric(15,2) not null,
    l_extendedprice numeric(15,2) not null, l_discount numeric(15,2) not null, l_tax numeric(15,2) not null,
    l_returnflag char(1) not null, l_linestatus char(1) not null, l_shipdate date not null,
    l_commitdate date not null, l_receiptdate date not null, l_shipinstruct char(25) not null,
    l_shipmode char(10) not null, l_comment varchar(44) not null)";

/// Creates the databases and their tables.
pub(super) fn fill(stage: &Stage<'_>) -> anyhow::Result<()> {
    let server = stage.server;
    for database in ["src", "dst"] {
        server.query("postgres", &format!("create database {database}"))?;
    }
    for (table, rows) in [("t", stage.plan.rows), ("h", HUNDRED_THOUSAND), ("z", TEN_THOUSAND)] {
        let rows = ROWS.replace('N', &rows.to_string());
        server
            .query("src", &format!("create table {table} {TABLE}; insert into {table} {rows}"))?;
    }
    if let Some(file) = &stage.plan.lineitem {
        server.query("src", LINEITEM)?;
        let input =
            std::fs::File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
        let copied = server
            .psql_command("src")
            .args(["-c", "copy lineitem from stdin (format csv, delimiter '|')"])
            .stdin(input)
            .output()
            .context("cannot start psql")?;
        ensure!(copied.status.success(), "lineitem: {}", String::from_utf8_lossy(&copied.stderr));
    }
    server.query("src", "vacuum analyze")?;
    Ok(())
}

/// Returns the content of a table, by the server's own hash.
pub(super) fn content(stage: &Stage<'_>, database: &str, table: &str) -> anyhow::Result<String> {
    let query =
        format!("select count(*), sum(hashtextextended(x::text, 0)::numeric) from {table} x");
    stage.server.query(database, &query)
}

/// Creates an empty table at the destination, like the source's but without its key.
fn empty(stage: &Stage<'_>, table: &str) -> anyhow::Result<()> {
    let columns = "select string_agg(quote_ident(attname) || ' ' || format_type(atttypid, atttypmod) || \
                   case when attnotnull then ' not null' else '' end, ', ' order by attnum) \
                   from pg_attribute where attnum > 0 and attrelid = ";
    let columns = stage.server.query("src", &format!("{columns} '{table}'::regclass"))?;
    // The earlier table is dropped and flushed, so that neither side pays for the other's writes.
    let make = format!("drop table if exists {table}; create table {table} ({columns})");
    stage.server.query("dst", &make)?;
    stage.server.query("dst", "checkpoint")?;
    Ok(())
}

/// Copies with two psqls and a pipe; returns the seconds.
pub(super) fn by_psql(stage: &Stage<'_>, table: &str) -> anyhow::Result<f64> {
    empty(stage, table)?;
    let begun = Instant::now();
    let mut from = stage.server.psql_command("src");
    from.args(["-c", &format!("copy {table} to stdout (format binary)")]);
    let mut from = from.stdout(Stdio::piped()).spawn().context("cannot start psql")?;
    let rows = from.stdout.take().context("psql has no output")?;
    let mut into = stage.server.psql_command("dst");
    into.args(["-c", &format!("copy {table} from stdin (format binary)")]).stdin(rows);
    let into = into.status().context("cannot start psql")?;
    let from = from.wait().context("cannot wait for psql")?;
    let seconds = begun.elapsed().as_secs_f64();
    ensure!(into.success() && from.success(), "psql could not copy {table}");
    Ok(seconds)
}

/// The settings of a copy by Forebay.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ours<'a> {
    pub(super) table: &'a str,
    pub(super) parallelism: u32,
    pub(super) key: Option<&'a str>,
    pub(super) load_method: &'a str,
    pub(super) write_mode: &'a str,
    /// Whether both sides are components.
    pub(super) sandbox: bool,
}

impl<'a> Ours<'a> {
    pub(super) fn of(table: &'a str) -> Self {
        Self {
            table,
            parallelism: 1,
            key: None,
            load_method: "copy",
            write_mode: "append",
            sandbox: false,
        }
    }

    /// Copies two parts concurrently. A table that is replaced is loaded separately and can be
    /// started over, so its parts are ranges of pages.
    pub(super) fn in_two(table: &'a str) -> Self {
        Self { parallelism: 2, write_mode: "replace", ..Self::of(table) }
    }
}

/// Returns the start of a pipeline file, up to its streams.
pub(super) fn file_head(stage: &Stage<'_>) -> String {
    let port = stage.server.port;
    format!(
        "version: 1\npipeline: bench\nsource:\n  use: postgres\n  config: {{host: 127.0.0.1, port: {port}, \
         database: src, user: postgres}}\n"
    )
}

/// Returns the destination in the other database.
pub(super) fn file_destination(stage: &Stage<'_>) -> String {
    let port = stage.server.port;
    format!(
        "destination:\n  use: postgres\n  config: {{host: 127.0.0.1, port: {port}, database: dst, \
         user: postgres}}\n"
    )
}

/// Runs a pipeline file in a child process; returns its seconds and its report.
pub(super) fn run(stage: &Stage<'_>, file: &str) -> anyhow::Result<(f64, Value)> {
    run_by(stage, &this_program()?, file, &["--from-scratch"])
}

/// Runs a pipeline file where the last run ended.
pub(super) fn run_on(stage: &Stage<'_>, file: &str) -> anyhow::Result<(f64, Value)> {
    run_by(stage, &this_program()?, file, &[])
}

pub(super) fn this_program() -> anyhow::Result<PathBuf> {
    std::env::current_exe().context("cannot determine the path of this program")
}

/// The same by another build of this program.
fn run_by(
    stage: &Stage<'_>,
    program: &Path,
    file: &str,
    options: &[&str],
) -> anyhow::Result<(f64, Value)> {
    let path = stage.scratch.join("bench.yaml");
    std::fs::write(&path, file).context("cannot write a pipeline file")?;
    let begun = Instant::now();
    let output = Command::new(program)
        .args(["pipeline", "run", "--json"])
        .args(options)
        .arg("--data")
        .arg(stage.scratch.join("data"))
        .arg(&path)
        .output()
        .context("cannot start a run")?;
    let seconds = begun.elapsed().as_secs_f64();
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "a run failed: {complaint}");
    let report = serde_json::from_slice(&output.stdout);
    Ok((seconds, report.with_context(|| format!("a run reported nothing: {complaint}"))?))
}

/// Copies by Forebay; returns the seconds and the report.
pub(super) fn by_us(stage: &Stage<'_>, ours: Ours<'_>) -> anyhow::Result<(f64, Value)> {
    by(stage, &this_program()?, ours)
}

/// The same by another build of this program.
pub(super) fn by(
    stage: &Stage<'_>,
    program: &Path,
    ours: Ours<'_>,
) -> anyhow::Result<(f64, Value)> {
    empty(stage, ours.table)?;
    let key = ours.key.map_or_else(String::new, |key| format!(", partition_key: {key}"));
    let sandbox = if ours.sandbox { "  sandbox: true\n" } else { "" };
    let file = format!(
        "{}{sandbox}  streams: [{{name: {}{key}}}]\n{}{sandbox}  load_method: {}\n  write_mode: {}\n\
         resources: {{parallelism: {}}}\n",
        file_head(stage),
        ours.table,
        file_destination(stage),
        ours.load_method,
        ours.write_mode,
        ours.parallelism
    );
    let (seconds, report) = run_by(stage, program, &file, &["--from-scratch"])?;
    same(stage, ours.table)?;
    Ok((seconds, report))
}

/// Checks that a copy is the same, by the server's hash.
pub(super) fn same(stage: &Stage<'_>, table: &str) -> anyhow::Result<()> {
    let (from, into) = (content(stage, "src", table)?, content(stage, "dst", table)?);
    ensure!(from == into, "{table} was copied wrongly: {from} became {into}");
    Ok(())
}

/// Copies a table by psql, by one stream of Forebay and by two, in turns.
pub(super) fn against_psql(
    stage: &Stage<'_>,
    table: &str,
    name: &str,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    (stage.note)(&format!("copying {table}, compared with psql"));
    let rows: f64 = stage.server.query("src", &format!("select count(*) from {table}"))?.parse()?;
    let (mut psql, mut one, mut two) = (Vec::new(), Vec::new(), Vec::new());
    let (mut one_ratio, mut two_ratio, mut cpu) = (Vec::new(), Vec::new(), Vec::new());
    // One unmeasured run warms what all of them read.
    by_psql(stage, table)?;
    for _ in 0..stage.plan.rounds {
        let theirs = by_psql(stage, table)?;
        same(stage, table)?;
        let (single, report) = by_us(stage, Ours::of(table))?;
        let (double, _) = by_us(stage, Ours::in_two(table))?;
        psql.push(rows / theirs);
        one.push(rows / single);
        two.push(rows / double);
        one_ratio.push(theirs / single);
        two_ratio.push(theirs / double);
        cpu.push(report.get("cpu_seconds").and_then(Value::as_f64).unwrap_or(f64::NAN));
    }
    figures.median(&format!("{name}_psql_rows_per_s"), psql);
    figures.median(&format!("{name}_one_rows_per_s"), one);
    figures.median(&format!("{name}_two_rows_per_s"), two);
    figures.median(&format!("{name}_one_of_psql_ratio"), one_ratio);
    figures.median(&format!("{name}_two_of_psql_ratio"), two_ratio);
    figures.median(&format!("{name}_one_cpu_s"), cpu);
    Ok(())
}

/// Compares COPY and INSERT, and measures the phases for which there are published figures.
pub(super) fn against_insert(stage: &Stage<'_>, figures: &mut Figures) -> anyhow::Result<()> {
    (stage.note)("COPY compared with INSERT");
    for (table, name) in [("z", "10k"), ("h", "100k")] {
        let mut ratio = Vec::new();
        let mut taken: Vec<Vec<(String, f64)>> = Vec::new();
        for _ in 0..stage.plan.rounds {
            let mut seconds = [0.0; 2];
            let mut round = Vec::new();
            for (method, seconds) in ["insert", "copy"].into_iter().zip(&mut seconds) {
                let (_, report) = by_us(stage, Ours { load_method: method, ..Ours::of(table) })?;
                *seconds = report.get("seconds").and_then(Value::as_f64).context("no seconds")?;
                round.push((format!("{method}_{name}_ms"), *seconds * 1e3));
                for phase in ["connect", "query", "fetch", "encode", "flush", "commit"] {
                    let spent = report.pointer(&format!("/phases/{phase}")).and_then(Value::as_f64);
                    round.push((
                        format!("{method}_{name}_{phase}_ms"),
                        spent.unwrap_or(f64::NAN) * 1e3,
                    ));
                }
            }
            ratio.push(seconds[0] / seconds[1]);
            taken.push(round);
        }
        let names: Vec<String> =
            taken.first().into_iter().flatten().map(|(name, _)| name.clone()).collect();
        for (index, name) in names.iter().enumerate() {
            let samples = taken.iter().filter_map(|round| Some(round.get(index)?.1));
            figures.median(name, samples.collect());
        }
        figures.median(&format!("copy_of_insert_{name}_ratio"), ratio);
    }
    Ok(())
}

/// Measures the peak memory of a run, for a table and for one many times as large.
pub(super) fn memory(stage: &Stage<'_>, figures: &mut Figures) -> anyhow::Result<()> {
    let ours = Ours { parallelism: 2, key: Some("id"), ..Ours::of("t") };
    memory_of(stage, "", ours, figures)
}

/// The same of a run with these settings.
///
/// * `name`: what the names of the figures begin with.
pub(super) fn memory_of(
    stage: &Stage<'_>,
    name: &str,
    ours: Ours<'_>,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    (stage.note)("memory, with a large table too");
    let peak = |report: &Value| -> anyhow::Result<f64> {
        let bytes =
            report.get("peak_rss_bytes").and_then(Value::as_f64).context("no memory reported")?;
        Ok(bytes / f64::from(1 << 20))
    };
    let (_, report) = by_us(stage, Ours { table: "t", ..ours })?;
    figures.add(&format!("{name}peak_memory_mib"), peak(&report)?);
    let rows = ROWS.replace('N', &(stage.plan.rows * stage.plan.times).to_string());
    stage.server.query(
        "src",
        &format!("create table large {TABLE}; insert into large {rows}; analyze large"),
    )?;
    let (seconds, report) = by_us(stage, Ours { table: "large", ..ours })?;
    figures.add(&format!("{name}large_peak_memory_mib"), peak(&report)?);
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    figures.add(
        &format!("{name}large_two_rows_per_s"),
        (stage.plan.rows * stage.plan.times) as f64 / seconds,
    );
    stage.server.query("dst", "drop table large")?;
    stage.server.query("src", "drop table large")?;
    Ok(())
}

/// Measures an incremental run without new rows.
pub(super) fn nothing_new(stage: &Stage<'_>, figures: &mut Figures) -> anyhow::Result<()> {
    (stage.note)("an incremental run without new rows");
    stage.server.query("dst", "drop table if exists t")?;
    let file = format!(
        "{}  streams: [{{name: t, sync_mode: incremental, cursor_field: id}}]\n{}",
        file_head(stage),
        file_destination(stage)
    );
    run(stage, &file)?;
    same(stage, "t")?;
    let mut samples = Vec::new();
    for _ in 0..stage.plan.rounds * 3 {
        let (seconds, report) = run(stage, &file)?;
        ensure!(report.get("rows").and_then(Value::as_u64) == Some(0), "there were new rows");
        samples.push(seconds * 1e3);
    }
    figures.median("nothing_new_ms", samples);
    Ok(())
}
