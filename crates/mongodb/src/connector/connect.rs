//! Connections to MongoDB, and the classification of its errors.
//!
//! The driver keeps a pool of connections for each server and finds out by itself where to write.
//! It retries failed reads; writes are retried by the caller, who knows what was written.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::run::{Phase, Phases};

use crate::connect::TRANSIENT_CODES;
use mongodb::bson::{Document, RawDocumentBuf, doc};
use mongodb::error::ErrorKind;
use mongodb::options::{ClientOptions, Compressor, Credential, ServerAddress, TlsOptions};
use mongodb::{Client, Database};
use tokio::sync::OnceCell;

use super::settings::{Compression, Settings, Tls};

/// Timeout of the server selection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Codes of transient errors of a read that continues over several commands, besides those of any
/// command ([`TRANSIENT_CODES`]): a cursor that was closed while idle, a read or a network that
/// exceeded its time (`src/mongo/base/error_codes.yml`).
const TRANSIENT_READ_CODES: [i32; 6] = [43, 134, 202, 317, 318, 358];
/// The code of an unknown command or option.
const NOT_IMPLEMENTED: i32 = 238;
/// The code of a missing collection or index.
const NOT_FOUND: [i32; 2] = [26, 27];

/// A server, its connection settings, and the database. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct Server(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: Settings,
    connected: OnceCell<Connected>,
}

#[derive(Debug)]
struct Connected {
    database: Database,
    /// Its name in messages, without secrets.
    name: String,
}

/// A server's error, without the driver's additions.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Answer(pub(super) String);

