//! A table that a stream is written to.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use async_trait::async_trait;
use forebay_base::backoff::Backoff;
use forebay_pgcopy::{Column, ContentHash};
use forebay_sdk::connector::{Load, Result, Target, Unit, UnitWriter};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::run::Context;
use forebay_sdk::settings::{TargetSettings, WriteMode};
use parking_lot::Mutex;

use crate::catalog::{Table, VERSION, check_exchange};
use crate::claim::Held;
use crate::client::{STATEMENT_SIZE_MAX, Server};
use crate::columns::{Fitted, create, fit};
use crate::commit::{has, stage_prefix};
use crate::ledger::{Head, Ledger};
use crate::settings::Compression;
use crate::swap::{next_prefix, swap_prefix};
use crate::writer::{ROW_BITS, Writer};
use crate::{decode, sql, types};

/// How long preparing is tried again after transient failures.
const PREPARED_WITHIN: Duration = Duration::from_secs(15);
/// Delays between attempts, the first and the longest.
const DELAYS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// Bytes that a column needs in the statement of an INSERT, besides its name.
const COLUMN_SIZE: usize = 120;

/// A table that a stream is written to.
pub(crate) struct TableTarget {
    shared: Arc<Shared>,
    plan: Vec<String>,
    prepared: Mutex<Option<(String, Prepared)>>,
}

/// State shared by a target and its writers.
pub(crate) struct Shared {
    pub(crate) server: Server,
    pub(crate) settings: TargetSettings,
    /// What stands for the table in the names of others.
    pub(crate) key: String,
    pub(crate) fitted: Fitted,
    pub(crate) ledger: Ledger,
    pub(crate) context: Context,
    /// Whether rows were seen in the table after they were written.
    pub(crate) is_seen: AtomicBool,
    held: Option<Arc<Held>>,
}

/// What a load is written to.
#[derive(Debug, Clone)]
pub(crate) struct Prepared {
    /// The table that rows are written to: the target, or the one that takes its place.
    pub(crate) table: String,
    /// Of each column, whether it is never NULL there.
    pub(crate) is_not_null: Vec<bool>,
    /// The number of the load, for `upsert`.
    pub(crate) number: u64,
}

impl TableTarget {
    /// Inspects a table, which may not exist yet.
    pub(crate) async fn open(
        server: Server,
        settings: &TargetSettings,
        key: String,
        columns: &[Column],
        held: Option<Arc<Held>>,
        context: &Context,
    ) -> Result<Self> {
        let table = Table::find(&server, &settings.into).await?;
        if let Some(table) = &table {
            table.check(&settings.into, settings.write_mode, &settings.primary_key)?;
        }
        if settings.write_mode == WriteMode::Replace {
            check_exchange(&server).await?;
        }
        let fitted = fit(table.as_ref(), settings, columns)?;
        let plan = plan(settings, table.as_ref(), &fitted);
        let shared = Shared {
            ledger: Ledger::new(&server, settings, held.clone()),
            settings: settings.clone(),
            context: context.clone(),
            server,
            key,
            fitted,
            is_seen: AtomicBool::new(false),
            held,
        };
        Ok(Self { shared: Arc::new(shared), plan, prepared: Mutex::new(None) })
    }
}

/// What preparing and loading will do.
fn plan(settings: &TargetSettings, table: Option<&Table>, fitted: &Fitted) -> Vec<String> {
    let (into, columns) = (sql::name(&settings.into), fitted.chosen.columns());
    let mut plan = Vec::new();
    match (settings.write_mode, table) {
        (WriteMode::Replace, _) => plan.push(format!(
            "load into a table beside {into}, then exchange both (EXCHANGE TABLES), and drop the old one"
        )),
        (_, None) => plan.push(create(&settings.into, settings, columns)),
        (_, Some(_)) => {}
    }
    plan.extend(fitted.changes.iter().map(|change| format!("ALTER TABLE {into} {change}")));
    plan.push(match settings.write_mode {
        WriteMode::Upsert => format!(
            "insert into {into} as FORMAT ArrowStream, one part for each unit; of rows with the same key the \
             one with the greatest {VERSION} counts, which queries see with SELECT .. FROM {into} FINAL"
        ),
        _ => format!("insert into {into} as FORMAT ArrowStream, one part for each unit"),
    });
    plan.extend(columns.iter().filter_map(types::note));
    plan
}

impl Shared {
    /// The columns that are stored.
    pub(crate) fn columns(&self) -> &[Column] {
        self.fitted.chosen.columns()
    }

    /// How blocks are compressed: not at all, if the statement is sent with them.
    pub(crate) fn compression(&self) -> Compression {
        let sizes = self.columns().iter().map(|column| column.name.len() * 2 + COLUMN_SIZE);
        match sizes.sum::<usize>() > STATEMENT_SIZE_MAX {
            true => Compression::None,
            false => self.server.settings().compression,
        }
    }

