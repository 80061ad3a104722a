//! The rows of a unit in a temporary table, and the statements that apply them from there.
//!
//! ```text
//! op          what is done with the row: -1 marks it as deleted, 0 deletes it, 1 inserts it, 2 and more update it
//!             with one set of columns each
//! d           when it was deleted, where deleted rows are kept
//! k0 k1 ...   the key of the row at the destination; NULL for an insertion
//! c0 c1 ...   the values; NULL where they are not sent
//! ```
//!
//! Where no key changes, and no other index of the table is unique, rows are deleted, then updated, then inserted.
//! Elsewhere an order of updates in which no two rows collide on the way need not exist (two keys that are
//! exchanged): there every row that changes is rebuilt beside the table, with the values that were not sent, deleted,
//! and inserted again.
//!
//! Where deleted rows are kept, one of them gives way to a row that is inserted with its key, or moved to it.
//!
//! Invariant: every statement affects exactly as many rows as the unit has for it, or the unit fails.

use bytes::BufMut as _;
use forebay_sdk::changes::feed::{Applied, FeedStream, changed_by_others};
use forebay_sdk::changes::{ChangedRow, Effect, Field, NetChanges};
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use tokio_postgres::{Client, Statement};

use super::super::catalog;
use super::super::connect::refused;
use super::super::sql::{TableName, ident, idents};
use super::send::{Sender, field_count, put_field};
use crate::replication::envelope::ServerTime;

const MARK: i32 = -1;
const DELETE: i32 = 0;
const INSERT: i32 = 1;
const UPDATE: i32 = 2;
/// The column with the time of a deletion.
use super::super::DELETED_AT;
/// Rows from which on the staging table is analysed: with fewer, the planner's guess is good enough.
const ANALYZE_FROM: usize = 5_000;

/// A table that changes are applied to.
pub(super) struct Table {
    name: TableName,
    columns: Vec<String>,
    key: Vec<usize>,
    /// Whether another index than that of the key forbids rows.
    has_other_unique: bool,
    /// Whether deleted rows stay, with the time of their deletion.
    keeps_deleted: bool,
    staging: String,
    rebuilt: String,
    /// COPY into the table, and into the staging table.
    direct: Statement,
    staged: Statement,
}

/// The effects of one unit on a table.
struct Unit {
    marked: u64,
    deleted: u64,
    inserted: u64,
    /// Sets of columns that are sent, with the number of rows.
    updated: Vec<(Vec<bool>, u64)>,
    moves: bool,
    /// Whether the table was emptied in it, which came before.
    is_truncated: bool,
}

/// Whether a unique index of the key finds its rows, and whether any other one forbids rows.
const INDEXES: &str = "
select coalesce(bool_or(i.is_key and i.indisvalid), false), coalesce(bool_or(not i.is_key), false)
from (
  select i.indisvalid,
    i.indisunique and i.indpred is null and i.indexprs is null
      and i.indnkeyatts = cardinality($2::text[])
      and (select array_agg(a.attname::text order by a.attname::text)
           from unnest(i.indkey::int2[]) with ordinality k(att, ord)
           join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.att
           where k.ord <= i.indnkeyatts)
        = (select array_agg(n order by n) from unnest($2::text[]) n) is_key
  from pg_index i
  where i.indrelid = to_regclass($1) and (i.indisunique or i.indisexclusion)) i";

