//! Dates and intervals as PostgreSQL computes with them.
//!
//! | expression | the engine | here |
//! |---|---|---|
//! | `date + interval` | a date, without the hours | a timestamp |
//! | `interval = interval` | months, days and seconds one by one | a month of 30 days, a day of 24 hours |
//! | `epoch` of an interval | years of 12 months | years of 365.25 days, months of 30 days |
//! | seconds of a time | whole | with six digits after the point |
//!
//! An interval cannot be a key of a sort, a group or a join ([`refuse_keys`]).

use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray as _, Decimal128Array, TimestampMicrosecondArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, DurationMicrosecondType, DurationNanosecondType,
    IntervalMonthDayNanoType, IntervalUnit, TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::{DFSchema, ScalarValue, exec_datafusion_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Distinct, Expr, ExprSchemable as _, LogicalPlan, Operator, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Volatility, expr::ScalarFunction,
};

use super::arithmetic::Arithmetic;
use super::of_one;

const DAY_US: i64 = 86_400_000_000;
const DAY_NS: i128 = 86_400_000_000_000;
/// The spellings of the parts of a time that have a fraction.
const SECOND: [&str; 5] = ["second", "seconds", "sec", "secs", "s"];
const MILLISECOND: [&str; 8] =
    ["millisecond", "milliseconds", "msecond", "mseconds", "msec", "msecs", "ms", "millis"];
/// Functions that compare their arguments.
const COMPARING: [&str; 6] = ["nullif", "greatest", "least", "min", "max", "array_sort"];

fn is_interval(of: &DataType) -> bool {
    matches!(of, DataType::Interval(_))
}

/// Whether an operator compares its operands.
pub(super) fn is_comparison(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

/// A conversion of one argument.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Kind {
    /// A date to its midnight.
    Midnight,
    /// An interval, or a duration, to nanoseconds.
    Span,
    /// An interval to seconds.
    Epoch,
}

/// A conversion as a function.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Convert {
    kind: Kind,
    signature: Signature,
}

fn converted(kind: Kind, of: Expr) -> Expr {
    let signature = Signature::any(1, Volatility::Immutable);
    ScalarUDF::from(Convert { kind, signature }).call(vec![of])
}

/// The operands of an operator for values of these types, if they have to be converted.
///
/// # Errors
/// An interval is compared with another type.
pub(super) fn operands(
    op: Operator,
    left: (&Expr, &DataType),
    right: (&Expr, &DataType),
) -> Result<Option<(Expr, Expr)>> {
    let one_is_interval = is_interval(left.1) || is_interval(right.1);
    if one_is_interval && is_comparison(op) {
        let is_span = |of: &DataType| is_interval(of) || matches!(of, DataType::Duration(_));
        let span = |(expr, of): (&Expr, &DataType)| match of {
            of if is_span(of) => Ok(converted(Kind::Span, expr.clone())),
            DataType::Null => Ok(expr.clone()),
            of => plan_err!("an interval is compared with {of}; write interval '...'"),
        };
        return Ok(Some((span(left)?, span(right)?)));
    }
    let midnight = |expr: &Expr| converted(Kind::Midnight, expr.clone());
    Ok(match (op, left.1, right.1) {
        (Operator::Plus | Operator::Minus, DataType::Date32, of) if is_interval(of) => {
            Some((midnight(left.0), right.0.clone()))
        }
        (Operator::Plus, of, DataType::Date32) if is_interval(of) => {
            Some((left.0.clone(), midnight(right.0)))
        }
        (Operator::Minus, DataType::Timestamp(_, None), DataType::Date32) => {
            Some((left.0.clone(), midnight(right.0)))
        }
        (Operator::Minus, DataType::Date32, DataType::Timestamp(_, None)) => {
            Some((midnight(left.0), right.0.clone()))
        }
        _ => None,
    })
}

