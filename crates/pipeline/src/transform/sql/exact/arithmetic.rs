//! `+ - * /` of numbers, and the sign, as functions that check.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray as _, Datum, Decimal128Array, Decimal256Array, PrimitiveArray,
};
use datafusion::arrow::compute::kernels::numeric;
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{
    ArrowPrimitiveType, DataType, Decimal128Type, Decimal256Type, Float32Type, Float64Type, i256,
};
use datafusion::arrow::error::ArrowError;
use datafusion::common::exec_datafusion_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::binary::BinaryTypeCoercer;
use datafusion::logical_expr::{
    ColumnarValue, Expr, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::physical_expr_common::datum::apply;
use datafusion::scalar::ScalarValue;

use super::number::{fits, power_of_ten, quotient};
use super::{QUOTIENT_SCALE, decimal, decimal_of, quotient_type};

/// Maximum number of digits after the point of a product: more are rounded off. Two quotients have
/// them.
const PRODUCT_SCALE_MAX: i8 = 2 * QUOTIENT_SCALE;

/// An operator as a function.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Arithmetic {
    /// `None` is the sign.
    op: Option<Operator>,
    signature: Signature,
}

fn is_number(of: &DataType) -> bool {
    of.is_integer() || of.is_floating() || decimal(of).is_some()
}

impl Arithmetic {
    /// The function for an operator, if numbers of these types need one. Integers are divided
    /// exactly by the engine.
    pub(super) fn of(op: Operator, left: &DataType, right: &DataType) -> Option<ScalarUDF> {
        let is_operator =
            matches!(op, Operator::Plus | Operator::Minus | Operator::Multiply | Operator::Divide);
        let null = |of: &DataType| *of == DataType::Null;
        let are_numbers = (is_number(left) && (is_number(right) || null(right)))
            || (null(left) && is_number(right));
        let is_whole = op == Operator::Divide && left.is_integer() && right.is_integer();
        (is_operator && are_numbers && !is_whole).then(|| Self::function(Some(op)))
    }

    /// The function for the sign of an integer.
    pub(super) fn negate() -> ScalarUDF {
        Self::function(None)
    }

    fn function(op: Option<Operator>) -> ScalarUDF {
        ScalarUDF::from(Self { op, signature: Signature::user_defined(Volatility::Immutable) })
    }
}

fn overflow(op: Operator, of: &DataType) -> DataFusionError {
    exec_datafusion_err!("{of} is out of range: the result of {op} has too many digits")
}

