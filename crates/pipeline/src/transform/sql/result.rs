//! What a query gives, as a stream of one unit.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Poller, Poll};
use std::time::Instant;

use async_trait::async_trait;
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::{SendableRecordBatchStream, execute_stream};
use forebay_pgcopy::Column;
use futures_util::{Stream, StreamExt};
use tokio::sync::mpsc;

use super::in_order::in_order;
use super::present::Shape;
use super::scan::Reading;
use super::spill::Spills;
use crate::batch::{DeadRow, Rows};
use crate::connector::{Cursor, Result, SourceStream, Unit};
use crate::error::ConnectorError;
use crate::run::{Context, Outlet, Phase};

/// What a query gives.
pub(super) struct QueryStream {
    pub(super) name: String,
    pub(super) state: SessionState,
    pub(super) plan: LogicalPlan,
    pub(super) columns: Vec<Column>,
    pub(super) units: Vec<Unit>,
    pub(super) cursor: Option<Cursor>,
    pub(super) notes: Vec<String>,
    /// Bytes it may take.
    pub(super) memory: usize,
    /// Names of streams that it names more than once.
    pub(super) spooled: BTreeSet<String>,
    /// Files for these.
    pub(super) spills: Arc<Spills>,
}

impl QueryStream {
    /// Begins to run the query.
    async fn run(
        &self,
        reading: Arc<Reading>,
    ) -> Result<SendableRecordBatchStream, DataFusionError> {
        let plan = in_order(self.state.create_physical_plan(&self.plan).await?)?;
        let config = self.state.config().clone().with_extension(reading);
        let task = TaskContext::from(&self.state).with_session_config(config);
        execute_stream(plan, Arc::new(task))
    }

    /// Passes on what the query gives, and what streams below it have put aside.
    async fn pass(
        &self,
        reading: &Arc<Reading>,
        shape: &Shape,
        dead: &mut mpsc::Receiver<Vec<DeadRow>>,
        out: &mut Outlet,
    ) -> Result<()> {
        let query = self.run(Arc::clone(reading)).await;
        let query = query.map_err(|error| self.failure(reading, &error))?;
        let mut query = Timed { query, context: out.context().clone() };
        loop {
            tokio::select! {
                records = query.next() => {
                    let Some(records) = records else { return Ok(()) };
                    let records = records.map_err(|error| self.failure(reading, &error))?;
                    if records.num_rows() > 0 {
                        let records = shape.fit(&records)?;
                        out.forward(Rows::Records(records), Vec::new()).await?;
                    }
                }
                Some(rows) = dead.recv() => {
                    out.forward(Rows::Records(shape.empty()), rows).await?;
                }
            }
        }
    }

    /// Why the query failed: the stream that failed below it, or what it says itself.
    fn failure(&self, reading: &Reading, error: &DataFusionError) -> ConnectorError {
        if let Some(failure) = reading.failure() {
            return failure;
        }
        match error.find_root() {
            DataFusionError::ResourcesExhausted(_) => ConnectorError::unsupported(
                format!(
                    "the query for {} needs more than the {} bytes it may take: {}",
                    self.name,
                    self.memory,
                    error.strip_backtrace()
                ),
                "raise resources.max_memory, or join fewer rows at once",
            ),
            _ => ConnectorError::data(
                format!("the query for {}", self.name),
                error.strip_backtrace(),
            ),
        }
    }
}

#[async_trait]
impl SourceStream for QueryStream {
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn units(&self) -> &[Unit] {
        &self.units
    }

    fn units_are_stable(&self) -> bool {
        false
    }

    fn cursor(&self) -> Option<Cursor> {
        self.cursor.clone()
    }

    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    async fn read(&self, _: usize, out: &mut Outlet) -> Result<()> {
        let shape = Shape::new(&self.columns);
        let (reading, mut dead) = Reading::new(out.context().clone(), &self.spooled, &self.spills);
        let reading = Ending(reading);
        let result = self.pass(&reading.0, &shape, &mut dead, out).await;
        // Streams that are still read are told that nobody takes their rows, and end. What they have put
        // aside by then belongs to the result.
        drop(reading);
        while let Some(rows) = dead.recv().await {
            if result.is_ok() {
                out.forward(Rows::Records(shape.empty()), rows).await?;
            }
        }
        result
    }
}

/// Ends a reading when it is dropped, also where nobody waits for its result any more.
struct Ending(Arc<Reading>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A query, whose time is counted: that of its own work, not of its waiting.
struct Timed {
    query: SendableRecordBatchStream,
    context: Context,
}

impl Stream for Timed {
    type Item = <SendableRecordBatchStream as Stream>::Item;

    fn poll_next(mut self: Pin<&mut Self>, poller: &mut Poller<'_>) -> Poll<Option<Self::Item>> {
        let begun = Instant::now();
        let next = self.query.poll_next_unpin(poller);
        self.context.phases.add(Phase::Transform, begun);
        next
    }
}
