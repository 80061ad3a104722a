//! Casts between integers, decimals and floating point numbers, rounded as PostgreSQL does: decimals
//! half away from zero, floating point numbers half to even; a floating point number becomes a
//! decimal with the 15 digits (of `real`: 6) that are sure.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray as _, Decimal256Array, PrimitiveArray,
    PrimitiveBuilder,
};
use datafusion::arrow::datatypes::{
    DataType, Decimal128Type, Decimal256Type, Float32Type, Float64Type, Int8Type, Int16Type,
    Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type, i256,
};
use datafusion::common::exec_datafusion_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::number::{fits, power_of_ten, quotient};
use super::{decimal, of_one};

/// The largest power of ten that a `double precision` is exactly, and the largest integer up to
/// which it is every integer.
const EXACT_POWER_MAX: i8 = 22;
const EXACT_INTEGER_MAX: u128 = 1 << 53;

/// A cast as a function.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct ExactCast {
    to: DataType,
    /// Whether a value that does not fit becomes NULL.
    is_try: bool,
    signature: Signature,
}

impl ExactCast {
    /// The function for a cast, if it needs one.
    pub(super) fn of(from: &DataType, to: &DataType, is_try: bool) -> Option<ScalarUDF> {
        let is_inexact = match (from, to) {
            (from, to) if to.is_integer() => from.is_floating() || decimal(from).is_some(),
            (from, DataType::Float32 | DataType::Float64) if decimal(from).is_some() => true,
            (DataType::Float64, DataType::Float32) => true,
            (DataType::Float32 | DataType::Float64, to) => decimal(to).is_some(),
            _ => false,
        };
        is_inexact.then(|| Self::function(to.clone(), is_try))
    }

    fn function(to: DataType, is_try: bool) -> ScalarUDF {
        ScalarUDF::from(Self { to, is_try, signature: Signature::any(1, Volatility::Immutable) })
    }

    fn refused(&self, value: &dyn std::fmt::Display) -> DataFusionError {
        exec_datafusion_err!("{} is out of range: it cannot hold {value}", self.to)
    }

    /// Casts every value. `None` does not fit.
    fn each<T: ArrowPrimitiveType>(
        &self,
        array: &dyn Array,
        value: impl Fn(usize) -> Option<T::Native>,
        shown: impl Fn(usize) -> String,
    ) -> Result<PrimitiveArray<T>> {
        let mut made = PrimitiveBuilder::<T>::with_capacity(array.len());
        for row in 0..array.len() {
            if array.is_null(row) {
                made.append_null();
                continue;
            }
            match value(row) {
                Some(value) => made.append_value(value),
                None if self.is_try => made.append_null(),
                None => return Err(self.refused(&shown(row))),
            }
        }
        Ok(made.finish())
    }

    /// Integers from rounded values.
    fn integers(
        &self,
        array: &dyn Array,
        value: impl Fn(usize) -> Option<i128>,
        shown: impl Fn(usize) -> String,
    ) -> Result<ArrayRef> {
        macro_rules! made {
            ($of:ty) => {
                Arc::new(self.each::<$of>(array, |row| value(row)?.try_into().ok(), shown)?)
                    as ArrayRef
            };
        }
        Ok(match self.to {
            DataType::Int8 => made!(Int8Type),
            DataType::Int16 => made!(Int16Type),
            DataType::Int32 => made!(Int32Type),
            DataType::Int64 => made!(Int64Type),
            DataType::UInt8 => made!(UInt8Type),
            DataType::UInt16 => made!(UInt16Type),
            DataType::UInt32 => made!(UInt32Type),
            DataType::UInt64 => made!(UInt64Type),
            _ => return Err(exec_datafusion_err!("{} is no integer", self.to)),
        })
    }

    /// From floating point numbers, with this many digits that are sure.
    fn of_floats(
        &self,
        array: &dyn Array,
        value: impl Fn(usize) -> f64,
        digits: usize,
    ) -> Result<ArrayRef> {
        let shown = |row: usize| value(row).to_string();
        match &self.to {
            DataType::Float32 => {
                let narrow = |row: usize| {
                    let wide = value(row);
                    #[expect(clippy::cast_possible_truncation, reason = "checked")]
                    let narrow = wide as f32;
                    let is_lost = narrow.is_infinite() && wide.is_finite();
                    let is_gone = narrow == 0.0 && wide != 0.0;
                    (!is_lost && !is_gone).then_some(narrow)
                };
                Ok(Arc::new(self.each::<Float32Type>(array, narrow, shown)?))
            }
            to if to.is_integer() => self.integers(array, |row| integer(value(row)), shown),
            to => {
                let Some((precision, scale)) = decimal(to) else {
                    return Err(exec_datafusion_err!("{to} is no decimal"));
                };
                let made = |row| decimal_of_float(value(row), digits, precision, scale);
                self.narrow(&self.each::<Decimal256Type>(array, made, shown)?)
            }
        }
    }