impl Table {
    /// Prepares a table: its key has an index, and the temporary tables exist.
    ///
    /// * `at`: the number of its stream.
    /// * `keeps_deleted`: whether deleted rows stay.
    pub(super) async fn open(
        client: &Client,
        at: usize,
        name: &TableName,
        stream: &FeedStream,
        keeps_deleted: bool,
    ) -> Result<Self> {
        let act = |error| refused(format!("prepare {name} for changes"), error);
        let columns: Vec<String> = stream.columns.iter().map(|c| c.name.clone()).collect();
        let key: Vec<usize> =
            stream.columns.iter().enumerate().filter(|(_, c)| c.is_key).map(|(at, _)| at).collect();
        let keys: Vec<&str> =
            key.iter().filter_map(|at| columns.get(*at)).map(String::as_str).collect();
        let sql = name.sql();
        let indexes = client.query_one(INDEXES, &[&sql, &keys]).await.map_err(act)?;
        let (has_index, has_other_unique): (bool, bool) = (indexes.get(0), indexes.get(1));
        if !has_index {
            let add =
                format!("alter table {sql} add primary key ({})", idents(keys.iter().copied()));
            client.batch_execute(&add).await.map_err(act)?;
        }
        if keeps_deleted {
            add_deleted_at(client, name, &columns).await?;
        }
        let (staging, rebuilt) =
            (format!("pg_temp.forebay_staged_{at}"), format!("pg_temp.forebay_rebuilt_{at}"));
        let time = if keeps_deleted { ", null::timestamptz d" } else { "" };
        let mut list = vec![format!("0::int4 op{time}")];
        list.extend(keys.iter().enumerate().map(|(at, key)| format!("{} k{at}", ident(key))));
        let values = columns.iter().enumerate();
        let values: Vec<String> =
            values.map(|(at, name)| format!("{} c{at}", ident(name))).collect();
        list.extend(values.iter().cloned());
        let create = format!(
            "create temp table {staging} on commit delete rows as select {} from {sql} with no data;
             create temp table {rebuilt} on commit delete rows as select {}{time} from {sql} with no data",
            list.join(", "),
            values.join(", "),
        );
        client.batch_execute(&create).await.map_err(act)?;
        let names = idents(columns.iter().map(String::as_str));
        let direct = format!("copy {sql} ({names}) from stdin (format binary)");
        let direct = client.prepare(&direct).await.map_err(act)?;
        let staged = format!("copy {staging} from stdin (format binary)");
        let staged = client.prepare(&staged).await.map_err(act)?;
        let name = name.clone();
        Ok(Self {
            name,
            columns,
            key,
            has_other_unique,
            keeps_deleted,
            staging,
            rebuilt,
            direct,
            staged,
        })
    }

    pub(super) fn name(&self) -> &TableName {
        &self.name
    }

    /// Drops the temporary tables.
    pub(super) async fn close(&self, client: &Client) -> Result<()> {
        let drop = format!("drop table {}, {}", self.staging, self.rebuilt);
        let dropped = client.batch_execute(&drop).await;
        dropped.map_err(|error| refused(format!("prepare {} for changes", self.name), error))
    }

    /// The name, in SQL.
    pub(super) fn sql(&self) -> String {
        self.name.sql()
    }

    /// Whether deleted rows stay.
    pub(super) fn keeps_deleted(&self) -> bool {
        self.keeps_deleted
    }

    /// Marks all rows as deleted, in the transaction of the connection.
    ///
    /// * `at_us`: when, in microseconds since 1970.
    pub(super) async fn mark_all(&self, client: &Client, at_us: i64) -> Result<()> {
        let mark = format!(
            "update {} set {DELETED_AT} = timestamptz '2000-01-01 00:00:00+00' + {} * interval '1 us'
             where {DELETED_AT} is null",
            self.sql(),
            ServerTime::from_unix_us(at_us).0
        );
        self.execute(client, &mark).await.map(drop)
    }

