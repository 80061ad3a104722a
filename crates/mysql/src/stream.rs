//! An open table: units that are read one after the other by the connection that holds the snapshot.
//!
//! Another connection would see other rows: MySQL shares no snapshots. Units are read separately nevertheless, so that
//! what is committed of a large table need not be read again after a failure.

use async_trait::async_trait;
use forebay_pgcopy::Column;
use forebay_sdk::connector::{Cursor, Result, SourceStream, Unit};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::run::{Context, Outlet};
use forebay_sdk::settings::StreamSettings;
use tokio::sync::Mutex;

use crate::catalog::{self, Table};
use crate::columns::Columns;
use crate::connect::{Server, Session};
use crate::incremental::unknown;
use crate::read::Reading;
use crate::settings::Settings;
use crate::sql::ident;
use crate::units::{Part, Parts};

/// Starts the transaction in which a stream is read.
const BEGIN: &str = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY";

/// Starts a transaction, and returns the table as it is in it, or `None` if there is none. Until the transaction
/// ends, the definition of the table cannot be changed.
pub(crate) async fn begin(session: &mut Session, name: &str) -> Result<Option<Table>> {
    session.run("start reading", BEGIN).await?;
    // What is read takes the lock on the definition, which is looked up after that. A table whose definition was
    // changed between the two is an error of the first reading.
    let lock = format!("SELECT 1 FROM {} LIMIT 0", ident(name));
    match session.query_or::<(i64,)>(&lock, ()).await? {
        Ok(_) => {}
        Err(error) if crate::error::code(&error) == Some(NO_SUCH_TABLE) => return Ok(None),
        Err(error) => {
            let server = session.server().name();
            return Err(crate::error::failure(format!("read {name}"), server, error));
        }
    }
    catalog::table(session, name).await
}

/// The code of a table that does not exist.
const NO_SUCH_TABLE: u16 = 1146;

/// An open table.
pub(crate) struct MysqlStream {
    server: Server,
    settings: Settings,
    stream: StreamSettings,
    /// The connection with the snapshot. Taken by the unit that is being read; `None` after it was lost.
    session: Mutex<Option<Session>>,
    reading: Reading,
    units: Vec<Unit>,
    /// How each unit is read.
    parts: Vec<Option<Part>>,
    is_stable: bool,
    cursor: Option<Cursor>,
    notes: Vec<String>,
}

impl MysqlStream {
    pub(crate) fn new(
        session: Session,
        settings: &Settings,
        stream: &StreamSettings,
        reading: Reading,
        parts: Parts,
    ) -> Self {
        let Parts { units, is_stable, cursor, notes } = parts;
        let (units, parts) = units.into_iter().unzip();
        Self {
            server: session.server().clone(),
            settings: settings.clone(),
            stream: stream.clone(),
            session: Mutex::new(Some(session)),
            reading,
            units,
            parts,
            is_stable,
            cursor,
            notes,
        }
    }

    /// A connection with another snapshot, in which the table has the same columns.
    async fn again(&self, context: &Context) -> Result<Session> {
        let table = &self.reading.table;
        let lost = |what: &str| {
            ConnectorError::unsupported(
                format!("the snapshot of {table} was lost with the connection, and {what}"),
                "run again: what is not complete is read from the beginning",
            )
        };
        if !self.is_stable {
            return Err(lost("another one may have other rows"));
        }
        let phases = Some(&*context.phases);
        let mut session = self.server.connect(self.reading.packet_size, phases).await?;
        let found = begin(&mut session, table).await?;
        let columns = found.as_ref().map(|it| Columns::choose(it, &self.stream, &self.settings));
        if !columns.is_some_and(|columns| columns.is_ok_and(|it| it == self.reading.columns)) {
            return Err(lost("its columns have changed since"));
        }
        tracing::warn!(
            %table,
            "the snapshot was lost with its connection: the remaining units are read in another one"
        );
        Ok(session)
    }

    /// The query that reads a part.
    fn query(&self, part: &Part) -> String {
        let (list, table) = (&self.reading.columns.list, ident(&self.reading.table));
        match part.condition.as_str() {
            "" => format!("SELECT {list} FROM {table}"),
            condition => format!("SELECT {list} FROM {table} WHERE {condition}"),
        }
    }
}

#[async_trait]
impl SourceStream for MysqlStream {
    fn columns(&self) -> &[Column] {
        &self.reading.columns.columns
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
        let mut notes = self.notes.clone();
        if let Some(Some(part)) = self.parts.first() {
            notes.push(format!("{} of: {}", self.parts.len(), self.query(part)));
        }
        notes
    }

    async fn read(&self, unit: usize, out: &mut Outlet) -> Result<()> {
        let table = &self.reading.table;
        let Some(part) = self.parts.get(unit) else {
            return Err(ConnectorError::data(table, "there is no such unit"));
        };
        let part = part.as_ref().ok_or_else(|| unknown(table))?;
        let mut slot = self.session.lock().await;
        // Dropped, and its statement killed, unless this returns.
        let mut session = match slot.take() {
            Some(session) => session,
            None => self.again(out.context()).await?,
        };
        let parameters = part.parameters.clone();
        let read = self.reading.read(&mut session, &self.query(part), parameters, out).await;
        if !session.is_busy() {
            *slot = Some(session);
        }
        read
    }
}
