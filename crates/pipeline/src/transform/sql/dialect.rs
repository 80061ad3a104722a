//! Where the engine reads SQL in another way than PostgreSQL, without an error: a statement is
//! changed to what PostgreSQL means, or refused.
//!
//! | SQL | the engine | here |
//! |---|---|---|
//! | `numeric` | ten digits | all digits of such columns |
//! | `float` | 32 bits | 64 bits |
//! | `varchar(n)` in a cast | any length | shortened |
//! | `char(n)` in a cast | any length | refused |
//! | `timestamp(0)` | cut off | refused |
//! | `fetch first n rows only` | unknown | `limit n` |
//! | `similar to` | a regular expression | refused |
//! | `to_char` with `YYYY` | the pattern | refused |

use std::ops::ControlFlow;

use datafusion::common::{ScalarValue, plan_datafusion_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, CharacterLength, DataType as SqlType, ExactNumberInfo, Expr as SqlExpr,
    Ident, LimitClause, Query, Select, SelectItem, TimezoneInfo, Value, VisitMut as _, VisitorMut,
};

use super::present::{NUMERIC_PRECISION, NUMERIC_SCALE};
use super::syntax;

/// Patterns of PostgreSQL's `to_char`, which the engine would print.
const PATTERNS: [&str; 17] = [
    "YY", "MM", "DD", "HH", "MI", "SS", "MON", "DAY", "DY", "WW", "IW", "AM", "PM", "MS", "US",
    "TZ", "Q",
];

