//! How fast rows get into the SQLite sink, against a bare prepared-statement loop.
//!
//! `cargo run --release -p forebay-sqlite --example insert_rate [ROWS]`
//!
//! All contestants store the same rows (a JSON document of about 250 bytes and eight columns) in
//! one transaction into a new database, in turn, five times; the medians are printed. The bare loop
//! is what one writes without a sink: WAL, `synchronous = NORMAL`, one prepared INSERT, `execute`; its
//! tuned twin has the sink's page size and caches as well, so that what is left is the sink itself.
//! Every database is read back and counted before its time is believed.

use std::error::Error;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use forebay_sink::{ColumnType, Document, DocumentSink, Field, Position, RowSink, Sink, Value};
use forebay_sqlite::SqliteSink;
use rusqlite::{Connection, params};

const ROUNDS: usize = 5;
/// Rows in one write call, as an applier would gather them.
const BATCH: usize = 1000;

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

/// A row with its values lifted out of the document already: finding them is not measured.
struct Row {
    raw: String,
    name: String,
    email: String,
    age: i64,
    age_text: String,
    score: f64,
    score_text: String,
    active: bool,
    city: String,
    zip: String,
    visits: i64,
    visits_text: String,
}

fn rows(count: usize) -> Vec<Row> {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        // xorshift64: <https://www.jstatsoft.org/article/view/v008i14>
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed >> 16
    };
    (0..count)
        .map(|at| {
            let (age, visits) = ((next() % 90).cast_signed(), (next() % 100_000).cast_signed());
            let score_text = format!("{}.{}", next() % 1000, next() % 1000);
            let score = score_text.parse().unwrap_or(0.0);
            let name = format!("User {at} {:x}", next() % 0xffff);
            let email = format!("user{at}@example{}.org", next() % 50);
            let city = format!("City {}", next() % 400);
            let zip = format!("{:05}", next() % 100_000);
            let active = next() % 2 == 0;
            let (age_text, visits_text) = (age.to_string(), visits.to_string());
            let raw = format!(
                r#"{{"name":"{name}","email":"{email}","age":{age},"score":{score_text},"active":{active},"address":{{"city":"{city}","zip":"{zip}"}},"visits":{visits},"comment":"a few more words that no column holds, as documents have them"}}"#
            );
            Row {
                raw, name, email, age, age_text, score, score_text, active, city, zip, visits,
                visits_text,
            }
        })
        .collect()
}

fn bare_database(path: &Path, tuned: bool) -> Result<Connection, Box<dyn Error>> {
    let db = Connection::open(path)?;
    if tuned {
        db.execute_batch(
            "PRAGMA page_size = 8192; PRAGMA cache_size = -32768; PRAGMA temp_store = memory",
        )?;
    }
    db.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
    db.pragma_update(None, "synchronous", "normal")?;
    if tuned {
        db.pragma_update_and_check(None, "wal_autocheckpoint", 4096, |_| Ok(()))?;
    }
    db.execute_batch(
        "CREATE TABLE people (_id INTEGER PRIMARY KEY, _received_ms INTEGER NOT NULL,
         name TEXT, email TEXT, age INTEGER, score REAL, active INTEGER, city TEXT, zip TEXT,
         visits INTEGER, _document TEXT)",
    )?;
    Ok(db)
}

const INSERT: &str = "INSERT INTO people (_id, _received_ms, _document, name, email, age, score, \
                      active, city, zip, visits) VALUES ";

fn bare(path: &Path, rows: &[Row], tuned: bool) -> Result<(), Box<dyn Error>> {
    let db = bare_database(path, tuned)?;
    let transaction = db.unchecked_transaction()?;
    let values = "(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
    let mut insert = transaction.prepare(&format!("{INSERT}{values}"))?;
    for (id, row) in (0_i64..).zip(rows) {
        insert.execute(params![
            id,
            1_700_000_000_000_i64,
            row.raw,
            row.name,
            row.email,
            row.age,
            row.score,
            row.active,
            row.city,
            row.zip,
            row.visits
        ])?;
    }
    drop(insert);
    transaction.commit()?;
    Ok(())
}

/// The tuned loop with several rows in each INSERT.
fn bare_multi(path: &Path, rows: &[Row], rows_each: usize) -> Result<(), Box<dyn Error>> {
    let db = bare_database(path, true)?;
    let transaction = db.unchecked_transaction()?;
    for (chunk, first) in rows.chunks(rows_each).zip((0_i64..).step_by(rows_each)) {
        let values = vec!["(?,?,?,?,?,?,?,?,?,?,?)"; chunk.len()].join(",");
        let mut insert = transaction.prepare_cached(&format!("{INSERT}{values}"))?;
        for ((row, id), base) in chunk.iter().zip(first..).zip((1..).step_by(11)) {
            insert.raw_bind_parameter(base, id)?;
            insert.raw_bind_parameter(base + 1, 1_700_000_000_000_i64)?;
            insert.raw_bind_parameter(base + 2, &row.raw)?;
            insert.raw_bind_parameter(base + 3, &row.name)?;
            insert.raw_bind_parameter(base + 4, &row.email)?;
            insert.raw_bind_parameter(base + 5, row.age)?;
            insert.raw_bind_parameter(base + 6, row.score)?;
            insert.raw_bind_parameter(base + 7, row.active)?;
            insert.raw_bind_parameter(base + 8, &row.city)?;
            insert.raw_bind_parameter(base + 9, &row.zip)?;
            insert.raw_bind_parameter(base + 10, row.visits)?;
        }
        insert.raw_execute()?;
    }
    transaction.commit()?;
    Ok(())
}

