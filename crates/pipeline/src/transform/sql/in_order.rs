//! Reads the parts of a plan in sequence that would otherwise be read concurrently and mixed.
//!
//! The parts are the sides of a `UNION ALL`. Mixed, their rows would arrive in another order every
//! time and a `LIMIT` would return others; and all their streams would be read, and hold batches,
//! at once.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::ReplaceChildrenOptions;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
    SendableRecordBatchStream,
};
use futures_util::{StreamExt, stream};

/// A plan of one part, with parts in sequence wherever they were mixed.
pub(super) fn in_order(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let plan = plan.transform_up(|node| {
        let Some(mixed) = node.downcast_ref::<CoalescePartitionsExec>() else {
            return Ok(Transformed::no(node));
        };
        let (input, fetch) = (Arc::clone(mixed.input()), mixed.fetch());
        Ok(Transformed::yes(Arc::new(InOrder::new(input, fetch)) as Arc<dyn ExecutionPlan>))
    })?;
    match plan.data.output_partitioning().partition_count() {
        1 => Ok(plan.data),
        _ => Ok(Arc::new(InOrder::new(plan.data, None))),
    }
}

/// The parts of a plan, in sequence.
#[derive(Debug)]
struct InOrder {
    input: Arc<dyn ExecutionPlan>,
    /// Maximum number of rows requested.
    fetch: Option<usize>,
    properties: Arc<PlanProperties>,
}

impl InOrder {
    fn new(input: Arc<dyn ExecutionPlan>, fetch: Option<usize>) -> Self {
        // Properties of the mixed parts hold for these, too.
        let properties = CoalescePartitionsExec::new(Arc::clone(&input)).properties().clone();
        Self { input, fetch, properties }
    }
}

impl DisplayAs for InOrder {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InOrder")
    }
}

impl ExecutionPlan for InOrder {
    fn name(&self) -> &'static str {
        "InOrder"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let input = <[_; 1]>::try_from(children);
        let [input] = input.map_err(|_| DataFusionError::Internal("not one child".into()))?;
        Ok(Arc::new(Self::new(input, self.fetch)))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        use datafusion::physical_plan::execution_plan::ChildrenPropertiesMode::Recompute;
        self.replace_children(children, ReplaceChildrenOptions::new(Recompute))
    }

    fn execute(&self, _: usize, task: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let parts = 0..self.input.output_partitioning().partition_count();
        let input = Arc::clone(&self.input);
        let rows = stream::iter(parts).flat_map(move |part| {
            match input.execute(part, Arc::clone(&task)) {
                Ok(rows) => rows,
                Err(error) => {
                    let failed = stream::once(async move { Err(error) });
                    Box::pin(RecordBatchStreamAdapter::new(input.schema(), failed)) as _
                }
            }
        });
        let schema = self.schema();
        let Some(wanted) = self.fetch else {
            return Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)));
        };
        let rows = rows.boxed();
        let some = stream::unfold((rows, wanted), |(mut rows, wanted)| async move {
            if wanted == 0 {
                return None;
            }
            let batch: Result<RecordBatch> = rows.next().await?;
            let batch = batch.map(|batch| batch.slice(0, batch.num_rows().min(wanted)));
            let left = wanted - batch.as_ref().map_or(0, RecordBatch::num_rows);
            Some((batch, (rows, left)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, some)))
    }
}
