//! Measures the intake and compares it with the baseline, the disk and SQLite.
//!
//! Every figure counts only work that was read back: after each load the files are fetched and
//! compared byte for byte with what was sent, and the documents are counted and sampled. Compared
//! rounds are interleaved, so that a machine that gets slower slows both; medians are reported.

use std::cell::RefCell;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, ensure};

use super::client::{Load, Until, drive};
#[cfg(feature = "peers")]
use super::postgres;
use super::{
    Figures, IntakePart, Plan, disk, jobs, look_ups, published, rows, s3, search, steady, upload,
};
use crate::child::Server;

/// Size of a small file.
const SMALL: usize = 4_096;
/// Number of files stored before the rate is measured again.
const STORED: u64 = 100_000;
/// Number of files in one round of the rate, with an empty and with a full store.
const ROUND_FILES: u64 = 20_000;
/// Number of documents in a request, and of connections for requests.
const DOCUMENTS_PER_REQUEST: usize = 5_000;
const DOCUMENT_CONNECTIONS: usize = 4;

/// Runs everything and returns the figures.
pub(super) fn run(plan: &Plan, note: &dyn Fn(&str)) -> anyhow::Result<Figures> {
    let scratch = tempfile::tempdir_in(&plan.dir).context("cannot create a scratch directory")?;
    let mut figures = Figures::default();
    figures.add("sha256_mb_per_s", disk::sha256_mb_per_s());
    for (name, size) in [
        ("sha256_1kb_us", 1 << 10),
        ("sha256_10kb_us", 10 << 10),
        ("sha256_100kb_us", 100 << 10),
        ("sha256_1mb_us", 1 << 20),
        ("sha256_10mb_us", 10 << 20),
    ] {
        figures.add(name, disk::sha256_us(size));
    }
    let wants = |part| super::wants(&plan.only, &part);
    if wants(IntakePart::Small) || wants(IntakePart::Steady) {
        note("small files: the baseline, durable, unflushed, one flush after another");
        small_files(plan, scratch.path(), &mut figures)?;
    }
    if wants(IntakePart::Filled) {
        note("small files into an empty store and into one with 100,000 files");
        filled(plan, scratch.path(), &mut figures)?;
    }
    if wants(IntakePart::Large) {
        note("one large file");
        upload::large_file(plan, scratch.path(), &mut figures)?;
    }
    if wants(IntakePart::Steady) {
        note("small files at a steady rate beside a large one");
        let highest = figures.value("put_4k_sync_per_s").context("no rate was measured")?;
        steady::measure(plan, scratch.path(), highest, &mut figures)?;
    }
    if wants(IntakePart::S3) {
        note("small files over the S3-compatible API");
        s3::measure(plan, scratch.path(), &mut figures)?;
    }
    if wants(IntakePart::Published) {
        note("workers, batches, and responses before the work is done");
        published::measure(plan, scratch.path(), &mut figures)?;
        #[cfg(feature = "peers")]
        {
            note("rows into PostgreSQL");
            postgres::measure(plan, scratch.path(), &mut figures)?;
        }
    }
    if wants(IntakePart::Search) {
        note("searches over 100,000 files");
        search::measure(plan, scratch.path(), &mut figures)?;
    }
    if wants(IntakePart::Documents) {
        note("documents into SQLite");
        documents(plan, scratch.path(), &mut figures)?;
    }
    if wants(IntakePart::Jobs) {
        note("jobs: accepted over HTTP, and without work");
        jobs::measure(plan, scratch.path(), &mut figures)?;
    }
    Ok(figures)
}

pub(super) fn server(data: &Path, durability: &str) -> anyhow::Result<Server> {
    let log = data.with_extension("log");
    Server::start(&["serve", "--log", "warn", "--durability", durability], data, &log)
}

