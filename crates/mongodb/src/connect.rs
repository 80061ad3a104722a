//! Connections to MongoDB, and the classification of its errors.
//!
//! Invariants: names for messages contain no secret; every request gets an answer or a failure
//! within a time limit; a write is done when it is in the journal (of a majority of members, if
//! there are several).

use std::future::Future;
use std::time::Duration;

use forebay_sink::ServerError;
use forebay_sink::server::driver::Driver;
use mongodb::error::{Error, ErrorKind, WriteFailure};
use mongodb::options::{ClientOptions, Compressor, ServerAddress, Tls, TlsOptions, WriteConcern};
use mongodb::{Client, Database};

use crate::sink::Settings;

/// Codes of transient errors of any command: the server steps down, shuts down, loses a connection
/// to another, has a conflict, or has no capacity
/// (<https://github.com/mongodb/mongo/blob/master/src/mongo/base/error_codes.yml>).
pub const TRANSIENT_CODES: [i32; 15] =
    [6, 7, 50, 64, 89, 91, 112, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436];
/// The code of a duplicate key.
pub(crate) const DUPLICATE_KEY: i32 = 11_000;

/// A database of a server, and its network thread.
#[derive(Debug)]
pub(crate) struct Link {
    // Before the driver, which its tasks live on.
    pub(crate) database: Database,
    answer_timeout: Duration,
    /// Its name in messages: the database and the server.
    pub(crate) place: String,
    driver: Driver,
}

impl Link {
    /// Locates the server.
    pub(crate) fn new(settings: &Settings) -> Result<Link, ServerError> {
        let driver = Driver::new("forebay-mongodb")?;
        let unreached = |server: &str, why: &'static str| ServerError::Unreachable {
            act: "connect".to_owned(),
            server: server.to_owned(),
            source: why.into(),
        };
        let within = settings.connect_timeout;
        let parsed = driver.wait(within, async { ClientOptions::parse(&settings.url).await });
        let options = match parsed {
            Some(Ok(options)) => options,
            Some(Err(error)) if is_of_network(&error) => {
                return Err(unreached("MongoDB", "its name could not be resolved"));
            }
            // The error message could reveal a part of it.
            Some(Err(_)) => {
                return Err(ServerError::settings(
                    "`url` is not a valid MongoDB address",
                    "use mongodb://user:password@host:port/database, with special characters as \
                     %XX",
                ));
            }
            None => return Err(unreached("MongoDB", "its name could not be resolved in time")),
        };
        let name = settings.database.clone().or_else(|| options.default_database.clone());
        let name = name.filter(|name| !name.is_empty()).ok_or_else(|| {
            ServerError::settings(
                "no database is named",
                "append it to `url` after the last slash, or set `database`",
            )
        })?;
        let hosts: Vec<String> = options.hosts.iter().map(ServerAddress::to_string).collect();
        let place = format!("database {name} of MongoDB at {}", hosts.join(","));
        let options = completed(options, settings);
        let made = driver.wait(within, async { Client::with_options(options) });
        let Some(made) = made else {
            return Err(unreached(&place, "the client could not be created in time"));
        };
        let client = made.map_err(|error| failure("connect", &place, error))?;
        let database = client.database(&name);
        Ok(Link { database, answer_timeout: settings.answer_timeout, place, driver })
    }

    /// Waits for the server's answer to `future`.
    pub(crate) fn wait<T>(
        &self,
        act: &str,
        future: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, ServerError> {
        match self.driver.wait(self.answer_timeout, future) {
            Some(answer) => answer.map_err(|error| failure(act, &self.place, error)),
            None => Err(ServerError::Unreachable {
                act: act.to_owned(),
                server: self.place.clone(),
                source: "no answer in time".into(),
            }),
        }
    }

    /// An error for invalid contents.
    pub(crate) fn contents(&self, act: &str, found: String) -> ServerError {
        ServerError::Contents { act: act.to_owned(), server: self.place.clone(), found }
    }
}

/// The options, with the settings where the address has none.
fn completed(mut options: ClientOptions, settings: &Settings) -> ClientOptions {
    options.app_name.get_or_insert_with(|| "forebay".to_owned());
    options.max_pool_size.get_or_insert(settings.connections_max);
    let most = options.max_pool_size.filter(|most| *most > 0).unwrap_or(u32::MAX);
    options.min_pool_size.get_or_insert(settings.connections_min.min(most));
    options.max_idle_time.get_or_insert(settings.idle_timeout);
    options.connect_timeout.get_or_insert(settings.connect_timeout);
    options.server_selection_timeout.get_or_insert(settings.connect_timeout);
    if settings.compression {
        options.compressors.get_or_insert_with(|| {
            vec![
                Compressor::Zstd { level: None },
                Compressor::Snappy,
                Compressor::Zlib { level: None },
            ]
        });
    }
    let mut concern = options.write_concern.take().unwrap_or_else(WriteConcern::majority);
    concern.journal.get_or_insert(true);
    options.write_concern = Some(concern);
    if let Some(file) = &settings.tls_ca_file {
        let tls = TlsOptions::builder().ca_file_path(file.clone()).build();
        options.tls = Some(Tls::Enabled(tls));
    }
    options
}

/// Classifies an error.
///
/// * `act`: what was attempted.
/// * `place`: at what.
pub(crate) fn failure(act: &str, place: &str, error: Error) -> ServerError {
    let (act, server) = (act.to_owned(), place.to_owned());
    let is_passing = code(&error).is_some_and(|code| TRANSIENT_CODES.contains(&code))
        || error.contains_label(mongodb::error::RETRYABLE_WRITE_ERROR);
    let is_lost = is_of_network(&error);
    let source = error.into();
    if is_lost {
        ServerError::Unreachable { act, server, source }
    } else if is_passing {
        ServerError::Busy { act, server, source }
    } else {
        ServerError::Refused { act, server, source }
    }
}

fn is_of_network(error: &Error) -> bool {
    matches!(
        *error.kind,
        ErrorKind::Io(_)
            | ErrorKind::ConnectionPoolCleared { .. }
            | ErrorKind::ServerSelection { .. }
            | ErrorKind::DnsResolve { .. }
            | ErrorKind::Shutdown
    )
}

fn code(error: &Error) -> Option<i32> {
    match error.kind.as_ref() {
        ErrorKind::Command(error) => Some(error.code),
        ErrorKind::Write(WriteFailure::WriteError(error)) => Some(error.code),
        ErrorKind::Write(WriteFailure::WriteConcernError(error)) => Some(error.code),
        ErrorKind::InsertMany(error) => {
            let concern = error.write_concern_error.as_ref().map(|error| error.code);
            let errors = error.write_errors.iter().flatten().map(|error| error.code);
            concern.or_else(|| errors.into_iter().find(|code| *code != DUPLICATE_KEY))
        }
        _ => None,
    }
}
