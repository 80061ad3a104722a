//! Columns of type `character(n)` beside texts, as PostgreSQL compares them.
//!
//! A query sees the values without the spaces that pad them.
//!
//! | beside | PostgreSQL |
//! |---|---|
//! | a constant, `character` or `varchar` | both are compared without trailing spaces |
//! | another text | only the column is without trailing spaces |
//! | a pattern of `LIKE`, `ILIKE` or `~` | the padded value is matched |
//! | `octet_length`, `concat`, `concat_ws` | the padded value is used |

use datafusion::common::plan_err;
use datafusion::common::tree_node::{Transformed, TreeNode as _};
use datafusion::error::Result;
use datafusion::functions::string::expr_fn::rtrim;
use datafusion::functions::unicode::expr_fn::rpad;
use datafusion::logical_expr::expr::{InList, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Between, BinaryExpr, Case, Expr, Like, LogicalPlan, Operator, lit};
use datafusion::scalar::ScalarValue;
use forebay_pgcopy::{Column, Wire};

use super::columns::origin;
use super::uuids::is_comparison;
use crate::transform::padding::{is_padded, padded_to};
use crate::transform::streams::Named;

/// Functions that see the padded value.
const PADDED: [&str; 3] = ["octet_length", "concat", "concat_ws"];

/// The plan with such comparisons as PostgreSQL means them.
///
/// # Errors
/// A column whose length is unknown is matched with a pattern.
pub(super) fn compared(plan: LogicalPlan, streams: &[Named]) -> Result<LogicalPlan> {
    if !streams.iter().any(|(_, stream)| stream.columns().iter().any(is_padded)) {
        return Ok(plan);
    }
    let plan = plan.transform_up_with_subqueries(|plan| {
        let inputs: Vec<LogicalPlan> = plan.inputs().into_iter().cloned().collect();
        let names = NamePreserver::new(&plan);
        let scope = Scope { inputs: &inputs, streams };
        plan.map_expressions(|expr| {
            let name = names.save(&expr);
            let made = expr.transform_up(|expr| scope.rewritten(expr))?;
            Ok(made.update_data(|expr| name.restore(expr)))
        })
    })?;
    Ok(plan.data)
}

/// What the names of an expression refer to.
struct Scope<'a> {
    inputs: &'a [LogicalPlan],
    streams: &'a [Named],
}

impl Scope<'_> {
    fn column(&self, expr: &Expr) -> Option<&Column> {
        let Expr::Column(column) = expr else { return None };
        let found = self
            .inputs
            .iter()
            .filter_map(|input| Some((input, input.schema().maybe_index_of_column(column)?)));
        found.into_iter().find_map(|(input, index)| origin(input, index, self.streams))
    }

    fn is_padded(&self, expr: &Expr) -> bool {
        self.column(expr).is_some_and(is_padded)
    }

    /// An operand beside a column of this type.
    fn beside(&self, expr: Expr) -> Expr {
        match expr {
            Expr::Literal(value, metadata) => {
                let trim = |text: &str| text.trim_end_matches(' ').to_owned();
                let value = match value {
                    ScalarValue::Utf8(Some(text)) => ScalarValue::Utf8(Some(trim(&text))),
                    ScalarValue::LargeUtf8(Some(text)) => ScalarValue::LargeUtf8(Some(trim(&text))),
                    ScalarValue::Utf8View(Some(text)) => ScalarValue::Utf8View(Some(trim(&text))),
                    other => other,
                };
                Expr::Literal(value, metadata)
            }
            expr => {
                let is_limited = |column: &Column| {
                    column.wire == Wire::Text
                        && (column.sql_type.starts_with("varchar")
                            || column.sql_type.starts_with("character varying"))
                };
                match self.column(&expr).is_some_and(is_limited) {
                    true => rtrim(vec![expr, lit(" ")]),
                    false => expr,
                }
            }
        }
    }

    /// The operands of one comparison.
    fn all_beside(&self, operands: Vec<Expr>) -> Vec<Expr> {
        match operands.iter().any(|operand| self.is_padded(operand)) {
            true => operands.into_iter().map(|operand| self.beside(operand)).collect(),
            false => operands,
        }
    }

    fn pair(&self, left: Expr, right: Expr) -> Result<(Box<Expr>, Box<Expr>)> {
        match <[Expr; 2]>::try_from(self.all_beside(vec![left, right])) {
            Ok([left, right]) => Ok((Box::new(left), Box::new(right))),
            Err(_) => plan_err!("a comparison has two operands"),
        }
    }

    /// The value with its spaces, if the expression is such a column.
    fn padded(&self, expr: Expr) -> Result<Expr> {
        let Some(column) = self.column(&expr).filter(|column| is_padded(column)) else {
            return Ok(expr);
        };
        let length = padded_to(column).and_then(|length| i64::try_from(length).ok());
        match length {
            Some(length @ 1..) => Ok(rpad(vec![expr, lit(length), lit(" ")])),
            _ => plan_err!(
                "column {:?} has lost the spaces that pad it; cast it to text",
                column.name
            ),
        }
    }

    fn rewritten(&self, expr: Expr) -> Result<Transformed<Expr>> {
        use Operator::{RegexIMatch, RegexMatch, RegexNotIMatch, RegexNotMatch};
        Ok(Transformed::yes(match expr {
            Expr::BinaryExpr(BinaryExpr { left, op, right })
                if matches!(op, RegexMatch | RegexIMatch | RegexNotMatch | RegexNotIMatch) =>
            {
                let left = Box::new(self.padded(*left)?);
                Expr::BinaryExpr(BinaryExpr { left, op, right })
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(op) => {
                let (left, right) = self.pair(*left, *right)?;
                Expr::BinaryExpr(BinaryExpr { left, op, right })
            }
            Expr::Like(like) => {
                let expr = Box::new(self.padded(*like.expr)?);
                Expr::Like(Like { expr, ..like })
            }
            Expr::InList(InList { expr, list, negated }) => {
                let mut all = vec![*expr];
                all.extend(list);
                let mut all = self.all_beside(all);
                let expr = Box::new(all.remove(0));
                Expr::InList(InList { expr, list: all, negated })
            }
            Expr::Between(Between { expr, negated, low, high }) => {
                match <[Expr; 3]>::try_from(self.all_beside(vec![*expr, *low, *high])) {
                    Ok([expr, low, high]) => {
                        Expr::Between(Between::new(expr.into(), negated, low.into(), high.into()))
                    }
                    Err(_) => return plan_err!("BETWEEN has three operands"),
                }
            }
            Expr::Case(Case { expr: Some(of), when_then_expr, else_expr }) => {
                let (whens, results): (Vec<_>, Vec<_>) = when_then_expr.into_iter().unzip();
                let mut all = vec![*of];
                all.extend(whens.into_iter().map(|when| *when));
                let mut all = self.all_beside(all);
                let of = Some(Box::new(all.remove(0)));
                let pairs = all.into_iter().map(Box::new).zip(results).collect();
                Expr::Case(Case { expr: of, when_then_expr: pairs, else_expr })
            }
            Expr::ScalarFunction(call) if call.name() == "nullif" => {
                let args = self.all_beside(call.args);
                Expr::ScalarFunction(ScalarFunction::new_udf(call.func, args))
            }
            Expr::ScalarFunction(call) if PADDED.contains(&call.name()) => {
                let args = call.args.into_iter().map(|arg| self.padded(arg));
                let args = args.collect::<Result<_>>()?;
                Expr::ScalarFunction(ScalarFunction::new_udf(call.func, args))
            }
            other => return Ok(Transformed::no(other)),
        }))
    }
}
