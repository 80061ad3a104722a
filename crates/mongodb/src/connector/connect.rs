//! Connections of pipelines to MongoDB: by their settings, and counted in the phases of a run.
//!
//! The driver retries failed reads; writes are retried by the caller, who knows what was written.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::run::{Phase, Phases};
use mongodb::Database;
use mongodb::bson::{Document, RawDocumentBuf, doc};
use mongodb::error::Error;
use tokio::sync::OnceCell;

use super::bulk::COMMAND_ROWS_MAX;
use crate::settings::{Compression, Settings, Tls};
use crate::{connect, error, server};

pub(super) use crate::error::{
    Answer, DUPLICATE_KEY, code, is_duplicate, is_not_found, is_not_implemented, message, passes,
};

/// Maximum number of updates of a command to FerretDB. Version 1 keeps one of its 100 connections to the database
/// behind it for each update that found a document, until the command ends, and waits for ever if it has none left.
const FERRET_UPDATES_MAX: usize = 20;

/// A server, its connection settings, and the database. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct Server {
    server: connect::Server,
    settings: Arc<Settings>,
    updates_max: Arc<OnceCell<usize>>,
}

impl Server {
    /// Creates a client with these settings; sends nothing.
    pub(super) fn new(settings: &Settings) -> Self {
        let server = connect::Server::new(connection(settings));
        Self { server, settings: Arc::new(settings.clone()), updates_max: Arc::default() }
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The database. The first command shows whether the server answers.
    pub(super) async fn database(&self) -> Result<&Database> {
        Ok(self.server.database().await?)
    }

    /// Its name in messages.
    pub(super) async fn name(&self) -> Result<&str> {
        Ok(self.server.name().await?)
    }

    /// Ensures that the server answers, and measures how long that takes.
    pub(super) async fn reach(&self, phases: &Phases) -> Result<&Database> {
        let begun = Instant::now();
        let database = self.server.ping().await;
        phases.add(Phase::Connect, begun);
        Ok(database?)
    }

    /// What the server reports about itself, and whether it is FerretDB.
    pub(super) async fn info(&self) -> Result<(Document, bool)> {
        let info = self.run("read the version", doc! { "buildInfo": 1 }).await?;
        let is_ferret = info.keys().any(|key| key.starts_with("ferretdb"));
        Ok((info, is_ferret))
    }

    /// Maximum number of updates of a command.
    pub(super) async fn updates_max(&self) -> Result<usize> {
        let looked_up = self.updates_max.get_or_try_init(async || {
            let (_, is_ferret) = self.info().await?;
            Ok(if is_ferret { FERRET_UPDATES_MAX } else { COMMAND_ROWS_MAX })
        });
        looked_up.await.copied()
    }

    /// Runs a command and returns its answer.
    pub(super) async fn run(&self, act: &str, command: Document) -> Result<Document> {
        Ok(self.server.run(act, command).await?)
    }

    /// Runs a command that may contain megabytes of documents. The inner error is the driver's.
    pub(super) async fn run_raw(&self, command: RawDocumentBuf) -> Result<Result<Document, Error>> {
        Ok(self.server.run_raw(command).await?)
    }
}

/// What the settings of a pipeline say about connections.
fn connection(of: &Settings) -> server::ServerSettings {
    server::ServerSettings {
        url: of.url.as_ref().map(|url| url.expose().to_owned()),
        host: of.host.0.clone(),
        port: of.port.get(),
        user: of.user.as_ref().map(|user| user.0.clone()),
        password: of.password.as_ref().map(|password| password.expose().to_owned()),
        auth_database: of.auth_database.0.clone(),
        database: of.database.as_ref().map(|name| name.0.clone()),
        tls: match of.tls {
            Tls::Auto => server::Tls::Auto,
            Tls::Disable => server::Tls::Disable,
            Tls::Verify => server::Tls::Verify,
        },
        tls_ca_file: of.tls_ca_file.as_ref().map(|file| PathBuf::from(&file.0)),
        compression: match of.compression {
            Compression::Auto => server::Compression::Auto,
            Compression::None => server::Compression::None,
            Compression::Zstd => server::Compression::Zstd,
            Compression::Snappy => server::Compression::Snappy,
            Compression::Zlib => server::Compression::Zlib,
        },
        pool: server::Pool {
            connections_min: of.pool.min,
            connections_max: of.pool.max.get().into(),
            idle_timeout: None,
        },
        repeats_writes: false,
        ..server::ServerSettings::default()
    }
}

/// Classifies an error of the driver.
///
/// * `act`: what was attempted.
pub(super) fn refused(act: impl Into<String>, error: Error) -> ConnectorError {
    error::failure(act, "", &error).into()
}
