//! Load by `redis-benchmark`, and reading back what it wrote.

use std::process::Command;

use anyhow::{Context as _, bail, ensure};

use super::Plan;
use super::peer::Peer;
use super::resp::{Client, Reply};

/// Keys the load is spread over.
const KEYS: u64 = 100_000;
/// Bytes of a value.
const SIZE: usize = 100;

/// What a run did.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Load {
    pub(super) per_second: f64,
    pub(super) p99_ms: f64,
    /// Processor time of the server for a command, in microseconds.
    pub(super) cpu_us: f64,
}

/// Runs one kind of command.
pub(super) fn run(peer: &Peer, plan: &Plan, depth: u32, test: &str) -> anyhow::Result<Load> {
    let requests = plan.requests * u64::from(depth.min(16));
    let before = peer.cpu_seconds()?;
    let output = Command::new("redis-benchmark")
        .args(["-h", "127.0.0.1", "-p", &peer.address.port().to_string()])
        .args(["-c", &plan.connections.to_string(), "--threads", "2", "-d", &SIZE.to_string()])
        .args(["-n", &requests.to_string(), "-r", &KEYS.to_string(), "-P", &depth.to_string()])
        .args(["-t", test, "--csv"])
        .output()
        .context("cannot run redis-benchmark (package redis-tools)")?;
    let used = peer.cpu_seconds()? - before;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "redis-benchmark failed: {text}");
    let name = format!("\"{}\"", test.to_ascii_uppercase());
    let Some(line) = text.lines().find(|line| line.starts_with(&name)) else {
        bail!("redis-benchmark said nothing of {test}: {text}");
    };
    // "test","rps","avg_latency_ms","min","p50","p95","p99","max"
    let fields: Vec<f64> =
        line.split(',').skip(1).filter_map(|field| field.trim_matches('"').parse().ok()).collect();
    let [per_second, _, _, _, _, p99_ms, ..] = fields.as_slice() else {
        bail!("redis-benchmark's line is odd: {line}");
    };
    #[expect(clippy::cast_precision_loss, reason = "a count of requests")]
    let cpu_us = used * 1e6 / requests as f64;
    Ok(Load { per_second: *per_second, p99_ms: *p99_ms, cpu_us })
}

/// Reads a sample of the keys: as many as expected are there, and they hold what was sent.
pub(super) fn read_back(peer: &Peer, plan: &Plan) -> anyhow::Result<()> {
    let mut client = Client::connect(peer.address)?;
    let Reply::Integer(keys) = client.command(&[b"DBSIZE"])? else { bail!("DBSIZE is odd") };
    let keys = u64::try_from(keys).unwrap_or(0);
    // Of n keys drawn at random from k, about k * (1 - e^(-n/k)) are different.
    let expected =
        if plan.requests >= 3 * KEYS { KEYS * 9 / 10 } else { KEYS.min(plan.requests) / 3 };
    ensure!(keys >= expected, "{keys} keys are there, at least {expected} were written");
    let mut found = 0;
    for number in (0..KEYS).step_by(97) {
        let key = format!("key:{number:012}");
        if let Reply::Bytes(value) = client.command(&[b"GET", key.as_bytes()])? {
            ensure!(value.len() == SIZE, "{key} holds {} bytes", value.len());
            found += 1;
        }
    }
    ensure!(found > 0, "no key of the sample is there");
    Ok(())
}

/// Reads large values at random; returns how many a second.
pub(super) fn get_large(peer: &Peer, plan: &Plan, keys: u64) -> anyhow::Result<f64> {
    let requests = (plan.requests / 10).max(1_000);
    let output = Command::new("redis-benchmark")
        .args(["-h", "127.0.0.1", "-p", &peer.address.port().to_string()])
        .args(["-c", "20", "--threads", "2", "-n", &requests.to_string()])
        .args(["-r", &keys.to_string(), "--csv", "GET", "key:__rand_int__"])
        .output()
        .context("cannot run redis-benchmark (package redis-tools)")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "redis-benchmark failed: {text}");
    let line = text.lines().last().context("redis-benchmark said nothing")?;
    let rate = line.split(',').nth(1).and_then(|field| field.trim_matches('"').parse().ok());
    rate.with_context(|| format!("redis-benchmark's line is odd: {line}"))
}
