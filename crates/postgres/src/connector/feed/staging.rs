//! The rows of a unit in a temporary table, and the statements that apply them from there.
//!
//! ```text
//! op          what is done with the row: 0 deletes, 1 inserts, 2 and more update with one set of columns each
//! k0 k1 ...   the key of the row at the destination; NULL for an insertion
//! c0 c1 ...   the values; NULL where they are not sent
//! ```
//!
//! Where no key changes, and no other index of the table is unique, rows are deleted, then updated, then inserted.
//! Elsewhere an order of updates in which no two rows collide on the way need not exist (two keys that are
//! exchanged): there every row that changes is rebuilt beside the table, with the values that were not sent, deleted,
//! and inserted again.
//!
//! Invariant: every statement affects exactly as many rows as the unit has for it, or the unit fails.

use bytes::{BufMut as _, BytesMut};
use forebay_sdk::changes::feed::{Applied, FeedStream};
use forebay_sdk::changes::{ChangedRow, Effect, Field};
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use tokio_postgres::{Client, Statement};

use super::super::connect::refused;
use super::super::sql::{TableName, ident, idents};
use crate::bulk::Copy;

const DELETE: i32 = 0;
const INSERT: i32 = 1;
const UPDATE: i32 = 2;
/// Size at which encoded rows are sent.
const PIECE_SIZE: usize = 256 << 10;
/// Rows from which on the staging table is analysed: with fewer, the planner's guess is good enough.
const ANALYZE_FROM: usize = 5_000;

/// A table that changes are applied to.
pub(super) struct Table {
    name: TableName,
    columns: Vec<String>,
    key: Vec<usize>,
    /// Whether another index than that of the key forbids rows.
    has_other_unique: bool,
    staging: String,
    rebuilt: String,
    /// COPY into the table, and into the staging table.
    direct: Statement,
    staged: Statement,
}

