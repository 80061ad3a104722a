//! Functions of numbers that round, divide and compare with zero, of the types and with the digits that
//! PostgreSQL gives them.
//!
//! | function | integers, `real`, `double precision` | `numeric` |
//! |---|---|---|
//! | `ceil`, `floor`, `trunc`, `sign` | `double precision` | all digits |
//! | `round(v)` | `double precision`, half to even | half away from zero |
//! | `round(v, n)`, `trunc(v, n)` | integers as `numeric` | all digits; `n` may be negative |
//! | `div(a, b)` | integers as `numeric` | the quotient without its fraction |
//! | `width_bucket(v, low, high, count)` | `double precision` | exact |
//!
//! Invariant: a decimal is never computed in floating point.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array as _, ArrayRef, AsArray as _, Decimal256Array, Float64Array, Int32Array,
};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{
    DataType, Decimal128Type, Decimal256Type, Field, FieldRef, Float64Type, Int64Type, i256,
};
use datafusion::common::{exec_datafusion_err, exec_err, plan_err};
use datafusion::error::Result;
use datafusion::execution::context::SessionContext;
use datafusion::logical_expr::{
    ColumnarValue, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};
use datafusion::scalar::ScalarValue;

use super::arithmetic::narrow;
use super::number::{fits, power_of_ten};
use super::{decimal, decimal_of};

/// What is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Ceil,
    Floor,
    Trunc,
    Round,
    Sign,
    Div,
    WidthBucket,
}

/// A function of numbers.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Rounding {
    kind: Kind,
    aliases: Vec<String>,
    signature: Signature,
}

/// Replaces these functions of a session.
pub(super) fn register(session: &SessionContext) {
    use Kind::{Ceil, Div, Floor, Round, Sign, Trunc, WidthBucket};
    for kind in [Ceil, Floor, Trunc, Round, Sign, Div, WidthBucket] {
        let aliases = match kind {
            Ceil => vec!["ceiling".to_owned()],
            Sign => vec!["signum".to_owned()],
            _ => Vec::new(),
        };
        let signature = Signature::user_defined(Volatility::Immutable);
        session.register_udf(ScalarUDF::from(Rounding { kind, aliases, signature }));
    }
}

/// The decimal that holds the numbers of a type, if it is exact.
fn exact(of: &DataType) -> Option<DataType> {
    match of {
        of if decimal(of).is_some() => Some(of.clone()),
        of if of.is_integer() => Some(DataType::Decimal128(20, 0)),
        _ => None,
    }
}

impl Rounding {
    /// Whether it has a number of digits as its second argument.
    fn has_digits(&self) -> bool {
        matches!(self.kind, Kind::Round | Kind::Trunc)
    }

    /// The type of a result of a decimal, with the number of digits after the point if they are known.
    fn rounded(&self, of: &DataType, digits: Option<i64>) -> DataType {
        let (precision, scale) = decimal(of).unwrap_or((38, 0));
        let whole = u8::try_from(i16::from(precision) - i16::from(scale)).unwrap_or(1);
        let digits = digits.and_then(|digits| i8::try_from(digits.max(0)).ok());
        let scale = digits.map_or(scale, |digits| digits.min(scale));
        match self.kind {
            Kind::Sign => DataType::Decimal128(1, 0),
            // One more digit: 9.9 becomes 10.
            _ => decimal_of(whole.saturating_add(1), scale),
        }
    }

    /// The raw result of a raw decimal with this scale, `digits` after the point.
    fn decimal(&self, value: i256, scale: i8, digits: i64) -> Option<i256> {
        let down = i64::from(scale).checked_sub(digits)?;
        let (Ok(down), true) = (u32::try_from(down), down > 0) else { return Some(value) };
        let Some(unit) = power_of_ten(down.min(77)).filter(|_| down <= 76) else {
            return Some(i256::ZERO);
        };
        let (whole, rest) = (value.checked_div(unit)?, value.checked_rem(unit)?);
        let is_half = || rest.checked_abs().is_some_and(|it| Some(it) >= half(unit));
        let step = match self.kind {
            Kind::Ceil if rest > i256::ZERO => i256::ONE,
            Kind::Floor if rest.is_negative() => i256::MINUS_ONE,
            Kind::Round if is_half() && value.is_negative() => i256::MINUS_ONE,
            Kind::Round if is_half() => i256::ONE,
            _ => i256::ZERO,
        };
        whole.checked_add(step)?.checked_mul(unit)
    }

