//! Aggregates of values in their order: `percentile_cont`, `percentile_disc` and `mode`.
//!
//! The engine interpolates with six digits, and has neither of the others. As in PostgreSQL,
//! `percentile_cont` is a `double precision`, interpolated with all digits; `mode` is the first of the most
//! frequent values.
//!
//! The values of a group are in memory, which counts against that of the query.

use std::mem::size_of;
use std::sync::Arc;

use datafusion::arrow::array::{Array as _, ArrayRef, AsArray as _, RecordBatch};
use datafusion::arrow::compute::{SortOptions, concat, filter, is_not_null, sort};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Float64Type};
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::common::{exec_datafusion_err, exec_err, plan_err};
use datafusion::error::Result;
use datafusion::execution::context::SessionContext;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, ColumnarValue, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;

/// What is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Continuous,
    Discrete,
    Mode,
}

/// An aggregate with `WITHIN GROUP (ORDER BY ...)`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Ordered {
    kind: Kind,
    signature: Signature,
}

/// Replaces these aggregates of a session.
pub(super) fn register(session: &SessionContext) {
    for kind in [Kind::Continuous, Kind::Discrete, Kind::Mode] {
        let signature = Signature::user_defined(Volatility::Immutable);
        session.register_udaf(AggregateUDF::from(Ordered { kind, signature }));
    }
}

/// The fraction of the values of a group that a percentile has before it.
fn fraction(args: &AccumulatorArgs<'_>) -> Result<Option<f64>> {
    let Some(expr) = args.exprs.get(1) else { return Ok(None) };
    let row = RecordBatch::new_empty(Arc::new(args.schema.clone()));
    match expr.evaluate(&row)? {
        ColumnarValue::Scalar(ScalarValue::Float64(Some(of))) if (0.0..=1.0).contains(&of) => {
            Ok(Some(of))
        }
        ColumnarValue::Scalar(of) => exec_err!("percentile value {of} is not between 0 and 1"),
        ColumnarValue::Array(_) => exec_err!("the percentile has to be a constant"),
    }
}

impl AggregateUDFImpl for Ordered {
    fn name(&self) -> &'static str {
        match self.kind {
            Kind::Continuous => "percentile_cont",
            Kind::Discrete => "percentile_disc",
            Kind::Mode => "mode",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let is_number =
            |of: &DataType| of.is_numeric() || of.is_null() || super::decimal(of).is_some();
        match (self.kind, types) {
            (Kind::Mode, [_]) => Ok(types.to_vec()),
            (Kind::Discrete, [of, by]) if is_number(by) => Ok(vec![of.clone(), DataType::Float64]),
            (Kind::Continuous, [of, by]) if is_number(of) && is_number(by) => {
                Ok(vec![DataType::Float64; 2])
            }
            _ => plan_err!(
                "{} takes {} and WITHIN GROUP (ORDER BY value){}",
                self.name(),
                if self.kind == Kind::Mode { "no argument" } else { "a fraction from 0 to 1" },
                if self.kind == Kind::Continuous { " of a number" } else { "" }
            ),
        }
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match (self.kind, types.first()) {
            (Kind::Continuous, _) => Ok(DataType::Float64),
            (_, Some(of)) => Ok(of.clone()),
            (_, None) => exec_err!("{} has no argument", self.name()),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let of = args.input_fields.first();
        let of = of.ok_or_else(|| exec_datafusion_err!("{} has no argument", self.name()))?;
        let list = DataType::new_list(of.data_type().clone(), true);
        Ok(vec![Arc::new(Field::new(format_state_name(args.name, "values"), list, true))])
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        if args.is_distinct {
            return exec_err!("{} of DISTINCT values is not supported", self.name());
        }
        let descending = args.order_bys.first().is_some_and(|sort| sort.options.descending);
        Ok(Box::new(Values {
            kind: self.kind,
            fraction: fraction(&args)?.unwrap_or_default(),
            options: SortOptions { descending, nulls_first: false },
            to: args.return_type().clone(),
            values: Vec::new(),
        }))
    }

    fn supports_within_group_clause(&self) -> bool {
        true
    }
}

/// The values of one group.
#[derive(Debug)]
struct Values {
    kind: Kind,
    fraction: f64,
    options: SortOptions,
    to: DataType,
    values: Vec<ArrayRef>,
}

impl Values {
    fn joined(&self) -> Result<Option<ArrayRef>> {
        let parts: Vec<_> = self.values.iter().map(AsRef::as_ref).collect();
        Ok(if parts.is_empty() { None } else { Some(concat(&parts)?) })
    }

    /// The value that a percentile is, or that is most frequent.
    #[expect(clippy::cast_precision_loss, reason = "a count of rows in memory")]
    #[expect(clippy::cast_possible_truncation, reason = "at most the count")]
    #[expect(clippy::cast_sign_loss, reason = "a product of numbers that are not negative")]
    fn chosen(&self, sorted: &ArrayRef) -> Result<ScalarValue> {
        let count = sorted.len();
        match self.kind {
            Kind::Continuous => {
                let values = sorted.as_primitive::<Float64Type>().values();
                let at = self.fraction * (count - 1) as f64;
                let low = values.get(at.floor() as usize).copied();
                let high = values.get(at.ceil() as usize).copied();
                let made = low.zip(high).map(|(low, high)| match low == high {
                    true => low,
                    false => low + (at - at.floor()) * (high - low),
                });
                Ok(ScalarValue::Float64(made))
            }
            Kind::Discrete => {
                let at = (self.fraction * count as f64).ceil() as usize;
                ScalarValue::try_from_array(sorted, at.saturating_sub(1).min(count - 1))
            }
            Kind::Mode => {
                let (mut best, mut best_count) = (0, 0);
                let mut begin = 0;
                let mut first = ScalarValue::try_from_array(sorted, 0)?;
                for row in 1..=count {
                    let next = (row < count).then(|| ScalarValue::try_from_array(sorted, row));
                    let next = next.transpose()?;
                    if next.as_ref() == Some(&first) {
                        continue;
                    }
                    if row - begin > best_count {
                        (best, best_count) = (begin, row - begin);
                    }
                    begin = row;
                    if let Some(next) = next {
                        first = next;
                    }
                }
                ScalarValue::try_from_array(sorted, best)
            }
        }
    }
}

impl Accumulator for Values {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let Some(values) = values.first() else { return Ok(()) };
        let values = filter(values, &is_not_null(values)?)?;
        if !values.is_empty() {
            self.values.push(values);
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        match self.joined()? {
            Some(values) => self.chosen(&sort(&values, Some(self.options))?),
            None => ScalarValue::try_from(&self.to),
        }
    }

    fn size(&self) -> usize {
        let values = self.values.iter().map(|values| values.get_array_memory_size());
        size_of::<Self>() + values.sum::<usize>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let of = match self.kind {
            Kind::Continuous => DataType::Float64,
            _ => self.to.clone(),
        };
        let values =
            self.joined()?.map_or_else(|| ScalarValue::try_from(&of)?.to_array_of_size(0), Ok)?;
        Ok(vec![SingleRowListArrayBuilder::new(values).build_list_scalar()])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let Some(lists) = states.first() else { return Ok(()) };
        for list in lists.as_list::<i32>().iter().flatten() {
            self.update_batch(&[list])?;
        }
        Ok(())
    }
}