impl Server {
    /// Creates a client with these settings; sends nothing.
    pub(super) fn new(settings: &Settings) -> Self {
        Self(Arc::new(Inner { settings: settings.clone(), connected: OnceCell::new() }))
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// The database. The first command shows whether the server answers.
    pub(super) async fn database(&self) -> Result<&Database> {
        Ok(&self.connected().await?.database)
    }

    /// Its name in messages.
    pub(super) async fn name(&self) -> Result<&str> {
        Ok(&self.connected().await?.name)
    }

    async fn connected(&self) -> Result<&Connected> {
        self.0.connected.get_or_try_init(|| connect(&self.0.settings)).await
    }

    /// Ensures that the server answers, and measures how long that takes.
    pub(super) async fn reach(&self, phases: &Phases) -> Result<&Database> {
        let begun = Instant::now();
        let database = self.database().await?;
        let answered = database.run_command(doc! { "ping": 1 }).await;
        phases.add(Phase::Connect, begun);
        answered.map_err(|error| refused("connect", error))?;
        Ok(database)
    }

    /// Runs a command and returns its answer.
    pub(super) async fn run(&self, act: &str, command: Document) -> Result<Document> {
        let ran = self.database().await?.run_command(command).await;
        ran.map_err(|error| refused(act, error))
    }

    /// Runs a command that may contain megabytes of documents.
    pub(super) async fn run_raw(
        &self,
        command: RawDocumentBuf,
    ) -> Result<Result<Document, mongodb::error::Error>> {
        Ok(self.database().await?.run_raw_command(command).await)
    }
}

async fn connect(settings: &Settings) -> Result<Connected> {
    let mut options = match &settings.url {
        Some(url) => ClientOptions::parse(url.expose()).await.map_err(|error| match *error.kind {
            ErrorKind::DnsResolve { .. } => refused("find the servers of `url`", error),
            // The error message could reveal a part of it.
            _ => ConnectorError::unsupported(
                "`url` is not a valid MongoDB address",
                "use mongodb://user:password@host:port/database, with special characters as %XX",
            ),
        })?,
        None => from_fields(settings),
    };
    let named = settings.database.as_ref().map(|name| name.0.clone());
    let Some(database) = named.or_else(|| options.default_database.clone()) else {
        return Err(ConnectorError::unsupported(
            "no database is named",
            "set `database`, or append it to the host in `url`",
        ));
    };
    let is_local = options.hosts.iter().all(is_local);
    options.app_name = Some("forebay".into());
    options.connect_timeout.get_or_insert(CONNECT_TIMEOUT);
    options.server_selection_timeout.get_or_insert(CONNECT_TIMEOUT);
    options.retry_writes = Some(false);
    if settings.url.is_none() || options.max_pool_size.is_none() {
        options.min_pool_size = Some(settings.pool.min);
        options.max_pool_size = Some(u32::from(settings.pool.max.get()));
    }
    compress(&mut options, settings.compression, is_local);
    encrypt(&mut options, settings, is_local);
    let hosts: Vec<String> = options.hosts.iter().map(ToString::to_string).collect();
    let user = options.credential.as_ref().and_then(|credential| credential.username.clone());
    let user = user.map(|user| format!(" as {user}")).unwrap_or_default();
    let name = format!("MongoDB {database} at {}{user}", hosts.join(", "));
    let client = Client::with_options(options).map_err(|error| refused("connect", error))?;
    Ok(Connected { database: client.database(&database), name })
}

fn from_fields(settings: &Settings) -> ClientOptions {
    let host = settings.host.0.clone();
    let address = ServerAddress::Tcp { host, port: Some(settings.port.get()) };
    let mut options = ClientOptions::builder().hosts(vec![address]).build();
    if let Some(user) = &settings.user {
        let mut credential = Credential::default();
        credential.username = Some(user.0.clone());
        credential.password = settings.password.as_ref().map(|secret| secret.expose().to_owned());
        credential.source = Some(settings.auth_database.0.clone());
        options.credential = Some(credential);
    }
    options
}

fn is_local(address: &ServerAddress) -> bool {
    match address {
        ServerAddress::Tcp { host, .. } => {
            let host = host.trim_start_matches('[').trim_end_matches(']');
            host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
        }
        // The path of a socket.
        _ => true,
    }
}

fn compress(options: &mut ClientOptions, compression: Compression, is_local: bool) {
    let zstd = Compressor::Zstd { level: None };
    let zlib = Compressor::Zlib { level: None };
    options.compressors = match compression {
        Compression::Auto if options.compressors.is_some() => return,
        Compression::Auto if is_local => None,
        Compression::Auto => Some(vec![zstd, Compressor::Snappy, zlib]),
        Compression::None => None,
        Compression::Zstd => Some(vec![zstd]),
        Compression::Snappy => Some(vec![Compressor::Snappy]),
        Compression::Zlib => Some(vec![zlib]),
    };
}

fn encrypt(options: &mut ClientOptions, settings: &Settings, is_local: bool) {
    use mongodb::options::Tls as Driver;
    let trusted = settings.tls_ca_file.as_ref().map(|file| PathBuf::from(&file.0));
    let verified = || Driver::Enabled(TlsOptions::builder().ca_file_path(trusted.clone()).build());
    match (settings.tls, &options.tls) {
        (Tls::Disable, _) => options.tls = Some(Driver::Disabled),
        (Tls::Verify, _) => options.tls = Some(verified()),
        (Tls::Auto, None) if !is_local => options.tls = Some(verified()),
        (Tls::Auto, _) => {}
    }
}

/// Classifies an error of the driver.
///
/// * `act`: what was attempted.
pub(super) fn refused(act: impl Into<String>, error: mongodb::error::Error) -> ConnectorError {
    let act = act.into();
    match error.kind.as_ref() {
        ErrorKind::Io(_)
        | ErrorKind::ServerSelection { .. }
        | ErrorKind::ConnectionPoolCleared { .. }
        | ErrorKind::DnsResolve { .. } => ConnectorError::Unreachable {
            what: format!("the MongoDB to {act}"),
            source: Answer(message(&error)).into(),
        },
        ErrorKind::Command(answer) if passes(answer.code) => {
            ConnectorError::Busy { act, source: Answer(message(&error)).into() }
        }
        _ => ConnectorError::Refused { act, source: Answer(message(&error)).into() },
    }
}

/// The message of an error.
pub(super) fn message(error: &mongodb::error::Error) -> String {
    match error.kind.as_ref() {
        ErrorKind::Command(answer) if answer.code_name.is_empty() => answer.message.clone(),
        ErrorKind::Command(answer) => format!("{} ({})", answer.message, answer.code_name),
        kind => kind.to_string(),
    }
}

/// Whether the server does not support what was requested.
pub(super) fn is_not_implemented(error: &mongodb::error::Error) -> bool {
    code(error) == Some(NOT_IMPLEMENTED)
}

/// Whether the server reported that a collection does not exist.
pub(super) fn is_not_found(error: &mongodb::error::Error) -> bool {
    code(error).is_some_and(|code| NOT_FOUND.contains(&code))
}

/// The error code in a server's answer, if there is one.
pub(super) fn code(error: &mongodb::error::Error) -> Option<i32> {
    match error.kind.as_ref() {
        ErrorKind::Command(answer) => Some(answer.code),
        _ => None,
    }
}

/// Whether trying again may help.
pub(super) fn passes(code: i32) -> bool {
    TRANSIENT_CODES.contains(&code) || TRANSIENT_READ_CODES.contains(&code)
}
