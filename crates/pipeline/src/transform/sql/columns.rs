//! The columns of a result.
//!
//! A column that a query passes through unchanged keeps its SQL type, including those that Arrow
//! cannot name (`jsonb`, `uuid`, unconstrained `numeric`). A computed one has the type closest to
//! its Arrow type: a cast of an enum to text is a text.

use datafusion::common::Column as PlanColumn;
use datafusion::logical_expr::{Distinct, Expr, JoinType, LogicalPlan};
use forebay_pgcopy::Column;
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;

use super::present;
use crate::transform::streams::Named;

/// The columns of the result of a plan over these streams.
///
/// # Errors
/// Two columns have the same name, or a type has no SQL equivalent.
pub(super) fn of(plan: &LogicalPlan, streams: &[Named]) -> Result<Vec<Column>> {
    let mut columns: Vec<Column> = Vec::new();
    for (index, field) in plan.schema().fields().iter().enumerate() {
        let column = match origin(plan, index, streams) {
            Some(origin) if present::data_type(&origin.wire) == *field.data_type() => Column {
                name: field.name().clone(),
                nullable: field.is_nullable(),
                ..origin.clone()
            },
            _ => present::computed(field).map_err(|error| ConnectorError::Refused {
                act: "use the result of the query".into(),
                source: error.into(),
            })?,
        };
        if columns.iter().any(|before| before.name == column.name) {
            return Err(ConnectorError::unsupported(
                format!("the query returns two columns named {:?}", column.name),
                "rename one of them with AS",
            ));
        }
        columns.push(column);
    }
    if columns.is_empty() {
        return Err(ConnectorError::unsupported(
            "the query returns no column",
            "select at least one",
        ));
    }
    Ok(columns)
}

/// The column of a stream that a column of a plan passes through unchanged.
pub(super) fn origin<'a>(
    plan: &LogicalPlan,
    index: usize,
    streams: &'a [Named],
) -> Option<&'a Column> {
    let of = |input: &LogicalPlan, index| origin(input, index, streams);
    let passed = |input: &LogicalPlan, expression: Option<&Expr>| {
        let column = column_of(expression?)?;
        of(input, input.schema().maybe_index_of_column(column)?)
    };
    match plan {
        LogicalPlan::TableScan(scan) => {
            let field = scan.projected_schema.fields().get(index)?;
            let (_, stream) = streams.iter().find(|(name, _)| name == scan.table_name.table())?;
            stream.columns().iter().find(|column| column.name == *field.name())
        }
        LogicalPlan::Projection(made) => passed(&made.input, made.expr.get(index)),
        LogicalPlan::Aggregate(made) => passed(&made.input, made.group_expr.get(index)),
        LogicalPlan::Distinct(Distinct::On(on)) => passed(&on.input, on.select_expr.get(index)),
        LogicalPlan::Distinct(Distinct::All(input)) => of(input, index),
        LogicalPlan::SubqueryAlias(alias) => of(&alias.input, index),
        LogicalPlan::Filter(filter) => of(&filter.input, index),
        LogicalPlan::Sort(sort) => of(&sort.input, index),
        LogicalPlan::Limit(limit) => of(&limit.input, index),
        LogicalPlan::Repartition(repartition) => of(&repartition.input, index),
        // The columns of the input come first, then those of the windows.
        LogicalPlan::Window(window) if index < window.input.schema().fields().len() => {
            of(&window.input, index)
        }
        LogicalPlan::Join(join) => {
            let left = join.left.schema().fields().len();
            match join.join_type {
                JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => {
                    of(&join.right, index)
                }
                _ if index < left => of(&join.left, index),
                _ => of(&join.right, index - left),
            }
        }
        LogicalPlan::Union(union) => {
            let mut inputs = union.inputs.iter().map(|input| of(input, index));
            let first = inputs.next()??;
            let same = |other: Option<&Column>| {
                other.is_some_and(|it| it.wire == first.wire && it.sql_type == first.sql_type)
            };
            inputs.all(same).then_some(first)
        }
        _ => None,
    }
}

/// The column that an expression refers to, if it is nothing more.
fn column_of(expression: &Expr) -> Option<&PlanColumn> {
    match expression {
        Expr::Column(column) => Some(column),
        Expr::Alias(alias) => column_of(&alias.expr),
        _ => None,
    }
}
