//! Arithmetic of queries that is exact, or an error: never a wrapped or silently shortened number.
//!
//! A query engine computes fast by default: integers wrap, a division of decimals has four more
//! digits, a cast cuts off. PostgreSQL checks and rounds, and so do these:
//!
//! | module | replaces |
//! |---|---|
//! | [`arithmetic`] | `+ - * /` of numbers, and the sign |
//! | [`cast`] | casts between integers, decimals and floating point numbers |
//! | [`total`], [`groups`] | `sum` and `avg` |
//! | [`moving`] | aggregates of floating point numbers over moving window frames |
//! | [`alike`] | the casts of operands of different types |
//! | [`finite`] | functions such as `power` and `ln`, whose result may be no number |
//! | [`time`] | dates with intervals, comparisons of intervals, seconds |
//! | [`ordered`] | `percentile_cont`, `percentile_disc`, `mode` |
//! | [`shown`] | numbers and times as texts |
//! | [`text`] | casts of timestamps to text, and of texts to timestamps |
//! | [`rounding`] | `round`, `trunc`, `ceil`, `floor`, `sign`, `div`, `width_bucket` |
//! | [`number`] | 256-bit integers: powers of ten, rounded quotients |
//!
//! Operators are replaced in the plan ([`checked`]), casts after the engine has added its own
//! ([`Casts`]), and the aggregates by their names ([`register`]).
//!
//! Invariants:
//! * Integers stay integers, decimals decimals. What a type cannot hold is an error.
//! * A function that computes in floating point is not given decimals ([`INEXACT`]).
//! * Quotients and averages of decimals have [`QUOTIENT_SCALE`] digits after the point, as far as
//!   the type has room for them, and are rounded half away from zero.

mod alike;
mod arithmetic;
mod cast;
mod finite;
mod groups;
mod moving;
mod number;
mod ordered;
mod rounding;
mod shown;
mod text;
mod time;
mod total;

use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode as _};
use datafusion::common::{DFSchema, ScalarValue, exec_datafusion_err, plan_err};
use datafusion::error::Result;
use datafusion::execution::context::SessionContext;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    AggregateUDF, BinaryExpr, ColumnarValue, Expr, ExprSchemable as _, LogicalPlan,
    ScalarFunctionArgs,
};
use datafusion::optimizer::AnalyzerRule;

use self::arithmetic::Arithmetic;
use self::cast::ExactCast;
use self::finite::Finite;
use self::text::TextCast;
use self::total::Total;
use super::{dialect, meaning};

/// Number of digits after the point of a quotient or an average.
const QUOTIENT_SCALE: i8 = 24;

/// Functions of decimals that the engine computes in floating point, but PostgreSQL with all digits.
const INEXACT: [&str; 16] = [
    "power",
    "pow",
    "sqrt",
    "exp",
    "ln",
    "log",
    "log10",
    "stddev",
    "stddev_samp",
    "stddev_pop",
    "var",
    "var_samp",
    "var_sample",
    "var_pop",
    "var_population",
    "variance",
];

/// Replaces the aggregates of a session.
pub(super) fn register(session: &SessionContext) {
    session.register_udaf(AggregateUDF::from(Total::sum()));
    session.register_udaf(AggregateUDF::from(Total::average()));
    moving::register(session);
    rounding::register(session);
    ordered::register(session);
    session.add_analyzer_rule(Arc::new(Casts));
}

/// Applies a function to its only argument; of a constant it makes one.
///
/// # Errors
/// There is another number of arguments, or `make` failed.
fn of_one(
    args: &ScalarFunctionArgs,
    make: impl FnOnce(&ArrayRef) -> Result<ArrayRef>,
) -> Result<ColumnarValue> {
    let [of] = args.args.as_slice() else {
        return Err(exec_datafusion_err!("the function has one argument"));
    };
    let made = make(&of.to_array(1)?)?;
    Ok(match of {
        ColumnarValue::Scalar(_) => ColumnarValue::Scalar(ScalarValue::try_from_array(&made, 0)?),
        ColumnarValue::Array(_) => ColumnarValue::Array(made),
    })
}

/// The plan with exact operators, and with the casts that operands of different types need: the types
/// of its columns are those of its values.
///
/// # Errors
/// The types of an expression do not go together.
pub(super) fn checked(plan: LogicalPlan) -> Result<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(|plan| {
        time::refuse_keys(&plan)?;
        let plan = rewritten(plan, &|expr, schema| {
            let expr = match meaning::adapted(&expr, schema)? {
                Some(other) => alike::all_coerced(other, schema)?.data,
                None => expr,
            };
            let made = operated(expr, schema)?;
            alike::coerced(made.data, schema)
        })?;
        plan.map_data(alike::joined)
    })?;
    Ok(plan.data)
}