    /// Applies what changes amount to, in the transaction of the connection.
    ///
    /// * `is_continued`: whether that has applied others before.
    pub(super) async fn apply(
        &self,
        client: &Client,
        net: NetChanges,
        is_continued: bool,
    ) -> Result<Applied> {
        let is_truncated = net.truncated_us().is_some();
        let effects = &*net.into_effects();
        let unit = Unit::of(effects, is_truncated);
        let applied = Applied {
            inserted: unit.inserted,
            updated: unit.updated.iter().map(|(_, rows)| rows).sum(),
            deleted: unit.deleted + unit.marked,
        };
        if applied == Applied::default() {
            return Ok(applied);
        }
        if applied.updated == 0 && applied.deleted == 0 && !self.keeps_deleted {
            let rows = effects.iter().filter_map(|effect| match effect {
                Effect::Insert { row, .. } => Some(row),
                _ => None,
            });
            let copied = self.copy_direct(client, rows).await?;
            self.check(copied, unit.inserted, "inserted")?;
            return Ok(applied);
        }
        if is_continued {
            let (staging, rebuilt) = (&self.staging, &self.rebuilt);
            self.execute(client, &format!("truncate {staging}, {rebuilt}")).await?;
        }
        self.copy_staged(client, effects, &unit).await?;
        if effects.len() >= ANALYZE_FROM {
            self.execute(client, &format!("analyze {}", self.staging)).await?;
        }
        if unit.moves || self.has_other_unique {
            self.rebuild(client, &unit).await?;
        } else {
            self.change(client, &unit).await?;
        }
        Ok(applied)
    }

    /// Deletes, updates and inserts.
    async fn change(&self, client: &Client, unit: &Unit) -> Result<()> {
        let (into, staging, same) = (self.sql(), &self.staging, self.same(unit));
        self.mark(client, unit).await?;
        if unit.deleted > 0 {
            let delete =
                format!("delete from {into} t using {staging} s where {same} and s.op = {DELETE}");
            self.check(self.execute(client, &delete).await?, unit.deleted, "deleted")?;
        }
        for (number, (sent, rows)) in (UPDATE..).zip(&unit.updated) {
            let set = (self.columns.iter().zip(sent).enumerate())
                .filter(|(at, (_, sent))| **sent && !self.key.contains(at))
                .map(|(at, (name, _))| format!("{} = s.c{at}", ident(name)));
            let time = self.keeps_deleted.then(|| format!("{DELETED_AT} = s.d"));
            let set: Vec<String> = set.chain(time).collect();
            // An update of nothing but the key, which stays: the row has to be there all the same.
            let update = if set.is_empty() {
                format!("select from {into} t join {staging} s on {same} where s.op = {number}")
            } else {
                let set = set.join(", ");
                format!(
                    "update {into} t set {set} from {staging} s where {same} and s.op = {number}"
                )
            };
            self.check(self.execute(client, &update).await?, *rows, "updated")?;
        }
        if unit.inserted > 0 {
            self.supersede(client, &format!("s.op = {INSERT}")).await?;
            let insert = format!(
                "insert into {into} ({}) overriding system value select {} from {staging} where op = {INSERT}",
                self.names(),
                self.values()
            );
            self.check(self.execute(client, &insert).await?, unit.inserted, "inserted")?;
        }
        Ok(())
    }

    /// Rebuilds every row that changes.
    async fn rebuild(&self, client: &Client, unit: &Unit) -> Result<()> {
        let (into, staging, same) = (self.sql(), &self.staging, self.same(unit));
        let rebuilt = &self.rebuilt;
        self.mark(client, unit).await?;
        for (number, (sent, rows)) in (UPDATE..).zip(&unit.updated) {
            let values = (self.columns.iter().zip(sent).enumerate()).map(|(at, (name, sent))| {
                if *sent { format!("s.c{at}") } else { format!("t.{}", ident(name)) }
            });
            let values: Vec<String> = values.chain(self.time("s.d")).collect();
            let merge = format!(
                "insert into {rebuilt} select {} from {staging} s join {into} t on {same} \
                 where s.op = {number}",
                values.join(", ")
            );
            self.check(self.execute(client, &merge).await?, *rows, "updated")?;
        }
        let delete = format!(
            "delete from {into} t using {staging} s where {same} and s.op not in ({INSERT}, {MARK})"
        );
        let gone = unit.deleted + unit.updated.iter().map(|(_, rows)| rows).sum::<u64>();
        self.check(self.execute(client, &delete).await?, gone, "deleted")?;
        self.supersede(client, &format!("s.op >= {INSERT}")).await?;
        let insert = format!(
            "insert into {into} ({}) overriding system value select {} from {rebuilt} \
             union all select {} from {staging} where op = {INSERT}",
            self.names(),
            self.values(),
            self.values()
        );
        let rows = unit.inserted + gone - unit.deleted;
        self.check(self.execute(client, &insert).await?, rows, "inserted")
    }

