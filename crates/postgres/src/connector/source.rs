//! Reading from PostgreSQL: tables by binary COPY, all parts of a stream in one exported snapshot.
//!
//! Invariants:
//! * All parts of a stream are read in the snapshot of the transaction that opened it.
//! * That transaction is read-only and takes no lock except that of reading.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use async_trait::async_trait;
use forebay_pgcopy::catalog;
use forebay_pgcopy::{Column, Wire};
use forebay_sdk::connector::{
    Cursor, Discovered, DiscoveredColumn, Division, Form, Opening, Result, Source, SourceStream,
    Unit,
};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::run::{Context, Outlet, Phase};
use forebay_sdk::settings::{StreamSettings, SyncMode};
use futures_util::future::try_join;
use parking_lot::Mutex;
use tokio_postgres::Client;

use super::catalog::{Table, table};
use super::connect::{Pool, Server, refused};
use super::horizon;
use super::incremental;
use super::read::Reading;
use super::settings::Settings;
use super::sql::{TableName, ident, idents, literal};
use super::units::{Part, Parts};

/// A PostgreSQL as a source.
#[derive(Debug)]
pub struct PostgresSource {
    settings: Settings,
    pool: OnceLock<Arc<Pool>>,
}

impl PostgresSource {
    /// Creates a source with these settings; sends nothing yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self { settings, pool: OnceLock::new() }
    }

    /// The connections that were opened in advance.
    fn pool(&self) -> Result<&Arc<Pool>> {
        if let Some(pool) = self.pool.get() {
            return Ok(pool);
        }
        let pool = Arc::new(Pool::new(Server::new(&self.settings)?));
        Ok(self.pool.get_or_init(|| pool))
    }
}

const TABLES: &str = "
select n.nspname::text, c.relname::text from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r','p','v','m','f') and not c.relispartition
  and n.nspname not in ('pg_catalog', 'information_schema') and n.nspname !~ '^pg_(toast|temp)'
  and has_table_privilege(c.oid, 'select')
order by 1, 2";

/// Starts the transaction in which a stream is read.
const BEGIN: &str = "begin transaction isolation level repeatable read read only";

#[async_trait]
impl Source for PostgresSource {
    async fn check(&self) -> Result<String> {
        let server = Server::new(&self.settings)?;
        let client = server.connect(None).await?;
        let version = client.query_one("select version()", &[]).await;
        let version: String = version.map_err(|error| refused("read the version", error))?.get(0);
        let version = version.split(" on ").next().unwrap_or_default().to_owned();
        Ok(format!("{version}: {}", server.name()))
    }

    async fn discover(&self) -> Result<Vec<Discovered>> {
        let client = Server::new(&self.settings)?.connect(None).await?;
        let names = client.query(TABLES, &[]).await;
        let names = names.map_err(|error| refused("list the tables", error))?;
        let mut discovered = Vec::with_capacity(names.len());
        for row in names {
            let (schema, name): (String, String) = (row.get(0), row.get(1));
            // A table that was dropped since is skipped.
            if let Some(found) = table(&client, &TableName::new(&schema, &name)).await? {
                discovered.push(describe(&found));
            }
        }
        Ok(discovered)
    }

    async fn warm(&self, context: &Context) {
        // Invalid settings fail when the source is opened.
        if let Ok(pool) = self.pool() {
            pool.fill(1, Some(&context.phases)).await;
        }
    }