/// An expression with exact operators.
fn operated(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    time::refuse_comparison(&expr, schema)?;
    let types = |left: &Expr, right: &Expr| (left.get_type(schema), right.get_type(schema));
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let (Ok(of_left), Ok(of_right)) = types(&left, &right) else {
                return Ok(Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })));
            };
            let operands = time::operands(op, (&left, &of_left), (&right, &of_right))?;
            if let Some((left, right)) = operands {
                let (left, right) = (Box::new(left), Box::new(right));
                let made = BinaryExpr { left, op, right };
                return Ok(Transformed::yes(Expr::BinaryExpr(made)));
            }
            match Arithmetic::of(op, &of_left, &of_right) {
                Some(exact) => Ok(Transformed::yes(exact.call(vec![*left, *right]))),
                None => Ok(Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right }))),
            }
        }
        Expr::Negative(of) => match of.get_type(schema) {
            Ok(it) if it.is_integer() => Ok(Transformed::yes(Arithmetic::negate().call(vec![*of]))),
            _ => Ok(Transformed::no(Expr::Negative(of))),
        },
        Expr::ScalarFunction(call) => {
            refuse_inexact(call.name(), &call.args, schema)?;
            dialect::refuse_pattern(&call)?;
            if let Some(seconds) = time::seconds(&call, schema)? {
                return Ok(Transformed::yes(seconds));
            }
            match Finite::of(&call.func) {
                Some(finite) => Ok(Transformed::yes(finite.call(call.args))),
                None => Ok(Transformed::no(Expr::ScalarFunction(call))),
            }
        }
        Expr::AggregateFunction(call) => {
            refuse_inexact(call.func.name(), &call.params.args, schema)?;
            Ok(Transformed::no(Expr::AggregateFunction(call)))
        }
        other => Ok(Transformed::no(other)),
    }
}

/// Refuses a function that would lose digits of its arguments.
fn refuse_inexact(name: &str, args: &[Expr], schema: &DFSchema) -> Result<()> {
    let is_decimal = |arg: &Expr| arg.get_type(schema).is_ok_and(|of| decimal(&of).is_some());
    if INEXACT.contains(&name) && args.iter().any(is_decimal) {
        return plan_err!(
            "{name} of numeric would lose digits: it is computed in floating point; write \
             {name}(cast(... as double precision)) if that is precise enough"
        );
    }
    Ok(())
}

/// Replaces inexact casts, also those that the engine adds.
#[derive(Debug)]
struct Casts;

impl AnalyzerRule for Casts {
    fn name(&self) -> &'static str {
        "exact_casts"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let plan = plan.transform_up_with_subqueries(|plan| {
            rewritten(plan, &|expr, schema| {
                let (of, to, is_try) = match &expr {
                    Expr::Cast(cast) => (&cast.expr, cast.field.data_type(), false),
                    Expr::TryCast(cast) => (&cast.expr, cast.field.data_type(), true),
                    _ => return Ok(Transformed::no(expr)),
                };
                if let Ok(from) = of.get_type(schema)
                    && let Some(exact) = TextCast::of(&from, to, is_try)?
                {
                    return Ok(Transformed::yes(exact.call(vec![of.as_ref().clone()])));
                }
                match of.get_type(schema).ok().and_then(|from| ExactCast::of(&from, to, is_try)) {
                    Some(exact) => Ok(Transformed::yes(exact.call(vec![of.as_ref().clone()]))),
                    None => Ok(Transformed::no(expr)),
                }
            })
        })?;
        Ok(plan.data)
    }
}

/// Rewrites the expressions of a node from the bottom. Their names stay.
fn rewritten(
    plan: LogicalPlan,
    rewrite: &dyn Fn(Expr, &DFSchema) -> Result<Transformed<Expr>>,
) -> Result<Transformed<LogicalPlan>> {
    let mut schema = merge_schema(&plan.inputs());
    if let LogicalPlan::TableScan(scan) = &plan {
        schema.merge(&scan.projected_schema);
    }
    let names = NamePreserver::new(&plan);
    plan.map_expressions(|expr| {
        let name = names.save(&expr);
        let made = expr.transform_up(|expr| rewrite(expr, &schema))?;
        Ok(made.update_data(|expr| name.restore(expr)))
    })?
    .map_data(LogicalPlan::recompute_schema)
}

/// Whether a type is a decimal with up to 76 digits, and its digits.
fn decimal(of: &DataType) -> Option<(u8, i8)> {
    match of {
        DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale) => {
            Some((*precision, *scale))
        }
        _ => None,
    }
}

/// The smallest decimal for numbers with these digits before and after the point. If there is none,
/// the largest: then values are checked.
fn decimal_of(whole: u8, scale: i8) -> DataType {
    let precision = whole.saturating_add(scale.unsigned_abs()).max(1);
    match precision {
        ..=38 => DataType::Decimal128(precision, scale),
        39..=76 => DataType::Decimal256(precision, scale),
        _ => DataType::Decimal256(76, scale),
    }
}

/// The type of a quotient with this many digits before the point.
fn quotient_type(whole: u8, scale: i8) -> DataType {
    let room = i8::try_from(38_u8.saturating_sub(whole)).unwrap_or(0);
    if room >= 18 && scale <= room {
        return DataType::Decimal128(38, room.min(QUOTIENT_SCALE.max(scale)));
    }
    DataType::Decimal256(76, QUOTIENT_SCALE.max(scale))
}
