//! The commit of a unit.
//!
//! ```text
//! begin    the ledger records the attempt and the complete entry. If an earlier attempt began, its entry stays until
//!          it is known that its rows are not there
//! insert   one INSERT with one block, or: the last block into the table beside, which becomes one part by a merge,
//!          and is moved
//! commit   the ledger records that the unit is committed
//! ```
//!
//! After an error, and whenever an earlier attempt began, the table says whether the rows are there: rows have their load
//! and unit in a column. Before it is asked, no statement of an earlier attempt is in progress, and none can begin.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use forebay_base::backoff::Backoff;
use forebay_sdk::connector::{LedgerEntry, Result};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::settings::WriteMode;

use crate::catalog::{LOAD, OURS, VERSION};
use crate::claim::insert_if;
use crate::client::{Body, Server};
use crate::error::Failed;
use crate::ledger::digits_of;
use crate::sql;
use crate::types;
use crate::writer::Writer;

/// How long the outcome of an INSERT is asked for.
const ASKED_FOR: Duration = Duration::from_secs(15);
/// How long the merge of a large unit may take.
const MERGED_WITHIN: Duration = Duration::from_secs(3600);
/// Delays between attempts, the first and the longest.
const DELAYS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// The value of the column with load and unit.
pub(crate) fn tag(load: &str, unit: &str) -> String {
    format!("{load}/{unit}")
}

/// The first part of the names of tables in which rows of large units are collected.
pub(crate) fn stage_prefix(key: &str) -> String {
    format!("{OURS}stage_{key}_")
}

/// Whether rows of a unit are in a table.
pub(crate) async fn has(server: &Server, table: &str, load: &str, unit: &str) -> Result<bool> {
    let (name, tag) = (sql::name(table), sql::text(&tag(load, unit)));
    let sql = format!("SELECT count() FROM (SELECT 1 FROM {name} WHERE {LOAD} = {tag} LIMIT 1)");
    Ok(server.number(&format!("look for rows of a unit in {table}"), &sql).await? > 0)
}

impl Writer {
    fn stage_prefix(&self) -> String {
        format!("{}{}_", stage_prefix(&self.shared.key), digits_of(&[&self.load.id, &self.unit]))
    }

    /// The table beside the target. No other attempt has the same.
    pub(crate) fn stage(&self) -> String {
        format!("{}{}", self.stage_prefix(), self.attempt)
    }

    pub(crate) async fn create_stage(&self) -> Result<()> {
        self.shared.check_claim()?;
        let (stage, table) = (sql::name(&self.stage()), sql::name(&self.prepared.table));
        let act = format!("create a table beside {}", self.prepared.table);
        let sql = format!("CREATE TABLE IF NOT EXISTS {stage} AS {table}");
        self.shared.server.ensure(&act, &sql).await
    }

    /// Adds a block of rows to a table.
    pub(crate) async fn insert_into(
        &self,
        table: &str,
        body: Body,
        conditions: &[String],
    ) -> Result<(), Failed> {
        let columns = self.shared.columns();
        let mut names: Vec<String> = columns.iter().map(|column| sql::name(&column.name)).collect();
        let mut selected = Vec::with_capacity(names.len() + 2);
        let mut structure = Vec::with_capacity(names.len() + 1);
        for (at, column) in columns.iter().enumerate() {
            let sent = format!("c{at}");
            selected.push(types::received(column, &sent));
            structure.push(format!("{sent} {}", types::sent(column)));
        }
        names.push(LOAD.into());
        selected.push(sql::text(&tag(&self.load.id, &self.unit)));
        if self.shared.settings.write_mode == WriteMode::Upsert {
            names.push(VERSION.into());
            selected.push("version".into());
            structure.push("version UInt64".into());
        }
        let head = format!("INSERT INTO {} ({})", sql::name(table), names.join(", "));
        let structure = sql::text(&structure.join(", "));
        let select = format!("SELECT {} FROM input({structure})", selected.join(", "));
        let comment = self.shared.ledger.comment(&self.unit);
        let body = (body, "ArrowStream");
        insert_if(&self.shared.server, &head, &select, conditions, body, &comment).await
    }

