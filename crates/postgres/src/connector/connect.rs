//! Connections of pipelines to PostgreSQL: by their settings, kept while they are idle, and counted
//! in the phases of a run.

use std::path::PathBuf;

use forebay_base::error_chain::chain;
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::platform::Instant;
use forebay_sdk::run::{Phase, Phases};
use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio_postgres::Client;

use super::settings::{Settings, Tls};
pub(super) use crate::connect::{is_of_data, is_of_encoding};
use crate::{ServerSettings, connect};

/// Connection settings of a server.
#[derive(Debug, Clone)]
pub struct Server(connect::Server);

impl Server {
    /// Creates a server with these settings; sends nothing.
    ///
    /// # Errors
    /// The settings are invalid, or the file of certificates cannot be used.
    pub fn new(settings: &Settings) -> Result<Self> {
        let text = |text: &forebay_sdk::settings::Text| text.0.clone();
        let secret = |secret: &forebay_sdk::settings::Secret| secret.expose().to_owned();
        let server = connect::Server::new(&ServerSettings {
            url: settings.url.as_ref().map(secret),
            host: text(&settings.host),
            port: settings.port.get(),
            database: settings.database.as_ref().map(text),
            user: text(&settings.user),
            password: settings.password.as_ref().map(secret),
            tls: match settings.tls {
                Tls::Auto => crate::Tls::Auto,
                Tls::Disable => crate::Tls::Disable,
                Tls::Verify => crate::Tls::Verify,
            },
            tls_ca_file: settings.tls_ca_file.as_ref().map(|file| PathBuf::from(&file.0)),
            ..ServerSettings::default()
        });
        Ok(Self(server?))
    }

    /// Its name in messages.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// The server itself.
    pub(super) fn inner(&self) -> &connect::Server {
        &self.0
    }

    /// Connects, and adds the time it takes to the phases of a run.
    ///
    /// # Errors
    /// The server was not reached, or refused.
    pub async fn connect(&self, phases: Option<&Phases>) -> Result<Client> {
        let begun = Instant::now();
        let client = self.0.connect().await?;
        if let Some(phases) = phases {
            phases.add(Phase::Connect, begun);
        }
        Ok(client)
    }
}

/// Idle connections to a server: a new one costs a process there.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) server: Server,
    idle: Mutex<Vec<Client>>,
}

impl Pool {
    pub(super) fn new(server: Server) -> Self {
        Self { server, idle: Mutex::default() }
    }

    /// Returns an idle connection, or a new one.
    pub(super) async fn client(&self, phases: Option<&Phases>) -> Result<Client> {
        let idle = self.idle.lock().pop();
        match idle {
            Some(client) if !client.is_closed() => Ok(client),
            _ => self.server.connect(phases).await,
        }
    }

    /// Opens connections in advance, concurrently, until this many are idle. A connection that
    /// fails is opened again, and its error reported, where it is needed.
    pub(super) async fn fill(&self, count: usize, phases: Option<&Phases>) {
        let lacking = count.saturating_sub(self.idle.lock().len());
        for made in join_all((0..lacking).map(|_| self.server.connect(phases))).await {
            match made {
                Ok(client) => self.give_back(client),
                Err(error) => {
                    tracing::debug!(
                        error = %chain(&error),
                        "could not open a connection in advance"
                    );
                }
            }
        }
    }

    /// Takes back a connection without an open transaction.
    pub(super) fn give_back(&self, client: Client) {
        self.idle.lock().push(client);
    }
}

/// Classifies an error of a server.
///
/// * `act`: what was attempted.
pub(super) fn refused(act: impl Into<String>, error: tokio_postgres::Error) -> ConnectorError {
    connect::failure(act, "", error).into()
}
