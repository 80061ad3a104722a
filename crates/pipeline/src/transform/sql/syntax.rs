//! Syntax that PostgreSQL reads in another way than the engine, rewritten to what it means there.
//!
//! | SQL | the engine | here |
//! |---|---|---|
//! | `(a, b) = (1, 2)` | compares structs, in which NULL equals NULL | `a = 1 and b = 2` |
//! | `(a, b) < (1, 2)`, `(a, b) is null` | structs | refused |
//! | `x = any(array)` with a NULL in it | false | NULL |
//! | `-2 ^ 2` | -4 | 4: the sign binds closer |
//! | `array_remove`, `array_replace` | the first element | all elements |
//! | `at time zone` | nanoseconds, and always a `timestamptz` | a function |
//! | `mod(a, b)`, `@ a`, `|/ a`, `~ a`, `every`, `variance`, `like .. escape` | unknown | the same by another name |
//! | `substring(text from 'pattern')` | unknown | a regular expression |

use std::ops::ControlFlow;

use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr as SqlExpr, Function, FunctionArg, FunctionArgExpr, FunctionArguments,
    Ident, ObjectNamePart, UnaryOperator, Value, visit_expressions_mut,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

/// Rewrites an expression whose operands have been rewritten.
///
/// # Errors
/// It cannot be rewritten; the message names the alternative.
pub(super) fn rewrite(expr: &mut SqlExpr) -> Result<()> {
    match expr {
        SqlExpr::BinaryOp { left, op, right } => {
            let Some(made) = of_rows(left, op, right)? else { return Ok(()) };
            *expr = made;
        }
        SqlExpr::InList { expr: of, list, negated } if is_row(of) => {
            let mut made: Option<SqlExpr> = None;
            for row in list.iter() {
                let equal = of_rows(of, &BinaryOperator::Eq, row)?;
                let Some(equal) = equal else { return refused() };
                made = Some(match made {
                    Some(before) => binary(before, BinaryOperator::Or, equal),
                    None => equal,
                });
            }
            let Some(made) = made else { return refused() };
            let made = SqlExpr::Nested(Box::new(made));
            *expr = match negated {
                true => SqlExpr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(made) },
                false => made,
            };
        }
        SqlExpr::IsNull(of) | SqlExpr::IsNotNull(of) if is_row(of) => return refused(),
        SqlExpr::IsDistinctFrom(left, right) | SqlExpr::IsNotDistinctFrom(left, right)
            if is_row(left) || is_row(right) =>
        {
            return refused();
        }
        SqlExpr::Between { expr: of, .. } if is_row(of) => return refused(),
        SqlExpr::AnyOp { left, compare_op, right, .. } => {
            if matches!(**right, SqlExpr::Subquery(_)) {
                return Ok(());
            }
            if *compare_op != BinaryOperator::Eq {
                return plan_err!(
                    "{compare_op} ANY of an array would not be NULL where an element is; write the \
                     comparisons, or use unnest"
                );
            }
            *expr = any_equal(left, right)?;
        }
        SqlExpr::UnaryOp { op: UnaryOperator::Minus, expr: of } => {
            if let Some(made) = negated_base(of) {
                *expr = made;
            }
        }
        _ => return renamed(expr),
    }
    Ok(())
}

/// Rewrites what the engine has by another name.
fn renamed(expr: &mut SqlExpr) -> Result<()> {
    match expr {
        SqlExpr::Function(call) => {
            if let [ObjectNamePart::Identifier(name)] = call.name.0.as_mut_slice() {
                let all = match name.value.to_lowercase().as_str() {
                    "array_remove" | "list_remove" => "array_remove_all",
                    "array_replace" | "list_replace" => "array_replace_all",
                    "every" => "bool_and",
                    "variance" => "var_samp",
                    "mod" => {
                        if let Some([left, right]) = arguments(call) {
                            let made = binary(left.clone(), BinaryOperator::Modulo, right.clone());
                            *expr = SqlExpr::Nested(Box::new(made));
                        }
                        return Ok(());
                    }
                    _ => return Ok(()),
                };
                *name = Ident::new(all);
            }
        }
        SqlExpr::AtTimeZone { timestamp, time_zone } => {
            *expr = with("at_time_zone(__0, __1)", &[timestamp, time_zone])?;
        }
        SqlExpr::UnaryOp { op: UnaryOperator::PGAbs, expr: of } => *expr = with("abs(__0)", &[of])?,
        SqlExpr::UnaryOp { op: UnaryOperator::PGSquareRoot, expr: of } => {
            *expr = with("sqrt(__0)", &[of])?;
        }
        SqlExpr::UnaryOp { op: UnaryOperator::PGCubeRoot, expr: of } => {
            *expr = with("cbrt(__0)", &[of])?;
        }
        SqlExpr::UnaryOp { op: UnaryOperator::BitwiseNot, expr: of } => {
            *expr = with("(-1 - __0)", &[of])?;
        }
        SqlExpr::Substring {
            expr: of, substring_from: Some(from), substring_for: None, ..
        } if matches!(from.as_ref(), SqlExpr::Value(it) if matches!(it.value, Value::SingleQuotedString(_))) =>
        {
            *expr = with("(regexp_match(__0, __1))[1]", &[of, from])?;
        }
        SqlExpr::Like { pattern, escape_char, .. }
        | SqlExpr::ILike { pattern, escape_char, .. } => {
            let Some(escape) = escape_char.take() else { return Ok(()) };
            let Value::SingleQuotedString(escape) = &escape.value else {
                return plan_err!("the character of ESCAPE has to be a constant");
            };
            escaped(pattern, escape)?;
        }
        _ => {}
    }
    Ok(())
}

