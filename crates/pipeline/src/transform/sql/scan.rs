//! A stream as a table of a query.
//!
//! Invariants:
//! * Units are read in sequence, so that rows always arrive in the same order.
//! * At most one batch is in transit to the query, beside the one that the stream is building: what
//!   the query keeps counts against its own memory.
//! * A stream whose rows the query no longer needs gets an error with its next batch. A consumer
//!   that waits for the end of the dead rows waits for that.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context as Poller, Poll, ready};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use forebay_sdk::batch::DeadRow;
use forebay_sdk::connector::{Result, SourceStream};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::run::{Context, Inlet, Outlet};
use futures_util::{Stream, stream};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::present;
use super::spill::Spills;
use super::spool::{self, Filled};
use crate::transform::step::{first_cause, records};

/// Maximum number of sets of dead rows that wait to be sent.
const DEAD_QUEUED_MAX: usize = 4;

/// State shared by the parts of one reading of a query.
pub(super) struct Reading {
    context: Context,
    /// Why a stream failed, if one did.
    failed: Mutex<Option<ConnectorError>>,
    /// Dead rows of streams below, which the query does not see.
    dead: mpsc::Sender<Vec<DeadRow>>,
    /// Streams that are read more than once, by name, and their files once they are requested.
    spools: Mutex<HashMap<String, Option<Filled>>>,
    spills: Arc<Spills>,
    has_ended: AtomicBool,
}

impl Reading {
    /// Creates a reading, and the channel for the dead rows of the streams below it. The channel
    /// ends when all streams have.
    ///
    /// * `spooled`: names of streams that are read more than once.
    pub(super) fn new(
        context: Context,
        spooled: &BTreeSet<String>,
        spills: &Arc<Spills>,
    ) -> (Arc<Self>, mpsc::Receiver<Vec<DeadRow>>) {
        let (dead, receiver) = mpsc::channel(DEAD_QUEUED_MAX);
        let spools = spooled.iter().map(|name| (name.clone(), None)).collect();
        let reading = Self {
            context,
            failed: Mutex::default(),
            dead,
            spools: Mutex::new(spools),
            spills: Arc::clone(spills),
            has_ended: AtomicBool::new(false),
        };
        (Arc::new(reading), receiver)
    }

    /// Ends what nothing waits for any more.
    pub(super) fn end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
        // They hold the reading in turn.
        self.spools.lock().clear();
    }

    /// Whether the query has ended, or should end.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed) || self.context.is_cancelled()
    }

    /// Records why a stream failed, if it is the first. The query only learns that one did.
    pub(super) fn fail(&self, error: ConnectorError) -> DataFusionError {
        self.failed.lock().get_or_insert(error);
        DataFusionError::Execution("a stream failed".into())
    }

    /// Why a stream failed, if one did.
    pub(super) fn failure(&self) -> Option<ConnectorError> {
        self.failed.lock().take()
    }
}

/// A stream as a table.
pub(super) struct Table {
    name: String,
    stream: Arc<dyn SourceStream>,
    schema: SchemaRef,
}

impl Table {
    /// The table of a stream.
    pub(super) fn new(name: &str, stream: &Arc<dyn SourceStream>) -> Self {
        let schema = Arc::new(present::schema(stream.columns()));
        Self { name: name.to_owned(), stream: Arc::clone(stream), schema }
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("name", &self.name).finish_non_exhaustive()
    }
}

