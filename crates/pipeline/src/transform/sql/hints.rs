//! What a user writes instead of what the engine cannot run.
//!
//! The engine reports an unknown function with the most similar name it has (`md5` for `make_date`), and a
//! subquery it cannot run by the name of an internal expression. An alternative is more useful.

use datafusion::error::DataFusionError;

/// Names of functions as the engine reports them, and what to write instead.
const FUNCTIONS: [(&str, &str); 13] = [
    ("age", "subtract the timestamps, or use extract(epoch from ...)"),
    ("to_number", "cast the text to numeric"),
    ("make_timestamp", "cast a text to timestamp"),
    ("make_timestamptz", "cast a text to timestamptz"),
    ("make_interval", "write interval '...'"),
    ("regexp_matches", "use regexp_match"),
    ("regexp_substr", "use substring(text from pattern)"),
    ("regexp_split_to_array", "use string_to_array"),
    ("format", "use concat, or ||"),
    ("quote_literal", "use replace, or quote at the destination"),
    ("quote_ident", "use replace, or quote at the destination"),
    ("array_upper", "use array_length"),
    ("array_lower", "the first index is 1"),
];
/// The beginnings of the names of functions of JSON.
const JSON: [&str; 5] = ["json", "to_json", "row_to_json", "array_to_json", "jsonb"];
const OF_JSON: &str =
    "JSON is a text in a query; take it apart at the destination, or use regexp_match";
/// Expressions of subqueries that the engine plans only in conditions.
const SUBQUERIES: [&str; 4] =
    ["Exists(", "InSubquery(", "ScalarSubquery(", "OuterReferenceColumn("];

/// What cannot be run, and what to write instead. `None` if the message of the engine has to do.
pub(super) fn of(error: &DataFusionError) -> Option<(String, String)> {
    let message = error.strip_backtrace();
    if let Some((_, rest)) = message.split_once("Invalid function '") {
        let name = rest.split('\'').next()?;
        let hint = FUNCTIONS.iter().find(|(of, _)| *of == name).map(|(_, hint)| *hint);
        let hint =
            hint.or_else(|| JSON.iter().any(|of| name.starts_with(of)).then_some(OF_JSON))?;
        return Some((format!("a transform `sql` has no function {name}"), hint.to_owned()));
    }
    if let Some((_, rest)) = message.split_once("Operator ")
        && let Some((operator, _)) = rest.split_once(" is not yet supported")
        && matches!(operator, "->" | "->>" | "#>" | "#>>" | "?" | "?|" | "?&" | "@?" | "@@")
    {
        return Some((format!("a transform `sql` has no operator {operator}"), OF_JSON.to_owned()));
    }
    let (_, expression) = message.split_once("does not support logical expression ")?;
    SUBQUERIES.iter().any(|of| expression.starts_with(of)).then(|| {
        (
            "the query has EXISTS, IN (SELECT ...) or a subquery that refers to the outer query where \
             it cannot be run"
                .to_owned(),
            "write EXISTS and IN (SELECT ...) in WHERE, and compare a subquery by =, or join it"
                .to_owned(),
        )
    })
}
