//! Functions and operators whose result differs from PostgreSQL's: rewritten, or refused.
//!
//! | expression | the engine | here |
//! |---|---|---|
//! | `regexp_replace` with `$1`, `\&` | a group, the characters | the characters, the match |
//! | `array[i]` with `i` below 1 | from the end | NULL |
//! | `array_length` of an empty array | 0 | NULL |
//! | `to_hex` of a negative `integer` | 16 digits | 8 digits |
//! | `to_timestamp` of a number | nanoseconds | refused |
//! | `concat` of a `boolean` | `true` | refused |
//! | `encode(..., 'base64')` | without padding | refused |
//! | `bytea` beside a text | its bytes | refused |
//! | `<<`, `>>` | 64 bits | only of `bigint` |
//! | `~` with a constant, `regexp_replace` and the like | `.` is no line end | `.` is any character |
//! | `array_agg(distinct ..)`, `string_agg(distinct ..)` | any order | in the order of the values |
//! | `nth_value` of 0 or less, `ignore nulls` | from the end, accepted | refused |

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DFSchema, plan_err};
use datafusion::error::Result;
use datafusion::functions::core::expr_fn::nullif;
use datafusion::functions_nested::expr_fn::cardinality;
use datafusion::logical_expr::expr::{
    AggregateFunction, NullTreatment, ScalarFunction, WindowFunction,
};
use datafusion::logical_expr::{BinaryExpr, Case, Cast, Expr, ExprSchemable as _, Operator, lit};
use datafusion::scalar::ScalarValue;

use super::patterns;

/// The bits of an `integer` in a `bigint`.
const INTEGER_BITS: i64 = 0xFFFF_FFFF;

/// An expression with PostgreSQL's meaning, if it needs another one.
///
/// # Errors
/// There is none; the message names the alternative.
pub(super) fn adapted(expr: &Expr, schema: &DFSchema) -> Result<Option<Expr>> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if matches!(op, Operator::BitwiseShiftLeft | Operator::BitwiseShiftRight) =>
        {
            let is_wide = !matches!(**left, Expr::Literal(..))
                && left.get_type(schema).is_ok_and(|of| of == DataType::Int64);
            let by = match right.as_ref() {
                Expr::Literal(by, _) => by.cast_to(&DataType::Int64).ok(),
                _ => None,
            };
            let is_small = matches!(by, Some(ScalarValue::Int64(Some(0..=63))));
            match is_wide && is_small {
                true => Ok(None),
                false => plan_err!(
                    "{op} would shift 64 bits where PostgreSQL may shift 32; cast the left side to \
                     bigint, and shift by a constant from 0 to 63"
                ),
            }
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_match(*op) => {
            let Expr::Literal(pattern, metadata) = right.as_ref() else { return Ok(None) };
            let Some(pattern) = pattern.try_as_str().flatten() else { return Ok(None) };
            let pattern = ScalarValue::from(format!("{}{pattern}", patterns::ANY));
            let right = Box::new(Expr::Literal(pattern, metadata.clone()));
            Ok(Some(Expr::BinaryExpr(BinaryExpr { left: left.clone(), op: *op, right })))
        }
        Expr::ScalarFunction(call) => of_call(call, schema),
        Expr::AggregateFunction(call) => Ok(in_their_order(call).map(Expr::AggregateFunction)),
        Expr::WindowFunction(call) => refuse_window(call).map(|()| None),
        Expr::BinaryExpr(BinaryExpr { left, right, .. }) => {
            refuse_bytes(&[left.as_ref(), right.as_ref()], schema)
        }
        Expr::InList(list) => {
            let mut all = vec![list.expr.as_ref()];
            all.extend(&list.list);
            refuse_bytes(&all, schema)
        }
        Expr::Cast(cast) if cast.field.data_type().is_binary() => {
            refuse_bytes(&[cast.expr.as_ref(), expr], schema)
        }
        Expr::TryCast(cast) if cast.field.data_type().is_binary() => {
            refuse_bytes(&[cast.expr.as_ref(), expr], schema)
        }
        _ => Ok(None),
    }
}

/// An aggregate of different values with an order: PostgreSQL finds them by sorting.
fn in_their_order(call: &AggregateFunction) -> Option<AggregateFunction> {
    let is_unordered = call.params.distinct && call.params.order_by.is_empty();
    if !is_unordered || !matches!(call.func.name(), "array_agg" | "string_agg") {
        return None;
    }
    let mut call = call.clone();
    call.params.order_by = vec![call.params.args.first()?.clone().sort(true, false)];
    Some(call)
}

/// Refuses a function of a window that PostgreSQL does not have.
fn refuse_window(call: &WindowFunction) -> Result<()> {
    let params = &call.params;
    if params.null_treatment == Some(NullTreatment::IgnoreNulls) {
        return plan_err!(
            "PostgreSQL has no IGNORE NULLS; select the rows that are not NULL in a subquery"
        );
    }
    let Some(Expr::Literal(at, _)) = params.args.get(1) else { return Ok(()) };
    let at = at.cast_to(&DataType::Int64);
    if call.fun.name() == "nth_value" && matches!(at, Ok(ScalarValue::Int64(Some(..=0)))) {
        return plan_err!("the second argument of nth_value must be greater than zero");
    }
    Ok(())
}

