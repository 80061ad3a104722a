//! A table that rows are written to: prepared, loaded, and for `replace` put in place at the end
//! (`replace`).
//!
//! Invariant: a load changes tables and ledger in the same transaction, so that the ledger is
//! always consistent with the tables.

use std::pin::pin;
use std::sync::Arc;

use arrow::array::RecordBatch;
use async_trait::async_trait;
use forebay_base::error_chain::chain;
use forebay_pgcopy::{Column, ContentHash, Splitter, TypeName};
use forebay_sdk::connector::{Load, Result, Target, Unit, UnitWriter};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::run::Context;
use forebay_sdk::settings::{FeedForm, OnDataError, TargetSettings, WriteMode};
use futures_util::TryStreamExt as _;

use super::DELETED_AT;
use super::catalog::Table;
use super::connect::{Pool, refused};
use super::evolve::{Evolution, create, evolve, type_of};
use super::kept::Kept;
use super::known::Known;
use super::ledger::{Ledger, share_lock};
use super::load::{Loader, Shared};
use super::replace::Replacing;
use super::sql::{TableName, ident, idents};

/// Number of characters of a table's name that its staging table's name retains: names have at most
/// 63.
const STAGED_NAME_MAX: usize = 40;

/// The part of a table's name that the names of its auxiliary tables start with.
fn stem(table: &str) -> &str {
    let end = (0..=STAGED_NAME_MAX.min(table.len())).rev().find(|end| table.is_char_boundary(*end));
    table.get(..end.unwrap_or_default()).unwrap_or_default()
}

/// Name of the table of dead letters.
fn beside(table: &str) -> String {
    format!("{}_dead_letters", stem(table))
}

/// A table that rows are written to.
pub(super) struct PostgresTarget {
    ledger: Ledger,
    settings: TargetSettings,
    name: TableName,
    table: Option<Table>,
    evolution: Evolution,
    /// What a swap of the table would lose.
    kept: Kept,
    /// Types of the columns of a table that does not exist yet.
    types: Vec<TypeName>,
    shared: Arc<Shared>,
}

impl PostgresTarget {
    pub(super) fn new(
        pool: Arc<Pool>,
        ledger: Ledger,
        settings: &TargetSettings,
        name: TableName,
        (table, kept): (Option<Table>, Kept),
        known: Known,
        context: &Context,
    ) -> Result<Self> {
        let Known { columns, is_same } = known;
        if let Some(key) =
            settings.primary_key.iter().find(|key| !columns.iter().any(|c| &c.name == *key))
        {
            return Err(ConnectorError::unsupported(
                format!("the key column {key:?} is not in the source"),
                "set `primary_key` to columns of the stream",
            ));
        }
        let evolution = match &table {
            Some(table) if !matches!(table.kind, 'r' | 'p') => {
                return Err(ConnectorError::unsupported(
                    format!("{name} is a view or foreign table"),
                    "choose another name with `into`",
                ));
            }
            Some(table) => evolve(table, &columns, settings)?,
            None => Evolution::none(columns),
        };
        let written: Vec<&str> =
            evolution.written.iter().map(|column| column.name.as_str()).collect();
        if let Some(key) = kept.missing_key(&written) {
            return Err(ConnectorError::unsupported(
                format!(
                    "foreign keys of other tables refer to ({}) of {name}, which is not written",
                    key.join(", ")
                ),
                "add these columns to the source, drop the foreign keys, or set `write_mode: upsert`",
            ));
        }
        let evolution = Evolution { is_same: evolution.is_same && is_same, ..evolution };
        let types = match &table {
            Some(_) => Vec::new(),
            None => evolution.written.iter().map(type_of).collect::<Result<_>>()?,
        };
        let shared = Shared {
            pool,
            settings: settings.clone(),
            ledger: ledger.clone(),
            columns: evolution.written.clone(),
            dead_letters: TableName::new(&name.schema, &beside(&name.table)),
            context: context.clone(),
        };
        let settings = settings.clone();
        let shared = Arc::new(shared);
        Ok(Self { ledger, settings, name, table, evolution, kept, types, shared })
    }

