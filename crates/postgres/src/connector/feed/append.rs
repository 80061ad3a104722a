//! A log of changes: each becomes a row, with what it did, and when.
//!
//! ```text
//! the columns of the source   the row after an insertion or update, what is known of a deleted one; otherwise NULL
//! _operation                  insert, update, delete, truncate; copy: a row that was there when the feed began
//! _position, _number          the position of the commit, and the number of the change in it
//! _committed_at               when the source committed it
//! _unchanged                  the columns that an update left as they were and that were not sent
//! _before_KEY ...             the key before an update that changed it; without a key all values before an update
//! ```
//!
//! Invariant: rows are appended in the transaction that records the position, so a change has one row.

use bytes::{BufMut as _, BytesMut};
use forebay_sdk::changes::feed::{Applied, FeedStream};
use forebay_sdk::changes::{ChangeLog, Field, LoggedChange, Operation};
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Statement};

use super::super::catalog;
use super::super::connect::refused;
use super::super::sql::{TableName, ident, idents};
use super::alter::parsed;
use super::send::{Sender, field_count, put_field};
use crate::replication::envelope::ServerTime;

/// The columns of a log besides those of the source, with their definitions.
const COLUMNS: [(&str, &str); 5] = [
    // The default is that of the rows that are copied before changes are followed.
    ("_operation", "text not null default 'copy'"),
    ("_position", "text"),
    ("_number", "int8"),
    ("_committed_at", "timestamptz"),
    ("_unchanged", "text[]"),
];
/// What the column of a key before an update is called: this, and its name.
const BEFORE: &str = "_before_";

/// Whether an index forbids that a key is there twice.
const UNIQUE: &str = "
select exists (select from pg_index where indrelid = to_regclass($1) and (indisunique or indisexclusion))";

/// Maximum size of a name, in bytes: the server cuts longer ones.
const NAME_MAX: usize = 63;

/// The column of a key before an update.
fn before_name(key: &str) -> String {
    let mut name = format!("{BEFORE}{key}");
    while name.len() > NAME_MAX {
        name.pop();
    }
    name
}

/// A table that changes are appended to.
pub(super) struct Log {
    name: TableName,
    columns: Vec<String>,
    keys: usize,
    copy: Statement,
}

impl Log {
    /// Prepares a table: it has the columns of a log, and takes rows without values.
    ///
    /// # Errors
    /// It has a unique index, or the source has columns of these names.
    pub(super) async fn open(
        client: &Client,
        name: &TableName,
        stream: &FeedStream,
    ) -> Result<Self> {
        let act = |error| refused(format!("prepare {name} for changes"), error);
        let keys = stream.naming();
        let before: Vec<String> = keys.clone().map(|key| before_name(&key.name)).collect();
        let own: Vec<&str> = COLUMNS.iter().map(|(own, _)| *own).collect();
        let own: Vec<&str> = own.into_iter().chain(before.iter().map(String::as_str)).collect();
        if let Some(taken) = stream.columns.iter().find(|column| own.contains(&&*column.name)) {
            return Err(ConnectorError::unsupported(
                format!("{name} has a column {:?}, as a log of changes has", taken.name),
                "rename it at the source, or use `write_mode: upsert`",
            ));
        }
        let is_unique: bool = client.query_one(UNIQUE, &[&name.sql()]).await.map_err(act)?.get(0);
        if is_unique {
            return Err(ConnectorError::unsupported(
                format!("{name} has a unique index, and a log has a row for each change"),
                "drop the index, or use `write_mode: upsert`",
            ));
        }
        let there = catalog::table(client, name).await?.map(|table| table.columns);
        let there = there.unwrap_or_default();
        let needed = there.iter().filter(|one| !one.nullable && !own.contains(&&*one.name));
        let mut steps: Vec<String> = needed
            .map(|column| format!("alter column {} drop not null", ident(&column.name)))
            .collect();
        let is_missing = |column: &str| there.iter().all(|known| known.name != column);
        let missing = COLUMNS.iter().filter(|(column, _)| is_missing(column));
        steps.extend(missing.map(|(column, of)| format!("add column {} {of}", ident(column))));
        for (key, before) in keys.clone().zip(&before).filter(|(_, before)| is_missing(before)) {
            let of = parsed(name, &key.sql_type, &key.name)?;
            steps.push(format!("add column {} {of}", ident(before)));
        }
        // Otherwise it would wait for every reader.
        if !steps.is_empty() {
            let alter = format!("alter table {} {}", name.sql(), steps.join(", "));
            client.batch_execute(&alter).await.map_err(act)?;
        }
        let columns: Vec<String> = stream.columns.iter().map(|c| c.name.clone()).collect();
        let names = idents(columns.iter().map(String::as_str).chain(own));
        let copy = format!("copy {} ({names}) from stdin (format binary)", name.sql());
        let copy = client.prepare(&copy).await.map_err(act)?;
        Ok(Self { name: name.clone(), columns, keys: before.len(), copy })
    }

