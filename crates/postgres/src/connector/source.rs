//! Reading from PostgreSQL: tables by binary COPY, all parts of a stream in one exported snapshot.
//!
//! Invariants:
//! * All parts of a stream are read in the snapshot of the transaction that opened it. If that is lost
//!   with its server, parts that have the same rows in another one are read in that.
//! * A table is read with those that inherit from it, as `select * from` it.
//! * That transaction is read-only and takes no lock except that of reading.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use forebay_pgcopy::{Column, Wire, catalog};
use forebay_sdk::changes::feed::ChangeSource;
use forebay_sdk::connector::{
    Cursor, Discovered, DiscoveredColumn, Division, Form, Opening, Result, Source, SourceStream,
    Unit,
};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::platform::Instant;
use forebay_sdk::run::{Context, Outlet, Phase};
use forebay_sdk::settings::{StreamSettings, SyncMode};
use futures_util::future::try_join;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio_postgres::Client;

use super::catalog::{Table, table};
use super::columns::Columns;
use super::connect::{Pool, Server, refused};
use super::horizon;
use super::incremental;
use super::money;
use super::place;
use super::read::Reading;
use super::settings::Settings;
use super::sql::{TableName, ident, idents, literal};
use super::units::{Part, Parts};

/// A PostgreSQL as a source.
#[derive(Debug)]
pub struct PostgresSource {
    pub(super) settings: Settings,
    pool: OnceLock<Arc<Pool>>,
}

impl PostgresSource {
    /// Creates a source with these settings; sends nothing yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self { settings, pool: OnceLock::new() }
    }

    pub(super) fn table_name(&self, stream: &StreamSettings) -> Result<TableName> {
        TableName::parse(&stream.name, &self.settings.schema.0).ok_or_else(|| {
            ConnectorError::unsupported(
                format!("{:?} is not a valid table name", stream.name),
                "specify `table` or `schema.table`, with parts that contain dots in double quotes",
            )
        })
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

    async fn place(&self, stream: &StreamSettings) -> Result<Option<String>> {
        let (pool, name) = (self.pool()?, self.table_name(stream)?);
        let client = pool.client(None).await?;
        let place = place::of(&client, &name).await?;
        pool.give_back(client);
        Ok(place)
    }

    fn changes(&self) -> Option<&dyn ChangeSource> {
        Some(self)
    }

    async fn attach(
        &self,
        stream: &StreamSettings,
        opening: &Opening,
        handle: &[u8],
        context: &Context,
    ) -> Result<Arc<dyn SourceStream>> {
        let handle: Handle = serde_json::from_slice(handle)
            .map_err(|error| ConnectorError::data("the handle of a stream", error.to_string()))?;
        let (pool, name) = (self.pool()?, self.table_name(stream)?);
        let client = pool.client(Some(&context.phases)).await?;
        let begun = client.batch_execute(&begin(Some(&handle.snapshot))).await;
        begun.map_err(|error| refused("join the snapshot", error))?;
        let found = table(&client, &name).await?.ok_or_else(|| missing(&name, &pool.server))?;
        let columns = Columns::choose(&found, stream, opening.form)?;
        let (units, parts) = handle.units.into_iter().unzip();
        Ok(Arc::new(PostgresStream {
            units,
            parts,
            is_stable: false,
            cursor: None,
            notes: Vec::new(),
            columns,
            table: found,
            server: pool.server.clone(),
            shared: None,
            snapshot: Some(handle.snapshot),
            idle: Mutex::new(vec![client]),
            form: opening.form,
            batch_size: opening.batch_size,
        }))
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
        let name = self.table_name(stream)?;
        // Before the snapshot: pending writes have then been committed when it is taken.
        let is_recorded = matches!(opening.division, Division::As(_));
        let bound = match stream.sync_mode {
            SyncMode::Incremental if !is_recorded => {
                let wait = self.settings.wait_for_late_commits.get();
                incremental::upper_bound(context, &client, &name, stream, wait).await?
            }
            _ => None,
        };
        let begin = async {
            let begun = client.batch_execute(&begin(opening.snapshot.as_deref())).await;
            begun.map_err(|error| refused("start reading", error))
        };
        let ((), found) = try_join(begin, table(&client, &name)).await?;
        let found = found.ok_or_else(|| missing(&name, &pool.server))?;
        let columns = Columns::choose(&found, stream, opening.form)?;
        if opening.form != Form::PlainRecords {
            money::check(&client, &name, &columns.columns).await?;
        }
        let parts = match (stream.sync_mode, &opening.division) {
            (SyncMode::Incremental, Division::As(units)) => Parts::recorded(units),
            (SyncMode::Incremental, _) => {
                let may_repeat = opening.division == Division::Any;
                let since = opening.since.as_ref();
                incremental::parts(context, &client, &found, stream, since, bound, may_repeat)
                    .await?
            }
            _ => Parts::plan(&client, &found, stream, opening).await?,
        };
        let (shared, idle) = if parts.units.len() > 1 {
            (Some(tokio::sync::Mutex::new(Shared::by(client).await?)), Vec::new())
        } else {
            (None, vec![client])
        };
        context.phases.add(Phase::Query, begun);
        Ok(Arc::new(PostgresStream {
            units: parts.units.iter().map(|(unit, _)| unit.clone()).collect(),
            parts: parts.units.into_iter().map(|(_, part)| part).collect(),
            // In another snapshot there are other rows than in the one that was given.
            is_stable: parts.is_stable && opening.snapshot.is_none(),
            cursor: parts.cursor,
            notes: parts.notes,
            columns,
            table: found,
            server: pool.server.clone(),
            shared,
            snapshot: opening.snapshot.clone(),
            idle: Mutex::new(idle),
            form: opening.form,
            batch_size: opening.batch_size,
        }))
    }
}

