//! Measures the cache; a build with the feature `peers` also measures Redis, and Valkey if it
//! is installed, on the same machine in the same run.
//!
//! All servers get the same load from the same generator (see `load`), round by round in turns and
//! each round on new processes, because the speed of a process depends on where it happens to be in
//! memory. A rate counts only if the values exist afterwards: a sample of keys is read back and
//! compared, and the number of keys is checked.

mod load;
mod memory;
mod peer;
#[cfg(feature = "peers")]
mod redis;
mod resp;
mod snapshot;
mod text;
#[cfg(feature = "peers")]
mod valkey;
mod waits;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::Value;

use super::Figures;
use load::{Load, Test};
use peer::{Kind, Peer};

/// Commands per second at which neither server is busy all the time.
const FIXED_RATES: [u32; 3] = [10_000, 20_000, 40_000];

/// A part of the benchmark of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Rates beside Redis by redis-benchmark, with 1, 16 and 64 commands at a time, and with the log on.
    #[cfg(feature = "peers")]
    Redis,
    /// Rates beside Valkey by valkey-benchmark.
    #[cfg(feature = "peers")]
    Valkey,
    /// Rates by `forebay cache bench`.
    Light,
    /// Processor time and delays at 10,000, 20,000 and 40,000 commands per second.
    Fixed,
    /// Memory of small values and of JSON values of 85 KB.
    Memory,
    /// The text protocol.
    Text,
    /// Compression of repetitive text.
    Compression,
    /// A snapshot under write load.
    Snapshot,
    /// The longest wait of other clients during heavy commands.
    Waits,
}

/// What to measure, and for how long.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Scratch directory.
    pub dir: PathBuf,
    /// Number of rounds of each comparison.
    pub rounds: u32,
    /// Number of connections of the load.
    pub connections: u32,
    /// Number of requests in a round without pipelining; with it multiplied by the depth.
    pub requests: u64,
    /// Number of keys for the memory figures.
    pub keys: u64,
    /// What to measure; everything if it is empty.
    pub only: Vec<Part>,
}

/// Measures the cache.
///
/// # Errors
/// A server is not installed or did not start, or something read back differed from what was sent.
pub fn run(plan: &Plan, note: &dyn Fn(&str)) -> anyhow::Result<Value> {
    let scratch = tempfile::tempdir_in(&plan.dir).context("cannot create a scratch directory")?;
    let mut figures = Figures::default();
    let wants = |part| super::wants(&plan.only, &part);
    #[cfg(feature = "peers")]
    if wants(Part::Redis) {
        redis::measure(plan, scratch.path(), &mut figures, note)?;
    }
    #[cfg(feature = "peers")]
    if wants(Part::Valkey) {
        valkey::measure(plan, scratch.path(), &mut figures, note)?;
    }
    if wants(Part::Light) {
        note("100-byte values, 1 command at a time, from a lighter generator");
        rates(plan, scratch.path(), ("p1_light", false), &mut figures, &|peer, test| {
            load::run(peer, plan, test)
        })?;
    }
    if wants(Part::Fixed) {
        fixed(plan, scratch.path(), &mut figures, note)?;
    }
    if wants(Part::Memory) {
        note("memory of small values");
        memory::small(plan, scratch.path(), &mut figures)?;
        note("JSON values of 85 KB");
        memory::large(plan, scratch.path(), &mut figures)?;
    }
    if wants(Part::Text) {
        note("the text protocol");
        text::measure(plan, scratch.path(), &mut figures)?;
    }
    if wants(Part::Compression) {
        note("compression of repetitive text");
        memory::compression(&mut figures)?;
    }
    if wants(Part::Snapshot) {
        note("a snapshot under write load");
        snapshot::measure(plan, scratch.path(), &mut figures)?;
    }
    if wants(Part::Waits) {
        note("the longest wait of other clients during heavy commands");
        waits::measure(plan, scratch.path(), &mut figures)?;
    }
    Ok(figures.into_json())
}

/// Puts a load on every server that none of them needs all its time for.
fn fixed(
    plan: &Plan,
    scratch: &Path,
    figures: &mut Figures,
    note: &dyn Fn(&str),
) -> anyhow::Result<()> {
    for rate in FIXED_RATES {
        note(&format!("100-byte values, {rate} commands per second"));
        let name = format!("fixed_{}k", rate / 1_000);
        rates(plan, scratch, (&name, false), figures, &|peer, test| {
            load::run_paced(peer, plan, rate, test)
        })?;
    }
    Ok(())
}

/// The result of one server in one round.
#[derive(Debug, Clone, Copy, Default)]
struct Round {
    set: Load,
    get: Load,
}

impl Round {
    /// Commands per second over both kinds.
    fn rate(self) -> f64 {
        2.0 / (1.0 / self.set.per_second + 1.0 / self.get.per_second)
    }

    fn cpu_us(self) -> f64 {
        f64::midpoint(self.set.cpu_us, self.get.cpu_us)
    }

    fn p99_ms(self) -> f64 {
        f64::midpoint(self.set.p99_ms, self.get.p99_ms)
    }
}

/// Puts one kind of load on every server, round by round.
fn rates(
    plan: &Plan,
    scratch: &Path,
    (what, logged): (&str, bool),
    figures: &mut Figures,
    run: &dyn Fn(&Peer, Test) -> anyhow::Result<Load>,
) -> anyhow::Result<()> {
    let rounds = rounds_of(Kind::ALL, plan, scratch, (what, logged), run)?;
    for (kind, rounds) in Kind::ALL.iter().zip(&rounds) {
        report(&format!("{}_{what}", kind.name()), rounds, figures);
    }
    #[cfg(feature = "peers")]
    redis::shares(what, &rounds, figures);
    Ok(())
}

/// Returns the results of these servers.
fn rounds_of<const KINDS: usize>(
    all: [Kind; KINDS],
    plan: &Plan,
    scratch: &Path,
    (what, logged): (&str, bool),
    run: &dyn Fn(&Peer, Test) -> anyhow::Result<Load>,
) -> anyhow::Result<[Vec<Round>; KINDS]> {
    let mut rounds = [const { Vec::new() }; KINDS];
    for round in 0..plan.rounds {
        let mut kinds: Vec<_> = all.into_iter().zip(&mut rounds).collect();
        // The order changes with every round.
        if round % 2 == 1 {
            kinds.reverse();
        }
        for (kind, rounds) in kinds {
            let name = format!("{}-{what}-{round}", kind.name());
            let peer = Peer::start(kind, &scratch.join(name), logged)?;
            let set = run(&peer, Test::Set)?;
            let get = run(&peer, Test::Get)?;
            load::read_back(&peer, plan)?;
            peer.stop()?;
            rounds.push(Round { set, get });
        }
    }
    Ok(rounds)
}

/// Reports the medians of a server's rounds.
fn report(name: &str, rounds: &[Round], figures: &mut Figures) {
    let mut median = |figure: &str, take: fn(Round) -> f64| {
        let samples = rounds.iter().map(|&round| take(round)).collect();
        figures.median(&format!("{name}_{figure}"), samples);
    };
    median("per_s", Round::rate);
    median("cpu_us", Round::cpu_us);
    median("p99_ms", Round::p99_ms);
    median("set_per_s", |round| round.set.per_second);
    median("get_per_s", |round| round.get.per_second);
    median("set_cpu_us", |round| round.set.cpu_us);
    median("get_cpu_us", |round| round.get.cpu_us);
}
