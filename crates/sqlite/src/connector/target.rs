//! A table that a stream is written to.
//!
//! The rows of a unit wait in a temporary table of the writer's own connection, so that units are
//! written concurrently although SQLite has one writer at a time. A commit copies its rows and its
//! entry to the file in one transaction. With `replace` they are written to a separate table, which
//! replaces the old one in the transaction that ends the load.

use std::sync::Arc;

use arrow::array::RecordBatch;
use async_trait::async_trait;
use forebay_pgcopy::{Column, ContentHash};
use forebay_sdk::bridge::blocking;
use forebay_sdk::chosen::Chosen;
use forebay_sdk::connector::{Load, Result, Target, Unit, UnitWriter};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::hash::Hasher;
use forebay_sdk::run::Context;
use forebay_sdk::settings::{
    FeedForm, NewColumn, NullabilityChange, RemovedColumn, TargetSettings, WriteMode,
};
use forebay_sdk::values::read::Builder;
use rusqlite::Connection;

use super::feed::DELETED_AT;
use super::layout::{self, Declared};
use super::writer::SqliteWriter;
use super::{Access, Database, digits_of, ledger, quoted, quoted_list, values};

/// Number of rows hashed at once.
const HASHED_ROWS: usize = 8 << 10;

/// A table that a stream is written to.
pub(super) struct SqliteTarget {
    shared: Arc<Shared>,
    plan: Vec<String>,
}

/// State shared by a target and its writers.
pub(super) struct Shared {
    pub(super) database: Database,
    pub(super) settings: TargetSettings,
    /// The columns that are stored.
    pub(super) columns: Vec<Column>,
    /// The same, and where they are in a batch.
    pub(super) chosen: Chosen,
    pub(super) context: Context,
}

impl SqliteTarget {
    pub(super) fn open(
        database: Database,
        settings: TargetSettings,
        columns: Vec<Column>,
        context: Context,
    ) -> Result<Self> {
        check_names(&settings, &columns)?;
        let mut there = Vec::new();
        if database.exists() {
            let connection = database.open(Access::Read)?;
            check_free(&connection, &database, &settings)?;
            // A table that is replaced may have any columns.
            if settings.write_mode != WriteMode::Replace {
                let declared = layout::declared(&connection, &settings.into);
                there = declared.map_err(|error| database.failed("read the schema of", error))?;
            }
        }
        let chosen = stored(&settings, &columns, &there)?;
        let columns = chosen.columns().to_vec();
        let mut plan = changes(&settings, &columns, &there)?;
        plan.push(match settings.write_mode {
            WriteMode::Append => format!("INSERT INTO {}", quoted(&settings.into)),
            WriteMode::Upsert => {
                format!("INSERT INTO {} ON CONFLICT DO UPDATE", quoted(&settings.into))
            }
            WriteMode::Replace => {
                format!("load into a new table, then replace {}", quoted(&settings.into))
            }
        });
        let shared = Shared { database, settings, columns, chosen, context };
        Ok(Self { shared: Arc::new(shared), plan })
    }
}

/// Checks that names are distinct: SQLite ignores the case of ASCII letters.
pub(super) fn check_names(settings: &TargetSettings, columns: &[Column]) -> Result<()> {
    let refuse = |what: String| {
        Err(ConnectorError::unsupported(what, "rename it with `into` or in a transform"))
    };
    let into = &settings.into;
    let lower = into.to_ascii_lowercase();
    if into.is_empty()
        || into.contains('\0')
        || lower.starts_with("sqlite_")
        || lower.starts_with("_forebay_")
    {
        return refuse(format!("a table of SQLite cannot be named {into:?}"));
    }
    let mut names: Vec<String> =
        columns.iter().map(|column| column.name.to_ascii_lowercase()).collect();
    names.sort_unstable();
    if let Some([twice, _]) = names.array_windows().find(|[one, next]| one == next) {
        return refuse(format!(
            "two columns are named {twice:?}; SQLite ignores the case of names"
        ));
    }
    if let Some(name) = names.iter().find(|name| name.contains('\0')) {
        return refuse(format!("a column of SQLite cannot be named {name:?}"));
    }
    for key in &settings.primary_key {
        if !columns.iter().any(|column| column.name == *key) {
            return refuse(format!("the key column {key:?} is not in the stream"));
        }
    }
    Ok(())
}