    /// Commits the unit.
    pub(crate) async fn commit_unit(&mut self, entry: LedgerEntry) -> Result<LedgerEntry> {
        let shared = std::sync::Arc::clone(&self.shared);
        shared.check_claim()?;
        let entry = self.entry(entry)?;
        let before = shared.ledger.unit(&self.load.id, &self.unit).await?;
        let was_begun = before.is_some();
        if let Some(before) = before {
            // Its rows are there, whether or not this attempt has read the same.
            let is_there = before.is_committed || self.was_there(&before.entry).await?;
            if is_there {
                self.drop_stages().await;
                return Ok(before.entry);
            }
        }
        shared.ledger.begin(&entry, &self.attempt).await?;
        shared.ledger.bury(&entry, &self.attempt, &self.dead, was_begun).await?;
        if entry.rows > 0 {
            self.put(&entry).await?;
        }
        shared.ledger.commit(&entry).await?;
        if self.is_staged {
            self.drop_stages().await;
        }
        if entry.rows > 0 {
            self.check_seen().await?;
        }
        Ok(entry)
    }

    /// Checks, once for a load, that rows are found by their load and unit. They are committed in any case, so the next
    /// run does not write them again.
    async fn check_seen(&self) -> Result<()> {
        // Rows with the same key may have taken their place.
        let is_upsert = self.shared.settings.write_mode == WriteMode::Upsert;
        if is_upsert || self.shared.is_seen.load(Ordering::Relaxed) {
            return Ok(());
        }
        let table = &self.prepared.table;
        if !has(&self.shared.server, table, &self.load.id, &self.unit).await? {
            return Err(ConnectorError::unsupported(
                format!(
                    "the user does not see the rows that were written to {table}; rows of an interrupted unit would \
                     be written again"
                ),
                "remove the row policy that hides them, or whatever deletes rows while they are loaded",
            ));
        }
        self.shared.is_seen.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Whether an earlier attempt has stored the rows: the unit is committed then. No earlier one can store them from
    /// now on.
    ///
    /// * `entry`: that of the earlier attempt, which stays in the ledger until the answer is known.
    async fn was_there(&self, entry: &LedgerEntry) -> Result<bool> {
        let shared = &self.shared;
        shared.ledger.begin(entry, &self.attempt).await?;
        // What an earlier attempt has collected: a command that moves it finds no table if it arrives from now on. One
        // that has found it is in progress, and is waited for.
        for table in shared.tables(&self.stage_prefix()).await? {
            if table != self.stage() {
                shared.drop_table(&table).await?;
            }
        }
        shared.ledger.drain(&self.unit).await?;
        let is_there = has(&shared.server, &self.prepared.table, &self.load.id, &self.unit).await?;
        if is_there {
            shared.ledger.commit(entry).await?;
        }
        Ok(is_there)
    }

    /// Stores the rows. On return they are in the table, all of them and once, unless the result is an error.
    async fn put(&mut self, entry: &LedgerEntry) -> Result<()> {
        let body = self.next_block().await?;
        let table = self.prepared.table.clone();
        let act = format!("write the unit {:?} to {table}", self.unit);
        let put = match self.is_staged {
            true => self.move_stage(body, entry).await,
            false => {
                let ledger = &self.shared.ledger;
                let conditions = ledger.current(&self.load.id, &self.unit, &self.attempt);
                let put = self.insert_into(&table, body, &conditions).await;
                put.map_err(|failed| self.shared.server.failed(&act, failed))
            }
        };
        match put {
            Ok(()) => Ok(()),
            Err(error) => match self.is_there_after_all(&table).await {
                Ok(true) => {
                    tracing::info!(unit = ?self.unit, %error, "rows are stored, although an answer was lost");
                    Ok(())
                }
                Ok(false) => Err(error),
                Err(unknown) => {
                    // The next attempt asks again before it writes.
                    tracing::warn!(unit = ?self.unit, %unknown, "it is not known whether rows are stored");
                    Err(error)
                }
            },
        }
    }

    /// Whether the rows are there once the statement that was to store them has ended.
    async fn is_there_after_all(&self, table: &str) -> Result<bool> {
        let begun = Instant::now();
        let mut backoff = Backoff::new(DELAYS.0, DELAYS.1);
        loop {
            let found = match self.shared.ledger.drain(&self.unit).await {
                Ok(()) => has(&self.shared.server, table, &self.load.id, &self.unit).await,
                Err(error) => Err(error),
            };
            match found {
                Err(error) if error.is_retryable() && begun.elapsed() < ASKED_FOR => {
                    tokio::time::sleep(backoff.delay()).await;
                }
                found => return found,
            }
        }
    }

    /// Moves the collected rows to the target as one part.
    async fn move_stage(&mut self, last: Body, entry: &LedgerEntry) -> Result<()> {
        let (stage, table) = (self.stage(), self.prepared.table.clone());
        let server = &self.shared.server;
        let act = format!("collect rows of {}", self.unit);
        let staged = self.insert_into(&stage, last, &[]).await;
        staged.map_err(|failed| server.failed(&act, failed))?;
        let name = sql::name(&stage);
        if self.shared.settings.write_mode != WriteMode::Upsert {
            let rows = server.number(&act, &format!("SELECT count() FROM {name}")).await?;
            if rows != entry.rows {
                return Err(ConnectorError::Busy {
                    act,
                    source: format!("{stage} has {rows} of the {} rows written to it", entry.rows)
                        .into(),
                });
            }
        }
        self.merge(&stage).await?;
        self.shared.check_claim()?;
        let sql =
            format!("ALTER TABLE {name} MOVE PARTITION ID 'all' TO TABLE {}", sql::name(&table));
        let comment = self.shared.ledger.comment(&self.unit);
        let moved = server.ask(sql, &comment).await;
        moved.map(drop).map_err(|failed| server.failed(&format!("move rows to {table}"), failed))
    }

    /// Merges all parts of a table into one.
    async fn merge(&self, stage: &str) -> Result<()> {
        let server = &self.shared.server;
        let act = format!("merge rows of {}", self.unit);
        let parts = format!(
            "SELECT count() FROM system.parts WHERE database = currentDatabase() AND active AND table = {}",
            sql::text(stage)
        );
        let optimize = format!(
            "OPTIMIZE TABLE {} FINAL SETTINGS optimize_throw_if_noop = 1",
            sql::name(stage)
        );
        let begun = Instant::now();
        let mut backoff = Backoff::new(DELAYS.0, DELAYS.1);
        let mut last = None;
        while server.number(&act, &parts).await? > 1 {
            if begun.elapsed() > MERGED_WITHIN {
                return Err(last.unwrap_or_else(|| ConnectorError::Busy {
                    act,
                    source: format!("it took longer than {MERGED_WITHIN:?}").into(),
                }));
            }
            if last.is_some() {
                tokio::time::sleep(backoff.delay()).await;
            }
            // It fails while the server merges some of the parts by itself, and has no answer if it takes too long.
            last = server.run(&act, &*optimize).await.err();
        }
        Ok(())
    }

    /// Drops the tables in which rows were collected. The next load drops what is left.
    async fn drop_stages(&self) {
        let dropped = async {
            for table in self.shared.tables(&self.stage_prefix()).await? {
                self.shared.drop_table(&table).await?;
            }
            Ok::<(), ConnectorError>(())
        };
        if let Err(error) = dropped.await {
            tracing::debug!(unit = ?self.unit, %error, "could not drop a table of collected rows");
        }
    }
}