impl PartitionStream for Table {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, task: Arc<TaskContext>) -> SendableRecordBatchStream {
        let schema = Arc::clone(&self.schema);
        let Some(reading) = task.session_config().get_extension::<Reading>() else {
            let error = DataFusionError::Internal("a table is read outside of a reading".into());
            let failed = stream::once(async move { Err(error) });
            return Box::pin(RecordBatchStreamAdapter::new(schema, failed));
        };
        let scan = Scan {
            stream: Arc::clone(&self.stream),
            schema: Arc::clone(&schema),
            reading: Arc::clone(&reading),
            units: 0..self.stream.units().len(),
            unit: None,
        };
        let filled = reading.spools.lock().get_mut(&self.name).map(|filled| {
            let begin =
                || spool::fill(scan.again(), Arc::clone(&reading.spills), Arc::clone(&reading));
            filled.get_or_insert_with(begin).clone()
        });
        match filled {
            Some(filled) => {
                let rows = spool::rows(filled, reading);
                Box::pin(RecordBatchStreamAdapter::new(schema, rows))
            }
            None => Box::pin(RecordBatchStreamAdapter::new(schema, scan)),
        }
    }
}

/// The rows of a stream, unit by unit.
pub(super) struct Scan {
    stream: Arc<dyn SourceStream>,
    schema: SchemaRef,
    reading: Arc<Reading>,
    units: std::ops::Range<usize>,
    unit: Option<(mpsc::Receiver<RecordBatch>, JoinHandle<Result<()>>)>,
}

impl Scan {
    /// Starts to read a unit.
    fn begin(&self, unit: usize) -> (mpsc::Receiver<RecordBatch>, JoinHandle<Result<()>>) {
        let (batches, receiver) = mpsc::channel(1);
        let (mut outlet, below) = Outlet::below(1, self.reading.context.clone());
        let stream = Arc::clone(&self.stream);
        let schema = Arc::clone(&self.schema);
        // Kept until the end: a consumer that waits for dead rows waits for the stream, too.
        let reading = Arc::clone(&self.reading);
        let task = tokio::spawn(async move {
            let read = async {
                let read = stream.read(unit, &mut outlet).await;
                drop(outlet);
                read
            };
            let passed = pass(stream.columns(), &schema, below, &batches, &reading.dead);
            let (read, passed) = tokio::join!(read, passed);
            first_cause(passed, read)
        });
        (receiver, task)
    }

    /// Another one that starts at the beginning.
    fn again(&self) -> Self {
        Self {
            stream: Arc::clone(&self.stream),
            schema: Arc::clone(&self.schema),
            reading: Arc::clone(&self.reading),
            units: 0..self.stream.units().len(),
            unit: None,
        }
    }

    /// The schema of its batches.
    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }
}

/// Forwards the rows of a unit to a query, and its dead rows past it.
async fn pass(
    columns: &[forebay_pgcopy::Column],
    schema: &SchemaRef,
    mut below: Inlet,
    batches: &mpsc::Sender<RecordBatch>,
    dead: &mpsc::Sender<Vec<DeadRow>>,
) -> Result<()> {
    while let Some(mut batch) = below.recv().await? {
        if !batch.dead.is_empty() {
            let rows = std::mem::take(&mut batch.dead);
            dead.send(rows).await.map_err(|_| ConnectorError::Stopped)?;
        }
        let records = records(&batch.rows, columns)?;
        let records = present::present(&records, columns, schema)?;
        batches.send(records).await.map_err(|_| ConnectorError::Stopped)?;
        drop(batch);
    }
    Ok(())
}

impl Stream for Scan {
    type Item = PlanResult<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, poller: &mut Poller<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some((batches, task)) = &mut self.unit {
                if let Some(records) = ready!(batches.poll_recv(poller)) {
                    return Poll::Ready(Some(Ok(records)));
                }
                let read = ready!(Pin::new(task).poll(poller));
                self.unit = None;
                match read {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => return Poll::Ready(Some(Err(self.reading.fail(error)))),
                    Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                    // The runtime is shutting down, and with it the consumer.
                    Err(_) => {
                        return Poll::Ready(Some(Err(self.reading.fail(ConnectorError::Stopped))));
                    }
                }
            }
            let Some(unit) = self.units.next() else { return Poll::Ready(None) };
            self.unit = Some(self.begin(unit));
        }
    }
}