/// Whether an operator matches a regular expression.
fn is_match(op: Operator) -> bool {
    use Operator::{RegexIMatch, RegexMatch, RegexNotIMatch, RegexNotMatch};
    matches!(op, RegexMatch | RegexIMatch | RegexNotMatch | RegexNotIMatch)
}

/// Refuses `bytea` beside a text, which would become it byte by byte.
fn refuse_bytes(operands: &[&Expr], schema: &DFSchema) -> Result<Option<Expr>> {
    let types: Vec<_> = operands.iter().filter_map(|it| it.get_type(schema).ok()).collect();
    let has = |is: fn(&DataType) -> bool| types.iter().any(is);
    if has(DataType::is_binary) && has(DataType::is_string) {
        return plan_err!("a text would become bytea byte by byte; use decode(..., 'hex')");
    }
    Ok(None)
}

fn of_call(call: &ScalarFunction, schema: &DFSchema) -> Result<Option<Expr>> {
    let is =
        |arg: &Expr, is: &dyn Fn(&DataType) -> bool| arg.get_type(schema).is_ok_and(|of| is(&of));
    let again = |args| Expr::ScalarFunction(ScalarFunction::new_udf(call.func.clone(), args));
    match (call.name(), call.args.as_slice()) {
        ("concat" | "concat_ws", args)
            if args.iter().any(|arg| is(arg, &|of| *of == DataType::Boolean)) =>
        {
            plan_err!(
                "{} of a boolean would be true, not t; use CASE, or a cast to text",
                call.name()
            )
        }
        ("encode", [_, Expr::Literal(format, _)])
            if format.try_as_str().flatten().is_some_and(|it| it.starts_with("base64")) =>
        {
            plan_err!("encode with 'base64' would have other line ends and padding; use 'hex'")
        }
        ("to_timestamp", [of, ..]) if is(of, &|of| of.is_numeric()) => plan_err!(
            "to_timestamp of a number would be limited to the years 1677 to 2262; use \
             to_timestamp_micros(cast(... * 1000000 as bigint))"
        ),
        ("to_hex", [of])
            if !matches!(of, Expr::Literal(..))
                && is(of, &|of| matches!(of, DataType::Int16 | DataType::Int32)) =>
        {
            let wide = Expr::Cast(Cast::new(Box::new(of.clone()), DataType::Int64));
            let bits = Operator::BitwiseAnd;
            let bits = BinaryExpr::new(Box::new(wide), bits, Box::new(lit(INTEGER_BITS)));
            Ok(Some(again(vec![Expr::BinaryExpr(bits)])))
        }
        (name, [_, _, ..]) if patterns::flags(name).is_some() => {
            let mut args = call.args.clone();
            if let (true, Some(replacement)) = (name == "regexp_replace", args.get_mut(2)) {
                let Expr::Literal(text, _) = replacement else {
                    return plan_err!("the replacement of regexp_replace has to be a constant");
                };
                if let Some(made) = text.try_as_str().flatten().map(replacement_of).transpose()? {
                    *text = ScalarValue::from(made);
                }
            }
            Ok(patterns::adapted(name, args)?.map(again))
        }
        _ => of_array(call, schema),
    }
}

/// A function of arrays with PostgreSQL's meaning.
fn of_array(call: &ScalarFunction, schema: &DFSchema) -> Result<Option<Expr>> {
    let is_written = |of: &Expr| match of.get_type(schema) {
        Ok(DataType::List(item)) => item.data_type().is_string() || item.data_type().is_integer(),
        _ => true,
    };
    match (call.name(), call.args.as_slice()) {
        ("array_length", args) if !args.is_empty() => {
            let length = Expr::ScalarFunction(call.clone());
            Ok(Some(nullif(length, lit(0_u64))))
        }
        ("array_dims", _) => plan_err!("array_dims would be an array of lengths; use array_length"),
        ("array_ndims", [of]) => {
            let is_empty = cardinality(of.clone()).eq(lit(0_u64));
            let none = (Box::new(is_empty), Box::new(lit(ScalarValue::UInt64(None))));
            let dimensions = Some(Box::new(Expr::ScalarFunction(call.clone())));
            Ok(Some(Expr::Case(Case::new(None, vec![none], dimensions))))
        }
        ("array_to_string", [of, ..]) if !is_written(of) => {
            plan_err!(
                "array_to_string of an array of other than texts and integers would have other \
                 digits; cast the array to text[] from its elements first"
            )
        }
        ("array_element", [_, index]) => {
            let is_positive = index.clone().gt(lit(0_i64));
            let element = Box::new(Expr::ScalarFunction(call.clone()));
            Ok(Some(Expr::Case(Case::new(None, vec![(Box::new(is_positive), element)], None))))
        }
        _ => Ok(None),
    }
}

/// A replacement of PostgreSQL as the engine writes it.
fn replacement_of(text: &str) -> Result<String> {
    let mut made = String::new();
    let mut rest = text.chars();
    while let Some(next) = rest.next() {
        match next {
            '$' => made.push_str("$$"),
            '\\' => match rest.next() {
                Some('&') => made.push_str("${0}"),
                Some(group @ '1'..='9') => {
                    made.push_str("${");
                    made.push(group);
                    made.push('}');
                }
                _ => {
                    return plan_err!(
                        "{text:?} has a backslash that is neither \\& nor \\1 to \\9; use replace"
                    );
                }
            },
            other => made.push(other),
        }
    }
    Ok(made)
}
