//! A table without a key: its rows are found by all their values.
//!
//! Values are compared as the text of the whole row, in which NULL and an empty text differ. So types without
//! equality (json, xml, point) are compared as well, and numbers that are equal and look different (1.5, 1.50) are not
//! confused, as the source does not confuse them. Of several rows that are the same, each change gets another one:
//! they are numbered on both sides.
//!
//! ```text
//! staged    op, o0 o1 ... (the values before), c0 c1 ... (the values after)
//! matched   op, the place of a row at the destination, c0 c1 ...
//! ```
//!
//! Invariant: every deletion and update of a unit has a row for itself, or the unit fails.

use bytes::BufMut as _;
use forebay_sdk::changes::feed::{Applied, FeedStream, changed_by_others};
use forebay_sdk::changes::{BagChanges, BagEffect, ChangedRow, Field};
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use tokio_postgres::{Client, Statement};

use super::super::connect::refused;
use super::super::sql::{TableName, ident, idents};
use super::send::{Sender, field_count, put_field};

const DELETE: i32 = 0;
const INSERT: i32 = 1;
const UPDATE: i32 = 2;

/// Whether an index forbids rows, or a column takes no values in an update.
const REBUILDS: &str = "
select exists (select from pg_index where indrelid = to_regclass($1) and (indisunique or indisexclusion))
  or exists (select from pg_attribute where attrelid = to_regclass($1) and attidentity = 'a' and not attisdropped)";

/// A table without a key that changes are applied to.
pub(super) struct Bag {
    name: TableName,
    columns: Vec<String>,
    /// Whether rows that change are deleted and inserted again: an index of the destination forbids rows, or a column
    /// takes no values in an update.
    rebuilds: bool,
    staged: String,
    matched: String,
    /// COPY into the staging table.
    copy: Statement,
}

impl Bag {
    /// Prepares a table.
    ///
    /// * `at`: the number of its stream.
    pub(super) async fn open(
        client: &Client,
        at: usize,
        name: &TableName,
        stream: &FeedStream,
    ) -> Result<Self> {
        let act = |error| refused(format!("prepare {name} for changes"), error);
        let sql = name.sql();
        let rebuilds: bool = client.query_one(REBUILDS, &[&sql]).await.map_err(act)?.get(0);
        let columns: Vec<String> = stream.columns.iter().map(|c| c.name.clone()).collect();
        let of = |prefix: &str| {
            let values = columns.iter().enumerate();
            let values = values.map(|(at, name)| format!("{} {prefix}{at}", ident(name)));
            values.collect::<Vec<_>>().join(", ")
        };
        let (before, after) = (of("o"), of("c"));
        let staged = format!("pg_temp.forebay_staged_{at}");
        let matched = format!("pg_temp.forebay_matched_{at}");
        let create = format!(
            "create temp table {staged} on commit delete rows as select 0::int4 op, {before}, {after} from {sql} with no data;
             create temp table {matched} on commit delete rows as
               select 0::int4 op, tableoid part, ctid place, {after} from {sql} with no data"
        );
        client.batch_execute(&create).await.map_err(act)?;
        let copy = format!("copy {staged} from stdin (format binary)");
        let copy = client.prepare(&copy).await.map_err(act)?;
        let name = name.clone();
        Ok(Self { name, columns, rebuilds, staged, matched, copy })
    }

    pub(super) fn name(&self) -> &TableName {
        &self.name
    }

    /// Drops the temporary tables.
    pub(super) async fn close(&self, client: &Client) -> Result<()> {
        let drop = format!("drop table {}, {}", self.staged, self.matched);
        let dropped = client.batch_execute(&drop).await;
        dropped.map_err(|error| refused(format!("prepare {} for changes", self.name), error))
    }

    /// Applies what changes amount to, in the transaction of the connection. The table was emptied before, if it
    /// was emptied at the source.
    pub(super) async fn apply(&self, client: &Client, changes: BagChanges) -> Result<Applied> {
        let mut applied = Applied::default();
        let effects = changes.into_effects();
        for effect in &effects {
            match effect {
                BagEffect::Delete(_) => applied.deleted += 1,
                BagEffect::Update { .. } => applied.updated += 1,
                BagEffect::Insert(_) => applied.inserted += 1,
            }
        }
        if effects.is_empty() {
            return Ok(applied);
        }
        let (staged, matched) = (&self.staged, &self.matched);
        // A part of the same transaction may have left rows in them.
        self.execute(client, &format!("truncate {staged}, {matched}")).await?;
        self.stage(client, &effects).await?;
        self.execute(client, &format!("analyze {staged}")).await?;
        let wanted = applied.deleted + applied.updated;
        if wanted > 0 {
            let found = self.execute(client, &self.matching()).await?;
            if found != wanted {
                let what = "updated or deleted";
                return Err(changed_by_others(&self.name.to_string(), found, wanted, what));
            }
            self.execute(client, &format!("analyze {matched}")).await?;
        }
        self.change(client, applied).await?;
        Ok(applied)
    }

