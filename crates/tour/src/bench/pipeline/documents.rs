//! Documents into PostgreSQL: the intake's way, compared with psql's COPY of the same rows.
//!
//! Forebay's side is the sink, in this process: it connects, writes every document with its
//! extracted values, and commits repeatedly as the intake does. (Extracting the values is part of
//! the intake and measured there; the empty tables exist on both sides.) The other side is `psql -c
//! "copy ... from stdin (format binary)"` of a
//! file of those rows that the server wrote, into an empty table of the same definition, in one
//! transaction, measured as a whole process. Both are then compared by the server's own hash.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, ensure};
use forebay_postgres::sink::Settings;
use forebay_postgres::{PostgresSink, ServerSettings};
use forebay_sink::{ColumnType, Document, Field, Position, RowSink as _, Sink as _, Value};

use super::Stage;
use crate::bench::Figures;

/// Maximum number of documents in a round; they are held in memory.
const DOCUMENTS_MAX: u64 = 300_000;
/// Number of documents in an entry, as a client sends them, and in a commit.
const ENTRY: usize = 1_000;
const COMMIT: usize = 10_000;
/// Batch sizes of the published table.
const BATCHES: [usize; 2] = [1_000, 10_000];
const DATABASE: &str = "docs";
const NAMESPACE: &str = "orders";

const FIELDS: [Field<'static>; 8] = [
    Field { path: "name", ty: ColumnType::Text },
    Field { path: "email", ty: ColumnType::Text },
    Field { path: "age", ty: ColumnType::Integer },
    Field { path: "score", ty: ColumnType::Real },
    Field { path: "active", ty: ColumnType::Boolean },
    Field { path: "address.city", ty: ColumnType::Text },
    Field { path: "address.zip", ty: ColumnType::Text },
    Field { path: "visits", ty: ColumnType::Integer },
];

/// A document and the positions of its values.
struct Row {
    raw: String,
    name: String,
    email: String,
    age: String,
    score: String,
    active: bool,
    zip: String,
    visits: String,
}

impl Row {
    fn of(number: u64) -> Row {
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let name = format!("customer {}", mixed % 100_000);
        let email = format!("c{}@mail.example", mixed % 1_000_003);
        let (age, score) = (18 + mixed % 70, format!("{}.{:02}", mixed % 1000, mixed % 100));
        let (active, zip) = (mixed.is_multiple_of(3), format!("{:05}", mixed % 100_000));
        let visits = mixed % 1_000_000;
        let raw = format!(
            "{{\"name\":\"{name}\",\"email\":\"{email}\",\"age\":{age},\"score\":{score},\"active\":{active},\
             \"address\":{{\"city\":\"Amsterdam\",\"zip\":\"{zip}\"}},\"visits\":{visits},\
             \"note\":\"a document of some two hundred and fifty bytes, as they come\"}}"
        );
        let (age, visits) = (age.to_string(), visits.to_string());
        Row { raw, name, email, age, score, active, zip, visits }
    }

    fn values(&self) -> [Value<'_>; 8] {
        [
            Value::Text(&self.name),
            Value::Text(&self.email),
            Value::Number(&self.age),
            Value::Number(&self.score),
            Value::Boolean(self.active),
            Value::Text("Amsterdam"),
            Value::Text(&self.zip),
            Value::Number(&self.visits),
        ]
    }
}

fn settings(stage: &Stage<'_>, schema: &str) -> Settings {
    let defaults = Settings::default();
    let server = ServerSettings {
        port: stage.server.port,
        database: Some(DATABASE.to_owned()),
        ..defaults.server
    };
    Settings { server, schema: schema.to_owned(), ..defaults }
}

/// Writes rows as entries from position `from` on, with regular commits; returns the position after
/// the last.
fn write(sink: &mut PostgresSink, from: u64, rows: &[Row], commit: usize) -> anyhow::Result<u64> {
    let (mut at, mut id) = (from, from << 32);
    for rows in rows.chunks(commit) {
        for entry in rows.chunks(ENTRY) {
            let mut writer = sink.row_writer(Position(at), NAMESPACE, &FIELDS)?;
            for row in entry {
                let document = Document { id, received_ms: 1, raw: row.raw.as_bytes() };
                writer.write(&document, &row.values())?;
                id += 1;
            }
            let written = writer.finish()?;
            ensure!(written.conflicts == 0, "{} values did not fit", written.conflicts);
            at += 1;
        }
        sink.commit(Position(at))?;
        at += 1;
    }
    Ok(at)
}

