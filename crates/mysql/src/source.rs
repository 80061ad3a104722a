//! A database as a source: its tables and views are the streams.

use std::sync::Arc;

use async_trait::async_trait;
use forebay_sdk::connector::{
    Discovered, DiscoveredColumn, Division, Opening, Result, Source, SourceStream,
};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::platform::Instant;
use forebay_sdk::run::{Context, Phase};
use forebay_sdk::settings::{StreamSettings, SyncMode};

use crate::catalog::{self, Table};
use crate::columns::Columns;
use crate::connect::{PACKET_SIZE, Server, Session};
use crate::incremental;
use crate::read::Reading;
use crate::settings::Settings;
use crate::stream::{MysqlStream, begin};
use crate::types::Type;
use crate::units::Parts;

/// Smallest and largest limit on the size of a row in bytes: a quarter of the memory of a reader, but not less than
/// a packet without a row of a table, and not more than the protocol allows.
const ROW_SIZE: std::ops::RangeInclusive<usize> = (1 << 20)..=(1 << 30);
/// Maximum number of tables that a message lists.
const LISTED_MAX: usize = 20;

/// A MySQL or MariaDB database as a source.
#[derive(Debug, Clone)]
pub struct MysqlSource {
    settings: Settings,
}

impl MysqlSource {
    /// Creates the source with these settings; sends nothing yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self { settings }
    }

    /// The parts of a stream, in the snapshot in which it is read.
    async fn plan(
        &self,
        session: &mut Session,
        stream: &StreamSettings,
        opening: &Opening,
        context: &Context,
    ) -> Result<(Columns, Parts)> {
        let name = &stream.name;
        // Before the snapshot: what was open is committed when it is taken.
        let is_recorded = matches!(opening.division, Division::As(_));
        let is_incremental = stream.sync_mode == SyncMode::Incremental;
        let bound = match is_incremental && !is_recorded {
            true => match catalog::table(session, name).await? {
                Some(table) => {
                    let since = opening.since.as_ref();
                    let settings = &self.settings;
                    incremental::upper_bound(context, session, &table, stream, since, settings)
                        .await?
                }
                None => return Err(missing(session, name).await),
            },
            false => None,
        };
        let Some(table) = begin(session, name).await? else {
            return Err(missing(session, name).await);
        };
        if !table.has_snapshots() {
            return Err(no_snapshot(&table));
        }
        let columns = Columns::choose(&table, stream, &self.settings)?;
        let parts = match &opening.division {
            Division::As(units) if is_incremental => Parts::recorded(units),
            _ if is_incremental => {
                incremental::parts(context, session, &table, stream, opening, bound).await?
            }
            _ => Parts::plan(session, &table, stream, opening).await?,
        };
        Ok((columns, parts))
    }
}

/// The error for a table that does not exist, which lists those that do.
async fn missing(session: &mut Session, name: &str) -> ConnectorError {
    let tables = match catalog::tables(session, None).await {
        Ok(tables) => tables,
        Err(error) => return error,
    };
    let names: Vec<&str> = tables.iter().map(|table| &*table.name).take(LISTED_MAX).collect();
    let server = session.server().name();
    ConnectorError::unsupported(
        format!("there is no table {name:?} in {server}, or its user may not read it"),
        match names.is_empty() {
            true => "grant the user SELECT on its tables".to_owned(),
            false => format!("choose from {}", names.join(", ")),
        },
    )
}

fn no_snapshot(table: &Table) -> ConnectorError {
    ConnectorError::unsupported(
        format!(
            "{} is stored by {}, which has no snapshots: rows would be read at different moments",
            table.name, table.engine
        ),
        "convert it with ALTER TABLE ... ENGINE=InnoDB, or copy it into such a table",
    )
}

fn describe(table: Table) -> Discovered {
    let columns = table.columns.iter().map(|column| {
        let ty = Type::of(column);
        let unknown = || Some("cannot be read: the type is unknown".to_owned());
        DiscoveredColumn {
            name: column.name.clone(),
            sql_type: column.full_type.clone(),
            nullable: column.nullable,
            note: ty.map_or_else(unknown, |ty| ty.note(column)),
        }
    });
    Discovered {
        columns: columns.collect(),
        primary_key: table.primary_key,
        rows: table.rows,
        bytes: table.bytes,
        name: table.name,
    }
}

#[async_trait]
impl Source for MysqlSource {
    async fn check(&self) -> Result<String> {
        let server = Server::new(&self.settings)?;
        let mut session = server.connect(PACKET_SIZE, None).await?;
        let tables = catalog::tables(&mut session, None).await?.len();
        let product = if session.is_mariadb() { "MariaDB" } else { "MySQL" };
        Ok(format!("{product} {}: {}, {tables} tables", session.version(), server.name()))
    }

    async fn discover(&self) -> Result<Vec<Discovered>> {
        let server = Server::new(&self.settings)?;
        let mut session = server.connect(PACKET_SIZE, None).await?;
        let tables = catalog::tables(&mut session, None).await?;
        Ok(tables.into_iter().map(describe).collect())
    }

    async fn open(
        &self,
        stream: &StreamSettings,
        opening: &Opening,
        context: &Context,
    ) -> Result<Arc<dyn SourceStream>> {
        if opening.snapshot.is_some() {
            return Err(ConnectorError::unsupported(
                "MySQL cannot read in a snapshot of another connection",
                "use `sync_mode: full_refresh` or `incremental`",
            ));
        }
        let server = Server::new(&self.settings)?;
        let row_size = (opening.memory / 4).clamp(*ROW_SIZE.start(), *ROW_SIZE.end());
        let mut session = server.connect(row_size, Some(&context.phases)).await?;
        let begun = Instant::now();
        let (columns, parts) = self.plan(&mut session, stream, opening, context).await?;
        context.phases.add(Phase::Query, begun);
        let reading = Reading {
            table: stream.name.clone(),
            columns,
            batch_size: opening.batch_size,
            packet_size: row_size,
        };
        Ok(Arc::new(MysqlStream::new(session, &self.settings, stream, reading, parts)))
    }
}