impl ScalarUDFImpl for Arithmetic {
    fn name(&self) -> &'static str {
        match self.op {
            Some(Operator::Plus) => "exact_add",
            Some(Operator::Minus) => "exact_subtract",
            Some(Operator::Multiply) => "exact_multiply",
            Some(_) => "exact_divide",
            None => "exact_negate",
        }
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        match (self.op, args) {
            (Some(op), [left, right]) => {
                Ok(format!("{} {op} {}", left.schema_name(), right.schema_name()))
            }
            _ => {
                let args = args.iter().map(|arg| arg.schema_name().to_string());
                Ok(format!("(- {})", args.collect::<Vec<_>>().join(", ")))
            }
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match (&self.op, types) {
            // Decimals are computed with the digits they have.
            (Some(_), [left, right]) if decimal(left).is_some() && decimal(right).is_some() => {
                Ok(types.to_vec())
            }
            (Some(op), [left, right]) => {
                // A small decimal for an integer would become a large one beside a large one.
                let of_integer = |it: &DataType, other: &DataType| {
                    (it.is_integer() && decimal(other).is_some())
                        .then_some(DataType::Decimal128(20, 0))
                };
                if let Some(left) = of_integer(left, right) {
                    return Ok(vec![left, right.clone()]);
                }
                if let Some(right) = of_integer(right, left) {
                    return Ok(vec![left.clone(), right]);
                }
                let (left, right) = BinaryTypeCoercer::new(left, op, right).get_input_types()?;
                Ok(vec![left, right])
            }
            _ => Ok(types.to_vec()),
        }
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let (Some(op), [left, right]) = (&self.op, types) else {
            return types.first().cloned().ok_or_else(|| exec_datafusion_err!("no argument"));
        };
        let (Some((left_precision, left_scale)), Some((right_precision, right_scale))) =
            (decimal(left), decimal(right))
        else {
            return BinaryTypeCoercer::new(left, op, right).get_result_type();
        };
        let whole = |precision: u8, scale: i8| {
            u8::try_from(i16::from(precision) - i16::from(scale)).unwrap_or(0)
        };
        let (of_left, of_right) =
            (whole(left_precision, left_scale), whole(right_precision, right_scale));
        Ok(match op {
            Operator::Multiply => {
                let scale = left_scale.saturating_add(right_scale);
                let whole = left_precision.saturating_add(right_precision).saturating_add(1);
                let whole = whole.saturating_sub(scale.unsigned_abs());
                decimal_of(whole, scale.min(PRODUCT_SCALE_MAX.max(left_scale).max(right_scale)))
            }
            Operator::Divide => {
                let scale = left_scale.max(right_scale);
                quotient_type(of_left.saturating_add(right_scale.max(0).unsigned_abs()), scale)
            }
            _ => {
                let whole = of_left.max(of_right).saturating_add(1);
                decimal_of(whole, left_scale.max(right_scale))
            }
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let to = args.return_field.data_type();
        match (self.op, args.args.as_slice()) {
            (None, [ColumnarValue::Array(of)]) => Ok(ColumnarValue::Array(numeric::neg(of)?)),
            (None, [ColumnarValue::Scalar(of)]) => {
                let negated = numeric::neg(&of.to_array()?)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&negated, 0)?))
            }
            (Some(op), [left, right]) if to.is_integer() => apply(left, right, kernel(op)),
            (Some(op), [left, right]) => {
                let arrays = ColumnarValue::values_to_arrays(&[left.clone(), right.clone()])?;
                let [left_array, right_array] = arrays.as_slice() else {
                    return Err(exec_datafusion_err!("{op} needs two arguments"));
                };
                let made = match to {
                    DataType::Float64 => floats::<Float64Type>(op, left_array, right_array)?,
                    DataType::Float32 => floats::<Float32Type>(op, left_array, right_array)?,
                    _ => decimals(op, left_array, right_array, to)?,
                };
                match (left, right) {
                    (ColumnarValue::Scalar(_), ColumnarValue::Scalar(_)) => {
                        Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&made, 0)?))
                    }
                    _ => Ok(ColumnarValue::Array(made)),
                }
            }
            _ => Err(exec_datafusion_err!("{} has other arguments", self.name())),
        }
    }
}

/// A kernel for arrays.
type Kernel = fn(&dyn Datum, &dyn Datum) -> std::result::Result<ArrayRef, ArrowError>;

/// The kernel that checks.
fn kernel(op: Operator) -> Kernel {
    match op {
        Operator::Plus => numeric::add,
        Operator::Minus => numeric::sub,
        Operator::Multiply => numeric::mul,
        _ => numeric::div,
    }
}

/// Floating point numbers. As in PostgreSQL, a result that is too large or too small, and a division
/// by zero, are errors.
fn floats<T: ArrowPrimitiveType>(
    op: Operator,
    left: &ArrayRef,
    right: &ArrayRef,
) -> Result<ArrayRef>
where
    T::Native: Into<f64>,
{
    let made = kernel(op)(left, right)?;
    let (a, b, c) = (left.as_primitive::<T>(), right.as_primitive::<T>(), made.as_primitive::<T>());
    for row in (0..made.len()).filter(|row| made.is_valid(*row)) {
        let (a, b): (f64, f64) = (a.value(row).into(), b.value(row).into());
        let c: f64 = c.value(row).into();
        if op == Operator::Divide && b == 0.0 && !a.is_nan() {
            return Err(exec_datafusion_err!("division by zero"));
        }
        let is_lost = !c.is_finite() && a.is_finite() && b.is_finite();
        let is_scaled = matches!(op, Operator::Multiply | Operator::Divide);
        let is_gone = is_scaled && c == 0.0 && a != 0.0 && b != 0.0 && b.is_finite();
        if is_lost || is_gone {
            return Err(exec_datafusion_err!("{a} {op} {b} is out of range"));
        }
    }
    Ok(made)
}