    async fn open(
        &self,
        stream: &StreamSettings,
        opening: &Opening,
        context: &Context,
    ) -> Result<Arc<dyn SourceStream>> {
        let pool = self.pool()?;
        let client = pool.client(Some(&context.phases)).await?;
        let begun = Instant::now();
        let name = TableName::parse(&stream.name, &self.settings.schema.0).ok_or_else(|| {
            ConnectorError::unsupported(
                format!("{:?} is not a valid table name", stream.name),
                "specify `table` or `schema.table`, with parts that contain dots in double quotes",
            )
        })?;
        // Before the snapshot: pending writes have then been committed when it is taken.
        let is_recorded = matches!(opening.division, Division::As(_));
        let bound = match stream.sync_mode {
            SyncMode::Incremental if !is_recorded => {
                let wait = self.settings.wait_for_late_commits.get();
                incremental::upper_bound(&client, &name, stream, wait).await?
            }
            _ => None,
        };
        let begin = async {
            let begun = client.batch_execute(&format!("{BEGIN}; {}", horizon::mark())).await;
            begun.map_err(|error| refused("start reading", error))
        };
        let ((), found) = try_join(begin, table(&client, &name)).await?;
        let found = found.ok_or_else(|| missing(&name, &pool.server))?;
        let columns = Columns::choose(&found, stream, opening.form)?;
        let parts = match (stream.sync_mode, &opening.division) {
            (SyncMode::Incremental, Division::As(units)) => Parts::recorded(units),
            (SyncMode::Incremental, _) => {
                incremental::parts(&client, &found, stream, opening.since.as_ref(), bound).await?
            }
            _ => Parts::plan(&client, &found, stream, opening).await?,
        };
        let snapshot = if parts.units.len() > 1 {
            let exported = client.query_typed_one("select pg_export_snapshot()", &[]).await;
            Some(exported.map_err(|error| refused("share a snapshot", error))?.get(0))
        } else {
            None
        };
        context.phases.add(Phase::Query, begun);
        Ok(Arc::new(PostgresStream {
            units: parts.units.iter().map(|(unit, _)| unit.clone()).collect(),
            parts: parts.units.into_iter().map(|(_, part)| part).collect(),
            is_stable: parts.is_stable,
            cursor: parts.cursor,
            columns,
            table: found,
            server: pool.server.clone(),
            snapshot,
            idle: Mutex::new(vec![client]),
            form: opening.form,
            batch_size: opening.batch_size,
        }))
    }
}

fn missing(name: &TableName, server: &Server) -> ConnectorError {
    ConnectorError::unsupported(
        format!("there is no table {name} in {}", server.name()),
        "list the tables with `forebay pipeline discover`",
    )
}

fn describe(table: &Table) -> Discovered {
    let columns = table.columns.iter().map(|column| {
        let is_known = catalog::wire(&column.pg_type, true) != Wire::Opaque;
        DiscoveredColumn {
            name: column.name.clone(),
            sql_type: column.pg_type.name.clone(),
            nullable: column.nullable,
            note: (!is_known).then(|| "as text, except in PostgreSQL".to_owned()),
        }
    });
    let quoted = |name: &str| if name.contains('.') { ident(name) } else { name.to_owned() };
    Discovered {
        name: format!("{}.{}", quoted(&table.name.schema), quoted(&table.name.table)),
        columns: columns.collect(),
        primary_key: table.primary_key.clone(),
        rows: table.rows,
        bytes: Some(table.pages * super::PAGE_SIZE),
    }
}

/// The columns to read, and their expressions.
#[derive(Debug)]
struct Columns {
    columns: Vec<Column>,
    /// The expressions of the SELECT list.
    expressions: Vec<String>,
    /// Whether any expression is more than a column name.
    is_cast: bool,
    notes: Vec<String>,
}

impl Columns {
    fn choose(table: &Table, stream: &StreamSettings, form: Form) -> Result<Self> {
        let chosen: Vec<_> = if stream.columns.is_empty() {
            table.columns.iter().collect()
        } else {
            let found = stream
                .columns
                .iter()
                .map(|name| table.column(name).ok_or_else(|| no_column(table, name)));
            found.collect::<Result<_>>()?
        };
        if chosen.is_empty() {
            return Err(ConnectorError::unsupported(
                format!("{} has no columns", table.name),
                "remove the stream",
            ));
        }
        let mut columns = Self {
            columns: Vec::with_capacity(chosen.len()),
            expressions: Vec::with_capacity(chosen.len()),
            is_cast: false,
            notes: Vec::new(),
        };
        for column in chosen {
            let is_text_wanted = form == Form::PlainRecords;
            let wire = catalog::wire(&column.pg_type, !is_text_wanted);
            let is_known = catalog::wire(&column.pg_type, true) != Wire::Opaque;
            let name = ident(&column.name);
            let sql_type = if is_text_wanted && !is_known {
                columns.is_cast = true;
                let from = &column.pg_type.name;
                columns.notes.push(format!("{}: {from} is read as text", column.name));
                columns.expressions.push(format!("{name}::text"));
                "text".to_owned()
            } else {
                columns.expressions.push(name);
                column.pg_type.name.clone()
            };
            let (name, nullable) = (column.name.clone(), column.nullable);
            columns.columns.push(Column { name, sql_type, wire, nullable });
        }
        Ok(columns)
    }
}

