//! Measures opening a store after a crash that left everything in the log.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use forebay_base::clock::SystemClock;
use forebay_base::fs::RealFs;
use forebay_events::Store;

use super::Plan;
use super::writer::{self, Load};
use crate::bench::Figures;

pub(super) fn measure(plan: &Plan, scratch: &Path, figures: &mut Figures) -> anyhow::Result<()> {
    let load = Load { events: plan.stored / 2, crash: true, ..plan.load() };
    let mut took = Vec::new();
    let mut caught_up = Vec::new();
    for round in 0..plan.rounds.min(3) {
        let dir = scratch.join(format!("crashed-{round}"));
        writer::spawn(&load, &dir)?;
        let clock = Arc::new(SystemClock::new());
        let started = std::time::Instant::now();
        let (store, recovered) = Store::open(Arc::new(RealFs), clock, &dir, load.options())?;
        let opened = started.elapsed().as_secs_f64();
        ensure!(
            recovered.events_from_log == load.events,
            "{} events were acknowledged and {} recovered",
            load.events,
            recovered.events_from_log
        );
        store.checkpoint()?;
        let gigabytes = recovered.bytes_from_log as f64 / 1e9;
        took.push(opened / gigabytes);
        caught_up.push(started.elapsed().as_secs_f64() / gigabytes);
        store.close()?;
        std::fs::remove_dir_all(&dir).context("cannot remove a store")?;
    }
    figures.median("recovery_s_per_gb", took);
    figures.median("recovery_until_proofs_s_per_gb", caught_up);
    Ok(())
}