/// Decimals, as the type of the result.
fn decimals(op: Operator, left: &ArrayRef, right: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    let scales = decimal(left.data_type()).zip(decimal(right.data_type())).zip(decimal(to));
    let Some((((_, left_scale), (_, right_scale)), (precision, scale))) = scales else {
        return Err(exec_datafusion_err!("{op} of {} is no decimal", left.data_type()));
    };
    let is_exact = op != Operator::Divide
        && (op != Operator::Multiply || left_scale.saturating_add(right_scale) == scale);
    if is_exact {
        // With the width of the result, which has room for it or is checked.
        let widened = |array: &ArrayRef, scale: i8| {
            let wide = match to {
                DataType::Decimal128(..) => DataType::Decimal128(38, scale),
                _ => DataType::Decimal256(76, scale),
            };
            let options = CastOptions { safe: false, ..CastOptions::default() };
            cast_with_options(array, &wide, &options)
        };
        let made = kernel(op)(&widened(left, left_scale)?, &widened(right, right_scale)?)?;
        return with_precision(&made, to, precision, scale, op);
    }
    let (left, right) = (wide(left)?, wide(right)?);
    let mut made = Decimal256Array::builder(left.len());
    for row in 0..left.len() {
        if left.is_null(row) || right.is_null(row) {
            made.append_null();
            continue;
        }
        let (a, b) = (left.value(row), right.value(row));
        let value = if op == Operator::Divide {
            if b == i256::ZERO {
                return Err(exec_datafusion_err!("division by zero"));
            }
            let up = i16::from(scale) + i16::from(right_scale) - i16::from(left_scale);
            match u32::try_from(up) {
                Ok(up) => quotient(a, b, up),
                Err(_) => power_of_ten(u32::from(up.unsigned_abs()))
                    .and_then(|down| quotient(a, b.checked_mul(down)?, 0)),
            }
        } else {
            let down = i16::from(left_scale) + i16::from(right_scale) - i16::from(scale);
            let product = a.checked_mul(b);
            product
                .zip(power_of_ten(u32::from(down.unsigned_abs())))
                .and_then(|(product, down)| quotient(product, down, 0))
        };
        let value = value.filter(|value| fits(*value, precision));
        made.append_value(value.ok_or_else(|| overflow(op, to))?);
    }
    narrow(&made.finish(), to, op)
}

/// The values as 256-bit decimals of the same scale.
fn wide(array: &ArrayRef) -> Result<Decimal256Array> {
    if let Some(wide) = array.as_primitive_opt::<Decimal256Type>() {
        return Ok(wide.clone());
    }
    let Some(narrow) = array.as_primitive_opt::<Decimal128Type>() else {
        return Err(exec_datafusion_err!("{} is no decimal", array.data_type()));
    };
    Ok(narrow.unary::<_, Decimal256Type>(i256::from_i128))
}

/// Raw values as a decimal type.
pub(super) fn narrow(made: &Decimal256Array, to: &DataType, op: Operator) -> Result<ArrayRef> {
    match to {
        DataType::Decimal128(precision, scale) => {
            let narrow: PrimitiveArray<Decimal128Type> =
                made.try_unary(|value| value.to_i128().ok_or_else(|| overflow(op, to)))?;
            let narrow: Decimal128Array = narrow;
            Ok(Arc::new(narrow.with_precision_and_scale(*precision, *scale)?))
        }
        DataType::Decimal256(precision, scale) => {
            Ok(Arc::new(made.clone().with_precision_and_scale(*precision, *scale)?))
        }
        other => Err(exec_datafusion_err!("{other} is no decimal")),
    }
}

/// The result of a kernel with the precision of its type, which every value has to have.
fn with_precision(
    made: &ArrayRef,
    to: &DataType,
    precision: u8,
    scale: i8,
    op: Operator,
) -> Result<ArrayRef> {
    let refused = |_| overflow(op, to);
    if let Some(made) = made.as_primitive_opt::<Decimal128Type>() {
        made.validate_decimal_precision(precision).map_err(refused)?;
        return Ok(Arc::new(made.clone().with_precision_and_scale(precision, scale)?));
    }
    let made = made.as_primitive::<Decimal256Type>();
    made.validate_decimal_precision(precision).map_err(refused)?;
    Ok(Arc::new(made.clone().with_precision_and_scale(precision, scale)?))
}