/// An error for a missing column, which lists the existing ones.
pub(super) fn no_column(table: &Table, name: &str) -> ConnectorError {
    let names: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
    ConnectorError::unsupported(
        format!("{} has no column {name:?}", table.name),
        format!("its columns are {}", names.join(", ")),
    )
}

/// An open table.
struct PostgresStream {
    units: Vec<Unit>,
    /// How each unit is read.
    parts: Vec<Option<Part>>,
    is_stable: bool,
    cursor: Option<Cursor>,
    columns: Columns,
    table: Table,
    server: Server,
    snapshot: Option<String>,
    /// Connections in transactions of the snapshot, including the one that exports it.
    idle: Mutex<Vec<Client>>,
    form: Form,
    batch_size: usize,
}

impl PostgresStream {
    /// A connection that uses the snapshot.
    async fn client(&self, context: &Context) -> Result<Client> {
        let idle = self.idle.lock().pop();
        if let Some(client) = idle {
            return Ok(client);
        }
        let client = self.server.connect(Some(&context.phases)).await?;
        let snapshot = self.snapshot.as_deref().unwrap_or_default();
        let mark = horizon::mark();
        let begin = format!("{BEGIN}; set transaction snapshot {}; {mark}", literal(snapshot));
        client.batch_execute(&begin).await.map_err(|error| refused("join the snapshot", error))?;
        Ok(client)
    }

    /// The COPY that reads a part.
    fn copy(&self, part: &Part) -> String {
        let table = self.table.name.sql();
        // The server copies a whole table faster than a query of it.
        if part.condition.is_empty() && !self.columns.is_cast && self.table.kind == 'r' {
            let names = idents(self.columns.columns.iter().map(|column| column.name.as_str()));
            return format!("copy {table} ({names}) to stdout (format binary)");
        }
        let list = self.columns.expressions.join(", ");
        let condition = &part.condition;
        let separator = if condition.is_empty() { "" } else { " where " };
        format!("copy (select {list} from {table}{separator}{condition}) to stdout (format binary)")
    }
}

#[async_trait]
impl SourceStream for PostgresStream {
    fn columns(&self) -> &[Column] {
        &self.columns.columns
    }

    fn units(&self) -> &[Unit] {
        &self.units
    }

    fn units_are_stable(&self) -> bool {
        self.is_stable
    }

    fn cursor(&self) -> Option<Cursor> {
        self.cursor.clone()
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = self.columns.notes.clone();
        if let Some(Some(part)) = self.parts.first() {
            notes.push(format!("{} of: {}", self.parts.len(), self.copy(part)));
        }
        notes
    }

    async fn read(&self, unit: usize, out: &mut Outlet) -> Result<()> {
        let Some(part) = self.parts.get(unit) else {
            return Err(ConnectorError::data(self.table.name.to_string(), "there is no such unit"));
        };
        let Some(part) = part else {
            return Err(ConnectorError::unsupported(
                format!(
                    "{}: a unit of an earlier incremental load cannot be read",
                    self.table.name
                ),
                "run with `--from-scratch` to load it from the beginning",
            ));
        };
        let client = self.client(out.context()).await?;
        let reading = Reading {
            columns: &self.columns.columns,
            form: self.form,
            batch_size: self.batch_size,
            place: format!(
                "{} ({})",
                self.table.name,
                self.units.get(unit).map_or("", |unit| &unit.name)
            ),
        };
        reading.read(&client, &self.copy(part), out).await?;
        // A connection whose COPY was interrupted is not reused.
        self.idle.lock().push(client);
        Ok(())
    }
}
