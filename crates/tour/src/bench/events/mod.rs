//! Measures the event store; a build with the feature `peers` also measures RocksDB and fjall under
//! the same load in the same run.
//!
//! Every rate is measured in a separate process, round by round in turns. A rate of Forebay counts
//! only if afterwards every event can be read back, once, and the whole store verifies. Its time is
//! measured until everything is acknowledged, in sealed segments, in the tree and signed. The
//! figures compared with the other stores end where theirs do, with the last acknowledgement, or
//! with proofs when the tree's root over all events is known. The other stores count the events
//! they can read back.

mod logs;
#[cfg(feature = "peers")]
mod peers;
mod reads;
mod recovery;
pub mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use forebay_base::clock::SystemClock;
use forebay_base::fs::{FileSystem, RealFs};
use forebay_events::query::Query;
use forebay_events::store::verify;
use forebay_events::{Options, Store};
use serde_json::Value;

use super::Figures;
use writer::{Load, Written};

/// What to measure, and for how long.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Scratch directory, on the disk to measure.
    pub dir: PathBuf,
    /// Number of rounds of each comparison.
    pub rounds: u32,
    /// Number of events in a throughput measurement.
    pub events: u64,
    /// Number of events stored before single ones are read.
    pub stored: u64,
    /// Number of writers.
    pub writers: u64,
    /// Number of events in a batch.
    pub batch: u64,
    /// The program that runs the other stores; without it they are skipped.
    #[cfg(feature = "peers")]
    pub peers: Option<PathBuf>,
}

/// Measures the event store.
///
/// # Errors
/// A process failed, or something read back differed from what was written.
pub fn run(plan: &Plan, note: &dyn Fn(&str)) -> anyhow::Result<Value> {
    let scratch = tempfile::tempdir_in(&plan.dir).context("cannot create a scratch directory")?;
    let scratch = scratch.path();
    let mut figures = Figures::default();
    note("batches of events, with and without proofs, synced and not");
    rates(plan, scratch, &mut figures)?;
    note("one event per commit, synced");
    singles(plan, scratch, &mut figures)?;
    note("the presets, and their parts separately");
    presets(plan, scratch, &mut figures)?;
    note("many events: memory, reading single ones, proving, verifying");
    reads::measure(plan, scratch, &mut figures)?;
    note("recovery after a crash");
    recovery::measure(plan, scratch, &mut figures)?;
    note("log lines of known formats");
    logs::measure(plan, scratch, &mut figures)?;
    Ok(figures.into_json())
}

/// The kinds of writing that are compared.
struct Way {
    name: &'static str,
    synced: bool,
    proofs: bool,
}

const WAYS: [Way; 4] = [
    Way { name: "verified", synced: false, proofs: true },
    Way { name: "synced_verified", synced: true, proofs: true },
    Way { name: "plain", synced: false, proofs: false },
    Way { name: "synced_plain", synced: true, proofs: false },
];

fn rates(plan: &Plan, scratch: &Path, figures: &mut Figures) -> anyhow::Result<()> {
    let mut ours: Vec<Vec<Written>> = WAYS.iter().map(|_| Vec::new()).collect();
    #[cfg(feature = "peers")]
    let mut theirs = peers::Rates::default();
    for round in 0..plan.rounds {
        for (way, written) in WAYS.iter().zip(&mut ours) {
            let load = Load { synced: way.synced, proofs: way.proofs, ..plan.load() };
            let dir = scratch.join(format!("{}-{round}", way.name));
            let found = writer::spawn(&load, &dir)?;
            read_back(&dir, &load, plan.events)?;
            std::fs::remove_dir_all(&dir).context("cannot remove a store")?;
            written.push(found);
        }
        #[cfg(feature = "peers")]
        theirs.batches(plan, scratch)?;
    }
    let events = plan.events as f64;
    let rate = |seconds: f64| events / seconds;
    for (way, written) in WAYS.iter().zip(&ours) {
        let sealed = written.iter().map(|written| rate(written.sealed_s)).collect();
        figures.median(&format!("{}_events_per_s", way.name), sealed);
        let proven = written.iter().map(|written| rate(written.proven_s)).collect();
        figures.median(&format!("{}_proven_per_s", way.name), proven);
        let acknowledged = written.iter().map(|written| rate(written.acknowledged_s)).collect();
        figures.median(&format!("{}_acknowledged_per_s", way.name), acknowledged);
    }
    if let [unsynced, ..] = ours.as_slice() {
        let flush = |written: &Written| events / (written.sealed_s - written.acknowledged_s);
        figures.median("segment_events_per_s", unsynced.iter().map(flush).collect());
        let seconds = unsynced.iter().map(|written| written.sealed_s).collect();
        figures.median("verified_events_s", seconds);
    }
    if let [on, _, off, _] = ours.as_slice() {
        // Of neighbours in one round, so that a slowdown of the machine affects both.
        let costs = on.iter().zip(off).map(|(on, off)| 1.0 - off.sealed_s / on.sealed_s).collect();
        figures.median("proof_cost_ratio", costs);
        let costs = on.iter().zip(off).map(|(on, off)| 1.0 - off.proven_s / on.proven_s).collect();
        figures.median("proof_cost_unsealed_ratio", costs);
    }
    if let [unsynced, synced, ..] = ours.as_slice() {
        let shares =
            unsynced.iter().zip(synced).map(|(plain, synced)| plain.sealed_s / synced.sealed_s);
        figures.median("synced_share_ratio", shares.collect());
    }
    #[cfg(feature = "peers")]
    theirs.report(figures);
    Ok(())
}