fn is_row(expr: &SqlExpr) -> bool {
    matches!(expr, SqlExpr::Tuple(_))
}

fn refused<T>() -> Result<T> {
    plan_err!(
        "row values are only compared by = and <> with row values, and by IN; compare their columns"
    )
}

fn binary(left: SqlExpr, op: BinaryOperator, right: SqlExpr) -> SqlExpr {
    let nested = |expr| Box::new(SqlExpr::Nested(Box::new(expr)));
    SqlExpr::BinaryOp { left: nested(left), op, right: nested(right) }
}

/// The comparison of rows, column by column. `None` if neither operand is a row.
fn of_rows(left: &SqlExpr, op: &BinaryOperator, right: &SqlExpr) -> Result<Option<SqlExpr>> {
    let (left, right) = match (left, right) {
        (SqlExpr::Tuple(left), SqlExpr::Tuple(right)) if left.len() == right.len() => (left, right),
        (left, right) if is_row(left) || is_row(right) => return refused(),
        _ => return Ok(None),
    };
    let between = match op {
        BinaryOperator::Eq => BinaryOperator::And,
        BinaryOperator::NotEq => BinaryOperator::Or,
        _ => return refused(),
    };
    let pairs = left.iter().zip(right);
    let pairs = pairs.map(|(left, right)| binary(left.clone(), op.clone(), right.clone()));
    Ok(pairs
        .reduce(|before, pair| binary(before, between.clone(), pair))
        .map(|it| SqlExpr::Nested(Box::new(it))))
}

/// Whether an array has an element: NULL if it has not, but an element is NULL.
fn any_equal(left: &SqlExpr, right: &SqlExpr) -> Result<SqlExpr> {
    if let SqlExpr::Array(array) = right
        && !array.elem.is_empty()
    {
        let (expr, list) = (Box::new(left.clone()), array.elem.clone());
        return Ok(SqlExpr::InList { expr, list, negated: false });
    }
    with(
        "(array_has(__0, __1) or case when array_position(__0, null) is not null then null else \
         false end)",
        &[right, left],
    )
}

/// An expression with others in place of `__0`, `__1` and so on.
fn with(text: &str, values: &[&SqlExpr]) -> Result<SqlExpr> {
    let mut made = Parser::new(&PostgreSqlDialect {}).try_with_sql(text)?.parse_expr()?;
    let visited = visit_expressions_mut(&mut made, |expr| {
        if let SqlExpr::Identifier(name) = expr
            && let Some(index) = name.value.strip_prefix("__")
            && let Some(value) = index.parse::<usize>().ok().and_then(|index| values.get(index))
        {
            *expr = SqlExpr::Nested(Box::new((*value).clone()));
        }
        ControlFlow::<()>::Continue(())
    });
    debug_assert!(visited.is_continue(), "nothing ends the visit");
    Ok(made)
}

/// The two arguments of a call that has nothing else.
fn arguments(call: &Function) -> Option<[&SqlExpr; 2]> {
    let FunctionArguments::List(list) = &call.args else { return None };
    match list.args.as_slice() {
        [
            FunctionArg::Unnamed(FunctionArgExpr::Expr(left)),
            FunctionArg::Unnamed(FunctionArgExpr::Expr(right)),
        ] => Some([left, right]),
        _ => None,
    }
}

/// Writes a pattern of `LIKE` with a backslash as its escape character.
fn escaped(pattern: &mut SqlExpr, escape: &str) -> Result<()> {
    let mut letters = escape.chars();
    let (escape, None) = (letters.next(), letters.next()) else {
        return plan_err!("the text of ESCAPE has to be one character");
    };
    if escape == Some('\\') {
        return Ok(());
    }
    let SqlExpr::Value(value) = pattern else {
        return plan_err!("a pattern with ESCAPE has to be a constant");
    };
    let Value::SingleQuotedString(text) = &mut value.value else {
        return plan_err!("a pattern with ESCAPE has to be a constant");
    };
    let mut made = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        if Some(letter) == escape {
            let Some(next) = letters.next() else {
                return plan_err!("the pattern {text:?} must not end with its escape character");
            };
            made.push('\\');
            made.push(next);
        } else {
            if letter == '\\' {
                made.push('\\');
            }
            made.push(letter);
        }
    }
    *text = made;
    Ok(())
}

/// `(-a) ^ b` for the operand `a ^ b` of a sign.
fn negated_base(of: &SqlExpr) -> Option<SqlExpr> {
    let SqlExpr::BinaryOp { left, op: BinaryOperator::PGExp, right } = of else { return None };
    let base = negated_base(left).unwrap_or_else(|| {
        SqlExpr::Nested(Box::new(SqlExpr::UnaryOp { op: UnaryOperator::Minus, expr: left.clone() }))
    });
    Some(SqlExpr::BinaryOp {
        left: Box::new(base),
        op: BinaryOperator::PGExp,
        right: right.clone(),
    })
}

/// A text that is cast to `timestamp`, without its time zone, which PostgreSQL ignores.
pub(super) fn without_zone(expr: &mut SqlExpr) {
    if let SqlExpr::Value(value) = expr
        && let Value::SingleQuotedString(text) = &mut value.value
    {
        text.truncate(zoneless(text).len());
    }
}

/// A text of a timestamp without its time zone.
pub(super) fn zoneless(text: &str) -> &str {
    let Some(time) = text.find(':') else { return text };
    let zone = text.get(time..).and_then(|rest| rest.find(['+', '-', 'Z', 'z']));
    zone.and_then(|zone| text.get(..time + zone)).map_or(text, str::trim_end)
}
