//! Reading rows that are new since the last run, by a column that increases with every change.
//!
//! An upper limit is fixed first: the current maximum, or less if a transaction that is still open may
//! commit rows at or below it (`horizon`). Then the snapshot is taken, in which rows up to the limit are
//! read. This relies on assumptions, which the plan states: values come from a sequence or from the
//! server's clock, and never decrease.
//!
//! Rows may have the same value. Those at the limit are counted with the cursor: if the next run finds
//! more of them at or before the last row, it refuses, or reads them again where that does no harm.
//!
//! A server that was promoted or restored since the last run may have lost rows that were read, and
//! assign their values again. Its timeline shows that; if the last row is missing, too, it is refused.

use std::time::Duration;

use forebay_sdk::connector::{Cursor, Result, Unit};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::run::Context;
use forebay_sdk::settings::StreamSettings;
use tokio_postgres::Client;

use super::catalog::{Table, TableColumn, table};
use super::columns::no_column;
use super::connect::refused;
use super::horizon;
use super::origin;
use super::sql::{TableName, ident, literal};
use super::units::{Part, Parts};

/// The largest value of the cursor up to which everything has been committed or rolled back. `None` if
/// there is none.
pub(super) async fn upper_bound(
    context: &Context,
    client: &Client,
    name: &TableName,
    stream: &StreamSettings,
    wait: Duration,
) -> Result<Option<String>> {
    let Some(found) = table(client, name).await? else { return Ok(None) };
    let cursor = cursor_field(&found, stream)?;
    horizon::refuse_standby(client, &found).await?;
    match last_value(client, &found, cursor, None).await? {
        Some(bound) if is_endless(&found, cursor, &bound) => {
            Err(Cursor::new(bound, None).endless(&name.to_string(), cursor))
        }
        Some(bound) => horizon::settle(context, client, &found, cursor, bound, wait).await,
        None => Ok(None),
    }
}

/// Whether no value of the column is greater.
fn is_endless(table: &Table, column: &str, value: &str) -> bool {
    let ty = table.column(column).map_or("", |column| column.pg_type.name.as_str());
    let may_be = ["timestamp", "date", "numeric", "real", "double precision"];
    may_be.iter().any(|of| ty.starts_with(of)) && ["infinity", "Infinity", "NaN"].contains(&value)
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

/// The column that distinguishes rows with the same cursor value, unless the cursor does: the one that
/// is configured, that of the last run, or the primary key.
fn tie_breaker<'a>(
    table: &'a Table,
    stream: &StreamSettings,
    since: Option<&Cursor>,
    cursor: &str,
) -> Option<&'a TableColumn> {
    let before = since.and_then(|since| since.tie_breaker_field.as_deref());
    let given = stream.tie_breaker_field.as_deref().or(before);
    let key = match table.primary_key.as_slice() {
        [key] if !table.is_unique(cursor) => Some(key.as_str()),
        _ => None,
    };
    given.or(key).filter(|name| *name != cursor).and_then(|name| table.column(name))
}

/// The order of the rows of an incremental stream.
struct Order<'a> {
    context: &'a Context,
    client: &'a Client,
    table: &'a Table,
    field: String,
    /// The type of its values.
    of: &'a str,
    tie: Option<&'a TableColumn>,
    /// Whether rows may have the same value.
    has_ties: bool,
}