    /// Checks that the claim, if there is one, is still held.
    pub(crate) fn check_claim(&self) -> Result<()> {
        self.held.as_ref().map_or(Ok(()), |held| held.check())
    }

    /// The tables whose names begin with a text.
    pub(crate) async fn tables(&self, prefix: &str) -> Result<Vec<String>> {
        let prefix = sql::text(prefix);
        let sql = format!(
            "SELECT name FROM system.tables WHERE database = currentDatabase() AND startsWith(name, {prefix})"
        );
        Ok(self.server.rows("list tables", &sql).await?.into_iter().flatten().collect())
    }

    /// Drops a table if it exists.
    pub(crate) async fn drop_table(&self, table: &str) -> Result<()> {
        // A run that was suspended does not drop what another one has created since.
        self.check_claim()?;
        let sql = format!("DROP TABLE IF EXISTS {}", sql::name(table));
        self.server.ensure(&format!("drop the table {table}"), &sql).await
    }

    /// Drops the tables of earlier loads and runs, except one. What cannot be dropped is reported, and stays.
    pub(crate) async fn sweep(&self, except: Option<&str>) -> Result<()> {
        for prefix in [stage_prefix(&self.key), next_prefix(&self.key), swap_prefix(&self.key)] {
            for table in self.tables(&prefix).await? {
                if except == Some(&*table) {
                    continue;
                }
                self.check_claim()?;
                if let Err(error) = self.drop_table(&table).await {
                    if error.is_retryable() {
                        return Err(error);
                    }
                    let cause = forebay_base::error_chain::chain(&error).to_string();
                    self.context
                        .warn(&format!("{table} is not needed any more, but stays: {cause}"));
                }
            }
        }
        Ok(())
    }

    /// Changes a table so that the columns fit. Returns which of them are never NULL there.
    pub(crate) async fn evolve(&self, name: &str) -> Result<Vec<bool>> {
        let gone = || ConnectorError::Refused {
            act: format!("write to {name}"),
            source: "the table was removed; run again".into(),
        };
        let table = Table::find(&self.server, name).await?.ok_or_else(gone)?;
        table.check(name, self.settings.write_mode, &self.settings.primary_key)?;
        let fitted = fit(Some(&table), &self.settings, self.columns())?;
        for change in &fitted.changes {
            let sql = format!("ALTER TABLE {} {change}", sql::name(name));
            self.server.ensure(&format!("change the table {name}"), &sql).await?;
        }
        Ok(fitted.is_not_null)
    }

    /// Prepares for a load, again after transient failures.
    async fn prepare(&self, load: &Load) -> Result<Prepared> {
        let begun = Instant::now();
        let mut backoff = Backoff::new(DELAYS.0, DELAYS.1);
        loop {
            match self.try_to_prepare(load).await {
                Err(error) if error.is_retryable() && begun.elapsed() < PREPARED_WITHIN => {
                    tracing::debug!(into = ?self.settings.into, %error, "preparing again");
                }
                prepared => return prepared,
            }
            tokio::time::sleep(backoff.delay()).await;
        }
    }

    async fn try_to_prepare(&self, load: &Load) -> Result<Prepared> {
        self.check_claim()?;
        self.ledger.create().await?;
        match self.ledger.head().await? {
            Some(head) if head.is_of(load, &self.settings) => self.go_on(&head, load).await,
            other => self.begin(load, other.map_or(0, |head| head.seq)).await,
        }
    }

    /// Prepares for a new load.
    ///
    /// * `seq`: the number of the row in the ledger with the previous one.
    async fn begin(&self, load: &Load, seq: u64) -> Result<Prepared> {
        self.sweep(None).await?;
        let mut head = Head::new(&self.settings, Some(load), seq);
        let table = match self.settings.write_mode {
            WriteMode::Replace => {
                let (table, uuid) = self.create_next(load).await?;
                head.next = Some(uuid);
                table
            }
            WriteMode::Append | WriteMode::Upsert => {
                if Table::find(&self.server, &self.settings.into).await?.is_none() {
                    let sql = create(&self.settings.into, &self.settings, self.columns());
                    let act = format!("create the table {}", self.settings.into);
                    self.server.ensure(&act, &sql).await?;
                }
                self.settings.into.clone()
            }
        };
        let is_not_null = self.evolve(&table).await?;
        if self.settings.write_mode == WriteMode::Upsert {
            head.number = self.next_number().await?;
        }
        self.ledger.put_head(&head).await?;
        Ok(Prepared { table, is_not_null, number: head.number })
    }

