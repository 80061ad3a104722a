//! Redis beside the cache.
//!
//! The rates are measured with Redis' own generator, `redis-benchmark` with two threads, which is
//! not tuned to either server. It ends a run at the next quarter of a second, so runs must be
//! long; and it uses more of the two cores than a server does. So one comparison is repeated with
//! one thread, with which no server has more work than one core can do, and with the lighter
//! `forebay cache bench` (see `load`); both are reported separately.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail, ensure};

use super::load::{KEYS, Load, SIZE, Test, each};
use super::peer::{Kind, Peer};
use super::{Figures, Plan, Round, rates};

/// Measures the rates of both servers with `redis-benchmark`.
pub(super) fn measure(
    plan: &Plan,
    scratch: &Path,
    figures: &mut Figures,
    note: &dyn Fn(&str),
) -> anyhow::Result<()> {
    for depth in [1, 16, 64] {
        note(&format!("100-byte values, {depth} commands at a time, without persistence"));
        rates(plan, scratch, (&format!("p{depth}"), false), figures, &|peer, test| {
            run(peer, plan, (depth, 2), test)
        })?;
    }
    note("100-byte values, 1 command at a time, from a client with one thread");
    rates(plan, scratch, ("p1_single", false), figures, &|peer, test| {
        run(peer, plan, (1, 1), test)
    })?;
    for depth in [1, 16] {
        note(&format!("100-byte values, {depth} commands at a time, with the log on"));
        let name = format!("p{depth}_logged");
        rates(plan, scratch, (&name, true), figures, &|peer, test| {
            run(peer, plan, (depth, 2), test)
        })?;
    }
    Ok(())
}

/// Returns the command of a server, Redis or Valkey, which has the same options; with `logged` it appends to its log, synced once a second.
pub(super) fn server(program: &str, address: SocketAddr, data: &Path, logged: bool) -> Command {
    let mut command = Command::new(program);
    let log = if logged { "yes" } else { "no" };
    command
        .args(["--bind", "127.0.0.1", "--port", &address.port().to_string(), "--save", ""])
        .args(["--appendonly", log, "--appendfsync", "everysec", "--protected-mode", "no"])
        // A rewrite of its log would prevent the snapshot that is measured.
        .args(["--auto-aof-rewrite-percentage", "0"])
        .arg("--dir")
        .arg(data);
    command
}

/// Runs one kind of command with `redis-benchmark` of this many threads.
fn run(peer: &Peer, plan: &Plan, how: (u32, u32), test: Test) -> anyhow::Result<Load> {
    run_with("redis-benchmark", peer, plan, how, test)
}

/// The same with `redis-benchmark` or `valkey-benchmark`, which has the same options.
pub(super) fn run_with(
    program: &str,
    peer: &Peer,
    plan: &Plan,
    (depth, threads): (u32, u32),
    test: Test,
) -> anyhow::Result<Load> {
    let requests = plan.requests * u64::from(depth.min(16));
    let name = if test == Test::Get { "get" } else { "set" };
    let before = peer.cpu_seconds()?;
    let output = Command::new(program)
        .args(["-h", "127.0.0.1", "-p", &peer.address.port().to_string()])
        .args(["-c", &plan.connections.to_string(), "-d", &SIZE.to_string()])
        // Without `--threads` it is one thread, which also ends a run on time.
        .args(if threads > 1 { vec!["--threads".to_owned(), threads.to_string()] } else { vec![] })
        .args(["-n", &requests.to_string(), "-r", &KEYS.to_string(), "-P", &depth.to_string()])
        .args(["-t", name, "--csv"])
        .output()
        .with_context(|| format!("cannot run {program}"))?;
    let cpu_us = each(peer.cpu_seconds()? - before, requests);
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{program} failed: {text}");
    let name = format!("\"{}\"", name.to_ascii_uppercase());
    let Some(line) = text.lines().find(|line| line.starts_with(&name)) else {
        bail!("{program} reported nothing for {name}: {text}");
    };
    // "test","rps","avg_latency_ms","min","p50","p95","p99","max"
    let fields: Vec<f64> =
        line.split(',').skip(1).filter_map(|field| field.trim_matches('"').parse().ok()).collect();
    let [per_second, _, _, _, _, p99_ms, ..] = fields.as_slice() else {
        bail!("unexpected line of {program}: {line}");
    };
    Ok(Load { per_second: *per_second, p99_ms: *p99_ms, cpu_us })
}

/// Returns the ratios of Forebay's figures to those of Redis.
pub(super) fn shares(what: &str, rounds: &[Vec<Round>; 2], figures: &mut Figures) {
    let at = |wanted: Kind| Kind::ALL.iter().position(|kind| *kind == wanted);
    let (Some(ours), Some(theirs)) = (at(Kind::Forebay), at(Kind::Redis)) else { return };
    let name = (format!("cache_{what}"), "of_redis_ratio");
    shares_of((&rounds[ours], &rounds[theirs]), (&name.0, name.1), figures);
}

/// Returns the ratio of Forebay's figure to the other, by round: a temporary slowdown affects both
/// of a round.
///
/// * `name`: what the names of the ratios begin and end with.
pub(super) fn shares_of(
    (ours, theirs): (&[Round], &[Round]),
    name: (&str, &str),
    figures: &mut Figures,
) {
    let mut median = |figure: &str, take: fn(Round) -> f64| {
        let pairs = ours.iter().zip(theirs);
        let shares = pairs.map(|(ours, theirs)| take(*ours) / take(*theirs)).collect();
        figures.median(&format!("{}_{figure}_{}", name.0, name.1), shares);
    };
    median("rate", Round::rate);
    median("cpu", Round::cpu_us);
    median("p99", Round::p99_ms);
}
