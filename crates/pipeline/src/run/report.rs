//! The report of a run.

use serde::Serialize;

use forebay_sdk::connector::Cursor;
use forebay_sdk::run::PhaseSeconds;
use forebay_sdk::run::measures::Measure;

/// The report of a run.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[schema(as = PipelineReport)]
pub struct Report {
    /// Id of the run.
    pub run: String,
    /// Name of the pipeline.
    pub pipeline: String,
    /// Each stream.
    pub streams: Vec<StreamReport>,
    /// Number of rows committed.
    pub rows: u64,
    /// Number of rows stored as dead letters or skipped.
    pub dead: u64,
    /// Number of bytes read, as batches.
    pub bytes: u64,
    /// Duration of the run.
    pub seconds: f64,
    /// Time per phase, summed over all tasks.
    pub phases: PhaseSeconds,
    /// What to know of this run, such as rows that it does not read.
    pub warnings: Vec<String>,
    /// What was followed, for `sync_mode: cdc`.
    #[schema(required)]
    pub feed: Option<FeedReport>,
    /// What connectors have counted.
    pub metrics: Vec<Measure>,
}

/// The report of a feed.
#[derive(Debug, Clone, Default, Serialize, utoipa::ToSchema)]
#[schema(as = PipelineFeedReport)]
pub struct FeedReport {
    /// The end of the last commit that was applied, as the source writes it.
    pub position: String,
    /// The position that the run had to reach: the end of the source's log when it began.
    pub wanted: String,
    /// Number of commits of the source.
    pub commits: u64,
    /// Number of changes in them.
    pub changes: u64,
    /// Number of transactions at the destination.
    pub units: u64,
    /// Number of rows inserted, once changes of the same row are added up.
    pub inserted: u64,
    /// Number of rows updated.
    pub updated: u64,
    /// Number of rows deleted.
    pub deleted: u64,
}

/// The report of one stream.
#[derive(Debug, Clone, Default, Serialize, utoipa::ToSchema)]
#[schema(as = PipelineStreamReport)]
pub struct StreamReport {
    /// Its name in the source.
    pub stream: String,
    /// Its name in the destination.
    pub into: String,
    /// The load; null if there was nothing to do.
    #[schema(required)]
    pub load: Option<String>,
    /// Whether it continued a load of an earlier run.
    pub resumed: bool,
    /// Number of units committed in this run.
    pub units: usize,
    /// Number of units committed by earlier runs.
    pub units_before: usize,
    /// Number of rows committed in this run.
    pub rows: u64,
    /// Number of rows stored as dead letters or skipped in this run.
    pub dead: u64,
    /// The content hash of all rows of the load.
    pub content_hash: String,
    /// The current cursor of an incremental stream.
    #[schema(required)]
    pub cursor: Option<Cursor>,
    /// Duration of the copy.
    pub seconds: f64,
}
