//! Columns whose values are texts in a query, but are not compared as texts by PostgreSQL.
//!
//! | type | order | `=`, `<>`, `IN` | groups |
//! |---|---|---|---|
//! | enums | refused | as texts | as texts |
//! | `inet`, `cidr`, `timetz` | refused | as texts, if a constant is spelled as PostgreSQL writes it | as texts |
//! | `jsonb` | refused | refused: `1` equals `1.0` | refused |
//!
//! Order is that of comparisons, sorts, `min`, `max`, `greatest` and `least`. What is refused is
//! possible after a cast to `text`.

use std::net::IpAddr;

use datafusion::common::plan_err;
use datafusion::common::tree_node::{Transformed, TreeNode as _};
use datafusion::error::Result;
use datafusion::logical_expr::{BinaryExpr, Distinct, Expr, LogicalPlan, Operator};
use forebay_pgcopy::{Column, Wire};

use super::columns::origin;
use crate::transform::streams::Named;

/// Types that travel as texts and are ordered as texts.
const TEXTS: [&str; 8] =
    ["text", "character", "bpchar", "name", "xml", "json", "\"char\"", "varchar"];
/// Functions that compare their arguments.
const COMPARING: [&str; 4] = ["greatest", "least", "min", "max"];

/// Refuses comparisons and sorts of such columns.
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
        let equal = Equal { inputs: &inputs, streams };
        equal.refuse_keys(&plan)?;
        if let LogicalPlan::Sort(sort) = &plan {
            sort.expr.iter().try_for_each(|key| refuse(&key.expr))?;
        }
        plan.map_expressions(|expr| {
            expr.transform_up(|expr| {
                compared(&expr).into_iter().try_for_each(refuse)?;
                equal.refuse(&expr)?;
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

/// Comparisons by `=`, whose operands may be equal though their texts differ.
struct Equal<'a> {
    inputs: &'a [LogicalPlan],
    streams: &'a [Named],
}

impl Equal<'_> {
    fn wire(&self, expr: &Expr) -> Option<&Wire> {
        column_of(expr, self.inputs, self.streams).map(|column| &column.wire)
    }

    fn refuse_json(&self, expr: &Expr) -> Result<()> {
        match self.wire(expr) {
            Some(Wire::Jsonb) => plan_err!(
                "{expr} is a jsonb, which would be compared as text: 1 would not equal 1.0; cast it \
                 to text if that is what is meant"
            ),
            _ => Ok(()),
        }
    }

    fn refuse(&self, expr: &Expr) -> Result<()> {
        let operands = equated(expr);
        operands.iter().try_for_each(|operand| self.refuse_json(operand))?;
        for wire in operands.iter().filter_map(|operand| self.wire(operand)) {
            for operand in &operands {
                let Expr::Literal(value, _) = operand else { continue };
                let Some(text) = value.try_as_str().flatten() else { continue };
                let is_same = match wire {
                    Wire::Inet => text.parse::<IpAddr>().is_ok_and(|it| it.to_string() == text),
                    Wire::Cidr | Wire::TimeTz => false,
                    _ => true,
                };
                if !is_same {
                    return plan_err!(
                        "{text:?} would be compared as text, but values of the column may be \
                         spelled in another way; cast the column to text, and write the constant as \
                         PostgreSQL does"
                    );
                }
            }
        }
        match expr {
            Expr::Cast(cast) if matches!(self.wire(&cast.expr), Some(Wire::Inet | Wire::Cidr)) => {
                plan_err!(
                    "a cast of {} to text would be without its mask; use concat({0})",
                    cast.expr
                )
            }
            Expr::AggregateFunction(call) if call.params.distinct => {
                call.params.args.iter().try_for_each(|arg| self.refuse_json(arg))
            }
            Expr::WindowFunction(call) => {
                call.params.partition_by.iter().try_for_each(|key| self.refuse_json(key))
            }
            _ => Ok(()),
        }
    }

    fn refuse_keys(&self, plan: &LogicalPlan) -> Result<()> {
        match plan {
            LogicalPlan::Aggregate(made) => {
                made.group_expr.iter().try_for_each(|key| self.refuse_json(key))
            }
            LogicalPlan::Distinct(Distinct::All(input)) => {
                let columns = input.schema().columns();
                columns.into_iter().try_for_each(|it| self.refuse_json(&Expr::Column(it)))
            }
            LogicalPlan::Distinct(Distinct::On(on)) => {
                on.on_expr.iter().try_for_each(|key| self.refuse_json(key))
            }
            LogicalPlan::Join(join) => {
                let both = join.on.iter().flat_map(|(left, right)| [left, right]);
                both.into_iter().try_for_each(|key| self.refuse_json(key))
            }
            _ => Ok(()),
        }
    }
}

/// The operands that an expression compares by `=`.
fn equated(expr: &Expr) -> Vec<&Expr> {
    use Operator::{Eq, IsDistinctFrom, IsNotDistinctFrom, NotEq};
    match expr {
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: Eq | NotEq | IsDistinctFrom | IsNotDistinctFrom,
            right,
        }) => vec![left, right],
        Expr::InList(list) => std::iter::once(list.expr.as_ref()).chain(&list.list).collect(),
        Expr::InSubquery(within) => vec![&within.expr],
        Expr::ScalarFunction(call) if call.name() == "nullif" => call.args.iter().collect(),
        Expr::Case(case) => match &case.expr {
            Some(of) => {
                let whens = case.when_then_expr.iter().map(|(when, _)| when.as_ref());
                std::iter::once(of.as_ref()).chain(whens).collect()
            }
            None => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// The column of a stream that an expression is.
fn column_of<'a>(expr: &Expr, inputs: &[LogicalPlan], streams: &'a [Named]) -> Option<&'a Column> {
    let Expr::Column(column) = expr else { return None };
    inputs
        .iter()
        .filter_map(|input| Some((input, input.schema().maybe_index_of_column(column)?)))
        .find_map(|(input, index)| origin(input, index, streams))
}

/// The column whose order is not that of its texts that an expression is.
fn enum_of<'a>(expr: &Expr, inputs: &[LogicalPlan], streams: &'a [Named]) -> Option<&'a Column> {
    let column = column_of(expr, inputs, streams)?;
    let is_text = TEXTS.iter().any(|text| column.sql_type.starts_with(text));
    match column.wire {
        Wire::Jsonb | Wire::Inet | Wire::Cidr | Wire::TimeTz => Some(column),
        Wire::Text if !is_text => Some(column),
        _ => None,
    }
}