    pub(super) fn name(&self) -> &TableName {
        &self.name
    }

    /// Appends changes, in the transaction of the connection.
    pub(super) async fn append(&self, client: &Client, log: &ChangeLog) -> Result<Applied> {
        let mut applied = Applied::default();
        let mut sender = Sender::begin(client, &self.copy, &self.name).await?;
        for change in log.changes() {
            self.encode(change, &mut sender.buffer)?;
            sender.end_row().await?;
            match change.operation {
                Operation::Insert => applied.inserted += 1,
                Operation::Update => applied.updated += 1,
                Operation::Delete => applied.deleted += 1,
                Operation::Truncate => {}
            }
        }
        let (stored, wanted) = (sender.finish().await?, log.changes().len());
        if stored != wanted as u64 {
            let found = format!("{stored} of {wanted} changes were appended");
            return Err(ConnectorError::data(self.name.to_string(), found));
        }
        Ok(applied)
    }

    fn encode(&self, change: &LoggedChange, buffer: &mut BytesMut) -> Result<()> {
        buffer.put_i16(field_count(self.columns.len() + COLUMNS.len() + self.keys)?);
        match &change.row {
            Some(row) => row.fields().for_each(|field| put_field(buffer, field)),
            None => self.columns.iter().for_each(|_| put_field(buffer, Field::Null)),
        }
        put_field(buffer, Field::Value(change.operation.as_str().as_bytes()));
        put_field(buffer, Field::Value(change.commit.position.as_bytes()));
        let number = i64::try_from(change.number).unwrap_or(i64::MAX);
        put_field(buffer, Field::Value(&number.to_be_bytes()));
        let at = ServerTime::from_unix_us(change.commit.at_us).0;
        put_field(buffer, Field::Value(&at.to_be_bytes()));
        self.put_unchanged(change, buffer)?;
        match &change.key_before {
            Some(key) => buffer.extend_from_slice(key.as_bytes()),
            None => (0..self.keys).for_each(|_| put_field(buffer, Field::Null)),
        }
        Ok(())
    }

    /// The names of the columns that were not sent, as an array; NULL if there are none.
    fn put_unchanged(&self, change: &LoggedChange, buffer: &mut BytesMut) -> Result<()> {
        let fields = change.row.iter().flat_map(|row| row.fields());
        let unchanged = self.columns.iter().zip(fields);
        let unchanged = unchanged.filter(|(_, field)| *field == Field::Unchanged);
        let unchanged: Vec<&str> = unchanged.map(|(name, _)| name.as_str()).collect();
        if unchanged.is_empty() {
            put_field(buffer, Field::Null);
            return Ok(());
        }
        let mut array = BytesMut::new();
        // One dimension, no NULL, the type, the number of elements, the index of the first.
        array.put_i32(1);
        array.put_i32(0);
        array.put_u32(Type::TEXT.oid());
        array.put_i32(i32::from(field_count(unchanged.len())?));
        array.put_i32(1);
        unchanged.iter().for_each(|name| put_field(&mut array, Field::Value(name.as_bytes())));
        put_field(buffer, Field::Value(&array));
        Ok(())
    }
}
