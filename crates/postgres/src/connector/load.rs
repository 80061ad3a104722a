//! Writing one unit: rows by COPY or INSERT, and its ledger entry, in one transaction.
//!
//! By default all rows of a unit are sent by one COPY. If refused rows are to be skipped, each
//! batch has its own COPY, so that a refused one can be divided (see `dead`).

use std::sync::Arc;

use arrow::array::RecordBatch;
use async_trait::async_trait;
use bytes::Bytes;
use forebay_base::error_chain::chain;
use forebay_pgcopy::{Column, ContentHash, Encoder};
use forebay_sdk::batch::{Batch, DeadRow, Rows};
use forebay_sdk::connector::{LedgerEntry, Result, Unit, UnitWriter};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::platform::Instant;
use forebay_sdk::run::{Context, Phase};
use forebay_sdk::settings::{LoadMethod, OnDataError, TargetSettings, WriteMode};
use futures_util::future::try_join;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Statement};

use super::connect::{Pool, refused};
use super::ledger::{Ledger, share_lock};
use super::sql::{TableName, assignments, ident, idents};
use crate::bulk::{Copy, Stored};

/// State shared by the writers of a table.
pub(super) struct Shared {
    pub(super) pool: Arc<Pool>,
    pub(super) settings: TargetSettings,
    pub(super) ledger: Ledger,
    pub(super) columns: Vec<Column>,
    /// The table of dead letters.
    pub(super) dead_letters: TableName,
    pub(super) context: Context,
}

impl Shared {
    pub(super) async fn client(&self) -> Result<Client> {
        self.pool.client(Some(&self.context.phases)).await
    }

    /// Whether a column of this name is written.
    fn has(&self, name: &str) -> bool {
        self.columns.iter().any(|column| column.name == name)
    }
}

/// A separate table for the rows of an upsert, dropped with the transaction.
const UPSERT_TABLE: &str = "pg_temp.forebay_upsert";
/// Its name in errors of the server.
const UPSERT_NAME: &str = "forebay_upsert";

/// Writes one unit.
pub(super) struct Loader {
    pub(super) shared: Arc<Shared>,
    pub(super) client: Client,
    pub(super) into: TableName,
    unit: String,
    /// The statement that receives rows.
    statement: Statement,
    /// That COPY while it is running.
    copy: Option<Copy>,
    encoder: Option<Encoder>,
    /// Hash of the written rows.
    pub(super) hash: ContentHash,
    /// Number of rows received, written or not.
    pub(super) seen: u64,
    pub(super) dead: u64,
}

impl Loader {
    pub(super) async fn begin(shared: &Arc<Shared>, into: &TableName, unit: &Unit) -> Result<Self> {
        let client = shared.client().await?;
        // What a policy does not permit to write is a separate error: nothing is left out.
        let begin = "begin; set local row_security = on";
        let mut begin = format!("{begin}; {}", share_lock(&shared.settings));
        if shared.settings.write_mode == WriteMode::Upsert {
            let names = idents(shared.columns.iter().map(|column| column.name.as_str()));
            begin.push_str(&format!(
                "; create temp table forebay_upsert using heap on commit drop as select {names} from {} \
                 with no data",
                into.sql()
            ));
            // No two NULL are equal: such a row would be added again by every run.
            for key in shared.settings.primary_key.iter().filter(|key| shared.has(key)) {
                let key = ident(key);
                begin.push_str(&format!("; alter table {UPSERT_TABLE} alter {key} set not null"));
            }
        }
        let names = idents(shared.columns.iter().map(|column| column.name.as_str()));
        // The staging table of an upsert.
        let copied_into = match shared.settings.write_mode {
            WriteMode::Upsert => UPSERT_TABLE.to_owned(),
            WriteMode::Append | WriteMode::Replace => into.sql(),
        };
        let copy = format!("copy {copied_into} ({names}) from stdin (format binary)");
        let begun = try_join(client.batch_execute(&begin), client.prepare(&copy)).await;
        let ((), statement) =
            begun.map_err(|error| refused(format!("begin to write {into}"), error))?;
        Ok(Self {
            shared: Arc::clone(shared),
            client,
            into: into.clone(),
            unit: unit.name.clone(),
            statement,
            copy: None,
            encoder: None,
            hash: ContentHash::default(),
            seen: 0,
            dead: 0,
        })
    }

    /// The operation, for errors.
    pub(super) fn act(&self) -> String {
        format!("write {} ({})", self.into, self.unit)
    }

