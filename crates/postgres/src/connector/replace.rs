//! The end of a load that replaces a table: by a swap, or by refilling the table (`kept`).
//!
//! Invariants:
//! * Everything is one transaction, with the mark in the ledger that ends the load: a run that is killed
//!   before its commit has changed nothing, and the next run ends the load.
//! * What decides is looked up under the lock: no one can add a policy or a view in between.
//! * A refilled table has exactly the rows that the ledger lists, or the load fails.

use std::time::Duration;

use forebay_sdk::connector::{Load, Result};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::run::Context;
use futures_util::future::try_join3;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::connect::refused;
use super::exchange::{self, Exchanged};
use super::kept::{Kept, index_names};
use super::ledger::Ledger;
use super::sql::{TableName, ident, literal};

/// The comment of a staging table that has only the rows: it cannot take the place of a table.
const ROWS_ONLY: &str = "forebay: rows only";

/// How long a request for the table's lock waits.
const LOCK_WAIT: &str = "2s";
/// Time between two requests.
const LOCK_PAUSE: Duration = Duration::from_secs(1);
/// Number of requests: five minutes. The caller tries again then.
const LOCK_REQUESTS_MAX: u32 = 100;

/// Sequences owned by a table's columns.
const OWNED: &str = "
select s.oid::regclass::text, a.attname::text
from pg_depend d join pg_class s on s.oid = d.objid and s.relkind = 'S'
join pg_attribute a on a.attrelid = d.refobjid and a.attnum = d.refobjsubid
where d.deptype = 'a' and d.refobjid = $1::regclass";

/// Privileges of others on a table.
const GRANTS: &str = "
select x.privilege_type, case when x.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(x.grantee)) end,
       x.is_grantable
from pg_class c, aclexplode(c.relacl) x where c.oid = $1::regclass and x.grantee <> c.relowner";

/// A table that is replaced.
pub(super) struct Replacing<'a> {
    pub(super) name: &'a TableName,
    /// The columns that are written.
    pub(super) written: Vec<&'a str>,
    /// The changes of the table's columns.
    pub(super) changes: &'a [String],
    /// What was to be kept when the load was planned.
    pub(super) kept: &'a Kept,
}