/// Servers are started again for every round: the speed of a process depends on where it happens to
/// be in memory, and the median is to be over processes too.
fn small_files(plan: &Plan, scratch: &Path, figures: &mut Figures) -> anyhow::Result<()> {
    let until = Until::Elapsed(plan.lasting);
    let mut samples = [const { Vec::new() }; 4];
    let mut cpu_us = [const { Vec::new() }; 3];
    let mut read = Vec::new();
    let mut last = Load::default();
    let mut files = 0;
    for round in 0..plan.rounds {
        let data = |name: &str| scratch.join(format!("{name}-{round}"));
        let floor = Server::start(
            &["bench", "floor", "--log", "warn"],
            &data("floor"),
            &scratch.join("floor.log"),
        )?;
        samples[0].push(put_measured(&floor, plan, until, 0, &mut cpu_us[0])?.per_second());
        floor.stop()?;
        samples[3].push(disk::serial_appends_per_s(scratch, plan.lasting / 2)?);
        let durable = server(&data("sync"), "sync")?;
        last = put_measured(&durable, plan, until, 0, &mut cpu_us[1])?;
        samples[1].push(last.per_second());
        let load = get_all(&durable, plan, 0, last.done)?;
        ensure!(load.done == last.done, "{} of {} files were read back", load.done, last.done);
        read.push(load.per_second());
        durable.stop()?;
        let relaxed = server(&data("os"), "os")?;
        let load = put_measured(&relaxed, plan, until, 0, &mut cpu_us[2])?;
        samples[2].push(load.per_second());
        files += last.done + read_back(&relaxed, plan, 0, load.done)?;
        relaxed.stop()?;
        for name in ["sync", "os"] {
            std::fs::remove_dir_all(data(name)).context("cannot remove an emptied store")?;
        }
    }
    let names =
        ["floor_4k_per_s", "put_4k_sync_per_s", "put_4k_os_per_s", "serial_fdatasync_per_s"];
    for (name, samples) in names.into_iter().zip(samples) {
        figures.median(name, samples);
    }
    let names = ["floor_4k_server_cpu_us", "put_4k_sync_server_cpu_us", "put_4k_os_server_cpu_us"];
    for (name, samples) in names.into_iter().zip(cpu_us) {
        figures.median(name, samples);
    }
    figures.add("put_4k_sync_p50_us", last.percentile_us(0.5));
    figures.add("put_4k_sync_p99_us", last.percentile_us(0.99));
    figures.count("put_4k_read_back_files", files);
    figures.median("get_4k_per_s", read);
    Ok(())
}

/// Compares the rate into an empty store with the rate into a full one, round by round.
fn filled(plan: &Plan, scratch: &Path, figures: &mut Figures) -> anyhow::Result<()> {
    // A new server for every round on this side too: some processes are slower throughout their
    // life.
    let mut full = server(&scratch.join("full"), "sync")?;
    put(&full, plan, Until::Requests(STORED), 1 << 50)?;
    let (mut empty_rates, mut full_rates) = (Vec::new(), Vec::new());
    for round in 0..plan.rounds {
        let data = scratch.join(format!("empty-{round}"));
        let empty = server(&data, "sync")?;
        let salt = (2 + u64::from(round)) << 50;
        let files = Until::Requests(ROUND_FILES);
        let load = put(&empty, plan, files, salt)?;
        empty_rates.push(load.per_second());
        read_back(&empty, plan, salt, load.done)?;
        empty.stop()?;
        std::fs::remove_dir_all(&data).context("cannot remove an emptied store")?;
        full.stop()?;
        full = server(&scratch.join("full"), "sync")?;
        let load = put(&full, plan, files, salt)?;
        full_rates.push(load.per_second());
        read_back(&full, plan, salt, load.done)?;
    }
    figures.median("put_4k_empty_per_s", empty_rates);
    figures.median("put_4k_at_100k_per_s", full_rates);
    let load = put_named(&full, plan, Until::Requests(ROUND_FILES), 1 << 50, "again")?;
    figures.add("duplicate_put_4k_per_s", load.per_second());
    figures.add("duplicate_put_4k_p50_us", load.percentile_us(0.5));
    full.stop()?;
    look_ups::measure(&forebay_console::layout::intake(&scratch.join("full")), figures)
}

