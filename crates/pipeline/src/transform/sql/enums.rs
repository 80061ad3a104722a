//! Columns whose type has an order of its own, above all enums.
//!
//! A query sees the values of an enum as texts. PostgreSQL orders them as the type lists them, so that
//! comparisons of texts would give other rows: they are refused. `=`, `<>`, `IN` and groups are those
//! of texts.

use datafusion::common::plan_err;
use datafusion::common::tree_node::{Transformed, TreeNode as _};
use datafusion::error::Result;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator};
use forebay_pgcopy::{Column, Wire};

use super::columns::origin;
use crate::transform::streams::Named;

/// Types that travel as texts and are ordered as texts.
const TEXTS: [&str; 8] =
    ["text", "character", "bpchar", "name", "xml", "json", "\"char\"", "varchar"];
/// Functions that compare their arguments.
const COMPARING: [&str; 4] = ["greatest", "least", "min", "max"];

/// Refuses comparisons and sorts of enums.
///
/// # Errors
/// There is one.
pub(super) fn refuse_order(plan: LogicalPlan, streams: &[Named]) -> Result<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(|plan| {
        let inputs: Vec<LogicalPlan> = plan.inputs().into_iter().cloned().collect();
        let refuse = |expr: &Expr| match enum_of(expr, &inputs, streams) {
            Some(column) => plan_err!(
                "column {:?} would be ordered as text, not as its type {} is; cast it to text, or \
                 use CASE",
                column.name,
                column.sql_type
            ),
            None => Ok(()),
        };
        if let LogicalPlan::Sort(sort) = &plan {
            sort.expr.iter().try_for_each(|key| refuse(&key.expr))?;
        }
        plan.map_expressions(|expr| {
            expr.transform_up(|expr| {
                compared(&expr).into_iter().try_for_each(refuse)?;
                Ok(Transformed::no(expr))
            })
        })
    })?;
    Ok(plan.data)
}

/// The operands whose order matters to an expression.
fn compared(expr: &Expr) -> Vec<&Expr> {
    use Operator::{Gt, GtEq, Lt, LtEq};
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: Lt | LtEq | Gt | GtEq, right }) => {
            vec![left, right]
        }
        Expr::Between(between) => vec![&between.expr, &between.low, &between.high],
        Expr::ScalarFunction(call) if COMPARING.contains(&call.name()) => {
            call.args.iter().collect()
        }
        Expr::AggregateFunction(call) => {
            let is_compared = COMPARING.contains(&call.func.name());
            let args = call.params.args.iter().filter(|_| is_compared);
            args.chain(call.params.order_by.iter().map(|sort| &sort.expr)).collect()
        }
        Expr::WindowFunction(call) => {
            let is_compared = COMPARING.contains(&call.fun.name());
            let args = call.params.args.iter().filter(|_| is_compared);
            args.chain(call.params.order_by.iter().map(|sort| &sort.expr)).collect()
        }
        _ => Vec::new(),
    }
}

/// The column of an enum that an expression is.
fn enum_of<'a>(expr: &Expr, inputs: &[LogicalPlan], streams: &'a [Named]) -> Option<&'a Column> {
    let Expr::Column(column) = expr else { return None };
    let origin = inputs
        .iter()
        .filter_map(|input| Some((input, input.schema().maybe_index_of_column(column)?)))
        .find_map(|(input, index)| origin(input, index, streams))?;
    let is_text = TEXTS.iter().any(|text| origin.sql_type.starts_with(text));
    (origin.wire == Wire::Text && !is_text).then_some(origin)
}
