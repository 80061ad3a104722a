//! Log lines of known formats, as made by `forebay_events::input::sample`: how quickly they are taken
//! in, and how small they become. The lines are made up; their shape and variety are those of real logs.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use forebay_base::clock::SystemClock;
use forebay_base::fs::RealFs;
use forebay_events::ingest::Ingest;
use forebay_events::input::sample::Samples;
use forebay_events::input::{Format, Record};
use forebay_events::query::Query;
use forebay_events::{EventId, Options, Store};

use super::reads::{percentiles, shuffle};
use super::{Plan, size_of};
use crate::bench::Figures;

/// JSON formats the size is told for.
const FORMATS: [Format; 3] = [Format::Zeek, Format::Suricata, Format::Ocsf];

pub(super) fn measure(plan: &Plan, scratch: &Path, figures: &mut Figures) -> anyhow::Result<()> {
    let count = plan.events / 10;
    let (mut raw, mut stored, mut events) = (0u64, 0u64, 0u64);
    for format in FORMATS {
        let lines = lines(format, count);
        let size: usize = lines.iter().map(|line| line.len() + 1).sum();
        let dir = scratch.join(format.name());
        let clock = Arc::new(SystemClock::new());
        let (store, _) = Store::open(Arc::new(RealFs), clock, &dir, Options::balanced())?;
        let started = Instant::now();
        append(&store, format, &lines)?;
        let seconds = started.elapsed().as_secs_f64();
        store.flush()?;
        read_back(&store, &lines)?;
        if format == Format::Zeek {
            point_reads(&store, figures)?;
        }
        store.close()?;
        // The log's file is reserved whole and empty by now: what the events take is all else.
        let size_stored = size_of(&dir)? - size_of(&dir.join("log"))?;
        std::fs::remove_dir_all(&dir).context("cannot remove a store")?;
        figures.add(&format!("{}_events_per_s", format.name()), count as f64 / seconds);
        figures.add(&format!("{}_size_ratio", format.name()), size_stored as f64 / size as f64);
        raw += size as u64;
        stored += size_stored;
        events += count;
    }
    figures.add("raw_bytes_per_event", raw as f64 / events as f64);
    figures.add("bytes_per_event", stored as f64 / events as f64);
    figures.add("size_ratio", stored as f64 / raw as f64);
    Ok(())
}

fn lines(format: Format, count: u64) -> Vec<Vec<u8>> {
    let mut samples = Samples::new(format, 7);
    (0..count).map(|_| samples.next_line()).collect()
}

fn append(store: &Store, format: Format, lines: &[Vec<u8>]) -> anyhow::Result<()> {
    let mut ingest = Ingest::new(store, format, "bench");
    for (line, bytes) in (1..).zip(lines) {
        let record = Record { line, bytes, fault: None };
        ingest.record(&record, 0, &mut |_, _, _| {})?;
    }
    let summary = ingest.finish()?;
    ensure!(summary.rejected == 0, "{} lines were rejected", summary.rejected);
    Ok(())
}

/// Every line is there, byte for byte.
fn read_back(store: &Store, lines: &[Vec<u8>]) -> anyhow::Result<()> {
    let mut found = vec![false; lines.len()];
    let mut scan = store.scan(Query::default());
    while let Some(record) = scan.next()? {
        let at = usize::try_from(record.seq())?;
        let line = lines.get(at).context("there are more events than lines")?;
        ensure!(record.event().raw == line.as_slice(), "line {at} came back changed");
        if let Some(found) = found.get_mut(at) {
            *found = true;
        }
    }
    ensure!(found.into_iter().all(|found| found), "a line is gone");
    Ok(())
}

/// Single reads from compressed blocks.
fn point_reads(store: &Store, figures: &mut Figures) -> anyhow::Result<()> {
    let mut ids: Vec<EventId> = Vec::new();
    let mut scan = store.scan(Query::default());
    while let Some(record) = scan.next()? {
        if record.seq().is_multiple_of(10) {
            ids.push(record.event().id);
        }
    }
    shuffle(&mut ids);
    let mut took = Vec::with_capacity(ids.len());
    for id in ids {
        let started = Instant::now();
        let record = store.get(id)?.context("an event is gone")?;
        took.push(started.elapsed().as_secs_f64() * 1e6);
        ensure!(record.event().id == id, "another event was returned");
    }
    percentiles("compressed_point_read", &mut took, figures);
    Ok(())
}