    /// Marks rows as deleted.
    async fn mark(&self, client: &Client, unit: &Unit) -> Result<()> {
        if unit.marked == 0 {
            return Ok(());
        }
        let (into, staging, same) = (self.sql(), &self.staging, self.same(unit));
        let mark = format!(
            "update {into} t set {DELETED_AT} = s.d from {staging} s where {same} and s.op = {MARK}"
        );
        self.check(self.execute(client, &mark).await?, unit.marked, "marked as deleted")
    }

    /// Removes deleted rows whose key one of these staged rows takes.
    async fn supersede(&self, client: &Client, staged: &str) -> Result<()> {
        if !self.keeps_deleted {
            return Ok(());
        }
        let keys = self.key.iter().filter_map(|at| Some((at, self.columns.get(*at)?)));
        let keys: Vec<String> =
            keys.map(|(at, name)| format!("t.{} = s.c{at}", ident(name))).collect();
        let delete = format!(
            "delete from {} t using {} s where {} and {staged} and t.{DELETED_AT} is not null",
            self.sql(),
            self.staging,
            keys.join(" and ")
        );
        self.execute(client, &delete).await.map(drop)
    }

    /// Whether a row of the table `t` has the key of a staged one `s`, and is not a deleted one.
    fn same(&self, unit: &Unit) -> String {
        let keys = self.key.iter().filter_map(|at| self.columns.get(*at)).enumerate();
        let keys = keys.map(|(at, name)| format!("t.{} = s.k{at}", ident(name)));
        let live = self.keeps_deleted && !unit.is_truncated;
        let live = live.then(|| format!("t.{DELETED_AT} is null"));
        keys.chain(live).collect::<Vec<_>>().join(" and ")
    }

    /// The columns that are written.
    fn names(&self) -> String {
        let time = self.keeps_deleted.then_some(DELETED_AT);
        idents(self.columns.iter().map(String::as_str).chain(time))
    }

    /// Their values in the temporary tables.
    fn values(&self) -> String {
        let values = (0..self.columns.len()).map(|at| format!("c{at}")).chain(self.time("d"));
        values.collect::<Vec<_>>().join(", ")
    }

    /// The time of a deletion, where deleted rows are kept.
    fn time(&self, name: &str) -> Option<String> {
        self.keeps_deleted.then(|| name.to_owned())
    }

    async fn execute(&self, client: &Client, statement: &str) -> Result<u64> {
        let done = client.execute(statement, &[]).await;
        done.map_err(|error| refused(format!("apply changes to {}", self.name), error))
    }

    fn check(&self, found: u64, wanted: u64, what: &str) -> Result<()> {
        if found == wanted {
            return Ok(());
        }
        Err(changed_by_others(&self.name.to_string(), found, wanted, what))
    }