    async fn stage(&self, client: &Client, effects: &[BagEffect]) -> Result<()> {
        let count = field_count(1 + 2 * self.columns.len())?;
        let mut sender = Sender::begin(client, &self.copy, &self.name).await?;
        for effect in effects {
            let (op, before, after) = match effect {
                BagEffect::Delete(before) => (DELETE, Some(before), None),
                BagEffect::Update { before, after } => (UPDATE, Some(before), Some(after)),
                BagEffect::Insert(after) => (INSERT, None, Some(after)),
            };
            sender.buffer.put_i16(count);
            put_field(&mut sender.buffer, Field::Value(&op.to_be_bytes()));
            for row in [before, after] {
                self.put(&mut sender, row);
            }
            sender.end_row().await?;
        }
        let stored = sender.finish().await?;
        if stored == effects.len() as u64 {
            return Ok(());
        }
        let found = format!("{stored} of {} changes were staged", effects.len());
        Err(ConnectorError::data(self.name.to_string(), found))
    }

    fn put(&self, sender: &mut Sender<'_>, row: Option<&ChangedRow>) {
        match row {
            Some(row) => row.fields().for_each(|field| put_field(&mut sender.buffer, field)),
            None => self.columns.iter().for_each(|_| put_field(&mut sender.buffer, Field::Null)),
        }
    }

    /// The statement that finds a row for each deletion and update.
    fn matching(&self) -> String {
        let columns = || 0..self.columns.len();
        let before: Vec<String> = columns().map(|at| format!("o{at}")).collect();
        let after: Vec<String> = columns().map(|at| format!("c{at}")).collect();
        let of_table: Vec<String> =
            self.columns.iter().map(|name| format!("t.{}", ident(name))).collect();
        let (after, number) = (after.join(", "), "row_number() over (partition by whole)");
        format!(
            "insert into {matched}
             with wanted as (select op, whole, {number} number, {after} from
                 (select *, row({before})::text collate \"C\" whole from {staged} where op <> {INSERT}) s),
               found as (select part, place, whole, {number} number from
                 (select t.tableoid part, t.ctid place, row({of_table})::text collate \"C\" whole from {into} t) t
                 where whole in (select whole from wanted))
             select op, part, place, {after} from wanted join found using (whole, number)",
            matched = self.matched,
            staged = self.staged,
            into = self.name.sql(),
            before = before.join(", "),
            of_table = of_table.join(", "),
        )
    }

    /// Deletes, updates and inserts.
    async fn change(&self, client: &Client, applied: Applied) -> Result<()> {
        let (into, matched) = (self.name.sql(), &self.matched);
        let same = "t.tableoid = m.part and t.ctid = m.place";
        let gone = if self.rebuilds { format!("{DELETE}, {UPDATE}") } else { DELETE.to_string() };
        let delete =
            format!("delete from {into} t using {matched} m where {same} and m.op in ({gone})");
        let again = if self.rebuilds { applied.updated } else { 0 };
        self.check(client, &delete, applied.deleted + again, "deleted").await?;
        let sets = self.columns.iter().enumerate();
        let sets: Vec<String> =
            sets.map(|(at, name)| format!("{} = m.c{at}", ident(name))).collect();
        let update = format!(
            "update {into} t set {} from {matched} m where {same} and m.op = {UPDATE}",
            sets.join(", ")
        );
        self.check(client, &update, applied.updated - again, "updated").await?;
        let values = (0..self.columns.len()).map(|at| format!("c{at}"));
        let values = values.collect::<Vec<_>>().join(", ");
        let ops = if self.rebuilds { format!("{INSERT}, {UPDATE}") } else { INSERT.to_string() };
        let insert = format!(
            "insert into {into} ({}) overriding system value select {values} from {} where op in ({ops})",
            idents(self.columns.iter().map(String::as_str)),
            self.staged,
        );
        self.check(client, &insert, applied.inserted + again, "inserted").await
    }

    /// Executes a statement that affects this many rows.
    async fn check(&self, client: &Client, sql: &str, wanted: u64, what: &str) -> Result<()> {
        if wanted == 0 {
            return Ok(());
        }
        match self.execute(client, sql).await? {
            found if found == wanted => Ok(()),
            found => Err(changed_by_others(&self.name.to_string(), found, wanted, what)),
        }
    }

    async fn execute(&self, client: &Client, statement: &str) -> Result<u64> {
        let done = client.execute(statement, &[]).await;
        done.map_err(|error| refused(format!("apply changes to {}", self.name), error))
    }
}