impl Replacing<'_> {
    /// The statements that create a staging table for rows only.
    ///
    /// * `columns`: those of the table.
    /// * `is_tolerant`: whether refused rows are skipped: then the staging table refuses what the
    ///   table would.
    pub(super) fn stage(
        &self,
        staged: &TableName,
        columns: &[&str],
        is_tolerant: bool,
    ) -> Vec<String> {
        let (aside, name) = (staged.sql(), self.name.sql());
        let unlogged = if self.kept.is_published_with_all { "unlogged " } else { "" };
        let indexes = if is_tolerant { " including indexes" } else { "" };
        let mut statements = vec![format!(
            "create {unlogged}table {aside} (like {name} including constraints{indexes} including storage)"
        )];
        let others = columns.iter().filter(|column| !self.written.contains(column));
        let drops: Vec<String> =
            others.map(|column| format!("drop column {}", ident(column))).collect();
        if !drops.is_empty() {
            statements.push(format!("alter table {aside} {}", drops.join(", ")));
        }
        statements.extend(self.changes.iter().map(|change| change.replace(&name, &aside)));
        statements.push(format!("comment on table {aside} is {}", literal(ROWS_ONLY)));
        statements
    }

    /// The statements that replace the rows inside the table, except the UPDATE and the INSERT: those
    /// before rows are removed, and from then on.
    fn empty(&self, kept: &Kept, staged: &TableName) -> (Vec<String>, Vec<String>) {
        let empty = kept.empty(self.name, staged, &self.written);
        let changes = self.changes.to_vec();
        if kept.keeps_rows() {
            (changes, empty)
        } else {
            // An empty table is changed at once.
            (Vec::new(), [empty, changes].concat())
        }
    }

    /// The statements of [`finish`](Self::finish), for a plan.
    pub(super) fn plan(&self, staged: &TableName) -> Vec<String> {
        let (changes, empty) = self.empty(self.kept, staged);
        let mut plan = [changes, empty].concat();
        plan.extend(self.kept.update(self.name, staged, &self.written));
        plan.push(self.kept.insert(self.name, staged, &self.written));
        plan.push(format!("drop table {}", staged.sql()));
        plan
    }

    /// Ends a load in one transaction.
    ///
    /// * `begin`: begins it.
    pub(super) async fn finish(
        &self,
        client: &Client,
        staged: &TableName,
        begin: &str,
        ledger: &Ledger,
        (settings, load): (&forebay_sdk::settings::TargetSettings, &Load),
        context: &Context,
    ) -> Result<()> {
        let act = |error| refused(format!("finish {}", self.name), error);
        self.lock(client, begin, context).await?;
        let kept = Kept::of(client, self.name).await?;
        let end = format!("{}; commit", ledger.finish(settings, load)?);
        let is_refill = kept.forbids_swap() || is_rows_only(client, staged).await?;
        let swap = if is_refill { None } else { self.swap(client, staged).await? };
        if let Some(swap) = swap {
            let swap = swap.join(";\n");
            let swapped = client.batch_execute(&format!("{swap};\n{end}")).await;
            return swapped
                .map_err(|error| refused(format!("finish {} ({swap})", self.name), error));
        }
        let expected = ledger.rows(client, settings, load).await?;
        self.is_staged(client, staged, expected).await?;
        self.refill(client, &kept, staged, expected).await?;
        let end = format!("drop table {}; {end}", staged.sql());
        client.batch_execute(&end).await.map_err(act)
    }

    /// Begins the transaction, and locks the table in it. Sessions that want to read the table wait behind
    /// a request for its lock, so each request is short, and these sessions pass in between.
    async fn lock(&self, client: &Client, begin: &str, context: &Context) -> Result<()> {
        let (name, mode) = (self.name.sql(), self.kept.lock());
        let begin = format!(
            "{begin}; set local lock_timeout = '{LOCK_WAIT}'; lock table {name} in {mode} mode; \
             set local lock_timeout = 0"
        );
        let act = format!(
            "replace {}: other sessions use it (`pg_locks` shows them); a run after they have ended \
             copies nothing again",
            self.name
        );
        for attempt in 1.. {
            let Err(error) = client.batch_execute(&begin).await else { return Ok(()) };
            if error.code() != Some(&SqlState::LOCK_NOT_AVAILABLE) {
                return Err(refused(format!("finish {}", self.name), error));
            }
            if attempt == LOCK_REQUESTS_MAX {
                return Err(ConnectorError::Busy { act, source: error.into() });
            }
            if attempt == 1 {
                tracing::warn!("waiting to {act}");
            }
            let ended = client.batch_execute("rollback").await;
            ended.map_err(|error| refused(format!("finish {}", self.name), error))?;
            tokio::select! {
                () = forebay_sdk::platform::sleep(LOCK_PAUSE) => {}
                () = context.cancelled() => return Err(ConnectorError::Stopped),
            }
        }
        Ok(())
    }

    /// The statements that put the staging table in the place of the table. `None` if indexes would
    /// lose their names.
    async fn swap(&self, client: &Client, staged: &TableName) -> Result<Option<Vec<String>>> {
        let (name, aside) = (self.name.sql(), staged.sql());
        let act = |error| refused(format!("look up {}", self.name), error);
        let regclass = literal(&name);
        let (owned, grants) = (OWNED.replace("$1", &regclass), GRANTS.replace("$1", &regclass));
        let asked = try_join3(
            async { client.query_typed(&owned, &[]).await.map_err(act) },
            async { client.query_typed(&grants, &[]).await.map_err(act) },
            index_names(client, self.name, staged),
        );
        let (owned, grants, indexes) = asked.await?;
        let Some(indexes) = indexes else { return Ok(None) };
        let mut statements = Vec::new();
        for row in owned {
            let (sequence, column): (String, String) = (row.get(0), row.get(1));
            let column = ident(&column);
            statements.push(format!("alter sequence {sequence} owned by {aside}.{column}"));
        }
        for row in grants {
            let (privilege, role, option): (String, String, bool) =
                (row.get(0), row.get(1), row.get(2));
            let option = if option { " with grant option" } else { "" };
            statements.push(format!("grant {privilege} on {aside} to {role}{option}"));
        }
        statements.push(format!("drop table {name}"));
        statements.extend(indexes);
        statements.push(format!("alter table {aside} rename to {}", ident(&self.name.table)));
        Ok(Some(statements))
    }

    /// Fails unless the staging table has all rows of the load: a server that crashed empties an
    /// unlogged table.
    async fn is_staged(&self, client: &Client, staged: &TableName, expected: i64) -> Result<()> {
        if !self.kept.is_published_with_all {
            return Ok(());
        }
        let count = format!("select count(*) from {}", staged.sql());
        let count = client.query_one(&count, &[]).await;
        let count: i64 =
            count.map_err(|error| refused(format!("finish {}", self.name), error))?.get(0);
        if count == expected {
            return Ok(());
        }
        Err(ConnectorError::Busy {
            act: format!("replace the rows of {}", self.name),
            source: format!(
                "the server lost {} of {expected} rows of the unlogged staging table when it \
                 crashed; run again: the load starts from the beginning",
                expected - count
            )
            .into(),
        })
    }

    /// Replaces the rows inside the table.
    async fn refill(
        &self,
        client: &Client,
        kept: &Kept,
        staged: &TableName,
        expected: i64,
    ) -> Result<()> {
        let failed = |sql: String| {
            move |error| refused(format!("replace the rows of {} ({sql})", self.name), error)
        };
        let (changes, empty) = self.empty(kept, staged);
        // Rows that the role may not see would stay: that is an error instead.
        let before = ["set local row_security = off".to_owned()];
        let before = [&before[..], &changes].concat().join(";\n");
        client.batch_execute(&before).await.map_err(failed(before.clone()))?;
        let mut replace = vec!["set constraints all deferred".to_owned()];
        replace.extend(empty);
        replace.extend(kept.update(self.name, staged, &self.written));
        let exchanged = self.change(client, kept, &replace.join(";\n")).await?;
        let insert = kept.insert(self.name, staged, &self.written);
        let inserted = client.execute(&insert, &[]).await.map_err(failed(insert.clone()))?;
        if !exchanged.is_empty() {
            // A table with pending checks cannot be altered.
            let checked = client.batch_execute("set constraints all immediate").await;
            checked.map_err(failed("set constraints all immediate".to_owned()))?;
        }
        for index in &exchanged {
            index.create(client, self.name).await?;
        }
        let stored = if kept.keeps_rows() {
            let count = kept.count(self.name);
            let row = client.query_one(&count, &[]).await.map_err(failed(count.clone()))?;
            row.get(0)
        } else {
            i64::try_from(inserted).unwrap_or(i64::MAX)
        };
        if stored == expected {
            return Ok(());
        }
        Err(ConnectorError::unsupported(
            format!(
                "{} would have {stored} rows instead of {expected}: its triggers or rules leave out \
                 or add rows",
                self.name
            ),
            "disable them, or choose another name with `into`",
        ))
    }
}

