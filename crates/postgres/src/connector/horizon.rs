//! Up to which value of a column everything is committed.
//!
//! A row gets its value before it is committed, so a row with a smaller value may appear after one with
//! a larger value. What could still commit one depends on where the values come from:
//!
//! - **From a sequence**: only a transaction that holds a lock on the table, on a part of it or on one
//!   of its sequences has a value already; one that takes the lock later gets a larger value. These
//!   transactions are waited for, prepared ones included. Others, however long they run, do not matter.
//! - **From the statements that write the table**: as from a sequence, but the number may come from any
//!   sequence of the database, and be drawn before the table is locked.
//! - **From a clock**: `now()` is the time at which a transaction began, so any open transaction can
//!   still write a row of that time. None is waited for: the limit is moved before the beginning of the
//!   oldest one, and later rows belong to the next run.
//! - **Unknown** (a view, a foreign table, a transaction's number, an expression, a trigger): every open
//!   transaction is waited for.
//!
//! A standby shows neither the locks nor the transactions of its primary, so it is refused.

use std::time::Duration;

use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::platform::Instant;
use forebay_sdk::run::Context;
use tokio_postgres::Client;

use super::catalog::Table;
use super::connect::refused;
use super::incremental::last_value;
use super::origin::{self, Origin};
use super::sql::literal;

/// How often it is checked whether a transaction has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Transactions that hold a lock on a table, its parts or the sequences that these own or use, by which
/// they can have written: as `others`.
///
/// * `table`: an SQL expression.
/// * `is_any_sequence`: whether a lock on any sequence counts.
fn writers(table: &str, is_any_sequence: bool) -> String {
    let any =
        if is_any_sequence { "union select oid from pg_class where relkind = 'S'" } else { "" };
    format!(
        "
with recursive parts(oid) as (
  select {table}::regclass::oid
  union select i.inhrelid from pg_inherits i join parts p on i.inhparent = p.oid
), relations as (
  select oid from parts
  union select d.objid from pg_depend d join parts p on d.refobjid = p.oid
    join pg_class c on c.oid = d.objid and c.relkind = 'S'
    where d.classid = 'pg_class'::regclass and d.refclassid = 'pg_class'::regclass
  union select d.refobjid from pg_attrdef a join parts p on a.adrelid = p.oid
    join pg_depend d on d.classid = 'pg_attrdef'::regclass and d.objid = a.oid
      and d.refclassid = 'pg_class'::regclass
    join pg_class c on c.oid = d.refobjid and c.relkind = 'S'
  {any}
), others as (
  select l.virtualtransaction, l.pid from pg_locks l
  where l.locktype = 'relation' and l.granted and l.relation in (select oid from relations)
    and l.database = (select oid from pg_database where datname = current_database())
    and l.mode in ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
    and l.pid is distinct from pg_backend_pid()
)"
    )
}

/// Key space of the lock of [`mark`], beside those of the ledger.
const MARK_SPACE: u32 = 1_181_708_803;

/// Marks a transaction as one that only reads a stream: a shared lock, which blocks nothing and ends
/// with the transaction.
pub(super) fn mark() -> String {
    format!("select pg_advisory_xact_lock_shared({MARK_SPACE}, 0)")
}

/// Open transactions of this database that may write, except those that only read a stream: without
/// that, two incremental streams of a run would wait for each other's snapshots. As `others`.
fn open() -> String {
    format!(
        "
with others as (
  select l.virtualtransaction, l.pid, a.xact_start
  from pg_locks l join pg_stat_activity a on a.pid = l.pid
  where l.locktype = 'virtualxid' and l.granted and a.datname = current_database()
    and l.pid <> pg_backend_pid()
    and a.backend_type not in ('autovacuum worker', 'parallel worker', 'walsender')
    and not exists (select from pg_locks m where m.pid = l.pid and m.granted
      and m.locktype = 'advisory' and m.classid = {MARK_SPACE} and m.objid = 0 and m.objsubid = 2)
)"
    )
}

/// Refuses a server that cannot know which transactions are open.
pub(super) async fn refuse_standby(client: &Client, table: &Table) -> Result<()> {
    let asked = client.query_one("select pg_is_in_recovery()", &[]).await;
    let asked = asked.map_err(|error| refused(format!("read {}", table.name), error))?;
    if !asked.get::<_, bool>(0) {
        return Ok(());
    }
    Err(ConnectorError::unsupported(
        format!("{} cannot be read incrementally from a standby server", table.name),
        "a standby does not show which transactions of its primary are open, and rows that these \
         commit late would be missed: read from the primary, or with sync_mode: full_refresh",
    ))
}