/// Returns the content of file `number`: its number, then a pattern that depends on it.
pub(super) fn fill(number: u64, out: &mut Vec<u8>) {
    let mut word = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    for _ in 0..SMALL / 8 {
        out.extend_from_slice(&word.to_le_bytes());
        word = word.rotate_left(23).wrapping_add(number);
    }
}

pub(super) fn put(server: &Server, plan: &Plan, until: Until, salt: u64) -> anyhow::Result<Load> {
    put_named(server, plan, until, salt, "bench")
}

fn put_named(
    server: &Server,
    plan: &Plan,
    until: Until,
    salt: u64,
    namespace: &'static str,
) -> anyhow::Result<Load> {
    drive(server.address(), plan.connections, until, salt, put_request(namespace), stored)
}

/// Writes uploads of 4 KiB.
pub(super) fn put_request(namespace: &'static str) -> impl Fn(u64, &mut Vec<u8>) + 'static {
    move |number: u64, out: &mut Vec<u8>| {
        out.extend_from_slice(b"PUT /v1/files/");
        out.extend_from_slice(namespace.as_bytes());
        out.push(b'/');
        out.extend_from_slice(format!("{number:016x}").as_bytes());
        out.extend_from_slice(b" HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4096\r\n\r\n");
        fill(number, out);
    }
}

/// Checks the response to an upload of a new file.
pub(super) fn stored(number: u64, status: u16, body: &[u8]) -> anyhow::Result<()> {
    let text = String::from_utf8_lossy(body);
    ensure!(status == 201, "file {number} was answered {status}: {text}");
    Ok(())
}

/// Uploads files, and measures the CPU time of the server for each file, in microseconds.
fn put_measured(
    server: &Server,
    plan: &Plan,
    until: Until,
    salt: u64,
    cpu_us: &mut Vec<f64>,
) -> anyhow::Result<Load> {
    let before = server.cpu_seconds()?;
    let load = put(server, plan, until, salt)?;
    #[expect(clippy::cast_precision_loss, reason = "a count of files")]
    let done = load.done.max(1) as f64;
    cpu_us.push((server.cpu_seconds()? - before) * 1e6 / done);
    Ok(load)
}

/// Fetches what was uploaded and compares it; returns the number of files.
pub(super) fn read_back(
    server: &Server,
    plan: &Plan,
    salt: u64,
    count: u64,
) -> anyhow::Result<u64> {
    let load = get_all(server, plan, salt, count)?;
    ensure!(load.done == count, "{} of {count} files were read back", load.done);
    Ok(load.done)
}

fn get_all(server: &Server, plan: &Plan, salt: u64, count: u64) -> anyhow::Result<Load> {
    let request = |number: u64, out: &mut Vec<u8>| {
        out.extend_from_slice(b"GET /v1/files/bench/");
        out.extend_from_slice(format!("{number:016x}").as_bytes());
        out.extend_from_slice(b" HTTP/1.1\r\nhost: localhost\r\n\r\n");
    };
    let expected = RefCell::new(Vec::with_capacity(SMALL));
    let check = move |number, status, body: &[u8]| {
        let mut expected = expected.borrow_mut();
        expected.clear();
        fill(number, &mut expected);
        ensure!(status == 200 && body == expected.as_slice(), "file {number} came back altered");
        Ok(())
    };
    drive(server.address(), plan.connections, Until::Requests(count), salt, request, check)
}

/// Measures documents acknowledged *and* returned by the next read, and a bare loop over the same
/// rows.
fn documents(plan: &Plan, scratch: &Path, figures: &mut Figures) -> anyhow::Result<()> {
    let rows = rows::make(1, plan.documents);
    let bodies: Vec<Vec<u8>> = rows.chunks(DOCUMENTS_PER_REQUEST).map(rows::lines).collect();
    let server = server(&scratch.join("documents"), "sync")?;
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for round in 0..plan.rounds {
        bare.push(disk::sqlite_rows_per_s(scratch, &rows)?);
        let namespace = format!("articles-{round}");
        let begun = Instant::now();
        post_documents(&server, &namespace, bodies.clone(), DOCUMENT_CONNECTIONS)?;
        let first = page(&server, &namespace, "limit=1")?;
        let took = begun.elapsed();
        let count = first["count"].as_i64().unwrap_or(0);
        ensure!(count == plan.documents, "{count} of {} documents are shown", plan.documents);
        ensure!(first["target"] == "table", "the documents did not become a table");
        compare_sample(&server, &namespace, &rows)?;
        #[expect(clippy::cast_precision_loss, reason = "a count of documents")]
        ours.push(count as f64 / took.as_secs_f64());
    }
    batches(&server, &rows, figures)?;
    figures.median("documents_per_s", ours);
    figures.median("sqlite_bare_per_s", bare);
    figures.count("documents_read_back", plan.documents.cast_unsigned() * u64::from(plan.rounds));
    server.stop()
}

/// Returns the time of one request with this many documents, one after another on one connection.
fn batches(server: &Server, rows: &[rows::Row], figures: &mut Figures) -> anyhow::Result<()> {
    for size in [1, 10, 100, 1_000] {
        let bodies: Vec<Vec<u8>> = rows.chunks(size).take(100).map(rows::lines).collect();
        let namespace = format!("batches-of-{size}");
        let load = post_documents(server, &namespace, bodies, 1)?;
        figures.add(&format!("documents_batch_{size}_us"), load.percentile_us(0.5));
        let count = page(server, &namespace, "limit=1")?["count"].as_u64();
        let expected = rows.len().min(size * 100) as u64;
        ensure!(count == Some(expected), "{count:?} of {expected} documents are shown");
    }
    Ok(())
}

fn post_documents(
    server: &Server,
    namespace: &str,
    bodies: Vec<Vec<u8>>,
    connections: usize,
) -> anyhow::Result<Load> {
    let head = format!("POST /v1/documents/{namespace} HTTP/1.1\r\nhost: localhost\r\n");
    let count = bodies.len() as u64;
    let request = move |number: u64, out: &mut Vec<u8>| {
        let body = usize::try_from(number).ok().and_then(|at| bodies.get(at));
        let body = body.map(Vec::as_slice).unwrap_or_default();
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(b"content-type: application/x-ndjson\r\n");
        out.extend_from_slice(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
        out.extend_from_slice(body);
    };
    let check = |number, status, body: &[u8]| {
        let text = String::from_utf8_lossy(body);
        ensure!(status == 201, "request {number} was answered {status}: {text}");
        Ok(())
    };
    let until = Until::Requests(count);
    drive(server.address(), connections, until, 0, request, check)
}

/// Reads every page and compares the documents with what was sent, as a set.
fn compare_sample(server: &Server, namespace: &str, rows: &[rows::Row]) -> anyhow::Result<()> {
    let mut left: std::collections::HashSet<&str> =
        rows.iter().map(|row| row.text.as_str()).collect();
    let mut query = "limit=1000".to_owned();
    loop {
        let page = page(server, namespace, &query)?;
        for entry in page["documents"].as_array().context("a page has no documents")? {
            let id = entry["document"]["id"].as_i64().context("a document has no id")?;
            let row = usize::try_from(id - 1).ok().and_then(|at| rows.get(at));
            let row = row.with_context(|| format!("document {id} was never sent"))?;
            let sent: serde_json::Value = serde_json::from_str(&row.text)?;
            ensure!(entry["document"] == sent, "document {id} came back altered");
            ensure!(left.remove(row.text.as_str()), "document {id} came back twice");
        }
        match page["next_cursor"].as_str() {
            Some(next) => query = format!("limit=1000&cursor={next}"),
            None => break,
        }
    }
    ensure!(left.is_empty(), "{} documents are missing", left.len());
    Ok(())
}

fn page(server: &Server, namespace: &str, query: &str) -> anyhow::Result<serde_json::Value> {
    let url = format!("http://{}/v1/documents/{namespace}?{query}", server.address());
    let mut response = ureq::get(&url).call().with_context(|| format!("cannot get {url}"))?;
    let body = response.body_mut().with_config().limit(64 << 20).read_to_vec()?;
    serde_json::from_slice(&body).with_context(|| format!("the response of {url} is not JSON"))
}