    /// The reason if the server refused a row of an upsert because its key has a NULL.
    pub(super) fn null_in_key(&self, error: &tokio_postgres::Error) -> Option<String> {
        let error = error.as_db_error()?;
        let is_key = *error.code() == SqlState::NOT_NULL_VIOLATION;
        let column = error.column().filter(|_| is_key && error.table() == Some(UPSERT_NAME))?;
        Some(self.null_is_in(column))
    }

    /// The reason if a column of the key has a NULL, in the words of SQLite.
    pub(super) fn null_is_in(&self, column: &str) -> String {
        let into = &self.into;
        format!(
            "NOT NULL constraint failed: {into}.{column}; a row without a value in `primary_key` \
             cannot be found again by an upsert"
        )
    }

    /// The error of a refused COPY.
    fn failed(&self, error: tokio_postgres::Error) -> ConnectorError {
        match self.null_in_key(&error) {
            Some(found) => ConnectorError::data(self.act(), found),
            None => refused(self.act(), error),
        }
    }

    /// Whether a refused row is skipped instead of failing the run.
    fn is_tolerant(&self) -> bool {
        self.shared.settings.on_data_error != OnDataError::Fail
    }

    /// One COPY of these tuples; the inner result is the server's.
    pub(super) async fn copy_once(
        &self,
        tuples: Bytes,
    ) -> Result<Result<u64, tokio_postgres::Error>> {
        let mut copy = self.begin_copy().await?;
        Ok(match copy.send(tuples, 0).await {
            Ok(()) => copy.finish().await.map(|rows| rows.stored),
            Err(error) => Err(error),
        })
    }

    /// Starts a COPY.
    async fn begin_copy(&self) -> Result<Copy> {
        let begun = Copy::begin(&self.client, &self.statement).await;
        begun.map_err(|error| refused(self.act(), error))
    }

    /// Merges the rows of an upsert by their keys. Of rows with the same key the last one counts.
    pub(super) async fn merge(&self) -> Result<u64, tokio_postgres::Error> {
        let settings = &self.shared.settings;
        let columns: Vec<&str> =
            self.shared.columns.iter().map(|column| column.name.as_str()).collect();
        let key = idents(settings.primary_key.iter().map(String::as_str));
        let is_key = |name: &&&str| settings.primary_key.iter().any(|key| key == **name);
        let others: Vec<&str> = columns.iter().filter(|name| !is_key(name)).copied().collect();
        let then = if others.is_empty() {
            "nothing".to_owned()
        } else {
            format!("update set {}", assignments(&others))
        };
        let names = idents(columns.iter().copied());
        let merge = format!(
            "insert into {} ({names}) overriding system value \
             select distinct on ({key}) {names} from {UPSERT_TABLE} order by {key}, ctid desc \
             on conflict ({key}) do {then}",
            self.into.sql()
        );
        self.client.execute(&merge, &[]).await
    }

    /// The rows of a batch as tuples.
    fn tuples(&mut self, rows: Rows) -> Result<(Bytes, ContentHash)> {
        let records = match rows {
            Rows::Tuples(tuples, hash) => return Ok((tuples, hash)),
            Rows::Records(records) => records,
        };
        let begun = Instant::now();
        let records = self.written(&records)?;
        if self.encoder.is_none() {
            let encoder = Encoder::new(&records.schema(), &self.shared.columns);
            let encoder = encoder
                .map_err(|error| ConnectorError::data(self.act(), chain(&error).to_string()))?;
            self.encoder = Some(encoder);
        }
        let Some(encoder) = &self.encoder else { return Err(ConnectorError::Stopped) };
        let mut tuples = Vec::with_capacity(records.get_array_memory_size());
        let hash = encoder.encode(&records, 0..records.num_rows(), &mut tuples);
        let hash =
            hash.map_err(|error| ConnectorError::data(self.act(), chain(&error).to_string()))?;
        self.shared.context.phases.add(Phase::Encode, begun);
        Ok((Bytes::from(tuples), hash))
    }

    /// The written columns, in their order.
    fn written(&self, records: &RecordBatch) -> Result<RecordBatch> {
        let schema = records.schema_ref();
        let indices = self.shared.columns.iter().map(|column| schema.index_of(&column.name));
        let indices = indices.collect::<std::result::Result<Vec<_>, _>>();
        let written = indices.and_then(|indices| records.project(&indices));
        written.map_err(|error| ConnectorError::data(self.act(), chain(&error).to_string()))
    }