impl Replacing<'_> {
    /// Executes the statements that remove and update rows. Unique indexes whose values rows exchange
    /// are dropped, and returned.
    async fn change(
        &self,
        client: &Client,
        kept: &Kept,
        statements: &str,
    ) -> Result<Vec<Exchanged>> {
        let act =
            |error| refused(format!("replace the rows of {} ({statements})", self.name), error);
        let mut exchanged: Vec<Exchanged> = Vec::new();
        loop {
            let attempt = format!("savepoint forebay_replace; {statements}");
            let Err(error) = client.batch_execute(&attempt).await else { return Ok(exchanged) };
            let index = exchange::refused_by(&error, self.name);
            // One that was dropped already is the table's no more.
            let index = index.filter(|index| exchanged.iter().all(|of| of.name != *index));
            let Some(index) = index else {
                let in_partition = exchange::in_partition(&error, self.name);
                return Err(in_partition.filter(|_| kept.is_partitioned).unwrap_or(act(error)));
            };
            client.batch_execute("rollback to savepoint forebay_replace").await.map_err(act)?;
            let index = Exchanged::of(client, self.name, &index).await?;
            tracing::info!(
                table = %self.name,
                index = index.name,
                "rows exchange unique values: the index is created again in the same transaction"
            );
            index.drop(client, self.name).await?;
            exchanged.push(index);
        }
    }
}

/// Whether a staging table was made for rows only.
async fn is_rows_only(client: &Client, staged: &TableName) -> Result<bool> {
    let query = format!(
        "select coalesce(obj_description({}::regclass, 'pg_class') = {}, false)",
        literal(&staged.sql()),
        literal(ROWS_ONLY)
    );
    let found = client.query_typed_one(&query, &[]).await;
    found.map(|row| row.get(0)).map_err(|error| refused(format!("look up {staged}"), error))
}
