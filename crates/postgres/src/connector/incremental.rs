//! Reading rows that are new since the last run, by a column that increases with every change.
//!
//! An upper limit is fixed first: the current maximum, or less if a transaction that is still open may
//! commit rows at or below it (`horizon`). Then the snapshot is taken, in which rows up to the limit are
//! read. This relies on assumptions, which the plan states: values come from a sequence (without
//! `cache`) or from the server's clock, and never decrease.

use std::time::Duration;

use forebay_sdk::connector::{Cursor, Result, Unit};
use forebay_sdk::settings::StreamSettings;
use tokio_postgres::Client;

use super::catalog::{Table, table};
use super::connect::refused;
use super::horizon;
use super::source::no_column;
use super::sql::{TableName, ident, literal};
use super::units::{Part, Parts};

/// The largest value of the cursor up to which everything has been committed or rolled back. `None` if
/// there is none.
pub(super) async fn upper_bound(
    client: &Client,
    name: &TableName,
    stream: &StreamSettings,
    wait: Duration,
) -> Result<Option<String>> {
    let Some(found) = table(client, name).await? else { return Ok(None) };
    let cursor = cursor_field(&found, stream)?;
    horizon::refuse_standby(client, &found).await?;
    match last_value(client, &found, cursor, None).await? {
        Some(bound) => horizon::settle(client, &found, cursor, bound, wait).await,
        None => Ok(None),
    }
}

/// The largest value of a column, as text; of those below `limit`, an SQL expression.
///
/// By order, because there is no maximum of every type: UUIDs have none before PostgreSQL 18.
pub(super) async fn last_value(
    client: &Client,
    table: &Table,
    column: &str,
    limit: Option<&str>,
) -> Result<Option<String>> {
    let field = ident(column);
    let condition = limit.map(|limit| format!("and {field} < {limit}")).unwrap_or_default();
    last(client, table, column, &format!("{field} is not null {condition}")).await
}

async fn last(
    client: &Client,
    table: &Table,
    column: &str,
    condition: &str,
) -> Result<Option<String>> {
    let query = format!(
        // Unqualified, the order would be that of the text.
        "select t.{field}::text from {} t where {condition} order by t.{field} desc limit 1",
        table.name.sql(),
        field = ident(column),
    );
    let found = client.query_opt(&query, &[]).await;
    let found =
        found.map_err(|error| refused(format!("find the last row of {}", table.name), error))?;
    Ok(found.and_then(|row| row.get(0)))
}

fn cursor_field<'a>(table: &Table, stream: &'a StreamSettings) -> Result<&'a str> {
    let cursor = stream.cursor_field.as_deref().unwrap_or_default();
    let tie = stream.tie_breaker_field.as_deref();
    for name in std::iter::once(cursor).chain(tie) {
        if table.column(name).is_none() {
            return Err(no_column(table, name));
        }
    }
    Ok(cursor)
}

/// The rows after `since`, up to `bound`, as one part.
pub(super) async fn parts(
    client: &Client,
    table: &Table,
    stream: &StreamSettings,
    since: Option<&Cursor>,
    bound: Option<String>,
) -> Result<Parts> {
    let cursor = cursor_field(table, stream)?;
    let of = table.column(cursor).map_or("text", |column| column.pg_type.name.as_str());
    let field = ident(cursor);
    let Some(bound) = bound else {
        return Ok(nothing(since));
    };
    let mut condition = format!("{field} <= {}::{of}", literal(&bound));
    let mut tie_breaker = None;
    if let Some(tie) = stream.tie_breaker_field.as_deref() {
        // The last row at the limit, so that one added later with the same value is read next time.
        let condition =
            format!("{field} = {}::{of} and {} is not null", literal(&bound), ident(tie));
        tie_breaker = last(client, table, tie, &condition).await?;
    }
    if let Some(since) = since {
        // A limit before an open transaction may be before what was read already.
        let query = format!("select {}::{of} > {}::{of}", literal(&since.value), literal(&bound));
        let is_past = client.query_one(&query, &[]).await;
        if is_past.map_err(|error| refused(format!("read {}", table.name), error))?.get(0) {
            return Ok(nothing(Some(since)));
        }
        let value = format!("{}::{of}", literal(&since.value));
        let after = match (stream.tie_breaker_field.as_deref(), &since.tie_breaker) {
            (Some(tie), Some(last)) => {
                let tie_type =
                    table.column(tie).map_or("text", |column| column.pg_type.name.as_str());
                format!("({field}, {}) > ({value}, {}::{tie_type})", ident(tie), literal(last))
            }
            _ => format!("{field} > {value}"),
        };
        condition = format!("{after} and {condition}");
    }
    let cursor_after = Cursor { value: bound.clone(), tie_breaker };
    if since == Some(&cursor_after) {
        return Ok(nothing(since));
    }
    let unit = Unit {
        name: format!("{cursor} {}..{bound}", since.map_or("", |since| &since.value)),
        from: since.map(|since| since.value.clone()),
        to: Some(bound),
        rows: None,
        bytes: None,
    };
    // In the order of the cursor, so that an append-only destination has it too.
    Ok(Parts {
        units: vec![(unit, Some(Part { condition }))],
        is_stable: false,
        cursor: Some(cursor_after),
    })
}

/// No rows at all.
fn nothing(since: Option<&Cursor>) -> Parts {
    Parts { units: Vec::new(), is_stable: true, cursor: since.cloned() }
}
