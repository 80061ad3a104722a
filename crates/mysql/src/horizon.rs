//! Up to which value of a column everything is committed.
//!
//! A row gets its value before it is committed, so a row with a smaller value may appear after one with a larger
//! value. After the largest value is known, an incremental run waits for the transactions that can still commit such
//! a row, and only then takes its snapshot:
//!
//! - **A column whose values the server makes** (`AUTO_INCREMENT`, a default or an update of `CURRENT_TIMESTAMP`): those
//!   that have changed rows, or execute a statement. One that begins a statement later gets a larger value, or, of a
//!   clock, the same one until it moves on: the run waits for that, too.
//! - **Any other column**: every open transaction that is not read-only.
//!
//! InnoDB lists open transactions (`information_schema.INNODB_TRX`) for users with the privilege `PROCESS` only, and
//! only those of this server: a replica and a node of a Galera cluster are refused.
//!
//! Invariant: the list is not read more often than the server renews it. It keeps what it listed last for 100 ms after
//! a reading, so a reader in a hurry would see the same transactions for ever.

use std::time::Duration;

use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::platform::{Instant, sleep};
use forebay_sdk::run::Context;

use crate::catalog::Table;
use crate::connect::Session;
use crate::error::{SPECIFIC_ACCESS_DENIED, code, failure};
use crate::order::Ordered;
use crate::settings::Settings;
use crate::types::Kind;

/// Time between two readings of the list of transactions, and before the first one.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Time between two readings of the clock.
const TICK: Duration = Duration::from_millis(20);
/// Maximum number of transactions in a message.
const LISTED_MAX: usize = 20;

/// A transaction: the number of its connection, and when it began.
type Transaction = (u64, String);

/// Waits until no open transaction can commit a row at or before `bound`, the largest value of `field`.
///
/// # Errors
/// [`ConnectorError::Busy`]: transactions are still open after `wait_for_late_commits`. The server does not show them,
/// and `allow_late_commits` is not set.
pub(crate) async fn settle(
    context: &Context,
    session: &mut Session,
    table: &Table,
    field: &Ordered,
    bound: &str,
    settings: &Settings,
) -> Result<()> {
    let is_of_server = is_of_server(table, field);
    refuse_others(session, table, settings).await?;
    if is_of_server && field.kind == Kind::Timestamp {
        wait_for_clock(session, table, field, bound).await?;
    }
    let wait = settings.wait_for_late_commits.get();
    let deadline = Instant::now() + wait;
    sleep(LOOK_EVERY).await;
    let mut open = match list(session, table, is_of_server).await? {
        Some(open) => open,
        None if settings.allow_late_commits => {
            context.warn(&format!(
                "rows of {} that are committed late may be missed: the user may not see open transactions",
                table.name
            ));
            return Ok(());
        }
        None => return Err(hidden(session, table)),
    };
    while !open.is_empty() {
        if Instant::now() >= deadline {
            return Err(busy(table, &open, wait));
        }
        tokio::select! {
            () = sleep(LOOK_EVERY) => {}
            () = context.cancelled() => return Err(ConnectorError::Stopped),
        }
        let still = list(session, table, is_of_server).await?.unwrap_or_default();
        open.retain(|transaction| still.contains(transaction));
    }
    Ok(())
}

/// Whether the server makes the values of a column.
fn is_of_server(table: &Table, field: &Ordered) -> bool {
    table.column(&field.name).is_some_and(|column| {
        column.extra.contains("auto_increment")
            || column.extra.contains("current_timestamp")
            || column.default.starts_with("current_timestamp")
    })
}

