//! The general method: readers gather what they read into runs, which are merged.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::BuildError;
use super::build_dir::BuildDir;
use super::collect::Collector;
use super::monitor::Stage;
use super::rows::{OnBadRow, Shared};
use super::run::{Run, RunWriter};
use super::{Options, fan_in, merge, write::IndexWriter};
use crate::object::Batch;
use crate::source::{BadRow, Part, RowSink, SourceError, Stopped};

/// What one reader has.
struct Gatherer<'a> {
    shared: &'a Shared<'a>,
    place: &'a BuildDir,
    memory_max: usize,
    collector: Collector,
    runs: &'a Mutex<Vec<Run>>,
    run_number: &'a AtomicUsize,
    /// Whether a key listed twice is counted twice.
    allow_duplicates: bool,
    part: String,
    rows: u64,
}

impl Gatherer<'_> {
    /// Makes a run of what was gathered.
    fn write_run(&mut self, memory_max: usize) -> Result<(), BuildError> {
        if self.collector.is_empty() {
            return Ok(());
        }
        let number = self.run_number.fetch_add(1, Ordering::Relaxed);
        let path = self.place.file(&format!("run-{number}"));
        let mut out = RunWriter::new(self.shared.fs, path, memory_max);
        self.collector.write(&mut out, &mut on_duplicate(self.allow_duplicates))?;
        let run = out.finish()?;
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).push(run);
        Ok(())
    }
}

/// How keys listed twice are handled.
fn on_duplicate(allow: bool) -> impl FnMut(&[u8], u64) -> Result<(), BuildError> {
    move |dir, count| {
        if allow { Ok(()) } else { Err(BuildError::Duplicate { dir: dir.to_vec(), count }) }
    }
}

impl RowSink for Gatherer<'_> {
    fn rows(&mut self, batch: &mut Batch) -> Result<(), Stopped> {
        let count = batch.len() as u64;
        self.shared.sift(batch, &self.part, self.rows)?;
        self.rows += count;
        if !self.collector.has_room(batch) || self.collector.memory() > self.memory_max {
            self.write_run(0).map_err(|error| self.shared.verdicts.fail(error))?;
        }
        self.collector.add(batch);
        batch.clear();
        self.shared.monitor.read(count);
        Ok(())
    }

    fn bad_row(&mut self, row: BadRow) -> Result<(), Stopped> {
        self.shared.monitor.read(1);
        self.shared.verdicts.bad_row(row, self.shared.on_bad_row)
    }

    fn bytes(&mut self, more: u64) {
        self.shared.monitor.read_bytes(more);
    }
}

/// Reads all parts, each by the next idle thread, and merges the results.
///
/// Returns the number of runs.
pub(crate) fn gather(
    parts: Vec<Box<dyn Part>>,
    place: &BuildDir,
    shared: &Shared<'_>,
    options: &Options,
    writer: &mut IndexWriter,
) -> Result<usize, BuildError> {
    let runs = Mutex::new(Vec::new());
    let run_number = AtomicUsize::new(0);
    let threads = options.readers().clamp(1, parts.len().max(1));
    let memory_max = options.memory_of_reader(threads);
    let parts = Mutex::new(parts.into_iter());
    let read = || {
        let mut gatherer = Gatherer {
            shared,
            place,
            memory_max,
            collector: Collector::new(shared.delimiter),
            runs: &runs,
            run_number: &run_number,
            allow_duplicates: options.on_duplicate == OnBadRow::Skip,
            part: String::new(),
            rows: 0,
        };
        loop {
            if shared.verdicts.has_failed() {
                return;
            }
            let part = parts.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(part) = part else { break };
            gatherer.part = part.name().to_owned();
            gatherer.rows = 0;
            if let Err(error) = part.read(&mut gatherer) {
                failed(shared, &gatherer.part, error);
                return;
            }
        }
        // The rest may stay in memory if it is small compared with the buffers it was gathered in.
        if let Err(error) = gatherer.write_run(memory_max / 8 * 3) {
            shared.verdicts.fail(error);
        }
    };
    std::thread::scope(|scope| {
        let mut started = Vec::new();
        for _ in 1..threads {
            let builder = std::thread::Builder::new().name("inventory-read".to_owned());
            started.push(builder.spawn_scoped(scope, read).map_err(BuildError::Thread)?);
        }
        read();
        started.into_iter().for_each(|thread| {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        });
        Ok::<(), BuildError>(())
    })?;
    if shared.verdicts.has_failed() {
        return Ok(0);
    }
    shared.monitor.stage(Stage::Merging);
    let runs = runs.into_inner().unwrap_or_else(PoisonError::into_inner);
    let count = runs.len();
    let duplicate = &mut on_duplicate(options.on_duplicate == OnBadRow::Skip);
    let mut next = || {
        let number = run_number.fetch_add(1, Ordering::Relaxed);
        place.file(&format!("run-{number}"))
    };
    let fan_in = fan_in::fan_in(options.memory_of_merge());
    let mut merger = merge::Merger::new(shared.fs, shared.monitor, duplicate);
    merger.merge_all(runs, fan_in, &mut next, writer)?;
    Ok(count)
}

/// Records that a part could not be read.
pub(crate) fn failed(shared: &Shared<'_>, part: &str, error: SourceError) {
    if !matches!(error, SourceError::Stopped(_)) {
        shared.verdicts.fail(BuildError::Source { part: part.to_owned(), source: Box::new(error) });
    } else if !shared.verdicts.has_failed() {
        shared.verdicts.fail(BuildError::Cancelled);
    }
}
