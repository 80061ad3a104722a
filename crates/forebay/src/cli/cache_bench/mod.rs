//! `forebay cache bench`: a load generator for both protocols.
//!
//! Threads share the connections; each polls its connections together and keeps a pipeline full
//! on every one of them, or sends at a fixed rate. A latency is the time from sending a request, or
//! at a fixed rate from the time it was due, to having its whole reply.

mod client;
mod draw;
mod pace;
mod thread;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::ensure;
use forebay_base::duration::HumanDuration;
use serde_json::json;

use crate::bench::latency::Latencies;
use crate::exit::Exit;
use crate::{child, out};
use draw::{Draw, Zipf};
use thread::Thread;

const AFTER_HELP: &str = "\
Examples:
  forebay cache bench --clients 100 --duration 10s
  forebay cache bench --pipeline 16 --read-share 0.9 --zipf 0.99 --pid $(pgrep -f 'cache serve')
  forebay cache bench --rate 20000 --duration 30s
  forebay cache bench --text 127.0.0.1:8890 --requests 1000000 --json

With --pid the server's CPU time per operation is reported. It is a better measure than the rate if
the load generator runs on the same machine. The exit code is 1 if a reply was an error.";

#[derive(clap::Args, Clone, Debug)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// Address of the RESP listener.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6380")]
    resp: SocketAddr,
    /// Load the text protocol at this address instead.
    #[arg(long, value_name = "ADDRESS")]
    text: Option<SocketAddr>,
    /// Number of connections.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    clients: u32,
    /// Number of threads of the load generator.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: u32,
    /// Number of requests in flight on each connection.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pipeline: u32,
    /// Size of a value, in bytes.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    size: u32,
    /// Number of different keys.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    keys: u64,
    /// Fraction of GETs; the rest are SETs.
    #[arg(long, default_value_t = 0.5, value_name = "SHARE")]
    read_share: f64,
    /// Skew of the keys (Zipf), 0 to less than 1; 0 is uniform.
    #[arg(long, default_value_t = 0.0, value_name = "THETA")]
    zipf: f64,
    /// Total number of requests.
    #[arg(long, default_value_t = 1_000_000, conflicts_with = "duration")]
    requests: u64,
    /// Run for this time instead.
    #[arg(long, value_name = "DURATION")]
    duration: Option<HumanDuration>,
    /// Send this number of requests per second, and count a latency from the time its request was
    /// due. A request waits if all connections are in use.
    #[arg(long, value_name = "PER_SECOND", value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    rate: Option<u32>,
    /// Process id of the server, to measure its CPU time.
    #[arg(long)]
    pid: Option<u32>,
    /// Print one flat JSON object.
    #[arg(long)]
    json: bool,
}

/// Results of a thread.
#[derive(Default)]
struct Totals {
    reads: u64,
    writes: u64,
    hits: u64,
    errors: u64,
    latencies: Latencies,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    ensure!((0.0..=1.0).contains(&args.read_share), "--read-share must be from 0 to 1");
    ensure!((0.0..1.0).contains(&args.zipf), "--zipf must be at least 0 and less than 1");
    let cpu_before = args.pid.map(child::cpu_seconds_of).transpose()?;
    let threads = args.threads.min(args.clients);
    let zipf = (args.zipf > 0.0).then(|| Zipf::new(args.keys, args.zipf));
    let started = Instant::now();
    let seen = std::thread::scope(|scope| {
        let share = |whole: u64, number: u64| {
            whole / u64::from(threads) + u64::from(number < whole % u64::from(threads))
        };
        let running: Vec<_> = (0..u64::from(threads))
            .map(|number| {
                let clients = share(args.clients.into(), number);
                let requests = match args.duration {
                    Some(_) => u64::MAX,
                    None => share(args.requests, number),
                };
                let draw = Draw { state: number + 1, keys: args.keys, zipf };
                let gap =
                    args.rate.map(|rate| Duration::from_secs(1) * threads * args.pipeline / rate);
                scope.spawn(move || Thread::new(args, draw, requests, gap)?.run(clients, started))
            })
            .collect();
        let mut all = Totals::default();
        for thread in running {
            let seen = thread.join().map_err(|_| anyhow::anyhow!("a load thread panicked"))??;
            all.reads += seen.reads;
            all.writes += seen.writes;
            all.hits += seen.hits;
            all.errors += seen.errors;
            all.latencies.merge(&seen.latencies)?;
        }
        anyhow::Ok(all)
    })?;
    let seconds = started.elapsed().as_secs_f64();
    let cpu_after = args.pid.map(child::cpu_seconds_of).transpose()?;
    let cpu_s = cpu_after.zip(cpu_before).map(|(after, before)| after - before);
    report(args, &seen, seconds, cpu_s)?;
    Ok(if seen.errors == 0 { Exit::Ok } else { Exit::Failed })
}

#[expect(clippy::cast_precision_loss, reason = "figures are printed with few digits")]
fn report(args: &Args, seen: &Totals, seconds: f64, cpu_s: Option<f64>) -> anyhow::Result<()> {
    let done = seen.reads + seen.writes;
    let us = |share: f64| seen.latencies.quantile(share).as_nanos() as f64 / 1_000.0;
    let mut figures = json!({
        "requests": done,
        "seconds": seconds,
        "requests_per_s": done as f64 / seconds,
        "reads": seen.reads,
        "writes": seen.writes,
        "hits": seen.hits,
        "errors": seen.errors,
        "latency_p50_us": us(0.5),
        "latency_p95_us": us(0.95),
        "latency_p99_us": us(0.99),
        "latency_p999_us": us(0.999),
        "latency_max_us": us(1.0),
        "clients": args.clients,
        "pipeline": args.pipeline,
    });
    if let Some(rate) = args.rate {
        figures["rate_wanted_per_s"] = json!(rate);
    }
    if let Some(cpu_s) = cpu_s {
        figures["server_cpu_us_per_request"] = json!(cpu_s * 1e6 / done.max(1) as f64);
    }
    if args.json {
        return out::json(&figures);
    }
    for (name, value) in figures.as_object().into_iter().flatten() {
        match value.as_f64().filter(|_| value.is_f64()) {
            Some(value) => out::line(format_args!("{name:<26} {value:>16.2}"))?,
            None => out::line(format_args!("{name:<26} {value:>16}"))?,
        }
    }
    Ok(())
}