/// The seconds of a time with their fraction, if a call is for those.
///
/// # Errors
/// They are requested of an interval, or a part that the engine would not reduce to its unit of a difference of
/// timestamps.
pub(super) fn seconds(call: &ScalarFunction, schema: &DFSchema) -> Result<Option<Expr>> {
    let [Expr::Literal(part, metadata), of] = call.args.as_slice() else { return Ok(None) };
    let part = part.try_as_str().flatten().unwrap_or_default();
    let part = part.trim_matches(['\'', '"', ' ']).to_lowercase();
    // The number of digits after the point.
    let is_of_interval = || of.get_type(schema).is_ok_and(|of| is_interval(&of));
    let is_of_difference =
        || of.get_type(schema).is_ok_and(|of| matches!(of, DataType::Duration(_)));
    let scale = match part.as_str() {
        _ if call.name() != "date_part" => return Ok(None),
        "epoch" if is_of_interval() || is_of_difference() => {
            return Ok(Some(converted(Kind::Epoch, of.clone())));
        }
        "day" | "days" if is_of_difference() => return Ok(None),
        part if is_of_difference() => {
            return plan_err!(
                "{part} of a difference of timestamps would be that of the whole difference; use \
                 extract(epoch from ...)"
            );
        }
        part if SECOND.contains(&part) => 6,
        part if MILLISECOND.contains(&part) => 3,
        _ => return Ok(None),
    };
    if is_of_interval() {
        return plan_err!(
            "the seconds of an interval would be without their fraction; use extract(epoch from ...)"
        );
    }
    let part = Expr::Literal(ScalarValue::from("microsecond"), metadata.clone());
    let whole = Expr::ScalarFunction(ScalarFunction::new_udf(
        Arc::clone(&call.func),
        vec![part, of.clone()],
    ));
    let fraction = Expr::Literal(ScalarValue::Decimal128(Some(1), 6, scale), None);
    let of = DataType::Decimal128(6, scale);
    let product = Arithmetic::of(Operator::Multiply, &DataType::Int32, &of);
    Ok(product.map(|product| product.call(vec![whole, fraction])))
}

/// Refuses an expression that compares intervals in another way than by an operator.
pub(super) fn refuse_comparison(expr: &Expr, schema: &DFSchema) -> Result<()> {
    let is_of_interval = |expr: &Expr| expr.get_type(schema).is_ok_and(|of| is_interval(&of));
    let of_sorts = |sorts: &[datafusion::logical_expr::SortExpr]| {
        sorts.iter().any(|sort| is_of_interval(&sort.expr))
    };
    let is_compared = match expr {
        Expr::Between(between) => is_of_interval(&between.expr),
        Expr::InList(list) => is_of_interval(&list.expr),
        Expr::InSubquery(within) => is_of_interval(&within.expr),
        Expr::Case(case) => case.expr.as_deref().is_some_and(is_of_interval),
        Expr::ScalarFunction(call) => {
            COMPARING.contains(&call.name()) && call.args.iter().any(is_of_interval)
        }
        Expr::AggregateFunction(call) => {
            let of_args = call.params.args.iter().any(is_of_interval);
            let compares = COMPARING.contains(&call.func.name()) || call.params.distinct;
            (compares && of_args) || of_sorts(&call.params.order_by)
        }
        Expr::WindowFunction(call) => {
            of_sorts(&call.params.order_by)
                || call.params.partition_by.iter().any(is_of_interval)
                || (COMPARING.contains(&call.fun.name())
                    && call.params.args.iter().any(is_of_interval))
        }
        _ => false,
    };
    if is_compared { refused() } else { Ok(()) }
}

fn refused<T>() -> Result<T> {
    plan_err!(
        "intervals would be compared field by field, so that a day would not equal 24 hours; compare \
         them by an operator (=, <, ...), or use extract(epoch from ...)"
    )
}

