//! A transform that looks at rows one after another, as a stream around a stream.
//!
//! Invariants:
//! * Units, cursor and notes are those of the stream below.
//! * While a batch is at work, the stream below makes the next one and waits with it: a unit that is read
//!   takes no more than these two batches, beside what is on its way to the destination.
//! * The stream below is never cut off: when nobody takes its rows any more, it is told with its next
//!   batch and ends by itself.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use arrow::array::RecordBatch;
use async_trait::async_trait;
use forebay_pgcopy::Column;

use crate::batch::{DeadRow, Rows};
use crate::connector::{Cursor, Result, SourceStream, Unit};
use crate::error::ConnectorError;
use crate::run::{Inlet, Outlet, Phase};

/// Where the rows of a batch stand.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    /// The unit, counted from 0.
    pub(super) unit: usize,
    /// Its name.
    pub(super) name: &'a str,
    /// Rows of the unit before this batch.
    pub(super) rows_before: u64,
}

/// What is left of a batch.
#[derive(Debug)]
pub(super) struct Left {
    /// The rows that go on.
    pub(super) records: RecordBatch,
    /// Rows that were put aside.
    pub(super) dead: Vec<DeadRow>,
    /// How many rows were left out without a trace.
    pub(super) skipped: u64,
}

/// Looks at rows one after another.
pub(super) trait Step: Send + Sync {
    /// The columns it gives.
    fn columns(&self) -> &[Column];

    /// Whether it gives the same rows for the same unit in a later run.
    fn is_stable(&self) -> bool;

    /// What a reader of the plan should know.
    fn note(&self) -> String;

    /// Looks at a batch.
    fn apply(&self, place: Place<'_>, records: RecordBatch) -> Result<Left>;
}

/// A stream with a step around it.
pub(super) struct Stepped<S> {
    below: Arc<dyn SourceStream>,
    step: S,
}

impl<S: Step> Stepped<S> {
    /// Puts a step around a stream.
    pub(super) fn new(below: Arc<dyn SourceStream>, step: S) -> Self {
        Self { below, step }
    }

    /// Takes what the stream below sends, to its end.
    async fn take(&self, unit: usize, mut batches: Inlet, out: &mut Outlet) -> Result<()> {
        let name = self.below.units().get(unit).map_or("", |unit| unit.name.as_str());
        let mut rows_before = 0;
        while let Some(mut batch) = batches.recv().await? {
            let begun = Instant::now();
            let mut dead = std::mem::take(&mut batch.dead);
            let records = records(&batch.rows, self.below.columns())?;
            let place = Place { unit, name, rows_before };
            rows_before += records.num_rows() as u64;
            let left = self.step.apply(place, records)?;
            dead.extend(left.dead);
            let context = out.context();
            context.moved.rows_dead.fetch_add(left.skipped, Ordering::Relaxed);
            context.phases.add(Phase::Transform, begun);
            if left.records.num_rows() > 0 || !dead.is_empty() {
                out.forward(Rows::Records(left.records), dead).await?;
            }
            // Its share goes back only now: until then the stream below makes one batch more, not two.
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
        // Less than any batch: there is never more than one on its way.
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

/// The reason of two that belong together: where one side failed, the other only stopped.
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
/// When they are not: a stream that is transformed is opened for records.
pub(super) fn records(rows: &Rows, columns: &[Column]) -> Result<RecordBatch> {
    match rows {
        Rows::Records(records) if records.num_columns() == columns.len() => Ok(records.clone()),
        Rows::Records(records) => Err(ConnectorError::data(
            "a batch for a transform",
            format!("it has {} columns, not {}", records.num_columns(), columns.len()),
        )),
        Rows::Tuples(..) => Err(ConnectorError::unsupported(
            "a transform was given rows in the form of a database",
            "open its stream for records",
        )),
    }
}
