//! Measures the intake and compares it with the baseline, the disk and SQLite.
//!
//! Every figure counts only work that was read back: after each load the files are fetched and
//! compared byte for byte with what was sent. Compared
//! rounds are interleaved, so that a machine that gets slower slows both; medians are reported.

use std::cell::RefCell;
use std::path::Path;

use anyhow::{Context as _, ensure};

use super::client::{Load, Until, drive};
#[cfg(feature = "peers")]
use super::postgres;
use super::{
    Figures, IntakePart, Plan, disk, documents, jobs, look_ups, published, s3, search, steady,
    upload,
};
use crate::child::Server;

/// Size of a small file.
const SMALL: usize = 4_096;
/// Number of files stored before the rate is measured again.
const STORED: u64 = 100_000;
/// Number of files in one round of the rate, with an empty and with a full store.
const ROUND_FILES: u64 = 20_000;

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
        documents::measure(plan, scratch.path(), &mut figures)?;
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
