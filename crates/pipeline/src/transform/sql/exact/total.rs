//! `sum` and `avg`, which check.
//!
//! A sum has the type that the engine gives it; one that the type cannot hold is an error. An average
//! of integers and decimals is a decimal, rounded once, from the exact sum.

use std::collections::HashSet;
use std::mem::size_of;
use std::sync::Arc;

use datafusion::arrow::array::{Array as _, ArrayRef, AsArray as _};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, i256};
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::common::{exec_datafusion_err, plan_err};
use datafusion::error::Result;
use datafusion::functions_aggregate::average::Avg;
use datafusion::functions_aggregate::sum::Sum;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDFImpl, GroupsAccumulator, ReversedUDAF, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;

use super::groups::{Made, Number, Totals};
use super::moving::Recomputed;
use super::{decimal, quotient_type};

/// `sum` or `avg`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Total {
    is_average: bool,
    aliases: Vec<String>,
    signature: Signature,
    /// Of the engine, for times.
    sum: Sum,
    average: Avg,
}

impl Total {
    /// `sum`.
    pub(super) fn sum() -> Self {
        let signature = Signature::user_defined(Volatility::Immutable);
        let (sum, average) = (Sum::new(), Avg::new());
        Self { is_average: false, aliases: Vec::new(), signature, sum, average }
    }

    /// `avg`.
    pub(super) fn average() -> Self {
        Self { is_average: true, aliases: vec!["mean".into()], ..Self::sum() }
    }

    fn by_engine(&self) -> &dyn AggregateUDFImpl {
        match self.is_average {
            true => &self.average,
            false => &self.sum,
        }
    }
}

/// The width in which a type is added.
enum Width {
    Small,
    Large,
    Real,
    Float,
}

fn width(of: Option<&FieldRef>) -> Option<Width> {
    match of?.data_type() {
        DataType::Int64 | DataType::UInt64 | DataType::Decimal128(..) => Some(Width::Small),
        DataType::Decimal256(..) => Some(Width::Large),
        DataType::Float32 => Some(Width::Real),
        DataType::Float64 => Some(Width::Float),
        _ => None,
    }
}

/// What becomes of totals.
fn made(args: &AccumulatorArgs<'_>, is_average: bool) -> Made {
    let scale = args.expr_fields.first().and_then(|it| decimal(it.data_type()));
    Made { to: args.return_type().clone(), is_average, scale: scale.map_or(0, |(_, scale)| scale) }
}

