//! Webhooks as a subsystem of the server: applies their configuration, and joins them to the logs that they follow.
//!
//! A state that cannot be opened stops webhooks and nothing else: their routes answer 503, and `/readyz` names the
//! reason.

use std::sync::Arc;

use anyhow::Context as _;
use forebay_api::keys::MasterKey;
use forebay_api::webhooks::{FileEvents, JobEvents, MasterSecrets, Webhooks};
use forebay_base::clock::SystemClock;
use forebay_base::fs::{FileSystem, RealFs};
use forebay_intake::Intake;
use forebay_jobs::Queue;
use forebay_webhooks::{Hooks, HttpTransport, Options, Source, SystemLookup};

use crate::config::Config;
use crate::layout;
use crate::serve::Subsystem;

/// Opens the webhooks in the data directory. From here on the intake and the queue of jobs keep
/// what they need.
pub(super) fn open(config: &Config, intake: &Intake, jobs: &Queue) -> Arc<dyn Subsystem> {
    match hooks(config, intake, jobs) {
        Ok(hooks) => {
            intake.hold_log(hooks.needs("intake"));
            jobs.hold_log(hooks.needs("jobs"));
            let stats = hooks.stats();
            tracing::info!(enabled = stats.enabled, disabled = stats.disabled, "webhooks open");
            Arc::new(Webhooks::new(hooks))
        }
        Err(error) => {
            let reason = format!("{error:#}");
            tracing::error!(%reason, "webhooks cannot be opened; everything else is served");
            Arc::new(Webhooks::unusable(&reason))
        }
    }
}

fn hooks(config: &Config, intake: &Intake, jobs: &Queue) -> anyhow::Result<Hooks> {
    let from = &config.webhooks;
    let options = Options {
        hooks_max: from.hooks_max as usize,
        deliveries_kept: from.deliveries_kept as usize,
        retry_first: from.retry_first.get(),
        retry_max: from.retry_max.get(),
        attempts_max: from.attempts_max,
        disable_after: from.disable_after.get(),
        log_held_max: from.log_held_max.0,
        ..Options::new(layout::webhooks(&config.process.data))
    };
    let allowed = from.allow.0.clone();
    let transport = HttpTransport::new(allowed.clone(), Arc::new(SystemLookup), from.timeout.get())
        .context("cannot prepare to send")?;
    let master = MasterKey::open(&config.process.data).context("cannot open the master key")?;
    let sources: Vec<Arc<dyn Source>> =
        vec![Arc::new(FileEvents::new(intake.feed())), Arc::new(JobEvents::new(jobs.clone()))];
    let fs: Arc<dyn FileSystem> = Arc::new(RealFs);
    Ok(Hooks::open(
        &fs,
        Arc::new(SystemClock::new()),
        options,
        (sources, allowed),
        (Arc::new(transport), Arc::new(MasterSecrets::new(master))),
    )?)
}
