//! Functions of floating point numbers whose result is a number, or an error.
//!
//! The engine computes `ln(0)` as minus infinity and `acos(2)` as NaN. As in PostgreSQL, a result
//! that is infinite although no argument is, a NaN that does not come from one, and a power that is
//! too small, are errors.

use datafusion::arrow::array::{Array, ArrayRef, AsArray as _, Float64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, FieldRef, Float64Type};
use datafusion::common::exec_datafusion_err;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};

/// Functions that are checked, by the names that the engine gives them.
const CHECKED: [&str; 24] = [
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "cos", "cosh", "cot",
    "degrees", "exp", "ln", "log", "log10", "log2", "power", "radians", "sin", "sinh", "sqrt",
    "tan", "tanh",
];
/// Functions whose result is zero only if their first argument is, or never.
const NEVER_ZERO: [&str; 2] = ["exp", "power"];

/// A function of the engine, checked.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Finite(ScalarUDF);

impl Finite {
    /// The checked function, if a function is one that has to be.
    pub(super) fn of(function: &ScalarUDF) -> Option<ScalarUDF> {
        let is_new = function.inner().downcast_ref::<Self>().is_none();
        let is_checked = is_new && CHECKED.contains(&function.name());
        is_checked.then(|| ScalarUDF::from(Self(function.clone())))
    }

    /// Compares results with the arguments that they were computed from.
    fn check(&self, made: &Float64Array, args: &[ColumnarValue]) -> Result<()> {
        let may_be_zero = !NEVER_ZERO.contains(&self.name());
        let is_plain = |value: f64| value.is_finite() && (may_be_zero || value != 0.0);
        let valid = |row: &usize| made.is_valid(*row);
        if (0..made.len()).filter(valid).all(|row| is_plain(made.value(row))) {
            return Ok(());
        }
        let args = args.iter().map(|arg| {
            let array = cast(&arg.to_array(made.len())?, &DataType::Float64)?;
            Ok(array.as_primitive::<Float64Type>().clone())
        });
        let args = args.collect::<Result<Vec<_>>>()?;
        for row in (0..made.len()).filter(valid).filter(|row| !is_plain(made.value(*row))) {
            let values: Vec<f64> = args.iter().map(|arg| arg.value(row)).collect();
            let is_given = |is: fn(f64) -> bool| values.iter().any(|value| is(*value));
            let is_right = if made.value(row).is_nan() {
                is_given(f64::is_nan)
            } else if made.value(row).is_infinite() {
                is_given(f64::is_infinite)
            } else {
                let is_zero = self.name() == "power" && values.first() == Some(&0.0);
                is_zero || is_given(f64::is_infinite)
            };
            if !is_right {
                let values = values.iter().map(f64::to_string).collect::<Vec<_>>().join(", ");
                return Err(exec_datafusion_err!("{}({values}) is out of range", self.name()));
            }
        }
        Ok(())
    }
}

impl ScalarUDFImpl for Finite {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn aliases(&self) -> &[String] {
        self.0.aliases()
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        self.0.schema_name(args)
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.0.coerce_types(types)
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.0.return_type(types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.0.return_field_from_args(args)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let (given, rows) = (args.args.clone(), args.number_rows);
        let made = self.0.invoke_with_args(args)?;
        if made.data_type().is_floating() {
            let rows = if matches!(made, ColumnarValue::Scalar(_)) { 1 } else { rows };
            let wide: ArrayRef = cast(&made.to_array(rows)?, &DataType::Float64)?;
            self.check(wide.as_primitive::<Float64Type>(), &given)?;
        }
        Ok(made)
    }
}