    /// Adds tuples to the unit's one COPY.
    async fn stream(&mut self, tuples: Bytes, hash: ContentHash) -> Result<()> {
        if self.copy.is_none() {
            self.copy = Some(self.begin_copy().await?);
        }
        let Some(copy) = &mut self.copy else { return Err(ConnectorError::Stopped) };
        let sent = copy.send(tuples, hash.rows).await;
        sent.map_err(|error| self.failed(error))?;
        self.hash.merge(hash);
        Ok(())
    }

    /// Ends the unit's one COPY, and merges the rows of an upsert.
    async fn end_copy(&mut self) -> Result<()> {
        let Some(copy) = self.copy.take() else { return Ok(()) };
        let act = |error| self.failed(error);
        let rows = copy.finish().await.map_err(act)?;
        self.check(rows)?;
        if self.shared.settings.write_mode == WriteMode::Upsert {
            let stored = self.merge().await.map_err(act)?;
            self.check_merged(Stored { stored, ..rows }).await?;
        }
        Ok(())
    }

    /// Fails if the server stored other rows than were sent: a trigger or a rule left some out.
    pub(super) fn check(&self, rows: Stored) -> Result<()> {
        rows.check().map_err(|found| ConnectorError::data(self.act(), found))
    }

    /// Whether no column but those of the key is written.
    pub(super) fn has_only_key(&self) -> bool {
        let key = &self.shared.settings.primary_key;
        self.shared.columns.iter().all(|column| key.contains(&column.name))
    }

    /// [`check`](Self::check) of the rows of an upsert, of which those with the same key are one.
    pub(super) async fn check_merged(&self, rows: Stored) -> Result<()> {
        if rows.stored == rows.sent || self.has_only_key() {
            return Ok(());
        }
        let key = idents(self.shared.settings.primary_key.iter().map(String::as_str));
        let count = format!("select count(*) from (select distinct {key} from {UPSERT_TABLE}) k");
        let sent = self.client.query_typed_one(&count, &[]).await;
        let sent: i64 = sent.map_err(|error| refused(self.act(), error))?.get(0);
        self.check(Stored { sent: u64::try_from(sent).unwrap_or_default(), ..rows })
    }

    /// Stores dead letters, in the transaction of the unit.
    pub(super) async fn put_aside(&mut self, rows: &[DeadRow]) -> Result<()> {
        self.dead += rows.len() as u64;
        if self.shared.settings.on_data_error == OnDataError::Skip || rows.is_empty() {
            return Ok(());
        }
        super::dead::put_aside(self, rows).await
    }

    /// Name of the unit.
    pub(super) fn unit(&self) -> &str {
        &self.unit
    }
}

#[async_trait]
impl UnitWriter for Loader {
    async fn write(&mut self, batch: Batch) -> Result<()> {
        let count = batch.rows.count();
        let (tuples, hash) = self.tuples(batch.rows.clone())?;
        let begun = Instant::now();
        if !batch.dead.is_empty() {
            // Set aside by a transform, whatever the setting for refused rows.
            self.end_copy().await?;
            super::dead::put_aside(self, &batch.dead).await?;
            self.dead += batch.dead.len() as u64;
        }
        if count > 0 {
            match (self.is_tolerant(), self.shared.settings.load_method) {
                (true, _) => super::dead::write_tolerantly(self, tuples).await?,
                (false, LoadMethod::Copy) => self.stream(tuples, hash).await?,
                (false, LoadMethod::Insert) => {
                    super::insert::insert(self, &tuples).await?;
                    self.hash.merge(hash);
                }
            }
        }
        self.seen += count;
        self.shared.context.phases.add(Phase::Flush, begun);
        Ok(())
    }

    async fn commit(mut self: Box<Self>, entry: LedgerEntry) -> Result<LedgerEntry> {
        let flushing = Instant::now();
        self.end_copy().await?;
        self.shared.context.phases.add(Phase::Flush, flushing);
        let entry = LedgerEntry {
            rows: self.hash.rows,
            dead: self.dead,
            hash: self.hash.to_string(),
            ..entry
        };
        let begun = Instant::now();
        let commit = format!("{}; commit", self.shared.ledger.entry(&entry));
        let committed = self.client.batch_execute(&commit).await;
        committed
            .map_err(|error| refused(format!("commit {} ({})", self.into, self.unit), error))?;
        self.shared.context.phases.add(Phase::Commit, begun);
        let Self { shared, client, .. } = *self;
        shared.pool.give_back(client);
        Ok(entry)
    }
}