/// Refuses intervals as keys of sorts, groups and joins.
pub(super) fn refuse_keys(plan: &LogicalPlan) -> Result<()> {
    let of = |expr: &Expr, input: &LogicalPlan| {
        expr.get_type(input.schema()).is_ok_and(|of| is_interval(&of))
    };
    let has_interval =
        |input: &LogicalPlan| input.schema().fields().iter().any(|it| is_interval(it.data_type()));
    let is_key = match plan {
        LogicalPlan::Sort(sort) => sort.expr.iter().any(|key| of(&key.expr, &sort.input)),
        LogicalPlan::Aggregate(made) => made.group_expr.iter().any(|key| of(key, &made.input)),
        LogicalPlan::Distinct(Distinct::All(input)) => has_interval(input),
        LogicalPlan::Distinct(Distinct::On(on)) => on.on_expr.iter().any(|it| of(it, &on.input)),
        LogicalPlan::Join(join) => {
            join.on.iter().any(|(left, right)| of(left, &join.left) || of(right, &join.right))
        }
        _ => false,
    };
    if is_key { refused() } else { Ok(()) }
}

impl ScalarUDFImpl for Convert {
    fn name(&self) -> &'static str {
        match self.kind {
            Kind::Midnight => "midnight",
            Kind::Span => "span",
            Kind::Epoch => "epoch",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.kind {
            Kind::Midnight => DataType::Timestamp(TimeUnit::Microsecond, None),
            Kind::Span => DataType::Decimal128(38, 0),
            Kind::Epoch => DataType::Decimal128(38, 6),
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        of_one(&args, |array| {
            Ok(match self.kind {
                Kind::Midnight => {
                    let dates = array.as_primitive::<Date32Type>();
                    let made: TimestampMicrosecondArray = dates
                        .try_unary::<_, TimestampMicrosecondType, _>(|day| {
                            i64::from(day)
                                .checked_mul(DAY_US)
                                .ok_or_else(|| exec_datafusion_err!("a date is out of range"))
                        })?;
                    Arc::new(made)
                }
                Kind::Span => Arc::new(spans(array)?.with_precision_and_scale(38, 0)?),
                Kind::Epoch => Arc::new(epochs(array)?.with_precision_and_scale(38, 6)?),
            })
        })
    }
}

/// Intervals as nanoseconds. At most 2^31 months have fewer than 38 digits.
fn spans(array: &Arc<dyn Array>) -> Result<Decimal128Array> {
    if let DataType::Duration(_) = array.data_type() {
        let whole = cast(array, &DataType::Duration(TimeUnit::Nanosecond))?;
        // A cast to a finer unit makes NULL of what it cannot hold.
        if whole.null_count() != array.null_count() {
            return Err(exec_datafusion_err!("a duration is out of range"));
        }
        let whole = whole.as_primitive::<DurationNanosecondType>();
        return Ok(whole.unary::<_, Decimal128Type>(i128::from));
    }
    let whole = cast(array, &DataType::Interval(IntervalUnit::MonthDayNano))?;
    Ok(whole.as_primitive::<IntervalMonthDayNanoType>().unary::<_, Decimal128Type>(|it| {
        let days = i128::from(it.months) * 30 + i128::from(it.days);
        days * DAY_NS + i128::from(it.nanoseconds)
    }))
}

/// Intervals as microseconds, with years of 365.25 days. They have fewer than 38 digits.
fn epochs(array: &Arc<dyn Array>) -> Result<Decimal128Array> {
    if matches!(array.data_type(), DataType::Duration(_)) {
        let whole = cast(array, &DataType::Duration(TimeUnit::Microsecond))?;
        let whole = whole.as_primitive::<DurationMicrosecondType>();
        return Ok(whole.unary::<_, Decimal128Type>(i128::from));
    }
    let whole = cast(array, &DataType::Interval(IntervalUnit::MonthDayNano))?;
    Ok(whole.as_primitive::<IntervalMonthDayNanoType>().unary::<_, Decimal128Type>(|it| {
        let day = i128::from(DAY_US);
        let years = i128::from(it.months / 12) * 1461 * day / 4;
        let days = i128::from(it.months % 12) * 30 + i128::from(it.days);
        years + days * day + i128::from(it.nanoseconds) / 1000
    }))
}
