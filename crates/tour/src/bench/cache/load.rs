//! Puts the same load on each server with `forebay cache bench`, and reads back what it wrote.

use std::process::Command;

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use super::Plan;
use super::peer::Peer;
use super::resp::{Client, Reply};

/// Number of keys of the load.
pub(super) const KEYS: u64 = 100_000;
/// Size of a value.
pub(super) const SIZE: usize = 100;

/// The result of a run.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Load {
    pub(super) per_second: f64,
    pub(super) p99_ms: f64,
    /// CPU time of the server for each command, in microseconds.
    pub(super) cpu_us: f64,
}

/// Kinds of commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Test {
    Set,
    Get,
}

/// Runs one kind of command, one at a time on each connection, with Forebay's generator.
pub(super) fn run(peer: &Peer, plan: &Plan, test: Test) -> anyhow::Result<Load> {
    let connections = plan.connections.to_string();
    let size = SIZE.to_string();
    let words =
        [("--threads", "2"), ("--clients", connections.as_str()), ("--size", size.as_str())];
    let before = peer.cpu_seconds()?;
    let load = generate(peer, plan.requests, KEYS, test, &words)?;
    let cpu_us = each(peer.cpu_seconds()? - before, plan.requests);
    let per_second = number(&load, "requests_per_s")?;
    Ok(Load { per_second, p99_ms: number(&load, "latency_p99_us")? / 1_000.0, cpu_us })
}

/// Runs one kind of command at a fixed rate, with one thread of Forebay's generator; a latency
/// counts from the time its command was due. A server that does not reach the rate is an error.
pub(super) fn run_paced(peer: &Peer, plan: &Plan, rate: u32, test: Test) -> anyhow::Result<Load> {
    let (connections, wanted) = (plan.connections.to_string(), rate.to_string());
    let size = SIZE.to_string();
    let words = [
        ("--threads", "1"),
        ("--clients", connections.as_str()),
        ("--size", size.as_str()),
        ("--rate", wanted.as_str()),
    ];
    // Long enough that most keys exist after the SETs.
    let requests = plan.requests.max(KEYS);
    let before = peer.cpu_seconds()?;
    let load = generate(peer, requests, KEYS, test, &words)?;
    let cpu_us = each(peer.cpu_seconds()? - before, requests);
    let per_second = number(&load, "requests_per_s")?;
    ensure!(
        per_second > 0.95 * f64::from(rate),
        "{per_second:.0} commands per second were answered of {rate}"
    );
    Ok(Load { per_second, p99_ms: number(&load, "latency_p99_us")? / 1_000.0, cpu_us })
}

/// Returns the microseconds per request.
#[expect(clippy::cast_precision_loss, reason = "a count of requests")]
pub(super) fn each(seconds: f64, requests: u64) -> f64 {
    seconds * 1e6 / requests as f64
}

/// Runs Forebay's generator; a GET must find what SETs have written.
fn generate(
    peer: &Peer,
    requests: u64,
    keys: u64,
    test: Test,
    words: &[(&str, &str)],
) -> anyhow::Result<Value> {
    let reads = if test == Test::Get { "1" } else { "0" };
    let binary = std::env::current_exe().context("cannot determine the path of this program")?;
    let output = Command::new(binary)
        .args(["cache", "bench", "--json"])
        .args(["--resp", &peer.address.to_string(), "--requests", &requests.to_string()])
        .args(["--keys", &keys.to_string(), "--read-share", reads])
        .args(words.iter().flat_map(|&(flag, value)| [flag, value]))
        .output()
        .context("cannot run the load generator")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the load generator failed: {errors}");
    let load: Value = serde_json::from_slice(&output.stdout)
        .context("cannot parse the load generator's output")?;
    if test == Test::Get {
        let hits = number(&load, "hits")? / number(&load, "requests")?;
        ensure!(hits > 0.3, "only {hits:.2} of the keys read existed");
    }
    Ok(load)
}

fn number(figures: &Value, name: &str) -> anyhow::Result<f64> {
    figures[name].as_f64().with_context(|| format!("the load generator did not report {name}"))
}

/// Reads a sample of the keys: the expected number exists, and they have the values that were sent.
pub(super) fn read_back(peer: &Peer, plan: &Plan) -> anyhow::Result<()> {
    let mut client = Client::connect(peer.address)?;
    let Reply::Integer(keys) = client.command(&[b"DBSIZE"])? else {
        bail!("unexpected reply to DBSIZE")
    };
    let keys = u64::try_from(keys).unwrap_or(0);
    // Of n keys drawn at random from k, about k * (1 - e^(-n/k)) are different.
    let expected =
        if plan.requests >= 3 * KEYS { KEYS * 9 / 10 } else { KEYS.min(plan.requests) / 3 };
    ensure!(keys >= expected, "there are {keys} keys, but at least {expected} were written");
    let mut found = 0;
    for number in (0..KEYS).step_by(97) {
        let key = format!("key:{number:012}");
        if let Reply::Bytes(value) = client.command(&[b"GET", key.as_bytes()])? {
            ensure!(value.len() == SIZE, "{key} has {} bytes", value.len());
            found += 1;
        }
    }
    ensure!(found > 0, "no key of the sample exists");
    Ok(())
}

/// Reads large values at random; returns the rate per second.
pub(super) fn get_large(peer: &Peer, plan: &Plan, keys: u64) -> anyhow::Result<f64> {
    let requests = (plan.requests / 10).max(1_000);
    number(
        &generate(peer, requests, keys, Test::Get, &[("--threads", "2"), ("--clients", "20")])?,
        "requests_per_s",
    )
}
