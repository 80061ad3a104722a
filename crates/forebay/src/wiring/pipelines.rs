//! Pipelines as a subsystem of the server: applies their configuration and opens the record of runs.

use std::sync::Arc;

use anyhow::Context as _;
use forebay_api::pipelines::{self as routes, Settings};
use forebay_pipeline::state::State;

use crate::config::Config;
use crate::pipelines;
use crate::serve::Subsystem;

/// Opens the record of runs, and starts the schedule.
pub(super) fn open(config: &Config) -> anyhow::Result<Arc<dyn Subsystem>> {
    let data = &config.process.data;
    pipelines::use_components_of(data);
    let state = State::open(&pipelines::state_file(data)).context("cannot open the run record")?;
    routes::open(Settings {
        dir: config.pipelines.dir.clone().unwrap_or_else(|| data.join("pipelines")),
        load: pipelines::load,
        state,
        runs_max: config.pipelines.runs_max as usize,
        schedules: config.pipelines.every.0.clone(),
    })
}
