//! A SQLite file as a destination: streams are written to its tables.

use std::sync::Arc;

use async_trait::async_trait;
use forebay_base::fs::{FileSystem as _, Lock, RealFs};
use forebay_pgcopy::Column;
use forebay_sdk::bridge::blocking;
use forebay_sdk::changes::feed::FeedTarget;
use forebay_sdk::connector::{Claim, Destination, Form, LedgerEntry, Load, Result, Target};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::run::Context;
use forebay_sdk::settings::TargetSettings;

use super::target::SqliteTarget;
use super::{Access, Database, SqliteDestinationSettings, digits_of, display, ledger};

/// A SQLite file as a destination.
#[derive(Debug, Clone)]
pub struct SqliteDestination {
    pub(super) database: Database,
}

/// A lock on a file beside the database, released when it is dropped.
struct Claimed(#[expect(dead_code, reason = "held until it is dropped")] Box<dyn Lock>);

impl Claim for Claimed {}

impl SqliteDestination {
    /// Creates the destination with these settings.
    #[must_use]
    pub fn new(settings: &SqliteDestinationSettings) -> Self {
        Self { database: Database::new(&settings.path, &settings.within) }
    }
}

/// Locks the file of a stream. It is never removed, since that could let two runs in.
fn claim(database: &Database, settings: &TargetSettings) -> Result<Claimed> {
    let mut path = database.path.clone().into_os_string();
    path.push(format!("-forebay-{}.lock", digits_of(&settings.into)));
    match RealFs.lock_exclusive(path.as_ref()) {
        Ok(lock) => Ok(Claimed(lock)),
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Err(ConnectorError::Busy {
            act: format!("write {:?} in {}", settings.into, display(&database.path)),
            source: "another run is writing it".into(),
        }),
        Err(error) => Err(ConnectorError::file("lock", path, error)),
    }
}

#[async_trait]
impl Destination for SqliteDestination {
    async fn check(&self) -> Result<String> {
        let database = self.database.clone();
        blocking(move || {
            let path = display(&database.path);
            if !database.exists() {
                let above = database.path.parent().filter(|above| !above.as_os_str().is_empty());
                if above.is_some_and(|above| !above.is_dir()) {
                    let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
                    return Err(ConnectorError::file("create", &database.path, missing));
                }
                return Ok(format!("{path} will be created, SQLite {}", rusqlite::version()));
            }
            let connection = database.open(Access::Write)?;
            let begun = connection.execute_batch("BEGIN IMMEDIATE; ROLLBACK");
            begun.map_err(|error| database.failed("write to", error))?;
            Ok(format!("{path} can be written, SQLite {}", rusqlite::version()))
        })
        .await
    }

    fn form(&self) -> Form {
        Form::PlainRecords
    }

    fn feeds(&self) -> Option<&dyn FeedTarget> {
        Some(self)
    }

    async fn last_load(&self, target: &TargetSettings) -> Result<Option<(Load, Vec<LedgerEntry>)>> {
        let (database, settings) = (self.database.clone(), target.clone());
        blocking(move || {
            if !database.exists() {
                return Ok(None);
            }
            let connection = database.open(Access::Read)?;
            let read = || {
                // Both in one transaction.
                connection.execute_batch("BEGIN")?;
                let Some((load, _)) = ledger::load(&connection, &settings)? else {
                    return Ok(None);
                };
                Ok(Some((load, ledger::entries(&connection, &settings)?)))
            };
            read().map_err(|error| database.failed("read the ledger of", error))
        })
        .await
    }

    async fn place(&self, target: &TargetSettings) -> Result<Option<String>> {
        Ok(self.database.place(&target.into))
    }

    async fn claim(&self, target: &TargetSettings) -> Result<Box<dyn Claim>> {
        let (database, settings) = (self.database.clone(), target.clone());
        blocking(move || Ok(Box::new(claim(&database, &settings)?) as Box<dyn Claim>)).await
    }

    async fn open(
        &self,
        target: &TargetSettings,
        columns: &[Column],
        context: &Context,
    ) -> Result<Arc<dyn Target>> {
        let (database, settings) = (self.database.clone(), target.clone());
        let (columns, context) = (columns.to_vec(), context.clone());
        let target =
            blocking(move || SqliteTarget::open(database, settings, columns, context)).await?;
        Ok(Arc::new(target))
    }
}