fn row_path(path: &Path, rows: &[Row], texts: bool) -> Result<(), Box<dyn Error>> {
    let mut sink = SqliteSink::open(path)?;
    for (batch, first) in rows.chunks(BATCH).zip((0_u64..).step_by(BATCH)) {
        let mut writer = sink.row_writer(Position(first), "people", &FIELDS)?;
        for (row, id) in batch.iter().zip(first..) {
            let document = Document { id, received_ms: 1_700_000_000_000, raw: row.raw.as_bytes() };
            let (age, score, visits) = if texts {
                (
                    Value::Number(&row.age_text),
                    Value::Number(&row.score_text),
                    Value::Number(&row.visits_text),
                )
            } else {
                (Value::Integer(row.age), Value::Real(row.score), Value::Integer(row.visits))
            };
            let values = [
                Value::Text(&row.name),
                Value::Text(&row.email),
                age,
                score,
                Value::Boolean(row.active),
                Value::Text(&row.city),
                Value::Text(&row.zip),
                visits,
            ];
            writer.write(&document, &values)?;
        }
        writer.finish()?;
    }
    sink.commit(Position(u64::try_from(rows.len())?))?;
    Ok(())
}

fn documents(path: &Path, rows: &[Row]) -> Result<(), Box<dyn Error>> {
    let mut sink = SqliteSink::open(path)?;
    let mut documents = Vec::with_capacity(BATCH);
    for (batch, first) in rows.chunks(BATCH).zip((0_u64..).step_by(BATCH)) {
        documents.clear();
        documents.extend(batch.iter().zip(first..).map(|(row, id)| Document {
            id,
            received_ms: 1_700_000_000_000,
            raw: row.raw.as_bytes(),
        }));
        sink.write_documents(Position(first), "people", &documents)?;
    }
    sink.commit(Position(u64::try_from(rows.len())?))?;
    Ok(())
}

/// Runs one contestant in a new database and checks what it stored.
fn timed(
    rows: &[Row],
    run: impl FnOnce(&Path) -> Result<(), Box<dyn Error>>,
) -> Result<Duration, Box<dyn Error>> {
    let dir = tempfile::tempdir_in(".")?;
    let path = dir.path().join("sink.sqlite");
    let started = Instant::now();
    run(&path)?;
    let took = started.elapsed();
    let stored: (i64, i64) = Connection::open(&path)?.query_row(
        "SELECT count(*), sum(length(CAST(_document AS BLOB))) FROM people",
        [],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    let bytes: usize = rows.iter().map(|row| row.raw.len()).sum();
    if stored != (i64::try_from(rows.len())?, i64::try_from(bytes)?) {
        return Err(format!("stored {stored:?}, expected {} and {bytes}", rows.len()).into());
    }
    Ok(took)
}

fn main() -> Result<(), Box<dyn Error>> {
    let count = std::env::args().nth(1).map_or(Ok(200_000), |count| count.parse())?;
    let rows = rows(count);
    let names = [
        "bare loop",
        "bare loop, tuned",
        "tuned, 10 rows each",
        "tuned, 50 rows each",
        "rows",
        "rows, numbers as text",
        "documents only",
    ];
    let mut times: [Vec<Duration>; 7] = Default::default();
    for _ in 0..ROUNDS {
        times[0].push(timed(&rows, |path| bare(path, &rows, false))?);
        times[1].push(timed(&rows, |path| bare(path, &rows, true))?);
        times[2].push(timed(&rows, |path| bare_multi(path, &rows, 10))?);
        times[3].push(timed(&rows, |path| bare_multi(path, &rows, 50))?);
        times[4].push(timed(&rows, |path| row_path(path, &rows, false))?);
        times[5].push(timed(&rows, |path| row_path(path, &rows, true))?);
        times[6].push(timed(&rows, |path| documents(path, &rows))?);
    }
    let medians = times.map(|mut times| {
        times.sort();
        times[ROUNDS / 2]
    });
    let mut out = std::io::stdout().lock();
    for (name, median) in names.iter().zip(medians) {
        writeln!(
            out,
            "{name:<22} {:>9.0} rows/s  {:.2}x",
            f64::from(u32::try_from(count)?) / median.as_secs_f64(),
            medians[0].as_secs_f64() / median.as_secs_f64(),
        )?;
    }
    Ok(())
}
