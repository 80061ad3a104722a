//! What a run tells when it is done.

use serde::Serialize;

use super::context::PhaseSeconds;
use crate::connector::Cursor;

/// What a run did.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Id of the run.
    pub run: String,
    /// Name of the pipeline.
    pub pipeline: String,
    /// Each stream.
    pub streams: Vec<StreamReport>,
    /// Rows that were committed.
    pub rows: u64,
    /// Rows that were put aside or left out.
    pub dead: u64,
    /// Bytes that were read, as batches.
    pub bytes: u64,
    /// How long it took.
    pub seconds: f64,
    /// What it did meanwhile, all tasks together.
    pub phases: PhaseSeconds,
}

/// What a run did with a stream.
#[derive(Debug, Clone, Default, Serialize)]
pub struct StreamReport {
    /// Its name in the source.
    pub stream: String,
    /// Its name in the destination.
    pub into: String,
    /// The load; none where there was nothing to do.
    pub load: Option<String>,
    /// Whether it went on with a load of an earlier run.
    pub resumed: bool,
    /// Units that were committed in this run.
    pub units: usize,
    /// Units that an earlier run had committed.
    pub units_before: usize,
    /// Rows committed in this run.
    pub rows: u64,
    /// Rows put aside or left out in this run.
    pub dead: u64,
    /// The content hash of all rows of the load.
    pub content_hash: String,
    /// How far an incremental stream is now.
    pub cursor: Option<Cursor>,
    /// How long it took.
    pub seconds: f64,
}