impl Order<'_> {
    fn value(&self, text: &str) -> String {
        format!("{}::{}", literal(text), self.of)
    }

    fn tie_value(tie: &TableColumn, text: &str) -> String {
        format!("{}::{}", literal(text), tie.pg_type.name)
    }

    /// The rows with the value of a cursor that are at or before it.
    fn at(&self, cursor: &Cursor) -> String {
        let at = format!("{} = {}", self.field, self.value(&cursor.value));
        match (self.tie, &cursor.tie_breaker) {
            (Some(tie), Some(last)) => {
                let (name, last) = (ident(&tie.name), Self::tie_value(tie, last));
                format!("{at} and ({name} is null or {name} <= {last})")
            }
            _ => at,
        }
    }

    async fn one<T: for<'r> tokio_postgres::types::FromSql<'r>>(&self, query: &str) -> Result<T> {
        let row = self.client.query_one(query, &[]).await;
        Ok(row.map_err(|error| refused(format!("read {}", self.table.name), error))?.get(0))
    }

    async fn count(&self, condition: &str) -> Result<u64> {
        let table = self.table.name.sql();
        let count: i64 =
            self.one(&format!("select count(*) from {table} where {condition}")).await?;
        Ok(u64::try_from(count).unwrap_or_default())
    }

    /// The cursor of the last row with this value.
    async fn last(&self, value: String) -> Result<Cursor> {
        let mut cursor = Cursor::new(value, None);
        if let Some(tie) = self.tie {
            let at = self.at(&cursor);
            let condition = format!("{at} and {} is not null", ident(&tie.name));
            cursor.tie_breaker = last(self.client, self.table, &tie.name, &condition).await?;
            cursor.tie_breaker_field = Some(tie.name.clone());
        }
        if self.has_ties {
            cursor.rows_at = Some(self.count(&self.at(&cursor)).await?);
        }
        Ok(cursor)
    }

    /// Fails if rows were added at or before the last row that was read.
    async fn refuse_late(&self, since: &Cursor) -> Result<()> {
        let Some(read) = since.rows_at else { return Ok(()) };
        let now = self.count(&self.at(since)).await?;
        if now <= read {
            return Ok(());
        }
        Err(since.late(&self.table.name.to_string(), &self.field, now - read))
    }

    /// Fails if the server lost rows that were read: their values may be assigned again, to rows that
    /// would be missed.
    async fn refuse_lost(&self, since: &Cursor, timeline: u32) -> Result<()> {
        let Some(then) = since.timeline.filter(|then| *then != timeline) else { return Ok(()) };
        let read = since.rows_at.unwrap_or(1);
        let left = self.count(&self.at(since)).await?;
        if left >= read {
            return Ok(());
        }
        let (name, field, value) = (&self.table.name, &self.field, &since.value);
        Err(ConnectorError::unsupported(
            format!(
                "the server was promoted or restored since the last run (its timeline is {timeline}, \
                 not {then}), and {name} has lost rows with {field} = {value:?}, the last value that \
                 was read: rows that get lost values again would be missed"
            ),
            "remove the rows at the destination and run `forebay pipeline reset`, which reads all rows \
             again",
        ))
    }

    /// The condition of rows after a cursor.
    ///
    /// * `may_repeat`: whether rows with its value may be read again.
    fn after(&self, since: &Cursor, may_repeat: bool) -> String {
        let (field, value) = (&self.field, self.value(&since.value));
        if may_repeat && self.has_ties {
            return format!("{field} >= {value}");
        }
        match (self.tie, &since.tie_breaker) {
            (Some(tie), Some(last)) => {
                format!(
                    "({field}, {}) > ({value}, {})",
                    ident(&tie.name),
                    Self::tie_value(tie, last)
                )
            }
            _ => format!("{field} > {value}"),
        }
    }

    /// The condition of rows up to a cursor.
    fn up_to(&self, cursor: &Cursor) -> String {
        let (field, value) = (&self.field, self.value(&cursor.value));
        match (self.tie, &cursor.tie_breaker) {
            (Some(tie), Some(last)) => {
                let (name, last) = (ident(&tie.name), Self::tie_value(tie, last));
                format!(
                    "{field} <= {value} and ({field} < {value} or {name} is null or {name} <= {last})"
                )
            }
            _ => format!("{field} <= {value}"),
        }
    }
}

