//! Texts that a query compares with a `uuid`.
//!
//! A query sees a `uuid` as its text, in lower case. PostgreSQL reads the other side as a `uuid`, in
//! any spelling; so do these comparisons: a text that is no `uuid` is an error, since it would equal
//! none.

use datafusion::common::plan_err;
use datafusion::common::tree_node::{Transformed, TreeNode as _};
use datafusion::error::Result;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Between, BinaryExpr, Expr, LogicalPlan, Operator};
use datafusion::scalar::ScalarValue;
use forebay_pgcopy::Wire;

use super::columns::origin;
use crate::transform::streams::Named;

/// The plan with the texts that are compared with a `uuid` in the spelling of the query's values.
///
/// # Errors
/// Such a text is no `uuid`.
pub(super) fn compared(plan: LogicalPlan, streams: &[Named]) -> Result<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(|plan| {
        let inputs: Vec<LogicalPlan> = plan.inputs().into_iter().cloned().collect();
        let names = NamePreserver::new(&plan);
        plan.map_expressions(|expr| {
            let name = names.save(&expr);
            let made = expr.transform_up(|expr| rewritten(expr, &inputs, streams))?;
            Ok(made.update_data(|expr| name.restore(expr)))
        })
    })?;
    Ok(plan.data)
}

fn rewritten(expr: Expr, inputs: &[LogicalPlan], streams: &[Named]) -> Result<Transformed<Expr>> {
    let is_uuid = |expr: &Expr| is_uuid(expr, inputs, streams);
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(op) => {
            let (of_left, of_right) = (is_uuid(&left), is_uuid(&right));
            let left = if of_right { Box::new(spelled(*left)?) } else { left };
            let right = if of_left { Box::new(spelled(*right)?) } else { right };
            Ok(Transformed::yes(Expr::BinaryExpr(BinaryExpr { left, op, right })))
        }
        Expr::InList(InList { expr, list, negated }) if is_uuid(&expr) => {
            let list = list.into_iter().map(spelled).collect::<Result<_>>()?;
            Ok(Transformed::yes(Expr::InList(InList { expr, list, negated })))
        }
        Expr::Between(Between { expr, negated, low, high }) if is_uuid(&expr) => {
            let (low, high) = (Box::new(spelled(*low)?), Box::new(spelled(*high)?));
            Ok(Transformed::yes(Expr::Between(Between { expr, negated, low, high })))
        }
        other => Ok(Transformed::no(other)),
    }
}

/// Whether an operator compares its operands.
pub(super) fn is_comparison(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

/// Whether an expression is a column of a stream that is a `uuid`.
fn is_uuid(expr: &Expr, inputs: &[LogicalPlan], streams: &[Named]) -> bool {
    let Expr::Column(column) = expr else { return false };
    inputs
        .iter()
        .filter_map(|input| Some((input, input.schema().maybe_index_of_column(column)?)))
        .find_map(|(input, index)| origin(input, index, streams))
        .is_some_and(|origin| origin.wire == Wire::Uuid)
}

/// A text as a `uuid` is spelled. Other expressions stay.
fn spelled(expr: Expr) -> Result<Expr> {
    let Expr::Literal(value, metadata) = expr else { return Ok(expr) };
    let spelled = |text: &str| match uuid::Uuid::try_parse(text) {
        Ok(uuid) => Ok(Some(uuid.hyphenated().to_string())),
        Err(error) => plan_err!("{text:?} is compared with a uuid, but is none: {error}"),
    };
    let value = match value {
        ScalarValue::Utf8(Some(text)) => ScalarValue::Utf8(spelled(&text)?),
        ScalarValue::Utf8View(Some(text)) => ScalarValue::Utf8View(spelled(&text)?),
        ScalarValue::LargeUtf8(Some(text)) => ScalarValue::LargeUtf8(spelled(&text)?),
        other => other,
    };
    Ok(Expr::Literal(value, metadata))
}

#[cfg(test)]
mod tests {
    use forebay_base::error_chain::chain;

    use super::*;
    use crate::transform::testing::{Memory, apply, column, read, rows};

    /// The result of a query over a table with one uuid, beside a text.
    async fn query(text: &str) -> Result<Vec<String>, String> {
        let columns = vec![column("id", Wire::Uuid, "uuid"), column("text", Wire::Text, "text")];
        let row = r#"["67e55044-10b1-426f-9247-bb680e5fe0c8","ABC"]"#;
        let step = format!("- sql: {{ query: {} }}", serde_json::to_string(text).unwrap());
        let made = apply(&step, vec![("t", Memory::of(columns, &[row]))], 16 << 20).await;
        let made = made.map_err(|error| chain(&error).to_string())?;
        let read = read(&made[0].1, 0).await;
        read.result.unwrap();
        Ok(rows(made[0].1.columns(), &read.batches))
    }

    #[tokio::test]
    async fn a_uuid_is_compared_with_texts_in_any_spelling() {
        let upper = "67E55044-10B1-426F-9247-BB680E5FE0C8";
        for (condition, expected) in [
            (format!("id = '{upper}'"), 1),
            (format!("'{upper}' <> id"), 0),
            (format!("u.id in ('{{{upper}}}', '00000000-0000-0000-0000-000000000000')"), 1),
            (format!("id between '{upper}' and '{upper}'"), 1),
            ("text = 'ABC'".to_owned(), 1),
            ("text = 'abc'".to_owned(), 0),
        ] {
            let text = format!("select count(*) as n from (select * from t) u where {condition}");
            assert_eq!(query(&text).await.unwrap(), [format!("[{expected}]")], "{condition}");
        }
        let refused = query("select id from t where id = 'none'").await.unwrap_err();
        assert!(refused.contains("\"none\" is compared with a uuid, but is none"), "{refused}");
    }
}