/// Checks that the target's name does not belong to a view.
fn check_free(
    connection: &Connection,
    database: &Database,
    settings: &TargetSettings,
) -> Result<()> {
    let failed = |error| database.failed("read the schema of", error);
    let sql = "SELECT count(*) FROM sqlite_schema WHERE type = 'view' AND name = ?1 COLLATE NOCASE";
    let views: u32 =
        connection.query_row(sql, [&settings.into], |row| row.get(0)).map_err(failed)?;
    if views > 0 {
        return Err(ConnectorError::unsupported(
            format!("{:?} is a view", settings.into),
            "set `into` to a table",
        ));
    }
    Ok(())
}

/// The columns that are stored: all but those that the table lacks, if they are ignored.
fn stored(settings: &TargetSettings, columns: &[Column], there: &[Declared]) -> Result<Chosen> {
    let is_ignored = settings.schema_evolution.new_column == NewColumn::Ignore && !there.is_empty();
    let is_there = |column: &Column| {
        there.iter().any(|declared| declared.name.eq_ignore_ascii_case(&column.name))
    };
    let chosen = Chosen::of(columns, |column| !is_ignored || is_there(column));
    match chosen.columns() {
        [] if !columns.is_empty() => Err(ConnectorError::unsupported(
            format!("{} has none of the source's columns", settings.into),
            "set `schema_evolution.new_column: add`, or `into` to another table",
        )),
        _ => Ok(chosen),
    }
}

/// The changes to a table before rows are written to it.
fn changes(
    settings: &TargetSettings,
    columns: &[Column],
    there: &[Declared],
) -> Result<Vec<String>> {
    let table = &settings.into;
    if there.is_empty() {
        let table = match settings.write_mode {
            WriteMode::Replace => next_table(settings),
            _ => table.clone(),
        };
        return Ok(vec![create(&table, settings, columns)]);
    }
    let refuse = |what: String, way_out: &str| Err(ConnectorError::unsupported(what, way_out));
    let evolution = settings.schema_evolution;
    let same = |one: &str, other: &str| one.eq_ignore_ascii_case(other);
    let mut changes = Vec::new();
    for column in columns {
        let Column { name, sql_type, nullable, .. } = column;
        let Some(declared) = there.iter().find(|declared| same(&declared.name, name)) else {
            if evolution.new_column != NewColumn::Add {
                return refuse(
                    format!("{table} has no column {name:?}"),
                    "add it, or set `schema_evolution.new_column` to `add` or `ignore`",
                );
            }
            let (table, name) = (quoted(table), quoted(name));
            changes.push(format!(
                "ALTER TABLE {table} ADD COLUMN {name} {}",
                values::declaration(column)
            ));
            continue;
        };
        if !same(&declared.type_name, &values::declared(column)) && !fits(column, declared) {
            return refuse(
                format!(
                    "column {name:?} of {table} is {}, but {sql_type} in the source",
                    declared.type_name
                ),
                "cast it in a transform, or use `write_mode: replace`",
            );
        }
        if *nullable
            && !declared.nullable
            && evolution.nullability_change == NullabilityChange::Fail
        {
            return refuse(
                format!("column {name:?} of {table} is NOT NULL, but nullable in the source"),
                "set `schema_evolution.nullability_change: allow`, so that only rows with NULL fail",
            );
        }
    }
    for declared in there {
        let comes = columns.iter().any(|column| same(&column.name, &declared.name));
        if !comes && evolution.removed_column == RemovedColumn::Fail {
            return refuse(
                format!("the source no longer has the column {:?} of {table}", declared.name),
                "drop it, or set `schema_evolution.removed_column: ignore`",
            );
        }
    }
    Ok(changes)
}

/// Whether a column with another declared type stores values unchanged.
fn fits(column: &Column, declared: &Declared) -> bool {
    let there = values::column_of(&declared.name, &declared.type_name);
    let is_text = |name: &str| ["char", "clob", "text"].iter().any(|part| name.contains(part));
    let declared = declared.type_name.to_ascii_lowercase();
    match there {
        // SQLite stores integers of any size the same way.
        Some(there) if there.wire == column.wire => {
            !declared.contains("numeric") && !declared.contains("decimal")
        }
        Some(there) => {
            use forebay_pgcopy::Wire::{Int2, Int4, Int8, Money};
            let is_integer = |wire: &_| matches!(wire, Int2 | Int4 | Int8 | Money);
            is_integer(&there.wire) && is_integer(&column.wire)
        }
        None => is_text(&declared) && values::declared(column).contains("TEXT"),
    }
}