/// What another process attaches to an open table with.
#[derive(Serialize, Deserialize)]
struct Handle {
    snapshot: String,
    units: Vec<(Unit, Option<Part>)>,
}

/// Starts a transaction, in a snapshot if there is one.
fn begin(snapshot: Option<&str>) -> String {
    let mark = horizon::mark();
    match snapshot {
        Some(id) => format!("{BEGIN}; set transaction snapshot {}; {mark}", literal(id)),
        None => format!("{BEGIN}; {mark}"),
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
    let is_plain = |name: &str| !name.is_empty() && !name.contains(['.', '"']);
    let quoted = |name: &str| if is_plain(name) { name.to_owned() } else { ident(name) };
    Discovered {
        name: format!("{}.{}", quoted(&table.name.schema), quoted(&table.name.table)),
        columns: columns.collect(),
        primary_key: table.primary_key.clone(),
        rows: table.rows,
        bytes: Some(table.pages * super::PAGE_SIZE),
    }
}

/// A snapshot that several connections use.
struct Shared {
    id: String,
    /// The connection whose transaction exports it. It reads nothing, so that nothing interrupts it.
    client: Client,
}

impl Shared {
    /// Exports the snapshot of a connection's transaction.
    async fn by(client: Client) -> Result<Self> {
        let exported = client.query_typed_one("select pg_export_snapshot()", &[]).await;
        let id = exported.map_err(|error| refused("share a snapshot", error))?.get(0);
        Ok(Self { id, client })
    }
}

/// An open table.
struct PostgresStream {
    units: Vec<Unit>,
    /// How each unit is read.
    parts: Vec<Option<Part>>,
    is_stable: bool,
    cursor: Option<Cursor>,
    notes: Vec<String>,
    columns: Columns,
    table: Table,
    server: Server,
    /// The snapshot that several units share. The lock is held while another one is made.
    shared: Option<tokio::sync::Mutex<Shared>>,
    /// The snapshot that was given, which is held elsewhere.
    snapshot: Option<String>,
    /// Connections in transactions of the snapshot.
    idle: Mutex<Vec<Client>>,
    form: Form,
    batch_size: usize,
}

impl PostgresStream {
    /// A connection that uses the snapshot; a new one if that was lost with its server, and the rows
    /// of the part are the same in it.
    async fn client(&self, part: &Part, context: &Context) -> Result<Client> {
        while let Some(idle) = self.idle() {
            if !idle.is_closed() {
                return Ok(idle);
            }
        }
        let client = self.server.connect(Some(&context.phases)).await?;
        let Some(shared) = &self.shared else {
            let begun = client.batch_execute(&begin(self.snapshot.as_deref())).await;
            begun.map_err(|error| refused("start reading", error))?;
            self.check_same(&client, part).await?;
            return Ok(client);
        };
        let mut shared = shared.lock().await;
        if shared.client.is_closed() {
            if !self.is_stable {
                return Err(self.lost());
            }
            tracing::warn!(
                table = %self.table.name,
                "the snapshot was lost with its connection: the remaining units are read in another one"
            );
            let other = self.server.connect(Some(&context.phases)).await?;
            let begun = other.batch_execute(&begin(None)).await;
            begun.map_err(|error| refused("start reading", error))?;
            *shared = Shared::by(other).await?;
        }
        if let Err(error) = client.batch_execute(&begin(Some(&shared.id))).await {
            // That the snapshot has ended may be known before the end of its connection.
            return Err(match shared.client.batch_execute("").await {
                Ok(()) => refused("join the snapshot", error),
                Err(_) => ConnectorError::Busy {
                    act: format!("read {}: its snapshot was lost", self.table.name),
                    source: error.into(),
                },
            });
        }
        Ok(client)
    }

    fn idle(&self) -> Option<Client> {
        self.idle.lock().pop()
    }

    /// Fails unless another snapshot has the same rows.
    async fn check_same(&self, client: &Client, part: &Part) -> Result<()> {
        let Some(query) = &part.is_same else { return Ok(()) };
        let found = client.query_one(query, &[]).await;
        let found = found.map_err(|error| refused(format!("read {}", self.table.name), error))?;
        if found.get(0) { Ok(()) } else { Err(self.lost()) }
    }

    fn lost(&self) -> ConnectorError {
        ConnectorError::unsupported(
            format!(
                "the snapshot of {} was lost with the connection, and another one may have other rows",
                self.table.name
            ),
            "run again: what is not complete is read from the beginning",
        )
    }

    /// The COPY that reads a part.
    fn copy(&self, part: &Part) -> String {
        let table = self.table.name.sql();
        // The server copies a whole table faster than a query of it, but without the tables that inherit
        // from it.
        let is_plain =
            self.table.kind == 'r' && !self.table.has_children && !self.columns.needs_query;
        if part.condition.is_empty() && is_plain {
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
        notes.extend(self.notes.iter().cloned());
        if let Some(Some(part)) = self.parts.first() {
            notes.push(format!("{} of: {}", self.parts.len(), self.copy(part)));
        }
        notes
    }

    fn handle(&self) -> Option<Vec<u8>> {
        // Nothing else has it while a stream is opened.
        let snapshot = self.shared.as_ref()?.try_lock().ok()?.id.clone();
        let units = self.units.iter().cloned().zip(self.parts.iter().cloned()).collect();
        serde_json::to_vec(&Handle { snapshot, units }).ok()
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
        let client = self.client(part, out.context()).await?;
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