    fn decimals(&self, of: &ArrayRef, digits: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
        let scales = decimal(of.data_type()).zip(decimal(to));
        let Some(((_, scale), (precision, made_scale))) = scales else {
            return exec_err!("{} is no decimal", of.data_type());
        };
        let (values, digits) = (wide(of)?, digits.as_primitive::<Int64Type>());
        let down = u32::try_from(i16::from(scale) - i16::from(made_scale)).unwrap_or(0);
        let down =
            power_of_ten(down).ok_or_else(|| exec_datafusion_err!("the scale is {scale}"))?;
        let mut made = Decimal256Array::builder(values.len());
        for row in 0..values.len() {
            if values.is_null(row) || digits.is_null(row) {
                made.append_null();
                continue;
            }
            let value = values.value(row);
            let result = match self.kind {
                Kind::Sign => Some(match value {
                    value if value.is_negative() => i256::MINUS_ONE,
                    i256::ZERO => i256::ZERO,
                    _ => i256::ONE,
                }),
                _ => self
                    .decimal(value, scale, digits.value(row))
                    .and_then(|value| value.checked_div(down)),
            };
            let result = result.filter(|value| fits(*value, precision));
            made.append_value(result.ok_or_else(|| {
                exec_datafusion_err!("{} is out of range: it has too many digits", self.name())
            })?);
        }
        narrow(&made.finish(), to, Operator::Plus)
    }

    fn float(&self, value: f64, digits: Option<i64>) -> f64 {
        // Of floating point numbers, PostgreSQL has no digits; those of the engine stay.
        let power = digits.map_or(1.0, |digits| {
            10_f64.powi(i32::try_from(digits.clamp(-400, 400)).unwrap_or_default())
        });
        let scaled = value * power;
        if power == 0.0 {
            return 0.0;
        }
        if !scaled.is_finite() {
            return value;
        }
        let made = match (self.kind, digits) {
            (Kind::Ceil, _) => scaled.ceil(),
            (Kind::Floor, _) => scaled.floor(),
            (Kind::Trunc, _) => scaled.trunc(),
            (Kind::Round, None) => scaled.round_ties_even(),
            (Kind::Round, Some(_)) => scaled.round(),
            _ if value == 0.0 => 0.0,
            _ => value.signum(),
        };
        made / power
    }

    fn floats(&self, of: &ArrayRef, digits: Option<&ArrayRef>) -> ArrayRef {
        let values = of.as_primitive::<Float64Type>();
        let digits = digits.map(|it| it.as_primitive::<Int64Type>());
        let made = values.iter().enumerate().map(|(row, value)| match digits {
            Some(digits) if digits.is_null(row) => None,
            digits => Some(self.float(value?, digits.map(|it| it.value(row)))),
        });
        Arc::new(made.collect::<Float64Array>())
    }
}

/// Half of a power of ten.
fn half(unit: i256) -> Option<i256> {
    unit.checked_div(i256::from_i128(2))
}

/// The values as 256-bit decimals of the same scale.
fn wide(array: &ArrayRef) -> Result<Decimal256Array> {
    if let Some(wide) = array.as_primitive_opt::<Decimal256Type>() {
        return Ok(wide.clone());
    }
    let narrow = array.as_primitive_opt::<Decimal128Type>();
    let narrow = narrow.ok_or_else(|| exec_datafusion_err!("{} is no decimal", array.data_type()));
    Ok(narrow?.unary::<_, Decimal256Type>(i256::from_i128))
}