/// Returns the largest value at or below `bound` up to which everything is committed or rolled back;
/// `None` if there is none.
///
/// # Errors
/// [`ConnectorError::Busy`]: transactions that have to be waited for are still open after `wait`.
pub(super) async fn settle(
    context: &Context,
    client: &Client,
    table: &Table,
    column: &str,
    bound: String,
    wait: Duration,
) -> Result<Option<String>> {
    let deadline = Instant::now() + wait;
    let origin = origin::find(client, table, column).await?;
    let writers = writers(&literal(&table.name.sql()), origin == Origin::Writer);
    match origin {
        Origin::Sequence | Origin::Writer => {
            outlast(client, table, &writers, "true", deadline, wait).await?
        }
        Origin::Unknown => outlast(client, table, &open(), "true", deadline, wait).await?,
        Origin::Clock { is_zoned } => {
            // What is prepared has no known beginning, and holds its locks until it ends.
            outlast(client, table, &writers, "pid is null", deadline, wait).await?;
            if !is_zoned {
                match outlast(client, table, &open(), "true", deadline, wait).await {
                    Err(ConnectorError::Busy { .. }) => {}
                    ended => return ended.map(|()| Some(bound)),
                }
            }
            let limit =
                before_open(client, table, column, &bound, is_zoned, (deadline, wait)).await?;
            if let Limit::Before { begun, .. } = &limit {
                context.warn(&format!(
                    "rows of {} since {begun} are left for the next run: a transaction that is open \
                     since then can still write rows of that time; see pg_stat_activity",
                    table.name
                ));
            }
            return Ok(match limit {
                Limit::Same => Some(bound),
                Limit::Before { value, .. } => value,
            });
        }
    }
    Ok(Some(bound))
}

/// Waits for the transactions that are among `others` now.
///
/// * `others`: the common table expressions that define them.
/// * `only`: a condition, or `true`.
async fn outlast(
    client: &Client,
    table: &Table,
    others: &str,
    only: &str,
    deadline: Instant,
    wait: Duration,
) -> Result<()> {
    let now = format!(
        "{others} select coalesce(array_agg(distinct virtualtransaction), '{{}}') from others \
         where {only}"
    );
    let still = format!(
        "{others} select count(distinct virtualtransaction), \
         string_agg(distinct coalesce('process ' || pid, 'a prepared transaction'), ', ') \
         from others where virtualtransaction = any($1)"
    );
    let act = |error| refused(format!("find the open transactions on {}", table.name), error);
    let open: Vec<String> = client.query_one(&now, &[]).await.map_err(act)?.get(0);
    while !open.is_empty() {
        let row = client.query_one(&still, &[&open]).await.map_err(act)?;
        if row.get::<_, i64>(0) == 0 {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(busy(table, row.get(0), row.get(1), wait));
        }
        forebay_sdk::platform::sleep(LOOK_EVERY).await;
    }
    Ok(())
}

/// How far rows are read while transactions are open.
enum Limit {
    /// As without them.
    Same,
    /// Up to the last value before the oldest of them began, if there is one.
    Before { value: Option<String>, begun: String },
}

/// Moves the limit before the beginning of the oldest open transaction.
async fn before_open(
    client: &Client,
    table: &Table,
    column: &str,
    bound: &str,
    is_zoned: bool,
    (deadline, wait): (Instant, Duration),
) -> Result<Limit> {
    let act = |error| refused(format!("find the open transactions on {}", table.name), error);
    // Of the sessions of other users, only members of pg_read_all_stats see the beginning.
    let oldest = format!(
        "{} select count(*) filter (where xact_start is null), min(xact_start)::text from others",
        open()
    );
    let row = client.query_one(&oldest, &[]).await.map_err(act)?;
    if row.get::<_, i64>(0) > 0 {
        outlast(client, table, &open(), "true", deadline, wait).await?;
        return Ok(Limit::Same);
    }
    let Some(begun) = row.get::<_, Option<String>>(1) else { return Ok(Limit::Same) };
    let mut limit = format!("{}::timestamptz", literal(&begun));
    if !is_zoned {
        // No zone is further behind UTC.
        limit = format!("({limit} at time zone 'UTC' - interval '12 hours')");
    }
    let value = last_value(client, table, column, Some(&limit)).await?;
    Ok(match value.as_deref() == Some(bound) {
        true => Limit::Same,
        false => Limit::Before { value, begun },
    })
}

fn busy(table: &Table, count: i64, who: Option<String>, wait: Duration) -> ConnectorError {
    let who = who.unwrap_or_default();
    ConnectorError::Busy {
        act: format!(
            "read {} incrementally: {count} earlier transactions are still open ({who})",
            table.name
        ),
        source: format!(
            "waited {wait:?} (`wait_for_late_commits`); see pg_stat_activity and pg_prepared_xacts"
        )
        .into(),
    }
}
