//! Joins on equal keys that can spill.
//!
//! A hash join holds one side in memory and cannot spill; sorted sides can. A plan without parallel
//! parts has only hash joins, whatever `prefer_hash_join` says: this rule replaces them by merge joins
//! before the sorts that these need are added.
//!
//! A hash join stays where a merge join would give another result (`NOT IN` of values that may be NULL).

use std::sync::Arc;

use arrow::compute::SortOptions;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::{HashJoinExec, SortMergeJoinExec};

/// The rules of a plan: this one, and then all others.
pub(super) fn rules() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let mut rules: Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> = vec![Arc::new(MergeJoins)];
    rules.extend(PhysicalOptimizer::new().rules);
    rules
}

/// Replaces hash joins by merge joins.
#[derive(Debug)]
struct MergeJoins;

impl PhysicalOptimizerRule for MergeJoins {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = plan.transform_up(|node| {
            let Some(join) = node.downcast_ref::<HashJoinExec>() else {
                return Ok(Transformed::no(node));
            };
            if join.null_aware || join.contains_projection() {
                return Ok(Transformed::no(node));
            }
            let merge = SortMergeJoinExec::try_new(
                Arc::clone(join.left()),
                Arc::clone(join.right()),
                join.on().to_vec(),
                join.filter().cloned(),
                *join.join_type(),
                vec![SortOptions::default(); join.on().len()],
                join.null_equality(),
            )?;
            Ok(Transformed::yes(Arc::new(merge) as Arc<dyn ExecutionPlan>))
        })?;
        Ok(plan.data)
    }

    fn name(&self) -> &'static str {
        "merge_joins"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
