//! Pipelines as a subsystem of the server: applies their configuration, provides routes, schedule
//! and metrics, stops them.
//!
//! Invariants: a client names pipelines, never paths, and learns no secret; a pipeline has one run
//! at a time; a run that is in progress at shutdown stops at a commit boundary, and the next run
//! continues after it.

mod answers;
mod catalogue;
mod clock;
mod openapi;
mod routes;
mod runner;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::routing::{get, post};
use forebay_pipeline::state::State;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::answer::Problem;
use crate::config::{Config, Schedule};
use crate::pipelines;
use crate::serve::Subsystem;
use catalogue::Catalogue;
use runner::Runner;

/// Maximum time that closing waits for runs to reach a commit boundary.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);

/// Opens the record of runs, and starts the schedule.
pub(super) fn open(config: &Config) -> anyhow::Result<Arc<dyn Subsystem>> {
    let data = &config.process.data;
    let dir = config.pipelines.dir.clone().unwrap_or_else(|| data.join("pipelines"));
    let state = State::open(&pipelines::state_file(data)).context("cannot open the run record")?;
    let shared = Arc::new(Shared {
        catalogue: Catalogue::new(dir),
        runner: Runner::new(state, config.pipelines.runs_max as usize),
        schedules: config.pipelines.every.0.clone(),
    });
    let found =
        shared.catalogue.names().map_err(|problem| anyhow::anyhow!(problem.into_message()))?;
    for schedule in &shared.schedules {
        if !found.iter().any(|name| name.as_str() == schedule.pipeline) {
            let (pipeline, dir) = (&schedule.pipeline, shared.catalogue.dir().display());
            tracing::warn!(
                "pipelines.every names {pipeline}, but {dir} has no {pipeline}.yaml yet"
            );
        }
    }
    tracing::info!(files = found.len(), scheduled = shared.schedules.len(), "pipelines open");
    let clock = tokio::spawn(clock::keep(Arc::clone(&shared)));
    Ok(Arc::new(Pipelines { shared, clock: Mutex::new(Some(clock)) }))
}

/// The subsystem.
struct Pipelines {
    shared: Arc<Shared>,
    clock: Mutex<Option<JoinHandle<()>>>,
}

/// State shared by requests.
struct Shared {
    catalogue: Catalogue,
    runner: Runner,
    schedules: Vec<Schedule>,
}

impl Subsystem for Pipelines {
    fn name(&self) -> &'static str {
        "pipelines"
    }

    fn router(&self) -> axum::Router {
        axum::Router::new()
            .route("/pipelines", get(routes::to_page))
            .route("/v1/pipelines", get(routes::list))
            .route("/v1/pipelines/page", get(routes::page))
            .route("/v1/pipelines/{name}", get(routes::pipeline))
            .route("/v1/pipelines/{name}/plan", get(routes::plan))
            .route("/v1/pipelines/{name}/runs", post(routes::start).get(routes::runs))
            .route("/v1/pipelines/{name}/runs/{run}", get(routes::run).delete(routes::cancel))
            .with_state(Arc::clone(&self.shared))
    }

    fn openapi(&self) -> utoipa::openapi::OpenApi {
        openapi::document()
    }

    fn measure(&self) {
        #[expect(clippy::cast_precision_loss, reason = "a few runs")]
        metrics::gauge!("forebay_pipeline_runs_running").set(self.shared.runner.count() as f64);
    }

    fn drain(&self) {
        if let Some(clock) = self.clock.lock().take() {
            clock.abort();
        }
        self.shared.runner.close();
    }

    fn stop(&self) -> Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send + '_>> {
        self.drain();
        Box::pin(async {
            self.shared.runner.ended(CLOSE_LIMIT).await;
            Ok(())
        })
    }
}

/// Runs `work` on a thread that may block.
async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        tracing::error!(%error, "a request about pipelines panicked");
        Err(Problem::closed("the request failed; see the server's log"))
    })
}

/// The record of runs cannot be used.
fn unremembered(error: &forebay_pipeline::state::StateError) -> Problem {
    if error.is_full() {
        return Problem::full("there is no disk space to record a run; free some and try again");
    }
    tracing::error!(error = %forebay_base::error_chain::chain(error), "cannot use the run record");
    Problem::closed("cannot read or write the record of runs; see the server's log")
}