    /// Prepares to continue a load.
    async fn go_on(&self, head: &Head, load: &Load) -> Result<Prepared> {
        let is_replace = self.settings.write_mode == WriteMode::Replace;
        let is_upsert = self.settings.write_mode == WriteMode::Upsert;
        if is_replace != head.next.is_some() || is_upsert != (head.number > 0) {
            return Err(ConnectorError::Refused {
                act: format!("continue a load of {}", self.settings.into),
                source: "it was begun with another `write_mode`".into(),
            });
        }
        let table = match &head.next {
            Some(uuid) => self.loaded(uuid).await?,
            None => self.settings.into.clone(),
        };
        self.sweep(Some(&table)).await?;
        let is_not_null = self.evolve(&table).await?;
        // From here on the ledger says it.
        for unit in self.ledger.units(&load.id).await? {
            let entry = unit.entry;
            if !unit.is_committed && has(&self.server, &table, &entry.load, &entry.unit).await? {
                self.ledger.commit(&entry).await?;
            }
        }
        Ok(Prepared { table, is_not_null, number: head.number })
    }

    /// The number of a new `upsert`: its rows replace all that are there.
    async fn next_number(&self) -> Result<u64> {
        let into = sql::name(&self.settings.into);
        let sql = format!("SELECT max({VERSION}) FROM {into}");
        let last = self.server.number(&format!("read the versions of {into}"), &sql).await?;
        let next = (last >> ROW_BITS) + 1;
        match next < 1 << (u64::BITS - ROW_BITS) {
            true => Ok(next),
            false => Err(ConnectorError::unsupported(
                format!("{into} has no greater {VERSION}"),
                "copy its rows to a new table",
            )),
        }
    }

    async fn finish(&self, load: &Load) -> Result<()> {
        self.check_claim()?;
        let head = self.ledger.head().await?.filter(|head| head.is_of(load, &self.settings));
        let Some(mut head) = head else { return Err(other_load(load)) };
        if let Some(uuid) = &head.next {
            self.swap(uuid).await?;
        }
        head.load = Some(Load { is_finished: true, ..load.clone() });
        if let Err(error) = self.ledger.put_head(&head).await {
            let is_finished = |head: &Head| head.load.as_ref().is_some_and(|it| it.is_finished);
            // An answer that was lost.
            let now = if error.is_retryable() { self.ledger.head().await? } else { None };
            if !now.is_some_and(|now| now.is_of(load, &self.settings) && is_finished(&now)) {
                return Err(error);
            }
        }
        self.sweep(None).await
    }

    async fn content(&self) -> Result<ContentHash> {
        let name = &self.settings.into;
        let Some(table) = Table::find(&self.server, name).await? else {
            return Ok(ContentHash::default());
        };
        let read = |column: &Column| match table.column(&column.name) {
            Some(_) => types::read(column, &sql::name(&column.name)),
            // It is added with the next load.
            None => types::read(column, &types::absent(column)),
        };
        let columns: Vec<String> = self.columns().iter().map(read).collect();
        let last = if table.is_replacing() { " FINAL" } else { "" };
        let sql = format!("SELECT {} FROM {}{last}", columns.join(", "), sql::name(name));
        decode::content(&self.server, &format!("read {name}"), sql, self.columns()).await
    }
}

pub(crate) fn other_load(load: &Load) -> ConnectorError {
    ConnectorError::Refused {
        act: "continue the load".into(),
        source: format!("the load {} is not the one that was prepared", load.id).into(),
    }
}

#[async_trait]
impl Target for TableTarget {
    fn plan(&self) -> Vec<String> {
        self.plan.clone()
    }

    fn takes_tuples(&self) -> bool {
        false
    }

    async fn prepare(&self, load: &Load) -> Result<()> {
        let prepared = self.shared.prepare(load).await?;
        *self.prepared.lock() = Some((load.id.clone(), prepared));
        Ok(())
    }

    async fn writer(&self, load: &Load, unit: &Unit) -> Result<Box<dyn UnitWriter>> {
        let prepared = match &*self.prepared.lock() {
            Some((id, prepared)) if *id == load.id => prepared.clone(),
            _ => return Err(other_load(load)),
        };
        let writer = Writer::open(Arc::clone(&self.shared), prepared, load, &unit.name)?;
        Ok(Box::new(writer))
    }

    async fn finish(&self, load: &Load) -> Result<()> {
        self.shared.finish(load).await
    }

    fn stored(&self) -> Option<Vec<Column>> {
        let chosen = &self.shared.fitted.chosen;
        chosen.is_partial().then(|| chosen.columns().to_vec())
    }

    fn as_stored(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        self.shared.fitted.chosen.batch(&self.shared.settings.stream, rows)
    }

    async fn content(&self) -> Result<ContentHash> {
        self.shared.content().await
    }
}