    /// The table that a load writes to: a staging table if it replaces the target.
    fn staged(&self, load: &Load) -> TableName {
        if self.settings.write_mode != WriteMode::Replace {
            return self.name.clone();
        }
        let id = load.id.get(..12).unwrap_or(&load.id);
        let staged = format!("{}_forebay_{id}", stem(&self.name.table));
        TableName::new(&self.name.schema, &staged)
    }

    /// The statements before the first row, except for the ledger.
    fn statements(&self, staged: &TableName) -> Vec<String> {
        let key: &[String] = match self.settings.write_mode {
            WriteMode::Append => &[],
            WriteMode::Replace | WriteMode::Upsert => &self.settings.primary_key,
        };
        let mut statements = Vec::new();
        if self.table.is_none() {
            statements.push(format!("create schema if not exists {}", ident(&self.name.schema)));
            statements.push(create(staged, &self.shared.columns, &self.types, key));
        } else if *staged == self.name {
            statements.extend(self.evolution.statements.iter().cloned());
        } else if let (true, Some(table)) = (self.kept.forbids_swap(), &self.table) {
            let columns: Vec<&str> =
                table.columns.iter().map(|column| column.name.as_str()).collect();
            let is_tolerant = self.settings.on_data_error != OnDataError::Fail;
            statements.extend(self.replacing().stage(staged, &columns, is_tolerant));
        } else {
            let (staged, name) = (staged.sql(), self.name.sql());
            statements.push(format!("create table {staged} (like {name} including all)"));
            statements.extend(self.evolution.statements.iter().map(|s| s.replace(&name, &staged)));
        }
        statements
    }

    /// The replacement of a table that exists.
    fn replacing(&self) -> Replacing<'_> {
        Replacing {
            name: &self.name,
            written: self.shared.columns.iter().map(|column| column.name.as_str()).collect(),
            changes: &self.evolution.statements,
            kept: &self.kept,
        }
    }
}

#[async_trait]
impl Target for PostgresTarget {
    fn plan(&self) -> Vec<String> {
        if self.settings.write_mode == WriteMode::Replace {
            let aside =
                TableName::new(&self.name.schema, &format!("{}_forebay_...", self.name.table));
            let mut plan = self.statements(&aside);
            if self.table.is_some() && self.kept.forbids_swap() {
                plan.insert(
                    0,
                    format!(
                        "-- the rows of {} are replaced inside the table, in one transaction: a swap would \
                         lose {}",
                        self.name,
                        self.kept.reasons()
                    ),
                );
                plan.extend(self.replacing().plan(&aside));
                return plan;
            }
            if self.table.is_some() {
                plan.push(format!("drop table {}", self.name.sql()));
            }
            plan.push(format!("alter table {} rename to {}", aside.sql(), ident(&self.name.table)));
            return plan;
        }
        self.statements(&self.name)
    }

    fn takes_tuples(&self) -> bool {
        self.evolution.is_same
    }

    async fn prepare(&self, load: &Load) -> Result<()> {
        let client = self.shared.client().await?;
        self.ledger.create(&client).await?;
        let before = self.ledger.before(&client, &self.settings, load).await?;
        if before.has_begun {
            // Its transaction has prepared everything.
            self.shared.pool.give_back(client);
            return Ok(());
        }
        let staged = self.staged(load);
        let aside = (staged != self.name).then(|| staged.sql());
        let mut statements: Vec<String> =
            before.leftovers.iter().map(|left| format!("drop table if exists {left}")).collect();
        statements.extend(self.statements(&staged));
        let begin = self.ledger.begin(&self.settings, load, aside.as_deref())?;
        let statements = statements.join(";\n");
        // Not synchronous: the commit of the first unit also flushes it to disk, and no entry of a
        // unit can exist without that commit.
        let made =
            format!("begin; set local synchronous_commit = off;\n{statements};\n{begin};\ncommit");
        let made = client.batch_execute(&made).await;
        made.map_err(|error| {
            let act = format!("prepare {}", self.name);
            refused(
                if statements.is_empty() { act } else { format!("{act} ({statements})") },
                error,
            )
        })?;
        self.shared.pool.give_back(client);
        Ok(())
    }

