//! A transform of single rows, as a stream around a stream.
//!
//! Invariants:
//! * Units, cursor and notes are those of the stream below.
//! * While a batch is processed, the stream below builds the next one and waits with it: reading a
//!   unit takes at most these two batches, beside what is in transit to the destination.
//! * The stream below is never aborted: when its rows are no longer needed, it gets an error with
//!   its next batch and ends by itself.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::RecordBatch;
use async_trait::async_trait;
use forebay_pgcopy::Column;

use forebay_sdk::batch::Rows;
use forebay_sdk::connector::{Cursor, Result, SourceStream, Unit};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::run::{Inlet, Outlet, Phase};
use forebay_sdk::transform::Applied;

/// The position of a batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchPosition<'a> {
    /// Index of the unit, from 0.
    pub(super) unit: usize,
    /// Its name.
    pub(super) name: &'a str,
    /// Number of rows of the unit before this batch.
    pub(super) rows_before: u64,
}

/// Processes rows one after another.
#[async_trait]
pub(super) trait Step: Send + Sync {
    /// The resulting columns.
    fn columns(&self) -> &[Column];

    /// Whether it produces the same rows for the same unit in a later run.
    fn is_stable(&self) -> bool;

    /// Notes for the reader of the plan.
    fn note(&self) -> String;

    /// Processes a batch.
    async fn apply(&self, place: BatchPosition<'_>, records: RecordBatch) -> Result<Applied>;
}

/// A stream with a step around it.
pub(super) struct Stepped<S> {
    below: Arc<dyn SourceStream>,
    step: S,
}

impl<S: Step> Stepped<S> {
    /// Wraps a stream in a step.
    pub(super) fn new(below: Arc<dyn SourceStream>, step: S) -> Self {
        Self { below, step }
    }

    /// Processes what the stream below sends, to its end.
    async fn take(&self, unit: usize, mut batches: Inlet, out: &mut Outlet) -> Result<()> {
        let name = self.below.units().get(unit).map_or("", |unit| unit.name.as_str());
        let mut rows_before = 0;
        while let Some(mut batch) = batches.recv().await? {
            let begun = Instant::now();
            let mut dead = std::mem::take(&mut batch.dead);
            let records = records(&batch.rows, self.below.columns())?;
            let place = BatchPosition { unit, name, rows_before };
            rows_before += records.num_rows() as u64;
            let left = self.step.apply(place, records).await?;
            dead.extend(left.dead);
            let context = out.context();
            context.skip(left.skipped);
            context.phases.add(Phase::Transform, begun);
            if left.records.num_rows() > 0 || !dead.is_empty() {
                out.forward(Rows::Records(left.records), dead).await?;
            }
            // Its share is released only now: until then the stream below builds one batch more,
            // not two.
            drop(batch);
        }
        Ok(())
    }
}

#[async_trait]
impl<S: Step> SourceStream for Stepped<S> {
    fn columns(&self) -> &[Column] {
        self.step.columns()
    }

    fn units(&self) -> &[Unit] {
        self.below.units()
    }

    fn units_are_stable(&self) -> bool {
        self.below.units_are_stable() && self.step.is_stable()
    }

    fn cursor(&self) -> Option<Cursor> {
        self.below.cursor()
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = self.below.notes();
        notes.push(self.step.note());
        notes
    }

    async fn read(&self, unit: usize, out: &mut Outlet) -> Result<()> {
        // Less than any batch: there is never more than one in transit.
        let (mut outlet, batches) = Outlet::below(1, out.context().clone());
        let read = async {
            let read = self.below.read(unit, &mut outlet).await;
            drop(outlet);
            read
        };
        let (read, taken) = tokio::join!(read, self.take(unit, batches, out));
        first_cause(taken, read)
    }
}

/// The relevant one of two related errors: if one side failed, the other only stopped.
pub(super) fn first_cause(taken: Result<()>, read: Result<()>) -> Result<()> {
    match (taken, read) {
        (Err(ConnectorError::Stopped), read) => read.and(Err(ConnectorError::Stopped)),
        (Err(error), _) => Err(error),
        (Ok(()), read) => read,
    }
}

/// Rows as Arrow.
///
/// # Errors
/// They are not: a transformed stream is opened for records.
pub(super) fn records(rows: &Rows, columns: &[Column]) -> Result<RecordBatch> {
    match rows {
        Rows::Records(records) if records.num_columns() == columns.len() => Ok(records.clone()),
        Rows::Records(records) => Err(ConnectorError::data(
            "a batch for a transform",
            format!("it has {} columns, expected {}", records.num_columns(), columns.len()),
        )),
        Rows::Tuples(..) => Err(ConnectorError::unsupported(
            "a transform received rows in the form of a database",
            "open its stream for records",
        )),
    }
}