    fn narrow(&self, made: &Decimal256Array) -> Result<ArrayRef> {
        super::arithmetic::narrow(made, &self.to, datafusion::logical_expr::Operator::Plus)
    }

    /// From decimals with this scale.
    fn of_decimals(
        &self,
        array: &dyn Array,
        value: impl Fn(usize) -> i256,
        scale: i8,
    ) -> Result<ArrayRef> {
        let shown = |row: usize| format!("{}e{}", value(row), -i16::from(scale));
        match &self.to {
            DataType::Float64 => {
                let made = |row| float(value(row), scale);
                Ok(Arc::new(self.each::<Float64Type>(array, made, shown)?))
            }
            DataType::Float32 => {
                let made = |row| format!("{}e{}", value(row), -i16::from(scale)).parse().ok();
                let made = |row| made(row).filter(|it: &f32| it.is_finite());
                Ok(Arc::new(self.each::<Float32Type>(array, made, shown)?))
            }
            _ => {
                let power = power_of_ten(u32::from(scale.unsigned_abs()));
                let power = power.ok_or_else(|| exec_datafusion_err!("the scale is {scale}"))?;
                let made = |row: usize| match scale {
                    0.. => quotient(value(row), power, 0)?.to_i128(),
                    _ => value(row).checked_mul(power)?.to_i128(),
                };
                self.integers(array, made, shown)
            }
        }
    }
}

/// An integer, rounded half to even.
fn integer(value: f64) -> Option<i128> {
    let rounded = value.round_ties_even();
    if rounded.is_nan() || rounded.abs() >= 3.7e19 {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, reason = "an integer below 2^65")]
    let whole = rounded as i128;
    Some(whole)
}

/// The nearest floating point number.
fn float(value: i256, scale: i8) -> Option<f64> {
    if let Some(small) = value.to_i128()
        && small.unsigned_abs() <= EXACT_INTEGER_MAX
        && (0..=EXACT_POWER_MAX).contains(&scale)
    {
        // Both are exact, so that the quotient is rounded once.
        #[expect(clippy::cast_precision_loss, reason = "at most 2^53")]
        return Some(small as f64 / 10_f64.powi(i32::from(scale)));
    }
    format!("{value}e{}", -i16::from(scale)).parse().ok()
}

/// The raw decimal of a floating point number.
fn decimal_of_float(value: f64, digits: usize, precision: u8, scale: i8) -> Option<i256> {
    if !value.is_finite() {
        return None;
    }
    let shown = format!("{value:.*e}", digits.saturating_sub(1));
    let (digits_shown, exponent) = shown.split_once('e')?;
    let exponent: i32 = exponent.parse().ok()?;
    let raw: i128 = digits_shown.replace('.', "").parse().ok()?;
    let up = exponent - i32::try_from(digits).ok()? + 1 + i32::from(scale);
    let raw = i256::from_i128(raw);
    let made = match u32::try_from(up) {
        _ if raw == i256::ZERO => raw,
        Ok(up) => raw.checked_mul(power_of_ten(up)?)?,
        Err(_) => match power_of_ten(up.unsigned_abs()) {
            Some(down) => quotient(raw, down, 0)?,
            None => i256::ZERO,
        },
    };
    fits(made, precision).then_some(made)
}

impl ScalarUDFImpl for ExactCast {
    fn name(&self) -> &'static str {
        "exact_cast"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.to.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        of_one(&args, |array| {
            Ok(match array.data_type() {
                DataType::Float64 => {
                    let values = array.as_primitive::<Float64Type>();
                    self.of_floats(values, |row| values.value(row), 15)?
                }
                DataType::Float32 => {
                    let values = array.as_primitive::<Float32Type>();
                    self.of_floats(values, |row| values.value(row).into(), 6)?
                }
                DataType::Decimal128(_, scale) => {
                    let values = array.as_primitive::<Decimal128Type>();
                    self.of_decimals(values, |row| i256::from_i128(values.value(row)), *scale)?
                }
                DataType::Decimal256(_, scale) => {
                    let values = array.as_primitive::<Decimal256Type>();
                    self.of_decimals(values, |row| values.value(row), *scale)?
                }
                other => return Err(exec_datafusion_err!("{other} is cast in another way")),
            })
        })
    }
}