    async fn warm(&self, writers: usize) {
        // One more is already working.
        let phases = Some(&*self.shared.context.phases);
        self.shared.pool.fill(writers.saturating_sub(1), phases).await;
    }

    async fn writer(&self, load: &Load, unit: &Unit) -> Result<Box<dyn UnitWriter>> {
        let staged = self.staged(load);
        Ok(Box::new(Loader::begin(&self.shared, &staged, unit).await?))
    }

    async fn finish(&self, load: &Load) -> Result<()> {
        let client = self.shared.client().await?;
        let staged = self.staged(load);
        let act = |error| refused(format!("finish {}", self.name), error);
        let begin = format!("begin; {}", share_lock(&self.settings));
        let finish = format!("{}; commit", self.ledger.finish(&self.settings, load)?);
        if staged == self.name {
            client.batch_execute(&format!("{begin}; {finish}")).await.map_err(act)?;
        } else if self.table.is_none() {
            let to = ident(&self.name.table);
            let rename = format!("{begin}; alter table {} rename to {to}; {finish}", staged.sql());
            client.batch_execute(&rename).await.map_err(act)?;
        } else {
            let of = (&self.settings, load);
            let (replacing, context) = (self.replacing(), &self.shared.context);
            replacing.finish(&client, &staged, &begin, &self.ledger, of, context).await?;
        }
        self.shared.pool.give_back(client);
        Ok(())
    }

    fn stored(&self) -> Option<Vec<Column>> {
        (!self.evolution.is_same).then(|| self.evolution.compared.clone())
    }

    fn as_stored(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        let schema = rows.schema_ref();
        let compared = self.evolution.compared.iter();
        let indexes = compared.map(|column| schema.index_of(&column.name));
        let chosen = indexes.collect::<Result<Vec<_>, _>>().and_then(|all| rows.project(&all));
        chosen
            .map_err(|error| ConnectorError::data(self.name.to_string(), chain(&error).to_string()))
    }

    async fn content(&self) -> Result<ContentHash> {
        let client = self.shared.client().await?;
        let names = idents(self.evolution.compared.iter().map(|column| column.name.as_str()));
        let table = self.name.sql();
        let is_partitioned = self.table.as_ref().is_some_and(|table| table.kind == 'p');
        let marks = self.settings.feed == FeedForm::Mark;
        let copied = if is_partitioned || self.evolution.is_generated || marks {
            let only = if is_partitioned { "" } else { "only " };
            // Rows that were deleted at the source do not count.
            let live = if marks { format!(" where {DELETED_AT} is null") } else { String::new() };
            format!("(select {names} from {only}{table}{live})")
        } else {
            format!("{table} ({names})")
        };
        let copy = format!("copy {copied} to stdout (format binary)");
        let act = |error| refused(format!("read {}", self.name), error);
        let mut rows = pin!(client.copy_out(&copy).await.map_err(act)?);
        let (mut splitter, mut tuples) = (Splitter::new(), Vec::new());
        let broken = |error: forebay_pgcopy::DecodeError| {
            ConnectorError::data(self.name.to_string(), chain(&error).to_string())
        };
        let mut content = ContentHash::default();
        while let Some(bytes) = rows.try_next().await.map_err(act)? {
            splitter.push(&bytes, &mut tuples).map_err(broken)?;
            tuples.clear();
        }
        content.merge(splitter.take_hash());
        splitter.finish().map_err(broken)?;
        Ok(content)
    }
}
