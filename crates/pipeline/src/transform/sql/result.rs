//! The result of a query, as a stream of one unit.
//!
//! A query computes for as long as it likes between two awaits, so it has a separate thread
//! ([`apart`]). The consumer of its result only waits, and so can be cancelled, or time out, at any
//! moment.
//!
//! [`apart`]: super::apart

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::error::DataFusionError;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use forebay_pgcopy::Column;
use forebay_sdk::batch::{DeadRow, Rows};
use forebay_sdk::connector::{Cursor, Result, SourceStream, Unit};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::run::Outlet;
use tokio::sync::mpsc;

use super::apart::{self, Query};
use super::present::Shape;
use super::scan::Reading;
use super::spill::Spills;

/// The result of a query.
pub(super) struct QueryStream {
    pub(super) name: String,
    pub(super) state: SessionState,
    pub(super) plan: LogicalPlan,
    pub(super) columns: Vec<Column>,
    pub(super) units: Vec<Unit>,
    pub(super) cursor: Option<Cursor>,
    pub(super) notes: Vec<String>,
    /// Maximum memory in bytes.
    pub(super) memory: usize,
    /// Names of streams that it reads more than once.
    pub(super) spooled: BTreeSet<String>,
    /// Temporary files for these.
    pub(super) spills: Arc<Spills>,
}

impl QueryStream {
    /// Forwards the result of the query, and the dead letters of the streams below it.
    async fn pass(
        &self,
        reading: &Arc<Reading>,
        shape: &Shape,
        dead: &mut mpsc::Receiver<Vec<DeadRow>>,
        out: &mut Outlet,
    ) -> Result<()> {
        let query = Query {
            name: self.name.clone(),
            state: self.state.clone(),
            plan: self.plan.clone(),
            reading: Arc::clone(reading),
            context: out.context().clone(),
        };
        let mut given = apart::begin(query)?;
        loop {
            tokio::select! {
                records = given.next() => {
                    let records = records?.map_err(|error| self.failure(reading, &error))?;
                    let Some(records) = records else { return Ok(()) };
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

    /// The cause of a failed query: the stream that failed below it, or its own error.
    fn failure(&self, reading: &Reading, error: &DataFusionError) -> ConnectorError {
        if let Some(failure) = reading.failure() {
            return failure;
        }
        match error.find_root() {
            DataFusionError::ResourcesExhausted(_) => ConnectorError::unsupported(
                format!(
                    "the query for {} needs more than the available {} bytes: {}",
                    self.name,
                    self.memory,
                    error.strip_backtrace()
                ),
                "raise `resources.max_memory`, or join fewer rows at once",
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
        let context = out.context().clone();
        let whole = async move {
            let result = self.pass(&reading.0, &shape, &mut dead, out).await;
            // Streams that are still being read get an error with their next rows, and end. Their
            // dead letters up to then belong to the result.
            drop(reading);
            while let Some(rows) = dead.recv().await {
                if result.is_ok() {
                    out.forward(Rows::Records(shape.empty()), rows).await?;
                }
            }
            result
        };
        // Its result is one unit, which may be far away or endless: it is not waited for.
        tokio::select! {
            result = whole => result,
            () = context.cancelled() => Err(ConnectorError::Stopped),
        }
    }
}

/// Ends a reading when it is dropped, even if nothing waits for its result any more.
struct Ending(Arc<Reading>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end();
    }
}