fn singles(plan: &Plan, scratch: &Path, figures: &mut Figures) -> anyhow::Result<()> {
    let events = (plan.events / 20).max(1);
    let mut rates = Vec::new();
    #[cfg(feature = "peers")]
    let mut theirs = peers::Rates::default();
    for round in 0..plan.rounds {
        let load = Load { events, batch: 1, synced: true, ..plan.load() };
        let dir = scratch.join(format!("single-{round}"));
        let written = writer::spawn(&load, &dir)?;
        read_back(&dir, &load, events)?;
        std::fs::remove_dir_all(&dir).context("cannot remove a store")?;
        rates.push(events as f64 / written.acknowledged_s);
        #[cfg(feature = "peers")]
        theirs.singles(plan, &load, scratch)?;
    }
    figures.median("single_synced_events_per_s", rates);
    #[cfg(feature = "peers")]
    theirs.report(figures);
    Ok(())
}

/// Measures the presets in their intended use, and a single writer.
fn presets(plan: &Plan, scratch: &Path, figures: &mut Figures) -> anyhow::Result<()> {
    let named = |preset: &str| preset.to_owned();
    let share = |parts: u64| (plan.events / parts).max(1);
    let loads = [
        ("preset_balanced", named("balanced"), share(2), plan.writers, 100, true),
        ("preset_max_durability", named("max-durability"), share(20), plan.writers, 1, true),
        ("one_writer", named("max-throughput"), share(1), 1, plan.batch, false),
        ("one_writer_singles", named("max-throughput"), share(10), 1, 1, false),
    ];
    for (name, preset, events, writers, batch, synced) in loads {
        let mut rates = Vec::new();
        for round in 0..plan.rounds.min(3) {
            let preset = preset.clone();
            let load = Load { events, writers, batch, preset, synced, ..plan.load() };
            let dir = scratch.join(format!("{name}-{round}"));
            let written = writer::spawn(&load, &dir)?;
            read_back(&dir, &load, events)?;
            std::fs::remove_dir_all(&dir).context("cannot remove a store")?;
            rates.push(events as f64 / written.acknowledged_s);
        }
        figures.median(&format!("{name}_events_per_s"), rates);
    }
    Ok(())
}

impl Plan {
    fn load(&self) -> Load {
        Load { events: self.events, writers: self.writers, batch: self.batch, ..Load::default() }
    }
}

/// Opens the store in `dir` with the options it was written with.
fn open(dir: &Path, load: &Load) -> anyhow::Result<Store> {
    let (store, _) = Store::open(
        Arc::new(RealFs),
        Arc::new(SystemClock::new()),
        dir,
        Options { merkle: load.proofs, ..load.options() },
    )
    .with_context(|| format!("cannot open the store in {}", dir.display()))?;
    Ok(store)
}

/// Reads every event back and verifies the store: each of the load exists once, and nothing else.
fn read_back(dir: &Path, load: &Load, events: u64) -> anyhow::Result<()> {
    let store = open(dir, load)?;
    let mut seen = vec![false; usize::try_from(events)?];
    let mut count = 0u64;
    let mut scan = store.scan(Query::default());
    while let Some(record) = scan.next()? {
        let number =
            number_of(record.event().raw).context("an event does not belong to the load")?;
        let slot = seen.get_mut(usize::try_from(number)?).context("an event was never written")?;
        ensure!(!std::mem::replace(slot, true), "event {number} is duplicated");
        count += 1;
    }
    ensure!(count == events, "{events} events were written and {count} read back");
    drop(scan);
    store.close()?;
    let fs: Arc<dyn FileSystem> = Arc::new(RealFs);
    let verified = verify(&fs, dir, &[], None, &|_| {})?;
    if let Some(fault) = verified.faults.first() {
        anyhow::bail!("the store does not verify: {fault}");
    }
    ensure!(verified.events == events, "only {} events were verified", verified.events);
    Ok(())
}

/// Returns the number in an event of the load.
fn number_of(raw: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(raw.get(9..25)?).ok()?;
    u64::from_str_radix(digits, 16).ok()
}

/// Returns the size of all files below a directory.
fn size_of(dir: &Path) -> anyhow::Result<u64> {
    let mut sum = 0;
    for entry in walkdir::WalkDir::new(dir) {
        let metadata = entry?.metadata()?;
        sum += if metadata.is_file() { metadata.len() } else { 0 };
    }
    Ok(sum)
}
