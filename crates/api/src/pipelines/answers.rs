//! The JSON of answers about pipelines and their runs. Reports and plans are the pipeline's own.

use forebay_pipeline::run::Report;
use forebay_pipeline::state::{Outcome, RunRecord};
use serde::Serialize;
use utoipa::ToSchema;

/// The pipelines.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PipelineList {
    /// Each pipeline, by name.
    pub(super) pipelines: Vec<PipelineAnswer>,
}

/// A pipeline. If its file cannot be used it has an error instead of source, destination and
/// streams.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Pipeline)]
pub(super) struct PipelineAnswer {
    /// Connector of the destination.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) destination: Option<String>,
    /// When the next scheduled run is due, in milliseconds since 1970; absent without a schedule.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) due_at_ms: Option<u64>,
    /// Why its file cannot be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) error: Option<String>,
    /// Interval of its schedule in seconds; absent without a schedule.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) every_seconds: Option<u64>,
    /// Its last run; null if there was none.
    #[schema(required)]
    pub(super) last_run: Option<RunAnswer>,
    /// Its name.
    pub(super) name: String,
    /// Id of its run in progress; null if there is none.
    #[schema(required)]
    pub(super) running: Option<String>,
    /// Connector of the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) source: Option<String>,
    /// What it copies.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) streams: Option<Vec<StreamAnswer>>,
}

/// A stream of a pipeline.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = PipelineStream)]
pub(super) struct StreamAnswer {
    /// Its name in the destination.
    pub(super) into: String,
    /// Its name in the source.
    pub(super) stream: String,
}

/// Runs of a pipeline.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PipelineRunList)]
pub(super) struct RunList {
    /// The runs, the newest first.
    pub(super) runs: Vec<RunAnswer>,
}

/// A run of a pipeline.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = PipelineRun)]
pub(super) struct RunAnswer {
    /// When it began, in milliseconds since 1970.
    pub(super) began_at_ms: u64,
    /// Number of bytes read.
    pub(super) bytes_read: u64,
    /// When it ended, in milliseconds since 1970; null while it runs.
    #[schema(required)]
    pub(super) ended_at_ms: Option<u64>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) error: Option<String>,
    /// Its state.
    pub(super) outcome: Outcome,
    /// Name of the pipeline.
    pub(super) pipeline: String,
    /// Its report; absent in lists, and unless it is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Option<Report>)]
    pub(super) report: Option<serde_json::Value>,
    /// Number of rows committed.
    pub(super) rows_committed: u64,
    /// Number of rows read.
    pub(super) rows_read: u64,
    /// Its id.
    pub(super) run: String,
}

/// A run that has started.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PipelineRunStarted)]
pub(super) struct Started {
    /// Name of the pipeline.
    pub(super) pipeline: String,
    /// Id of the run.
    pub(super) run: String,
}

impl RunAnswer {
    /// Describes a run, with its report if requested.
    pub(super) fn of(run: &RunRecord, with_report: bool) -> Self {
        Self {
            began_at_ms: run.began_ms,
            bytes_read: run.bytes_read,
            ended_at_ms: (run.outcome != Outcome::Running).then_some(run.ended_ms),
            error: run.error.clone(),
            outcome: run.outcome,
            pipeline: run.pipeline.clone(),
            report: run.report.clone().filter(|_| with_report),
            rows_committed: run.rows_committed,
            rows_read: run.rows_read,
            run: run.run.clone(),
        }
    }
}
