//! The queue of jobs as a subsystem of the server: applies its configuration and opens it.

use std::sync::Arc;

use anyhow::Context as _;
use forebay_api::jobs::Jobs;
use forebay_base::clock::SystemClock;
use forebay_base::fs::RealFs;
use forebay_intake::Intake;
use forebay_jobs::{Options, Queue};

use crate::config::Config;
use crate::layout;
use crate::serve::Subsystem;

/// Opens the queue in the data directory. From here on the intake remembers the requests of jobs that may
/// still run, so this comes right after opening it. Also returns the queue to those that follow it.
pub(super) fn open(
    config: &Config,
    intake: &Intake,
) -> anyhow::Result<(Arc<dyn Subsystem>, Queue)> {
    let from = &config.jobs;
    let options = Options {
        durability: from.durability,
        queued_max: from.queued_max as usize,
        workers: match from.workers {
            0 => std::thread::available_parallelism().map_or(1, usize::from).max(5) * 2,
            workers => workers as usize,
        },
        bodies_size_max: from.bodies_size_max.0,
        retries_max: from.retries_max,
        ended_kept: from.ended_kept.get(),
        failed_kept: from.failed_kept.get(),
        ..Options::new(layout::jobs(&config.process.data))
    };
    let dir = options.dir.clone();
    let queue = Queue::open(Arc::new(RealFs), Arc::new(SystemClock::new()), options)
        .with_context(|| format!("cannot open the job queue in {}", dir.display()))?;
    let stats = queue.stats();
    let [waiting, ..] = stats.by_status;
    tracing::info!(waiting, workers = stats.workers, "job queue open");
    let held = queue.clone();
    intake.hold_requests(move || i64::try_from(held.oldest_runnable_ms()?).ok());
    Ok((Arc::new(Jobs::new(queue.clone())), queue))
}
