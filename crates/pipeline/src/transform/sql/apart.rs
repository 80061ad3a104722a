//! A query on a separate thread.
//!
//! Between two awaits a query computes for as long as it likes: joining a few rows with themselves
//! can take years before the first row. On a thread of the runtime it could not be stopped, and
//! would block everything else on that thread.
//!
//! Invariants:
//! * The consumer of a query's rows waits for a channel, and may leave at any time.
//! * The query ends at the next batch that any part of its plan requests from another, once its
//!   reading has ended or the run is cancelled ([`Watched`]). Until then its thread is counted: at
//!   most [`QUERIES_MAX`] exist at once.
//! * A thread that panics is an error, never the end of the rows.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Poller, Poll};
use std::time::Instant;

use arrow::array::RecordBatch;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::execution::TaskContext;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::ReplaceChildrenOptions;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, SendableRecordBatchStream,
    execute_stream,
};
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::run::{Context, Phase};
use futures_util::{Stream, StreamExt};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::in_order::in_order;
use super::scan::Reading;

/// Computing queries of this process, including those whose consumer has left.
const QUERIES_MAX: usize = 64;

static QUERIES: std::sync::LazyLock<Arc<Semaphore>> =
    std::sync::LazyLock::new(|| Arc::new(Semaphore::new(QUERIES_MAX)));

/// What a query needs to run.
pub(super) struct Query {
    pub(super) name: String,
    pub(super) state: SessionState,
    pub(super) plan: LogicalPlan,
    pub(super) reading: Arc<Reading>,
    pub(super) context: Context,
}

/// A message of a query; the end of its rows is one, too.
type Message = PlanResult<Option<RecordBatch>>;

/// The receiving end for a query's rows.
pub(super) struct Given {
    name: String,
    messages: mpsc::Receiver<Message>,
}

impl Given {
    /// The next rows; `None` at the end.
    ///
    /// # Errors
    /// The thread panicked.
    pub(super) async fn next(&mut self) -> Result<Message> {
        self.messages.recv().await.ok_or_else(|| ConnectorError::Refused {
            act: format!("run the query for {}", self.name),
            source: "its thread panicked; the log has the details".into(),
        })
    }
}

/// Starts a query.
///
/// # Errors
/// No thread could be started, or too many are running.
pub(super) fn begin(query: Query) -> Result<Given> {
    // Not waited for: a query may be below another one, which has a thread already.
    let permit = Arc::clone(&QUERIES).try_acquire_owned().map_err(|_| ConnectorError::Busy {
        act: format!("run the query for {}", query.name),
        source: format!("{QUERIES_MAX} queries are already running").into(),
    })?;
    let (send, messages) = mpsc::channel(1);
    let given = Given { name: query.name.clone(), messages };
    let runtime = Handle::current();
    // Not one of the runtime's: a runtime that shuts down waits for its own.
    let thread = std::thread::Builder::new().name("pipeline-sql".to_owned());
    let begun = thread.spawn(move || runtime.block_on(run(query, send, permit)));
    begun.map(drop).map_err(|source| ConnectorError::Refused {
        act: "start a thread for a query".into(),
        source: source.into(),
    })?;
    Ok(given)
}

async fn run(query: Query, send: mpsc::Sender<Message>, permit: OwnedSemaphorePermit) {
    let Query { state, plan, reading, context, .. } = query;
    let query = async {
        let plan = watched(in_order(state.create_physical_plan(&plan).await?)?)?;
        let config = state.config().clone().with_extension(reading);
        let task = TaskContext::from(&state).with_session_config(config);
        execute_stream(plan, Arc::new(task))
    };
    match query.await {
        Ok(query) => {
            let mut query = Timed { query, context };
            loop {
                let message = query.next().await.transpose();
                let is_last = !matches!(message, Ok(Some(_)));
                // The consumer may have left.
                if send.send(message).await.is_err() || is_last {
                    break;
                }
            }
        }
        Err(error) => drop(send.send(Err(error)).await),
    }
    drop(permit);
}

/// A query, whose computing time is measured without its waits.
struct Timed {
    query: SendableRecordBatchStream,
    context: Context,
}

impl Stream for Timed {
    type Item = PlanResult<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, poller: &mut Poller<'_>) -> Poll<Option<Self::Item>> {
        let begun = Instant::now();
        let next = self.query.poll_next_unpin(poller);
        self.context.phases.add(Phase::Transform, begun);
        next
    }
}

/// The plan with every part of it watched.
fn watched(plan: Arc<dyn ExecutionPlan>) -> PlanResult<Arc<dyn ExecutionPlan>> {
    let plan = plan.transform_up(|input| {
        Ok(Transformed::yes(Arc::new(Watched { input }) as Arc<dyn ExecutionPlan>))
    })?;
    Ok(plan.data)
}

/// A part of a plan that produces nothing more once its reading has ended.
#[derive(Debug)]
struct Watched {
    input: Arc<dyn ExecutionPlan>,
}

impl DisplayAs for Watched {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watched")
    }
}

impl ExecutionPlan for Watched {
    fn name(&self) -> &'static str {
        "Watched"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> PlanResult<TreeNodeRecursion>,
    ) -> PlanResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let input = <[_; 1]>::try_from(children);
        let [input] = input.map_err(|_| DataFusionError::Internal("not one child".into()))?;
        Ok(Arc::new(Self { input }))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        use datafusion::physical_plan::execution_plan::ChildrenPropertiesMode::Recompute;
        self.replace_children(children, ReplaceChildrenOptions::new(Recompute))
    }

    fn execute(
        &self,
        part: usize,
        task: Arc<TaskContext>,
    ) -> PlanResult<SendableRecordBatchStream> {
        let reading = task.session_config().get_extension::<Reading>();
        let reading = reading.ok_or_else(|| {
            DataFusionError::Internal("a part of a query is run outside of a reading".into())
        })?;
        let rows = self.input.execute(part, task)?;
        let schema = rows.schema();
        let rows = rows.map(move |batch| match reading.has_ended() {
            true => Err(reading.fail(ConnectorError::Stopped)),
            false => batch,
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}
