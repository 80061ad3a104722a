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
//! | `~` with a constant | `.` is no line end | `.` is any character |

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DFSchema, plan_err};
use datafusion::error::Result;
use datafusion::functions::core::expr_fn::nullif;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{BinaryExpr, Case, Cast, Expr, ExprSchemable as _, Operator, lit};
use datafusion::scalar::ScalarValue;

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
            let pattern = ScalarValue::from(format!("(?s){pattern}"));
            let right = Box::new(Expr::Literal(pattern, metadata.clone()));
            Ok(Some(Expr::BinaryExpr(BinaryExpr { left: left.clone(), op: *op, right })))
        }
        Expr::ScalarFunction(call) => of_call(call, schema),
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
        ("array_length", args) if !args.is_empty() => {
            let length = Expr::ScalarFunction(call.clone());
            Ok(Some(nullif(length, lit(0_u64))))
        }
        ("array_element", [_, index]) => {
            let is_positive = index.clone().gt(lit(0_i64));
            let element = Box::new(Expr::ScalarFunction(call.clone()));
            Ok(Some(Expr::Case(Case::new(None, vec![(Box::new(is_positive), element)], None))))
        }
        ("regexp_replace", [of, pattern, replacement, rest @ ..]) => {
            let Expr::Literal(text, metadata) = replacement else {
                return plan_err!("the replacement of regexp_replace has to be a constant");
            };
            let Some(text) = text.try_as_str().flatten() else { return Ok(None) };
            if !text.contains(['$', '\\']) {
                return Ok(None);
            }
            let text = ScalarValue::from(replacement_of(text)?);
            let mut args = vec![of.clone(), pattern.clone(), Expr::Literal(text, metadata.clone())];
            args.extend_from_slice(rest);
            Ok(Some(again(args)))
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