impl Order<'_> {
    /// A note about rows without a cursor value, which are not read.
    async fn note_nulls(&self, cursor: &str) -> Result<Option<String>> {
        let count = self.count(&format!("{} is null", self.field)).await?;
        let note = format!(
            "{count} rows of {} are not read: they have no value in {cursor:?}. Give the column a \
             default and NOT NULL, or set `sync_mode: full_refresh`",
            self.table.name
        );
        Ok((count > 0).then_some(note).inspect(|note| self.context.warn(note)))
    }

    /// A note about a last value so far ahead that rows added until then are not read.
    async fn note_future(&self, cursor: &str, bound: &str) -> Result<Option<String>> {
        let ahead = format!("select {} > now() + interval '1 day'", self.value(bound));
        let note = format!(
            "the last value of {cursor:?} in {} is {bound}: rows that are added until then with \
             earlier values are not read",
            self.table.name
        );
        Ok(self.one::<bool>(&ahead).await?.then_some(note).inspect(|note| self.context.warn(note)))
    }
}

/// The timeline of a server's log. It begins another one when it is promoted or restored.
async fn timeline(client: &Client) -> Result<u32> {
    const TIMELINE: &str =
        "select ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint";
    let row = client.query_one(TIMELINE, &[]).await;
    let timeline: i64 = row.map_err(|error| refused("find the server's timeline", error))?.get(0);
    Ok(u32::try_from(timeline).unwrap_or_default())
}

/// The rows after `since`, up to `bound`, as one part.
///
/// * `may_repeat`: whether rows may be read again: they then replace themselves.
pub(super) async fn parts(
    context: &Context,
    client: &Client,
    table: &Table,
    stream: &StreamSettings,
    since: Option<&Cursor>,
    bound: Option<String>,
    may_repeat: bool,
) -> Result<Parts> {
    let cursor = cursor_field(table, stream)?;
    let column = table.column(cursor).ok_or_else(|| no_column(table, cursor))?;
    let order = Order {
        context,
        client,
        table,
        field: ident(cursor),
        of: &column.pg_type.name,
        tie: tie_breaker(table, stream, since, cursor),
        has_ties: !table.is_unique(cursor),
    };
    let mut notes = Vec::new();
    if column.nullable {
        notes.extend(order.note_nulls(cursor).await?);
    }
    let nothing =
        |notes| Parts { units: Vec::new(), is_stable: true, cursor: since.cloned(), notes };
    let timeline = timeline(client).await?;
    if let Some(since) = since {
        order.refuse_lost(since, timeline).await?;
    }
    let Some(bound) = bound else { return Ok(nothing(notes)) };
    if let Some(since) = since {
        if !may_repeat {
            order.refuse_late(since).await?;
        }
        // A limit before an open transaction may be before what was read already.
        let is_past = format!("select {} > {}", order.value(&since.value), order.value(&bound));
        if order.one(&is_past).await? {
            return Ok(nothing(notes));
        }
    }
    if origin::is_time(order.of) {
        notes.extend(order.note_future(cursor, &bound).await?);
    }
    // The last row at the limit, so that one added later with the same value is read next time.
    let last = Cursor { timeline: Some(timeline), ..order.last(bound).await? };
    if since.is_some_and(|since| since.is_at(&last)) {
        return Ok(nothing(notes));
    }
    let up_to = order.up_to(&last);
    let condition = match since {
        Some(since) => format!("{} and {up_to}", order.after(since, may_repeat)),
        None => up_to,
    };
    let unit = Unit {
        name: format!("{cursor} {}..{}", since.map_or("", |since| &since.value), last.value),
        from: since.map(|since| since.value.clone()),
        to: Some(last.value.clone()),
        rows: None,
        bytes: None,
    };
    let is_same = last.rows_at.map(|rows| {
        format!("select count(*) = {rows} from {} where {}", table.name.sql(), order.at(&last))
    });
    Ok(Parts {
        units: vec![(unit, Some(Part { condition, is_same }))],
        is_stable: false,
        cursor: Some(last),
        notes,
    })
}
