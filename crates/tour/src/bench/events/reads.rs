//! Many events in one store: the memory for writing them, and the time to find, prove and verify
//! single ones.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use forebay_base::fs::{FileSystem, RealFs};
use forebay_events::EventId;
use forebay_events::query::Query;
use forebay_events::store::verify;

use super::writer::{self, Load};
use super::{Plan, open, size_of};
use crate::bench::Figures;

/// Number of single events that are read, and that are proven.
const READS: usize = 50_000;
const PROOFS: usize = 500;

pub(super) fn measure(plan: &Plan, scratch: &Path, figures: &mut Figures) -> anyhow::Result<()> {
    let dir = scratch.join("stored");
    let load = Load { events: plan.stored, ..plan.load() };
    let written = writer::spawn(&load, &dir)?;
    let (peak, bound) = (written.peak_rss_bytes, written.memory_bound_bytes);
    figures.count("stored_events", plan.stored);
    figures.add("stored_events_per_s", plan.stored as f64 / written.sealed_s);
    figures.add("write_peak_memory_mib", peak as f64 / 1_048_576.0);
    figures.add("write_memory_share_ratio", peak as f64 / bound as f64);
    figures.add("stored_bytes_per_event", size_of(&dir)? as f64 / plan.stored as f64);
    let fs: Arc<dyn FileSystem> = Arc::new(RealFs);
    let mut rates = Vec::new();
    for _ in 0..plan.rounds {
        let started = Instant::now();
        let verified = verify(&fs, &dir, &[], None, &|_| {})?;
        let seconds = started.elapsed().as_secs_f64();
        ensure!(verified.faults.is_empty(), "the store does not verify: {:?}", verified.faults);
        ensure!(verified.events == plan.stored, "only {} were verified", verified.events);
        rates.push(verified.leaf_bytes as f64 / seconds);
    }
    figures.median("verify_bytes_per_s", rates);
    let store = open(&dir, &load)?;
    let mut ids: Vec<EventId> = Vec::new();
    let step = usize::try_from(plan.stored)?.div_ceil(READS).max(1);
    let mut scan = store.scan(Query::default());
    let started = Instant::now();
    let mut count = 0usize;
    while let Some(record) = scan.next()? {
        if count.is_multiple_of(step) {
            ids.push(record.event().id);
        }
        count += 1;
    }
    figures.add("scan_events_per_s", count as f64 / started.elapsed().as_secs_f64());
    drop(scan);
    shuffle(&mut ids);
    let read = |id: EventId| -> anyhow::Result<f64> {
        let started = Instant::now();
        let record = store.get(id)?.context("an event is missing")?;
        let took = started.elapsed().as_secs_f64() * 1e6;
        ensure!(record.event().id == id, "another event was returned");
        Ok(took)
    };
    let mut took = ids.iter().map(|&id| read(id)).collect::<anyhow::Result<Vec<f64>>>()?;
    percentiles("point_read", &mut took, figures);
    let absent = |number: u64| EventId(u128::from(number) << 60 | 1);
    let started = Instant::now();
    for number in 0..READS as u64 {
        ensure!(store.get(absent(number))?.is_none(), "an event that was never written was found");
    }
    figures.add("absent_read_us", started.elapsed().as_secs_f64() * 1e6 / READS as f64);
    let key = store.verifier_key()?;
    let mut took = Vec::new();
    for &id in ids.iter().take(PROOFS) {
        let started = Instant::now();
        let proof = store.prove(id)?;
        took.push(started.elapsed().as_secs_f64() * 1e6);
        proof.verify(&key)?;
    }
    percentiles("prove", &mut took, figures);
    store.close()?;
    std::fs::remove_dir_all(&dir).context("cannot remove a store")
}

/// Adds median and 99th percentile of times in microseconds.
pub(super) fn percentiles(name: &str, took: &mut [f64], figures: &mut Figures) {
    took.sort_unstable_by(f64::total_cmp);
    for (word, share) in [("p50", 50), ("p99", 99)] {
        if let Some(found) = took.get((took.len() * share / 100).min(took.len().saturating_sub(1)))
        {
            figures.add(&format!("{name}_{word}_us"), *found);
        }
    }
}

/// An order that is reproducible and unrelated to the previous one.
pub(super) fn shuffle<T>(items: &mut [T]) {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    for place in (1..items.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let other = usize::try_from(state % (place as u64 + 1)).unwrap_or(place);
        items.swap(place, other);
    }
}
