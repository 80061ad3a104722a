//! Aggregates over moving window frames, computed again from the rows of each frame.
//!
//! The engine subtracts rows that leave a frame. With floating point numbers that is wrong: after
//! 1e20 is subtracted, the small numbers that were added beside it are missing, and NaN never leaves.
//! PostgreSQL computes such frames again, too.
//!
//! A [`Recomputed`] accumulator keeps the rows of its frame, and gives all of them to a new
//! accumulator for each result. Its memory is that of the largest frame, its time the number of rows
//! times the size of their frames.

use std::collections::VecDeque;
use std::fmt;
use std::mem::size_of;
use std::sync::Arc;

use datafusion::arrow::array::{Array as _, ArrayRef};
use datafusion::arrow::compute::concat;
use datafusion::arrow::datatypes::{DataType, FieldRef, Schema};
use datafusion::common::exec_datafusion_err;
use datafusion::error::Result;
use datafusion::execution::FunctionRegistry as _;
use datafusion::execution::context::SessionContext;
use datafusion::logical_expr::expr::{AggregateFunctionParams, WindowFunctionParams};
use datafusion::logical_expr::function::{
    AccumulatorArgs, AggregateFunctionSimplification, StateFieldsArgs,
};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, ReversedUDAF, SetMonotonicity,
    Signature,
};
use datafusion::physical_expr_common::physical_expr::PhysicalExpr;
use datafusion::scalar::ScalarValue;

/// Aggregates of the engine that compute in floating point.
const FLOATING: [&str; 17] = [
    "stddev",
    "stddev_pop",
    "var",
    "var_pop",
    "covar_samp",
    "covar_pop",
    "corr",
    "regr_avgx",
    "regr_avgy",
    "regr_count",
    "regr_intercept",
    "regr_r2",
    "regr_slope",
    "regr_sxx",
    "regr_sxy",
    "regr_syy",
    "median",
];

/// Replaces the aggregates of a session that compute in floating point.
pub(super) fn register(session: &SessionContext) {
    let state = session.state();
    for name in FLOATING {
        if let Ok(function) = state.udaf(name) {
            session.register_udaf(AggregateUDF::from(Moving(function)));
        }
    }
}

/// An aggregate of the engine, whose moving frames are computed again.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Moving(Arc<AggregateUDF>);

/// What creates the accumulator of a frame.
type Create = Box<dyn Fn() -> Result<Box<dyn Accumulator>> + Send + Sync>;

/// An accumulator that keeps the rows of its frame.
pub(super) struct Recomputed {
    create: Create,
    /// The rows, as the columns of batches.
    rows: VecDeque<Vec<ArrayRef>>,
}

impl Recomputed {
    pub(super) fn new(
        create: impl Fn() -> Result<Box<dyn Accumulator>> + Send + Sync + 'static,
    ) -> Self {
        Self { create: Box::new(create), rows: VecDeque::new() }
    }

    /// The rows as one batch.
    fn joined(&mut self) -> Result<Option<&Vec<ArrayRef>>> {
        if self.rows.len() > 1 {
            let count = self.rows.front().map_or(0, Vec::len);
            let columns = (0..count).map(|column| {
                let parts: Option<Vec<_>> =
                    self.rows.iter().map(|rows| Some(rows.get(column)?.as_ref())).collect();
                let parts = parts.ok_or_else(|| exec_datafusion_err!("a column is missing"))?;
                Ok(concat(&parts)?)
            });
            let columns = columns.collect::<Result<Vec<_>>>()?;
            self.rows.clear();
            self.rows.push_back(columns);
        }
        Ok(self.rows.front())
    }

    fn computed(&mut self) -> Result<Box<dyn Accumulator>> {
        let mut made = (self.create)()?;
        if let Some(rows) = self.joined()? {
            made.update_batch(rows)?;
        }
        Ok(made)
    }
}

impl fmt::Debug for Recomputed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recomputed").field("rows", &self.rows).finish_non_exhaustive()
    }
}

/// The number of rows of a batch.
fn count(rows: &[ArrayRef]) -> usize {
    rows.first().map_or(0, |column| column.len())
}

