//! The columns of a result.
//!
//! A column that a query passes on as it is keeps its type in SQL, down to what Arrow has no name for
//! (`jsonb`, `uuid`, `numeric` without bounds). One that is computed has the type nearest to what Arrow
//! says: a cast of an enum to text is a text, whatever it was cast from.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{Field, FieldRef, Schema, SchemaRef};
use arrow::error::ArrowError;
use datafusion::logical_expr::{Distinct, Expr, JoinType, LogicalPlan};
use forebay_pgcopy::{Column, column};

use crate::connector::Result;
use crate::error::ConnectorError;

/// The columns of what a plan gives.
///
/// # Errors
/// Two columns of one name, or a type that no database has.
pub(super) fn of(plan: &LogicalPlan) -> Result<Vec<Column>> {
    let mut columns: Vec<Column> = Vec::new();
    for (index, field) in plan.schema().fields().iter().enumerate() {
        let metadata =
            origin(plan, index).map(|field| field.metadata().clone()).unwrap_or_default();
        let field = Field::new(field.name(), field.data_type().clone(), field.is_nullable());
        let column = Column::from_field(&field.with_metadata(metadata)).map_err(|error| {
            ConnectorError::Refused { act: "use what the query gives".into(), source: error.into() }
        })?;
        if columns.iter().any(|before| before.name == column.name) {
            return Err(ConnectorError::unsupported(
                format!("the query gives two columns of the name {:?}", column.name),
                "name one of them otherwise with AS",
            ));
        }
        columns.push(column);
    }
    if columns.is_empty() {
        return Err(ConnectorError::unsupported("the query gives no column", "select one"));
    }
    Ok(columns)
}

/// The field of a table that a column of a plan is, where nothing is done with it on the way.
fn origin(plan: &LogicalPlan, index: usize) -> Option<FieldRef> {
    match plan {
        LogicalPlan::TableScan(scan) => {
            Some(Arc::clone(scan.projected_schema.fields().get(index)?))
        }
        LogicalPlan::Projection(projection) => {
            passed(&projection.input, projection.expr.get(index)?)
        }
        LogicalPlan::Aggregate(aggregate) => {
            passed(&aggregate.input, aggregate.group_expr.get(index)?)
        }
        LogicalPlan::Distinct(Distinct::On(on)) => passed(&on.input, on.select_expr.get(index)?),
        LogicalPlan::Distinct(Distinct::All(input)) => origin(input, index),
        LogicalPlan::SubqueryAlias(alias) => origin(&alias.input, index),
        LogicalPlan::Filter(filter) => origin(&filter.input, index),
        LogicalPlan::Sort(sort) => origin(&sort.input, index),
        LogicalPlan::Limit(limit) => origin(&limit.input, index),
        LogicalPlan::Repartition(repartition) => origin(&repartition.input, index),
        // The columns of the input come first, then those of the windows.
        LogicalPlan::Window(window) if index < window.input.schema().fields().len() => {
            origin(&window.input, index)
        }
        LogicalPlan::Join(join) => {
            let left = join.left.schema().fields().len();
            match join.join_type {
                JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => {
                    origin(&join.right, index)
                }
                _ if index < left => origin(&join.left, index),
                _ => origin(&join.right, index - left),
            }
        }
        LogicalPlan::Union(union) => {
            let mut inputs = union.inputs.iter().map(|input| origin(input, index));
            let first = inputs.next()??;
            let same = |other: Option<FieldRef>| {
                other.is_some_and(|other| other.metadata() == first.metadata())
            };
            inputs.all(same).then_some(first)
        }
        _ => None,
    }
}

/// The origin of an expression that is a column and nothing more.
fn passed(input: &LogicalPlan, expression: &Expr) -> Option<FieldRef> {
    match expression {
        Expr::Column(column) => origin(input, input.schema().maybe_index_of_column(column)?),
        Expr::Alias(alias) => passed(input, &alias.expr),
        _ => None,
    }
}

/// Brings a batch of a result into the types of its columns.
pub(super) struct Shape {
    schema: SchemaRef,
}

impl Shape {
    /// For these columns.
    pub(super) fn new(columns: &[Column]) -> Self {
        Self { schema: Arc::new(column::schema(columns)) }
    }

    /// A batch without rows.
    pub(super) fn empty(&self) -> RecordBatch {
        RecordBatch::new_empty(Arc::clone(&self.schema))
    }

    /// The batch, with every column of its type.
    ///
    /// # Errors
    /// A value that does not fit.
    pub(super) fn fit(&self, records: &RecordBatch) -> Result<RecordBatch, ArrowError> {
        // What does not fit is an error and not NULL.
        let options = CastOptions { safe: false, ..CastOptions::default() };
        let arrays = records.columns().iter().zip(self.schema.fields());
        let arrays = arrays.map(|(array, field)| {
            if array.data_type() == field.data_type() {
                Ok(Arc::clone(array))
            } else {
                cast_with_options(array, field.data_type(), &options)
            }
        });
        let arrays = arrays.collect::<Result<Vec<ArrayRef>, _>>()?;
        // A plan may know less of NULL than its schema says.
        let fields = self.schema.fields().iter().zip(&arrays).map(|(field, array)| {
            let is_nullable = field.is_nullable() || array.null_count() > 0;
            field.as_ref().clone().with_nullable(is_nullable)
        });
        let schema = Schema::new(fields.collect::<Vec<_>>());
        let schema =
            if schema == *self.schema { Arc::clone(&self.schema) } else { Arc::new(schema) };
        let rows = RecordBatchOptions::new().with_row_count(Some(records.num_rows()));
        RecordBatch::try_new_with_options(schema, arrays, &rows)
    }
}