impl AggregateUDFImpl for Total {
    fn name(&self) -> &'static str {
        if self.is_average { "avg" } else { "sum" }
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            [DataType::Float32] if !self.is_average => Ok(types.to_vec()),
            [of] if of.is_signed_integer() => Ok(vec![DataType::Int64]),
            [of] if of.is_unsigned_integer() => Ok(vec![DataType::UInt64]),
            [of] if of.is_floating() || of.is_null() => Ok(vec![DataType::Float64]),
            [of] if decimal(of).is_some()
                || matches!(of, DataType::Duration(_) | DataType::Interval(_)) =>
            {
                Ok(types.to_vec())
            }
            [of] => plan_err!("{} takes numbers, not {of}; cast its argument", self.name()),
            _ => plan_err!("{} has one argument", self.name()),
        }
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let of = types.first().ok_or_else(|| exec_datafusion_err!("no argument"))?;
        Ok(match (self.is_average, of) {
            (false, DataType::Float32) => DataType::Float32,
            (false, _) => self.sum.return_type(types)?,
            (true, DataType::Int64) => quotient_type(19, 0),
            (true, DataType::UInt64) => quotient_type(20, 0),
            (true, of) => match decimal(of) {
                Some((precision, scale)) => {
                    let whole = i16::from(precision) - i16::from(scale);
                    quotient_type(u8::try_from(whole).unwrap_or(0), scale)
                }
                None => self.average.return_type(types)?,
            },
        })
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let (made, is_distinct) = (made(&args, self.is_average), args.is_distinct);
        Ok(match width(args.expr_fields.first()) {
            Some(Width::Small) => one::<i128>(made, is_distinct),
            Some(Width::Large) => one::<i256>(made, is_distinct),
            Some(Width::Real) => one::<f32>(made, is_distinct),
            Some(Width::Float) => one::<f64>(made, is_distinct),
            None => return self.by_engine().accumulator(args),
        })
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let of = match width(args.input_fields.first()) {
            Some(Width::Small) => i128::DATA_TYPE,
            Some(Width::Large) => i256::DATA_TYPE,
            Some(Width::Real) => f32::DATA_TYPE,
            Some(Width::Float) => f64::DATA_TYPE,
            None => return self.by_engine().state_fields(args),
        };
        let field = |name, of| Arc::new(Field::new(format_state_name(args.name, name), of, true));
        Ok(match args.is_distinct {
            true => vec![field("values", DataType::new_list(of, true))],
            false => vec![field("sum", of), field("count", DataType::Int64)],
        })
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        match width(args.expr_fields.first()) {
            Some(_) => !args.is_distinct,
            None => self.by_engine().groups_accumulator_supported(args),
        }
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        let made = made(&args, self.is_average);
        let totals: Box<dyn GroupsAccumulator> = match width(args.expr_fields.first()) {
            Some(Width::Small) => Box::new(Totals::<i128>::new(made)),
            Some(Width::Large) => Box::new(Totals::<i256>::new(made)),
            Some(Width::Real) => Box::new(Totals::<f32>::new(made)),
            Some(Width::Float) => Box::new(Totals::<f64>::new(made)),
            None => return self.by_engine().create_groups_accumulator(args),
        };
        Ok(totals)
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn Accumulator>> {
        let (made, is_distinct) = (made(&args, self.is_average), args.is_distinct);
        let again = match width(args.expr_fields.first()) {
            // Rows that leave the frame are subtracted, which is exact.
            Some(Width::Small | Width::Large) if !is_distinct => return self.accumulator(args),
            Some(Width::Small) => Recomputed::new(move || Ok(one::<i128>(made.clone(), true))),
            Some(Width::Large) => Recomputed::new(move || Ok(one::<i256>(made.clone(), true))),
            Some(Width::Real) => Recomputed::new(move || Ok(one::<f32>(made.clone(), is_distinct))),
            Some(Width::Float) => {
                Recomputed::new(move || Ok(one::<f64>(made.clone(), is_distinct)))
            }
            None => return self.by_engine().create_sliding_accumulator(args),
        };
        Ok(Box::new(again))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

fn one<N: Number>(made: Made, is_distinct: bool) -> Box<dyn Accumulator> {
    let totals = Totals::<N>::new(made);
    match is_distinct {
        true => Box::new(Distinct { values: HashSet::new(), totals }),
        false => Box::new(One { totals }),
    }
}

/// The total of one group.
#[derive(Debug)]
struct One<N: Number> {
    totals: Totals<N>,
}

impl<N: Number> Accumulator for One<N> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.totals.add_all(values)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.totals.subtract_all(values)
    }

    fn supports_retract_batch(&self) -> bool {
        N::IS_EXACT
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        ScalarValue::try_from_array(&self.totals.shown()?, 0)
    }

    fn size(&self) -> usize {
        size_of::<Self>() + 32
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let state = self.totals.stated()?;
        state.iter().map(|array| ScalarValue::try_from_array(array, 0)).collect()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let Some(first) = states.first() else { return Ok(()) };
        let groups = vec![0; first.len()];
        self.totals.merge_batch(states, &groups, 1)
    }
}

/// The total of the different values of one group.
#[derive(Debug)]
struct Distinct<N: Number> {
    values: HashSet<N::Bits>,
    totals: Totals<N>,
}

impl<N: Number> Distinct<N> {
    fn array(&self) -> ArrayRef {
        N::array(self.values.iter().map(|bits| Some(N::of_bits(*bits))))
    }
}

impl<N: Number> Accumulator for Distinct<N> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let Some(values) = values.first() else { return Ok(()) };
        N::each(values, |_, value| {
            self.values.insert(value.bits());
            Ok(())
        })
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let mut totals = Totals::<N>::new(self.totals.made.clone());
        totals.add_all(&[self.array()])?;
        ScalarValue::try_from_array(&totals.shown()?, 0)
    }

    fn size(&self) -> usize {
        size_of::<Self>() + self.values.capacity() * (size_of::<N::Bits>() + 1)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let list = SingleRowListArrayBuilder::new(self.array()).build_list_scalar();
        Ok(vec![list])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let Some(lists) = states.first() else { return Ok(()) };
        for list in lists.as_list::<i32>().iter().flatten() {
            self.update_batch(&[list])?;
        }
        Ok(())
    }
}