/// The effects of one unit on a table.
struct Unit {
    deleted: u64,
    inserted: u64,
    /// Sets of columns that are sent, with the number of rows.
    updated: Vec<(Vec<bool>, u64)>,
    moves: bool,
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
    pub(super) async fn open(
        client: &Client,
        at: usize,
        name: &TableName,
        stream: &FeedStream,
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
        let (staging, rebuilt) =
            (format!("pg_temp.forebay_staged_{at}"), format!("pg_temp.forebay_rebuilt_{at}"));
        let mut list = vec!["0::int4 op".to_owned()];
        list.extend(keys.iter().enumerate().map(|(at, key)| format!("{} k{at}", ident(key))));
        let values = columns.iter().enumerate();
        let values: Vec<String> =
            values.map(|(at, name)| format!("{} c{at}", ident(name))).collect();
        list.extend(values.iter().cloned());
        let create = format!(
            "create temp table {staging} on commit delete rows as select {} from {sql} with no data;
             create temp table {rebuilt} on commit delete rows as select {} from {sql} with no data",
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
        Ok(Self { name, columns, key, has_other_unique, staging, rebuilt, direct, staged })
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

    /// Applies effects, in the transaction of the connection.
    ///
    /// * `is_continued`: whether that has applied others before.
    pub(super) async fn apply(
        &self,
        client: &Client,
        effects: &[Effect],
        is_continued: bool,
    ) -> Result<Applied> {
        let unit = Unit::of(effects);
        let applied = Applied {
            inserted: unit.inserted,
            updated: unit.updated.iter().map(|(_, rows)| rows).sum(),
            deleted: unit.deleted,
        };
        if applied == Applied::default() {
            return Ok(applied);
        }
        if applied.updated == 0 && applied.deleted == 0 {
            let rows = effects.iter().filter_map(|effect| match effect {
                Effect::Insert { row } => Some(row),
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
        let (into, staging, same) = (self.sql(), &self.staging, self.same());
        if unit.deleted > 0 {
            let delete =
                format!("delete from {into} t using {staging} s where {same} and s.op = {DELETE}");
            self.check(self.execute(client, &delete).await?, unit.deleted, "deleted")?;
        }
        for (number, (sent, rows)) in (UPDATE..).zip(&unit.updated) {
            let set: Vec<String> = (self.columns.iter().zip(sent).enumerate())
                .filter(|(at, (_, sent))| **sent && !self.key.contains(at))
                .map(|(at, (name, _))| format!("{} = s.c{at}", ident(name)))
                .collect();
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
            let insert = format!(
                "insert into {into} ({}) overriding system value select {} from {staging} where op = {INSERT}",
                idents(self.columns.iter().map(String::as_str)),
                self.values("")
            );
            self.check(self.execute(client, &insert).await?, unit.inserted, "inserted")?;
        }
        Ok(())
    }

    /// Rebuilds every row that changes.
    async fn rebuild(&self, client: &Client, unit: &Unit) -> Result<()> {
        let (into, staging, same) = (self.sql(), &self.staging, self.same());
        let rebuilt = &self.rebuilt;
        for (number, (sent, rows)) in (UPDATE..).zip(&unit.updated) {
            let values: Vec<String> = (self.columns.iter().zip(sent).enumerate())
                .map(
                    |(at, (name, sent))| {
                        if *sent { format!("s.c{at}") } else { format!("t.{}", ident(name)) }
                    },
                )
                .collect();
            let merge = format!(
                "insert into {rebuilt} select {} from {staging} s join {into} t on {same} \
                 where s.op = {number}",
                values.join(", ")
            );
            self.check(self.execute(client, &merge).await?, *rows, "updated")?;
        }
        let delete =
            format!("delete from {into} t using {staging} s where {same} and s.op <> {INSERT}");
        let gone = unit.deleted + unit.updated.iter().map(|(_, rows)| rows).sum::<u64>();
        self.check(self.execute(client, &delete).await?, gone, "deleted")?;
        let insert = format!(
            "insert into {into} ({}) overriding system value select {} from {rebuilt} \
             union all select {} from {staging} where op = {INSERT}",
            idents(self.columns.iter().map(String::as_str)),
            self.values(""),
            self.values("")
        );
        let rows = unit.inserted + gone - unit.deleted;
        self.check(self.execute(client, &insert).await?, rows, "inserted")
    }

    /// Whether a row of the table `t` has the key of a staged one `s`.
    fn same(&self) -> String {
        let keys = self.key.iter().filter_map(|at| self.columns.get(*at)).enumerate();
        let keys: Vec<String> =
            keys.map(|(at, name)| format!("t.{} = s.k{at}", ident(name))).collect();
        keys.join(" and ")
    }

    fn values(&self, of: &str) -> String {
        let values: Vec<String> = (0..self.columns.len()).map(|at| format!("{of}c{at}")).collect();
        values.join(", ")
    }

    async fn execute(&self, client: &Client, statement: &str) -> Result<u64> {
        let done = client.execute(statement, &[]).await;
        done.map_err(|error| refused(format!("apply changes to {}", self.name), error))
    }

    fn check(&self, found: u64, wanted: u64, what: &str) -> Result<()> {
        if found == wanted {
            return Ok(());
        }
        Err(ConnectorError::data(
            self.name.to_string(),
            format!(
                "{found} rows would be {what}, and the source has {wanted}: the table was changed by others. \
                 Run with `--from-scratch`, which copies it again"
            ),
        ))
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
        let count = field_count(1 + self.key.len() + self.columns.len())?;
        for effect in effects {
            let (op, key, row) = match effect {
                Effect::Delete { key } => (DELETE, Some(key), None),
                Effect::Insert { row } => (INSERT, None, Some(row)),
                Effect::Update { key, row, .. } => (unit.number(row), Some(key), Some(row)),
            };
            let buffer = &mut sender.buffer;
            buffer.put_i16(count);
            buffer.put_i32(4);
            buffer.put_i32(op);
            match key {
                Some(key) => buffer.extend_from_slice(key.as_bytes()),
                None => self.key.iter().for_each(|_| buffer.put_i32(-1)),
            }
            match row {
                Some(row) => row.fields().for_each(|field| match field {
                    Field::Value(value) => {
                        // A row has none of 2 GiB.
                        buffer.put_i32(i32::try_from(value.len()).unwrap_or(i32::MAX));
                        buffer.extend_from_slice(value);
                    }
                    Field::Null | Field::Unchanged => buffer.put_i32(-1),
                }),
                None => self.columns.iter().for_each(|_| buffer.put_i32(-1)),
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

impl Unit {
    fn of(effects: &[Effect]) -> Self {
        let mut unit = Self { deleted: 0, inserted: 0, updated: Vec::new(), moves: false };
        for effect in effects {
            match effect {
                Effect::Delete { .. } => unit.deleted += 1,
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

fn field_count(count: usize) -> Result<i16> {
    i16::try_from(count).map_err(|_| ConnectorError::data("a table", "too many columns".to_owned()))
}

/// Sends rows to a COPY.
struct Sender<'a> {
    copy: Copy,
    buffer: BytesMut,
    rows: u64,
    table: &'a TableName,
}

impl<'a> Sender<'a> {
    async fn begin(client: &Client, statement: &Statement, table: &'a TableName) -> Result<Self> {
        let copy = Copy::begin(client, statement).await;
        let copy = copy.map_err(|error| refused(format!("apply changes to {table}"), error))?;
        Ok(Self { copy, buffer: BytesMut::new(), rows: 0, table })
    }

    /// Ends a row in the buffer.
    async fn end_row(&mut self) -> Result<()> {
        self.rows += 1;
        if self.buffer.len() >= PIECE_SIZE { self.send().await } else { Ok(()) }
    }

    async fn send(&mut self) -> Result<()> {
        let (bytes, rows) = (self.buffer.split().freeze(), std::mem::take(&mut self.rows));
        let sent = self.copy.send(bytes, rows).await;
        sent.map_err(|error| refused(format!("apply changes to {}", self.table), error))
    }

    /// Ends the COPY; returns the number of rows that the server stored.
    async fn finish(mut self) -> Result<u64> {
        self.send().await?;
        let done = self.copy.finish().await;
        let done =
            done.map_err(|error| refused(format!("apply changes to {}", self.table), error))?;
        Ok(done.stored)
    }
}