impl Accumulator for Recomputed {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        if count(values) > 0 {
            self.rows.push_back(values.to_vec());
        }
        Ok(())
    }

    /// Drops the first rows: frames move forward, and rows leave in the order in which they came.
    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let mut left = count(values);
        while left > 0 {
            let Some(first) = self.rows.front_mut() else {
                return Err(exec_datafusion_err!("{left} rows leave a frame that is empty"));
            };
            let here = count(first);
            if here > left {
                for column in first.iter_mut() {
                    *column = column.slice(left, here - left);
                }
                return Ok(());
            }
            left -= here;
            self.rows.pop_front();
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.computed()?.evaluate()
    }

    fn size(&self) -> usize {
        let columns = self.rows.iter().flatten();
        size_of::<Self>() + columns.map(|column| column.get_array_memory_size()).sum::<usize>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.computed()?.state()
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        Err(exec_datafusion_err!("the frames of a window are not merged"))
    }
}

/// The arguments of an accumulator, to create it more than once.
struct Arguments {
    return_field: FieldRef,
    schema: Schema,
    ignore_nulls: bool,
    is_reversed: bool,
    name: String,
    is_distinct: bool,
    exprs: Vec<Arc<dyn PhysicalExpr>>,
    expr_fields: Vec<FieldRef>,
}

impl Arguments {
    fn of(args: &AccumulatorArgs<'_>) -> Self {
        Self {
            return_field: Arc::clone(&args.return_field),
            schema: args.schema.clone(),
            ignore_nulls: args.ignore_nulls,
            is_reversed: args.is_reversed,
            name: args.name.to_owned(),
            is_distinct: args.is_distinct,
            exprs: args.exprs.to_vec(),
            expr_fields: args.expr_fields.to_vec(),
        }
    }

    fn lent(&self) -> AccumulatorArgs<'_> {
        AccumulatorArgs {
            return_field: Arc::clone(&self.return_field),
            schema: &self.schema,
            ignore_nulls: self.ignore_nulls,
            order_bys: &[],
            is_reversed: self.is_reversed,
            name: &self.name,
            is_distinct: self.is_distinct,
            exprs: &self.exprs,
            expr_fields: &self.expr_fields,
        }
    }
}

impl AggregateUDFImpl for Moving {
    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn Accumulator>> {
        let (function, args) = (Arc::clone(&self.0), Arguments::of(&args));
        Ok(Box::new(Recomputed::new(move || function.accumulator(args.lent()))))
    }

    // All others are those of the engine.

    fn name(&self) -> &str {
        self.0.name()
    }

    fn aliases(&self) -> &[String] {
        self.0.aliases()
    }

    fn schema_name(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.0.schema_name(params)
    }

    fn human_display(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.0.human_display(params)
    }

    fn window_function_schema_name(&self, params: &WindowFunctionParams) -> Result<String> {
        self.0.window_function_schema_name(params)
    }

    fn display_name(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.0.display_name(params)
    }

    fn window_function_display_name(&self, params: &WindowFunctionParams) -> Result<String> {
        self.0.window_function_display_name(params)
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.0.return_type(types)
    }

    fn return_field(&self, fields: &[FieldRef]) -> Result<FieldRef> {
        self.0.return_field(fields)
    }

    fn is_nullable(&self) -> bool {
        self.0.is_nullable()
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        self.0.accumulator(args)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.0.state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.0.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        self.0.create_groups_accumulator(args)
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.0.order_sensitivity()
    }

    fn simplify(&self) -> Option<AggregateFunctionSimplification> {
        self.0.simplify()
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.0.reverse_udf()
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.0.coerce_types(types)
    }

    fn default_value(&self, of: &DataType) -> Result<ScalarValue> {
        self.0.default_value(of)
    }

    fn supports_null_handling_clause(&self) -> bool {
        self.0.supports_null_handling_clause()
    }

    fn supports_within_group_clause(&self) -> bool {
        self.0.supports_within_group_clause()
    }

    fn set_monotonicity(&self, of: &DataType) -> SetMonotonicity {
        self.0.inner().set_monotonicity(of)
    }
}