    /// Copies rows into the table itself.
    async fn copy_direct<'a>(
        &self,
        client: &Client,
        rows: impl Iterator<Item = &'a ChangedRow>,
    ) -> Result<u64> {
        let mut sender = Sender::begin(client, &self.direct, &self.name).await?;
        let count = field_count(self.columns.len())?;
        for row in rows {
            let fields = row.as_copy().ok_or_else(|| self.missing())?;
            sender.buffer.put_i16(count);
            sender.buffer.extend_from_slice(fields);
            sender.end_row().await?;
        }
        sender.finish().await
    }

    /// Copies all effects into the staging table.
    async fn copy_staged(&self, client: &Client, effects: &[Effect], unit: &Unit) -> Result<()> {
        let mut sender = Sender::begin(client, &self.staged, &self.name).await?;
        let own = 1 + usize::from(self.keeps_deleted);
        let count = field_count(own + self.key.len() + self.columns.len())?;
        for effect in effects {
            let (op, key, row, at_us) = match effect {
                Effect::Delete { key, kept_us: None } => (DELETE, Some(key), None, None),
                Effect::Delete { key, kept_us } => (MARK, Some(key), None, *kept_us),
                Effect::Insert { row, deleted_us } => (INSERT, None, Some(row), *deleted_us),
                Effect::Update { key, row, deleted_us, .. } => {
                    (unit.number(row), Some(key), Some(row), *deleted_us)
                }
            };
            let buffer = &mut sender.buffer;
            buffer.put_i16(count);
            buffer.put_i32(4);
            buffer.put_i32(op);
            if self.keeps_deleted {
                let at = at_us.map(|at_us| ServerTime::from_unix_us(at_us).0.to_be_bytes());
                put_field(buffer, at.as_ref().map_or(Field::Null, |at| Field::Value(at)));
            }
            match key {
                Some(key) => buffer.extend_from_slice(key.as_bytes()),
                None => self.key.iter().for_each(|_| put_field(buffer, Field::Null)),
            }
            match row {
                Some(row) => row.fields().for_each(|field| put_field(buffer, field)),
                None => self.columns.iter().for_each(|_| put_field(buffer, Field::Null)),
            }
            sender.end_row().await?;
        }
        let copied = sender.finish().await?;
        self.check(copied, effects.len() as u64, "staged")
    }

    fn missing(&self) -> ConnectorError {
        ConnectorError::data(self.name.to_string(), "a row misses a value".to_owned())
    }
}

/// Adds the column with the time of a deletion.
async fn add_deleted_at(client: &Client, name: &TableName, columns: &[String]) -> Result<()> {
    if columns.iter().any(|column| column == DELETED_AT) {
        return Err(ConnectorError::unsupported(
            format!("{name} has a column {DELETED_AT:?}, in which deleted rows are marked"),
            "rename it at the source, or use `deleted_rows: delete`",
        ));
    }
    let there = catalog::table(client, name).await?.map(|table| table.columns);
    // Otherwise it would wait for every reader.
    if there.unwrap_or_default().iter().any(|column| column.name == DELETED_AT) {
        return Ok(());
    }
    let add = format!("alter table {} add column {DELETED_AT} timestamptz", name.sql());
    let added = client.batch_execute(&add).await;
    added.map_err(|error| refused(format!("prepare {name} for changes"), error))
}

impl Unit {
    fn of(effects: &[Effect], is_truncated: bool) -> Self {
        let (moves, updated) = (false, Vec::new());
        let mut unit = Self { marked: 0, deleted: 0, inserted: 0, updated, moves, is_truncated };
        for effect in effects {
            match effect {
                Effect::Delete { kept_us: Some(_), .. } => unit.marked += 1,
                Effect::Delete { kept_us: None, .. } => unit.deleted += 1,
                Effect::Insert { .. } => unit.inserted += 1,
                Effect::Update { row, moves, .. } => {
                    unit.moves |= moves;
                    let sent = sent(row);
                    match unit.updated.iter_mut().find(|(known, _)| *known == sent) {
                        Some((_, rows)) => *rows += 1,
                        None => unit.updated.push((sent, 1)),
                    }
                }
            }
        }
        unit
    }

    /// The number of an update: that of its set of columns.
    fn number(&self, row: &ChangedRow) -> i32 {
        let sent = sent(row);
        let at = self.updated.iter().position(|(known, _)| *known == sent).unwrap_or(0);
        UPDATE.saturating_add(i32::try_from(at).unwrap_or(i32::MAX))
    }
}

/// Which columns of a row were sent.
fn sent(row: &ChangedRow) -> Vec<bool> {
    row.fields().map(|field| field != Field::Unchanged).collect()
}