/// Decimals of the same scale.
fn aligned(arrays: &[&ArrayRef]) -> Result<Vec<Decimal256Array>> {
    let scales = arrays.iter().filter_map(|array| decimal(array.data_type()));
    let to = scales.map(|(_, scale)| scale).max().unwrap_or(0);
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let arrays = arrays.iter().map(|array| {
        let array = cast_with_options(array, &DataType::Decimal256(76, to), &options)?;
        Ok(array.as_primitive::<Decimal256Type>().clone())
    });
    arrays.collect()
}

/// The whole part of quotients.
fn quotients(a: &ArrayRef, b: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    let arrays = aligned(&[a, b])?;
    let [a, b] = arrays.as_slice() else { return exec_err!("div has two arguments") };
    let mut made = Decimal256Array::builder(a.len());
    for row in 0..a.len() {
        if a.is_null(row) || b.is_null(row) {
            made.append_null();
        } else if b.value(row) == i256::ZERO {
            return exec_err!("division by zero");
        } else {
            let value = a.value(row).checked_div(b.value(row)).filter(|it| fits(*it, 76));
            made.append_value(value.ok_or_else(|| exec_datafusion_err!("div is out of range"))?);
        }
    }
    narrow(&made.finish(), to, Operator::Divide)
}

/// The bucket of a value among `count` between two limits of any order; 0 and `count + 1` are outside.
fn bucket<T: PartialOrd + Copy>(
    (value, low, high): (T, T, T),
    count: i64,
    share: impl Fn(T, T, T) -> Option<i64>,
) -> Result<i32> {
    if count <= 0 {
        return exec_err!("the count of width_bucket must be greater than zero");
    }
    let made = if low < high {
        if value < low {
            Some(0)
        } else if value >= high {
            count.checked_add(1)
        } else {
            share(value, low, high).and_then(|it| it.min(count - 1).checked_add(1))
        }
    } else if low > high {
        if value > low {
            Some(0)
        } else if value <= high {
            count.checked_add(1)
        } else {
            share(value, low, high).and_then(|it| it.min(count - 1).checked_add(1))
        }
    } else {
        return exec_err!(
            "the lower and the upper limit of width_bucket must differ, and be numbers"
        );
    };
    let made = made.and_then(|it| i32::try_from(it).ok());
    made.ok_or_else(|| exec_datafusion_err!("width_bucket is out of range"))
}

fn buckets(arrays: &[ArrayRef]) -> Result<ArrayRef> {
    let [value, low, high, count] = arrays else {
        return exec_err!("width_bucket has four arguments");
    };
    let counts = count.as_primitive::<Int64Type>();
    let is_null = |row: usize| arrays.iter().any(|array| array.is_null(row));
    let rows = 0..value.len();
    let made: Result<Int32Array> = if *value.data_type() == DataType::Float64 {
        let [value, low, high] = [value, low, high].map(|it| it.as_primitive::<Float64Type>());
        let one = |row: usize| {
            let count = counts.value(row);
            #[expect(clippy::cast_precision_loss, reason = "an integer below 2^31")]
            #[expect(clippy::cast_possible_truncation, reason = "saturates")]
            let share =
                |value, low, high| Some((count as f64 * ((value - low) / (high - low))) as i64);
            let values = (value.value(row), low.value(row), high.value(row));
            if values.0.is_nan() || !values.1.is_finite() || !values.2.is_finite() {
                return exec_err!(
                    "the limits of width_bucket must be finite, and its operand a number"
                );
            }
            bucket(values, count, share)
        };
        rows.map(|row| (!is_null(row)).then(|| one(row)).transpose()).collect()
    } else {
        let arrays = aligned(&[value, low, high])?;
        let [value, low, high] = arrays.as_slice() else {
            return exec_err!("width_bucket has four arguments");
        };
        let one = |row: usize| {
            let count = counts.value(row);
            let share = |value: i256, low: i256, high: i256| {
                let part = value.checked_sub(low)?.checked_mul(i256::from(count))?;
                i64::try_from(part.checked_div(high.checked_sub(low)?)?.to_i128()?).ok()
            };
            bucket((value.value(row), low.value(row), high.value(row)), count, share)
        };
        rows.map(|row| (!is_null(row)).then(|| one(row)).transpose()).collect()
    };
    Ok(Arc::new(made?))
}