/// The table that will replace the current one.
pub(super) fn next_table(settings: &TargetSettings) -> String {
    format!("_forebay_next_{}", digits_of(&settings.into))
}

fn create(table: &str, settings: &TargetSettings, columns: &[Column]) -> String {
    let mut parts: Vec<String> = Vec::with_capacity(columns.len() + 1);
    for column in columns {
        let is_key = settings.primary_key.contains(&column.name);
        let not_null = if column.nullable && !is_key { "" } else { " NOT NULL" };
        parts.push(format!("{} {}{not_null}", quoted(&column.name), values::declaration(column)));
    }
    if !settings.primary_key.is_empty() {
        let key = quoted_list(settings.primary_key.iter().map(String::as_str));
        parts.push(format!("PRIMARY KEY ({key})"));
    }
    format!("CREATE TABLE {} ({})", quoted(table), parts.join(", "))
}

impl Shared {
    pub(super) fn failed(
        &self,
        act: &'static str,
    ) -> impl Fn(rusqlite::Error) -> ConnectorError + use<> {
        let database = self.database.clone();
        move |error| database.failed(act, error)
    }

    /// The table that rows are written to.
    pub(super) fn table(&self) -> String {
        match self.settings.write_mode {
            WriteMode::Replace => next_table(&self.settings),
            _ => self.settings.into.clone(),
        }
    }

    fn prepare(&self, load: &Load) -> Result<()> {
        let failed = self.failed("prepare");
        let connection = self.database.open(Access::Write)?;
        connection.execute_batch("BEGIN IMMEDIATE").map_err(&failed)?;
        ledger::create(&connection).map_err(&failed)?;
        let last = ledger::load(&connection, &self.settings).map_err(&failed)?;
        let goes_on =
            last.is_some_and(|(last, target)| last.id == load.id && target == self.settings.into);
        if !goes_on {
            let next = quoted(&next_table(&self.settings));
            connection.execute_batch(&format!("DROP TABLE IF EXISTS {next}")).map_err(&failed)?;
            ledger::begin(&connection, &self.settings, load).map_err(&failed)?;
        }
        // The table as it is now, which another run may have created since the plan.
        let there = layout::declared(&connection, &self.table()).map_err(&failed)?;
        for change in changes(&self.settings, &self.columns, &there)? {
            connection.execute_batch(&change).map_err(&failed)?;
        }
        self.check_key(&connection)?;
        connection.execute_batch("COMMIT").map_err(&failed)
    }

    /// Checks that a unique index finds rows with the same key.
    fn check_key(&self, connection: &Connection) -> Result<()> {
        if self.settings.write_mode != WriteMode::Upsert {
            return Ok(());
        }
        let key = quoted_list(self.settings.primary_key.iter().map(String::as_str));
        let table = quoted(&self.settings.into);
        let sql = format!(
            "INSERT INTO {table} ({key}) SELECT {key} FROM {table} WHERE false \
                           ON CONFLICT ({key}) DO NOTHING"
        );
        connection.prepare(&sql).map(drop).map_err(|error| {
            ConnectorError::unsupported(
                format!("{table} has no unique index of ({key}): {error}"),
                "create one, or set `into` to another table",
            )
        })
    }

    fn finish(&self, load: &Load) -> Result<()> {
        let failed = self.failed("finish the load in");
        let connection = self.database.open(Access::Write)?;
        connection.execute_batch("BEGIN IMMEDIATE").map_err(&failed)?;
        let last = ledger::load(&connection, &self.settings).map_err(&failed)?;
        let is_last = last.is_some_and(|(last, _)| last.id == load.id);
        if !is_last {
            return Err(ConnectorError::Refused {
                act: "finish the load".into(),
                source: format!("the load {} is not the one that was prepared", load.id).into(),
            });
        }
        let next = next_table(&self.settings);
        let waits = !layout::declared(&connection, &next).map_err(&failed)?.is_empty();
        if self.settings.write_mode == WriteMode::Replace && waits {
            self.replace(&connection, &next).map_err(&failed)?;
        }
        let load = Load { is_finished: true, ..load.clone() };
        ledger::put(&connection, &self.settings, &load).map_err(&failed)?;
        connection.execute_batch("COMMIT").map_err(&failed)
    }

