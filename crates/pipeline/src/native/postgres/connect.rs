//! Connections to a PostgreSQL as the pipeline has them, and what its errors mean here.
//!
//! How a server is reached and how it is trusted is the sink's ([`forebay_sink::postgres::connect`]): the
//! same settings reach the same server from everywhere.

use std::path::PathBuf;
use std::time::Instant;

use forebay_base::error_chain::chain;
use forebay_sink::ServerError;
use forebay_sink::postgres::{ServerSettings, connect};
use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio_postgres::Client;

use super::settings::{Settings, Tls};
use crate::connector::Result;
use crate::error::ConnectorError;
use crate::run::{Phase, Phases};

/// Where a server is and how it is reached.
#[derive(Debug, Clone)]
pub(crate) struct Server(connect::Server);

impl Server {
    /// The server of these settings; asks nobody.
    pub(crate) fn new(settings: &Settings) -> Result<Self> {
        let text = |text: &crate::config::Text| text.0.clone();
        let secret = |secret: &crate::config::Secret| secret.expose().to_owned();
        let server = connect::Server::new(&ServerSettings {
            url: settings.url.as_ref().map(secret),
            host: text(&settings.host),
            port: settings.port.get(),
            database: settings.database.as_ref().map(text),
            user: text(&settings.user),
            password: settings.password.as_ref().map(secret),
            tls: match settings.tls {
                Tls::Auto => forebay_sink::postgres::Tls::Auto,
                Tls::Disable => forebay_sink::postgres::Tls::Disable,
                Tls::Verify => forebay_sink::postgres::Tls::Verify,
            },
            tls_ca_file: settings.tls_ca_file.as_ref().map(|file| PathBuf::from(&file.0)),
            ..ServerSettings::default()
        });
        server.map(Self).map_err(told)
    }

    /// For people.
    pub(crate) fn name(&self) -> &str {
        self.0.name()
    }

    /// Connects.
    pub(crate) async fn connect(&self, phases: Option<&Phases>) -> Result<Client> {
        let begun = Instant::now();
        let client = self.0.connect().await.map_err(told)?;
        if let Some(phases) = phases {
            phases.add(Phase::Connect, begun);
        }
        Ok(client)
    }
}

/// Connections to a server that nobody uses at the moment: a new one costs a process there.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) server: Server,
    idle: Mutex<Vec<Client>>,
}

impl Pool {
    pub(super) fn new(server: Server) -> Self {
        Self { server, idle: Mutex::default() }
    }

    /// One that was given back, or a new one.
    pub(super) async fn client(&self, phases: Option<&Phases>) -> Result<Client> {
        let idle = self.idle.lock().pop();
        match idle {
            Some(client) if !client.is_closed() => Ok(client),
            _ => self.server.connect(phases).await,
        }
    }

    /// Makes connections ahead, all at once, until so many are idle. One that cannot be made is made again,
    /// and fails, where it is needed.
    pub(super) async fn fill(&self, count: usize, phases: Option<&Phases>) {
        let lacking = count.saturating_sub(self.idle.lock().len());
        for made in join_all((0..lacking).map(|_| self.server.connect(phases))).await {
            match made {
                Ok(client) => self.give_back(client),
                Err(error) => {
                    tracing::debug!(error = %chain(&error), "a connection was not made ahead");
                }
            }
        }
    }

    /// Takes one back that has no transaction open.
    pub(super) fn give_back(&self, client: Client) {
        self.idle.lock().push(client);
    }
}

/// What an error of a server means.
///
/// * `act`: what was attempted.
pub(super) fn refused(act: impl Into<String>, error: tokio_postgres::Error) -> ConnectorError {
    match connect::failure(act, "", error) {
        ServerError::Unreachable { act, source, .. } => {
            ConnectorError::Unreachable { what: format!("the server to {act}"), source }
        }
        error => told(error),
    }
}

/// A server's failure in the words of connectors.
fn told(error: ServerError) -> ConnectorError {
    let asked = |act: String, server: String| {
        if server.is_empty() { act } else { format!("{act} to {server}") }
    };
    match error {
        ServerError::Unreachable { server, source, .. } => {
            ConnectorError::Unreachable { what: server, source }
        }
        ServerError::Busy { act, server, source } => {
            ConnectorError::Busy { act: asked(act, server), source }
        }
        ServerError::Refused { act, server, source } => {
            ConnectorError::Refused { act: asked(act, server), source }
        }
        ServerError::Settings { what, way_out } => ConnectorError::Unsupported { what, way_out },
        ServerError::Certificates { path, source } => {
            ConnectorError::file("read certificates of", path, source)
        }
        // Nothing else is said where only connections are made.
        error => ConnectorError::Refused { act: "use the server".to_owned(), source: error.into() },
    }
}

/// Whether the server did not like the rows: their values, or what they break.
pub(super) fn is_of_data(error: &tokio_postgres::Error) -> bool {
    // Class 22: data exception, 23: integrity constraint violation.
    let code = error.as_db_error().map(|error| error.code().code());
    code.is_some_and(|code| code.starts_with("22") || code.starts_with("23"))
}