impl ScalarUDFImpl for Rounding {
    fn name(&self) -> &'static str {
        match self.kind {
            Kind::Ceil => "ceil",
            Kind::Floor => "floor",
            Kind::Trunc => "trunc",
            Kind::Round => "round",
            Kind::Sign => "sign",
            Kind::Div => "div",
            Kind::WidthBucket => "width_bucket",
        }
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let is_number = |of: &DataType| {
            of.is_integer() || of.is_floating() || decimal(of).is_some() || of.is_null()
        };
        if let Some(of) = types.iter().find(|of| !is_number(of)) {
            return plan_err!("{} takes numbers, not {of}; cast its argument", self.name());
        }
        let has_float = types.iter().any(DataType::is_floating);
        let exactly = |of: &DataType| exact(of).unwrap_or(DataType::Decimal128(20, 0));
        Ok(match (self.kind, types) {
            (Kind::Div, [_, _]) if has_float => {
                return plan_err!("div takes numeric, not double precision; use trunc(a / b)");
            }
            (Kind::Div, [a, b]) => vec![exactly(a), exactly(b)],
            (Kind::WidthBucket, [value, low, high, _]) => {
                let of = [value, low, high].map(|of| match has_float {
                    true => DataType::Float64,
                    false => exactly(of),
                });
                of.into_iter().chain([DataType::Int64]).collect()
            }
            (Kind::Div | Kind::WidthBucket, _) => {
                return plan_err!("{} has another number of arguments", self.name());
            }
            (_, [of]) if decimal(of).is_some() => vec![of.clone()],
            (_, [_]) => vec![DataType::Float64],
            (_, [of, _]) if self.has_digits() && of.is_floating() => {
                vec![DataType::Float64, DataType::Int64]
            }
            (_, [of, _]) if self.has_digits() => vec![exactly(of), DataType::Int64],
            _ => return plan_err!("{} has another number of arguments", self.name()),
        })
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(match (self.kind, types) {
            (Kind::WidthBucket, _) => DataType::Int32,
            (Kind::Div, [a, b]) => {
                let whole = |of| {
                    decimal(of).map_or(20, |(precision, scale)| {
                        precision.saturating_sub(scale.unsigned_abs())
                    })
                };
                let scale = decimal(b).map_or(0, |(_, scale)| scale.unsigned_abs());
                decimal_of(whole(a).saturating_add(scale).max(1), 0)
            }
            (_, [of]) if decimal(of).is_some() => self.rounded(of, Some(0)),
            (_, [of, ..]) if decimal(of).is_some() => self.rounded(of, None),
            _ => DataType::Float64,
        })
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let types: Vec<_> = args.arg_fields.iter().map(|it| it.data_type().clone()).collect();
        let digits = match args.scalar_arguments {
            [_, Some(ScalarValue::Int64(Some(digits)))] => Some(*digits),
            _ => None,
        };
        let to = match (types.as_slice(), digits) {
            ([of, _], Some(digits)) if self.has_digits() && decimal(of).is_some() => {
                self.rounded(of, Some(digits))
            }
            _ => self.return_type(&types)?,
        };
        Ok(Arc::new(Field::new(self.name(), to, true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_constant = args.args.iter().all(|it| matches!(it, ColumnarValue::Scalar(_)));
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let to = args.return_field.data_type();
        let made = match (self.kind, arrays.as_slice()) {
            (Kind::WidthBucket, arrays) => buckets(arrays)?,
            (Kind::Div, [a, b]) => quotients(a, b, to)?,
            (_, [of]) if decimal(of.data_type()).is_some() => {
                let digits = ScalarValue::Int64(Some(0)).to_array_of_size(of.len())?;
                self.decimals(of, &digits, to)?
            }
            (_, [of, digits]) if decimal(of.data_type()).is_some() => {
                self.decimals(of, digits, to)?
            }
            (_, [of, rest @ ..]) => self.floats(of, rest.first()),
            _ => return exec_err!("{} has no argument", self.name()),
        };
        Ok(match is_constant {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&made, 0)?),
            false => ColumnarValue::Array(made),
        })
    }
}