/// Open transactions that may still commit a row; `None` if the user may not see them.
///
/// * `is_of_server`: whether only those count that have changed rows or execute a statement.
async fn list(
    session: &mut Session,
    table: &Table,
    is_of_server: bool,
) -> Result<Option<Vec<Transaction>>> {
    let only = match is_of_server {
        true => {
            "AND (trx_rows_modified > 0 OR trx_query IS NOT NULL OR COALESCE(trx_operation_state, '') <> '' \
             OR trx_state <> 'RUNNING')"
        }
        false => "",
    };
    let sql = format!(
        "SELECT CAST(trx_mysql_thread_id AS UNSIGNED), CAST(trx_started AS CHAR) \
         FROM information_schema.INNODB_TRX \
         WHERE trx_mysql_thread_id <> CONNECTION_ID() AND trx_is_read_only = 0 {only}"
    );
    match session.query_or(&sql, ()).await? {
        Ok(open) => Ok(Some(open)),
        Err(error) if code(&error) == Some(SPECIFIC_ACCESS_DENIED) => Ok(None),
        Err(error) => {
            let act = format!("find the open transactions for {}", table.name);
            Err(failure(act, session.server().name(), error))
        }
    }
}

/// Refuses a server that cannot know which transactions are open.
async fn refuse_others(session: &mut Session, table: &Table, settings: &Settings) -> Result<()> {
    if settings.allow_late_commits {
        return Ok(());
    }
    let act = format!("find the role of the server of {}", table.name);
    let sql = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('read_only', 'wsrep_on')";
    let found: Vec<(String, String)> = session.query(&act, sql, ()).await?;
    let is_on = |wanted: &str| {
        found.iter().any(|(name, value)| {
            name.eq_ignore_ascii_case(wanted)
                && !matches!(&*value.to_ascii_uppercase(), "OFF" | "0")
        })
    };
    let what = match (is_on("read_only"), is_on("wsrep_on")) {
        (true, _) => "is read-only, as a replica is",
        (_, true) => "is a node of a Galera cluster",
        _ => return Ok(()),
    };
    Err(ConnectorError::unsupported(
        format!("{} cannot be read incrementally from a server that {what}", table.name),
        "it does not show which transactions are open on other servers, and rows that these commit late \
         would be missed: read from the primary, with `sync_mode: full_refresh`, or set \
         `allow_late_commits: true`",
    ))
}

/// Waits until statements that begin now get a larger value than `bound` from the server's clock. A value that is
/// ahead of the clock is not waited for.
async fn wait_for_clock(
    session: &mut Session,
    table: &Table,
    field: &Ordered,
    bound: &str,
) -> Result<()> {
    let full = table.column(&field.name).map_or("", |column| column.full_type.as_str());
    let digits = full.chars().find(char::is_ascii_digit).unwrap_or('0');
    let sql = format!(
        "SELECT CAST(? AS DATETIME(6)) BETWEEN NOW({digits}) AND NOW(6) + INTERVAL 1 SECOND"
    );
    let act = format!("read the clock of the server of {}", table.name);
    loop {
        let now: Vec<(i64,)> = session.query(&act, &sql, vec![bound.to_owned()]).await?;
        if now.first().is_none_or(|(is_now,)| *is_now == 0) {
            return Ok(());
        }
        sleep(TICK).await;
    }
}

fn hidden(session: &Session, table: &Table) -> ConnectorError {
    ConnectorError::unsupported(
        format!(
            "{} cannot be read incrementally: the user of {} may not see which transactions are open, and rows \
             that these commit late would be missed",
            table.name,
            session.server().name()
        ),
        "grant the user PROCESS, read with `sync_mode: full_refresh`, or set `allow_late_commits: true`",
    )
}

fn busy(table: &Table, open: &[Transaction], wait: Duration) -> ConnectorError {
    let who: Vec<String> = open
        .iter()
        .take(LISTED_MAX)
        .map(|(connection, begun)| format!("connection {connection} since {begun}"))
        .collect();
    ConnectorError::Busy {
        act: format!(
            "read {} incrementally: {} earlier transactions are still open ({})",
            table.name,
            open.len(),
            who.join(", ")
        ),
        source: format!(
            "waited {wait:?} (`wait_for_late_commits`); see information_schema.INNODB_TRX"
        )
        .into(),
    }
}
