//! Reading rows that are new since the last run, by a column that increases with every change.
//!
//! A row gets its value before it is committed, so one with a smaller value may be committed later.
//! An upper limit is therefore fixed first: the current maximum. Then the run waits for every
//! transaction that could still commit a row at or below it; later ones get larger values. Only
//! then is the snapshot taken, in which rows up to the limit are read. This relies on two
//! assumptions, which the plan states: values come from a sequence (without `cache`) or a clock,
//! and never decrease.

use std::time::{Duration, Instant};

use forebay_sdk::connector::{Cursor, Result, Unit};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::settings::StreamSettings;
use tokio_postgres::Client;

use super::catalog::{Table, table};
use super::connect::refused;
use super::source::no_column;
use super::sql::{TableName, ident, literal};
use super::units::{Part, Parts};

/// How often it is checked whether a transaction has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Transactions of this database that may write: with an id, or running and so able to get one.
const WRITERS: &str = "
select coalesce(array_agg(l.virtualtransaction), '{}')
from pg_locks l join pg_stat_activity a on a.pid = l.pid
where l.locktype = 'virtualxid' and l.granted and a.datname = current_database()
  and l.pid <> pg_backend_pid() and a.backend_type = 'client backend'";

/// Those of them that are still running. Transactions with [`MARK`] only read: without this, two
/// incremental streams of a run would wait for each other's snapshots.
const STILL: &str = "
select count(*) from pg_locks l
where l.locktype = 'virtualxid' and l.granted and l.virtualtransaction = any($1)
  and not exists (select from pg_locks m where m.pid = l.pid and m.granted
    and m.locktype = 'advisory' and m.classid = 1181708803 and m.objid = 0 and m.objsubid = 2)";

/// Marks a transaction as one that only reads a stream: a shared lock, which blocks nothing and
/// ends with the transaction. Its key space is beside those of the ledger.
pub(super) const MARK: &str = "select pg_advisory_xact_lock_shared(1181708803, 0)";

/// The maximum of the cursor, once everything at or below it has been committed or rolled back.
/// `None` if the table is empty.
pub(super) async fn upper_bound(
    client: &Client,
    name: &TableName,
    stream: &StreamSettings,
    wait: Duration,
) -> Result<Option<String>> {
    let act = |error| refused(format!("find the last row of {name}"), error);
    let Some(found) = table(client, name).await? else { return Ok(None) };
    let cursor = cursor_field(&found, stream)?;
    let field = ident(cursor);
    let query = format!("select max({field})::text from {}", name.sql());
    let bound: Option<String> = client.query_one(&query, &[]).await.map_err(act)?.get(0);
    if bound.is_none() {
        return Ok(None);
    }
    let writers: Vec<String> = client.query_one(WRITERS, &[]).await.map_err(act)?.get(0);
    let begun = Instant::now();
    loop {
        let left: i64 = client.query_one(STILL, &[&writers]).await.map_err(act)?.get(0);
        if left == 0 {
            return Ok(bound);
        }
        if begun.elapsed() >= wait {
            return Err(ConnectorError::Busy {
                act: format!(
                    "read {name} incrementally: {left} earlier transactions are still running"
                ),
                source: format!("waited {wait:?} (`wait_for_late_commits`); see pg_stat_activity")
                    .into(),
            });
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
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
        let query = format!(
            "select max({tie})::text from {} where {field} = {}::{of}",
            table.name.sql(),
            literal(&bound),
            tie = ident(tie),
        );
        let found = client.query_one(&query, &[]).await;
        tie_breaker = found.map_err(|error| refused(format!("read {}", table.name), error))?.get(0);
    }
    if let Some(since) = since {
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