/// Writes all rows by Forebay into a separate schema, whose tables are created before; returns the
/// seconds.
fn by_us(stage: &Stage<'_>, schema: &str, rows: &[Row]) -> anyhow::Result<f64> {
    let mut sink = PostgresSink::open(&settings(stage, schema))?;
    sink.row_writer(Position(0), NAMESPACE, &FIELDS)?.finish()?;
    sink.commit(Position(0))?;
    drop(sink);
    stage.server.query(DATABASE, "checkpoint")?;
    let begun = Instant::now();
    let mut sink = PostgresSink::open(&settings(stage, schema))?;
    write(&mut sink, 1, rows, COMMIT)?;
    Ok(begun.elapsed().as_secs_f64())
}

/// Copies all rows by psql, from a file, into a table of the same definition; returns the seconds.
fn by_psql(stage: &Stage<'_>, schema: &str, file: &Path) -> anyhow::Result<f64> {
    let table = format!("{schema}.{NAMESPACE}");
    stage.server.query(
        DATABASE,
        &format!(
            "create schema {schema}; create table {table} (like model.{NAMESPACE} including all)"
        ),
    )?;
    stage.server.query(DATABASE, "checkpoint")?;
    let rows =
        std::fs::File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
    let mut psql = stage.server.psql_command(DATABASE);
    psql.args(["-c", &format!("copy {table} from stdin (format binary)")]).stdin(rows);
    let begun = Instant::now();
    let status = psql.status().context("cannot start psql")?;
    let seconds = begun.elapsed().as_secs_f64();
    ensure!(status.success(), "psql could not copy {table}");
    Ok(seconds)
}

/// Returns a file of the rows, written by the server.
fn dump(stage: &Stage<'_>) -> anyhow::Result<PathBuf> {
    let path = stage.scratch.join("documents.copy");
    let file = std::fs::File::create(&path).context("cannot create a file of rows")?;
    let mut psql = stage.server.psql_command(DATABASE);
    psql.args(["-c", &format!("copy model.{NAMESPACE} to stdout (format binary)")]).stdout(file);
    ensure!(psql.status().context("cannot start psql")?.success(), "psql could not copy");
    Ok(path)
}

fn content(stage: &Stage<'_>, schema: &str) -> anyhow::Result<String> {
    let query = format!(
        "select count(*), sum(hashtextextended(x::text, 0)::numeric) from {schema}.{NAMESPACE} x"
    );
    stage.server.query(DATABASE, &query)
}

/// Measures documents into PostgreSQL, by the sink and by psql, in turns; then the published batch
/// sizes.
pub(super) fn measure(stage: &Stage<'_>, figures: &mut Figures) -> anyhow::Result<()> {
    (stage.note)("documents into PostgreSQL, compared with COPY of the same rows");
    stage.server.query("postgres", &format!("create database {DATABASE}"))?;
    let rows: Vec<Row> = (0..stage.plan.rows.min(DOCUMENTS_MAX)).map(Row::of).collect();
    by_us(stage, "model", &rows)?;
    let model = content(stage, "model")?;
    let file = dump(stage)?;
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    let count = rows.len() as f64;
    let (mut ours, mut theirs, mut ratio) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..stage.plan.rounds {
        let psql = by_psql(stage, "theirs", &file)?;
        let sink = by_us(stage, "ours", &rows)?;
        for schema in ["theirs", "ours"] {
            let found = content(stage, schema)?;
            ensure!(found == model, "{schema} differs: {found}, not {model}");
            stage.server.query(DATABASE, &format!("drop schema {schema} cascade"))?;
        }
        theirs.push(count / psql);
        ours.push(count / sink);
        ratio.push(psql / sink);
    }
    figures.median("documents_copy_rows_per_s", theirs);
    figures.median("documents_rows_per_s", ours);
    figures.median("documents_of_copy_ratio", ratio);
    batches(stage, &rows, figures)?;
    stage.server.query("postgres", &format!("drop database {DATABASE} with (force)"))?;
    std::fs::remove_file(&file).context("cannot remove the file of rows")?;
    Ok(())
}

/// Writes one batch in one commit, over an open connection.
fn batches(stage: &Stage<'_>, rows: &[Row], figures: &mut Figures) -> anyhow::Result<()> {
    let mut sink = PostgresSink::open(&settings(stage, "batches"))?;
    let mut at = 1;
    for batch in BATCHES {
        let rows = rows.get(..batch).context("too few rows for a batch")?;
        let mut samples = Vec::new();
        for _ in 0..stage.plan.rounds * 4 {
            let begun = Instant::now();
            at = write(&mut sink, at, rows, batch)?;
            samples.push(begun.elapsed().as_secs_f64() * 1e3);
        }
        figures.median(&format!("documents_{batch}_ms"), samples);
    }
    let found = content(stage, "batches")?;
    let expected: usize = BATCHES.iter().sum::<usize>() * stage.plan.rounds as usize * 4;
    ensure!(found.starts_with(&format!("{expected}|")), "{found} instead of {expected} documents");
    Ok(())
}