    /// Replaces the current table by the loaded one.
    fn replace(&self, connection: &Connection, next: &str) -> rusqlite::Result<()> {
        let (table, waiting) = (quoted(&self.settings.into), quoted(next));
        let there = layout::declared(connection, &self.settings.into)?;
        let loaded = layout::declared(connection, next)?;
        if there == loaded {
            // The table stays, with its indexes and triggers.
            connection.execute_batch(&format!(
                "DELETE FROM {table}; INSERT INTO {table} SELECT * FROM {waiting}; DROP TABLE \
                 {waiting}"
            ))
        } else {
            connection.execute_batch(&format!(
                "DROP TABLE IF EXISTS {table}; ALTER TABLE {waiting} RENAME TO {table}"
            ))
        }
    }

    fn content(&self) -> Result<ContentHash> {
        let failed = self.failed("read");
        if !self.database.exists() {
            return Ok(ContentHash::default());
        }
        let connection = self.database.open(Access::Read)?;
        if layout::declared(&connection, &self.settings.into).map_err(&failed)?.is_empty() {
            return Ok(ContentHash::default());
        }
        let names = quoted_list(self.columns.iter().map(|column| &*column.name));
        // Rows that were deleted at the source do not count.
        let marks = self.settings.feed == FeedForm::Mark;
        let live = if marks { format!(" WHERE {DELETED_AT} IS NULL") } else { String::new() };
        let sql = format!("SELECT {names} FROM {}{live}", quoted(&self.settings.into));
        self.hash(&connection, &sql)
    }

    /// The content hash of the rows of a query.
    fn hash(&self, connection: &Connection, sql: &str) -> Result<ContentHash> {
        let mut hasher = Hasher::new(&self.columns)?;
        read_rows(self, connection, sql, &mut |batch| hasher.add(&batch))?;
        Ok(hasher.content())
    }
}

/// Reads the rows of a query of the columns of a stream.
pub(super) fn read_rows(
    shared: &Shared,
    connection: &Connection,
    sql: &str,
    give: &mut forebay_sdk::bridge::Give<'_>,
) -> Result<()> {
    let failed = shared.failed("read");
    let mut statement = connection.prepare(sql).map_err(&failed)?;
    let mut rows = statement.query([]).map_err(&failed)?;
    let mut builders: Vec<Builder> = shared.columns.iter().map(Builder::new).collect();
    let schema = Arc::new(forebay_pgcopy::column::schema(&shared.columns));
    let mut number = 0_u64;
    loop {
        let mut count = 0;
        while count < HASHED_ROWS
            && let Some(row) = rows.next().map_err(&failed)?
        {
            (count, number) = (count + 1, number + 1);
            for (at, (builder, column)) in builders.iter_mut().zip(&shared.columns).enumerate() {
                let value = row.get_ref(at).map_err(&failed)?;
                values::append(builder, value).map_err(|found| {
                    let Column { name, .. } = column;
                    let place = format!("{} row {number}, column {name:?}", shared.settings.into);
                    ConnectorError::data(place, found)
                })?;
            }
        }
        let arrays = builders.iter_mut().map(Builder::finish).collect();
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(count));
        let batch =
            arrow::array::RecordBatch::try_new_with_options(Arc::clone(&schema), arrays, &options);
        give(
            batch
                .map_err(|error| ConnectorError::data(&*shared.settings.into, error.to_string()))?,
        )?;
        if count < HASHED_ROWS {
            return Ok(());
        }
    }
}

#[async_trait]
impl Target for SqliteTarget {
    fn plan(&self) -> Vec<String> {
        self.plan.clone()
    }

    fn takes_tuples(&self) -> bool {
        false
    }

    async fn prepare(&self, load: &Load) -> Result<()> {
        let (shared, load) = (Arc::clone(&self.shared), load.clone());
        blocking(move || shared.prepare(&load)).await
    }

    async fn writer(&self, load: &Load, unit: &Unit) -> Result<Box<dyn UnitWriter>> {
        let (shared, load) = (Arc::clone(&self.shared), load.clone());
        let name = unit.name.clone();
        blocking(move || {
            Ok(Box::new(SqliteWriter::open(shared, load, name)?) as Box<dyn UnitWriter>)
        })
        .await
    }

    async fn finish(&self, load: &Load) -> Result<()> {
        let (shared, load) = (Arc::clone(&self.shared), load.clone());
        blocking(move || shared.finish(&load)).await
    }

    fn stored(&self) -> Option<Vec<Column>> {
        self.shared.chosen.is_partial().then(|| self.shared.columns.clone())
    }

    fn as_stored(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        self.shared.conform(rows)
    }

    async fn content(&self) -> Result<ContentHash> {
        let shared = Arc::clone(&self.shared);
        blocking(move || shared.content()).await
    }
}