/// Changes what the engine reads in another way.
///
/// # Errors
/// It cannot be changed; the message names the alternative.
pub(super) fn adapt(statement: &mut Statement) -> Result<()> {
    let Statement::Statement(statement) = statement else { return Ok(()) };
    match statement.visit(&mut Adapt) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

struct Adapt;

impl VisitorMut for Adapt {
    type Break = DataFusionError;

    /// Names columns as PostgreSQL does where the cast that names them will be replaced.
    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<DataFusionError> {
        for item in &mut select.projection {
            if let SelectItem::UnnamedExpr(expr) = item
                && let SqlExpr::Cast { expr: of, data_type, .. } = &*expr
                && length(data_type).is_some()
            {
                let alias = name(of).unwrap_or_else(|| Ident::new("varchar"));
                *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
            }
        }
        ControlFlow::Continue(())
    }

    /// Reads `FETCH FIRST` as `LIMIT`, which the engine has.
    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<DataFusionError> {
        let has_limit = !matches!(
            &query.limit_clause,
            None | Some(LimitClause::LimitOffset { limit: None, .. })
        );
        let Some(fetch) =
            query.fetch.take_if(|fetch| !fetch.with_ties && !fetch.percent && !has_limit)
        else {
            return ControlFlow::Continue(());
        };
        let first =
            fetch.quantity.or_else(|| Some(SqlExpr::value(Value::Number("1".into(), false))));
        match &mut query.limit_clause {
            Some(LimitClause::LimitOffset { limit, .. }) => *limit = first,
            clause => {
                *clause = Some(LimitClause::LimitOffset {
                    limit: first,
                    offset: None,
                    limit_by: Vec::new(),
                });
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut SqlExpr) -> ControlFlow<DataFusionError> {
        let adapted = match expr {
            SqlExpr::SimilarTo { .. } => Err(plan_datafusion_err!(
                "SIMILAR TO would be read as a regular expression; use LIKE, or ~ with a regular \
                 expression"
            )),
            SqlExpr::TypedString(typed) => {
                if is_timestamp(&typed.data_type)
                    && let Value::SingleQuotedString(text) = &mut typed.value.value
                {
                    text.truncate(syntax::zoneless(text).len());
                }
                of_type(&mut typed.data_type)
            }
            SqlExpr::Cast { expr: of, data_type, .. } => match length(data_type) {
                Some(Ok(length)) => {
                    *data_type = SqlType::Varchar(None);
                    shorten(expr, length);
                    Ok(())
                }
                Some(Err(error)) => Err(error),
                None => {
                    if is_timestamp(data_type) {
                        syntax::without_zone(of);
                    }
                    of_type(data_type)
                }
            },
            _ => syntax::rewrite(expr),
        };
        match adapted {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

/// The name of the column that an expression is, if it is one.
fn name(expr: &SqlExpr) -> Option<Ident> {
    match expr {
        SqlExpr::Identifier(name) => Some(name.clone()),
        SqlExpr::CompoundIdentifier(names) => names.last().cloned(),
        SqlExpr::Cast { expr, .. } | SqlExpr::Nested(expr) => name(expr),
        _ => None,
    }
}

/// The number of characters of `varchar(n)`.
fn length(of: &SqlType) -> Option<Result<u64>> {
    match of {
        SqlType::Varchar(Some(length))
        | SqlType::CharVarying(Some(length))
        | SqlType::CharacterVarying(Some(length))
        | SqlType::Nvarchar(Some(length)) => Some(match length {
            CharacterLength::IntegerLength { length, .. } if *length > 0 => Ok(*length),
            _ => Err(plan_datafusion_err!("{of} is no type: its length must be at least 1")),
        }),
        _ => None,
    }
}

/// Whether a type is `timestamp` without a time zone.
fn is_timestamp(of: &SqlType) -> bool {
    matches!(of, SqlType::Timestamp(_, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone))
}

/// Takes the first characters of an expression.
fn shorten(expr: &mut SqlExpr, length: u64) {
    let number = |number: u64| Box::new(SqlExpr::value(Value::Number(number.to_string(), false)));
    let of = std::mem::replace(expr, SqlExpr::value(Value::Null));
    *expr = SqlExpr::Substring {
        expr: Box::new(of),
        substring_from: Some(number(1)),
        substring_for: Some(number(length)),
        special: true,
        shorthand: false,
    };
}

/// Changes a type, or refuses it.
fn of_type(of: &mut SqlType) -> Result<()> {
    match of {
        SqlType::Numeric(size) | SqlType::Decimal(size) | SqlType::Dec(size)
            if *size == ExactNumberInfo::None =>
        {
            *size = ExactNumberInfo::PrecisionAndScale(
                u64::from(NUMERIC_PRECISION),
                i64::from(NUMERIC_SCALE),
            );
        }
        SqlType::CharVarying(None) | SqlType::CharacterVarying(None) => {
            *of = SqlType::Varchar(None);
        }
        // Without digits it would have nanoseconds, which only the years 1677 to 2262 have.
        SqlType::Timestamp(digits @ None, _) => *digits = Some(6),
        SqlType::Float(ExactNumberInfo::Precision(1..=24)) => *of = SqlType::Real,
        SqlType::Float(_) => *of = SqlType::DoublePrecision,
        SqlType::Char(_) | SqlType::Character(_) => {
            return Err(plan_datafusion_err!(
                "a cast to {of} would neither shorten nor pad; use varchar(n), or rpad(..., n)"
            ));
        }
        SqlType::Timestamp(Some(digits), _) if *digits != 6 => {
            return Err(plan_datafusion_err!(
                "a cast to {of} would cut off digits where PostgreSQL rounds; use date_trunc('second', \
                 ...), which cuts them off, or a cast to timestamp"
            ));
        }
        SqlType::Array(
            ArrayElemTypeDef::SquareBracket(element, _)
            | ArrayElemTypeDef::AngleBracket(element)
            | ArrayElemTypeDef::Parenthesis(element),
        ) => {
            if length(element).is_some() {
                return Err(plan_datafusion_err!(
                    "a cast to {element}[] would not shorten its elements; use text[]"
                ));
            }
            return of_type(element);
        }
        _ => {}
    }
    Ok(())
}

/// Refuses `to_char` with a pattern that the engine prints as it is.
pub(super) fn refuse_pattern(call: &ScalarFunction) -> Result<()> {
    if call.name() != "to_char" {
        return Ok(());
    }
    let refused = || {
        Err(plan_datafusion_err!(
            "to_char and date_format take patterns such as '%Y-%m-%d %H:%M:%S' here, as constants; \
             those of PostgreSQL (YYYY) would be printed as they are"
        ))
    };
    let Some(Expr::Literal(pattern, _)) = call.args.get(1) else { return refused() };
    let Some(Some(pattern)) = ScalarValue::try_as_str(pattern) else { return refused() };
    let mut rest = String::new();
    let mut parts = pattern.split('%');
    rest.push_str(parts.next().unwrap_or_default());
    let mut count = 0;
    for part in parts {
        count += 1;
        // The conversion: modifiers, and a letter.
        let part = part.trim_start_matches(|c: char| !c.is_ascii_alphabetic() && c != ' ');
        rest.push(' ');
        rest.extend(part.chars().skip(1));
    }
    let rest = rest.to_ascii_uppercase();
    if count == 0 || PATTERNS.iter().any(|pattern| rest.contains(pattern)) {
        return refused();
    }
    Ok(())
}
