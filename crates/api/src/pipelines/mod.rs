//! Pipelines as a subsystem of the server: applies their configuration, provides routes, schedule
//! and metrics, stops them.
//!
//! Invariants: a client names pipelines, never paths, and learns no secret; a pipeline has one run
//! at a time; a run that is in progress at shutdown stops at a commit boundary, and the next run
//! continues after it.

mod alerts;
mod answers;
mod catalogue;
mod clock;
mod openapi;
mod progress;
mod routes;
mod runner;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::routing::{get, post};
use forebay_base::image::Image;
use forebay_pipeline::config::{LoadError, PipelineFile};
use forebay_pipeline::state::State;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::Subsystem;
use crate::problem::Problem;
pub use alerts::Alerts;
use catalogue::Catalogue;
pub use progress::{now_ms, progress, run_name};
use runner::Runner;

/// Maximum time that closing waits for runs to reach a commit boundary.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);

/// A pipeline and the time from the start of one run to the start of the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Name of the pipeline.
    pub pipeline: String,
    /// The time.
    pub every: Duration,
}

/// Reads a pipeline file, and resolves its references.
pub type Load = fn(&Path) -> Result<PipelineFile, LoadError>;

/// Where pipelines are, and what runs them.
#[derive(Debug)]
pub struct Settings {
    /// Directory of the pipeline files.
    pub dir: PathBuf,
    /// Reads one of them.
    pub load: Load,
    /// The record of runs.
    pub state: State,
    /// Maximum number of concurrent runs.
    pub runs_max: usize,
    /// What runs by itself, and when.
    pub schedules: Vec<Schedule>,
}

/// Serves pipelines. Their schedule starts with the routes.
///
/// # Errors
/// The directory of pipeline files cannot be read.
pub fn open(settings: Settings) -> anyhow::Result<Arc<dyn Subsystem>> {
    let shared = Arc::new(Shared {
        catalogue: Catalogue::new(settings.dir, settings.load),
        runner: Runner::new(settings.state, settings.runs_max),
        schedules: settings.schedules,
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
    Ok(Arc::new(Pipelines { shared, clock: Mutex::new(None) }))
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
            .route("/v1/pipelines/{name}/runs", get(routes::runs))
            .route("/v1/pipelines/{name}/runs/{run}", get(routes::run).delete(routes::cancel))
            .with_state(Arc::clone(&self.shared))
    }

    fn work(&self) -> axum::Router {
        let router = axum::Router::new().route("/v1/pipelines/{name}/runs", post(routes::start));
        router.with_state(Arc::clone(&self.shared))
    }

    fn start(&self, _bare: &axum::Router, routes: &axum::Router) {
        let clock = clock::keep(Arc::clone(&self.shared), routes.clone());
        *self.clock.lock() = Some(tokio::spawn(clock));
    }

    fn openapi(&self) -> utoipa::openapi::OpenApi {
        openapi::document()
    }

    fn measure(&self) {
        #[expect(clippy::cast_precision_loss, reason = "a few runs")]
        metrics::gauge!("forebay_pipeline_runs_running").set(self.shared.runner.count() as f64);
    }

    fn image(&self, image: &mut Image) -> anyhow::Result<()> {
        self.shared.runner.remembered(|state| state.image(image))?;
        self.shared.catalogue.image(image)
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

/// The record of runs cannot be used.
fn unremembered(error: &forebay_pipeline::state::StateError) -> Problem {
    if error.is_full() {
        return Problem::full("there is no disk space to record a run; free some and try again");
    }
    tracing::error!(error = %forebay_base::error_chain::chain(error), "cannot use the run record");
    Problem::closed("cannot read or write the record of runs; see the server's log")
}
