//! The database the intake's documents are forwarded to: configuration in, sinks out.
//!
//! Settings that cannot be right are found before anything is served; a database that is away, or
//! refuses, is not: the intake takes documents meanwhile and tries again.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use forebay_intake::ForwardOptions;
use forebay_sink::{MongoSink, OpenError, PostgresSink, RowSink, mongo, postgres};

use crate::config::{Config, DatabaseKind, DatabaseTls};
use crate::exit::{Coded, Exit};

/// What the configuration says about it; nothing where there is none.
///
/// # Errors
/// The settings are wrong (exit code 2).
pub(super) fn options(config: &Config) -> anyhow::Result<Option<ForwardOptions>> {
    let settings = &config.database;
    let Some(url) = &settings.url else { return Ok(None) };
    let wrong = |text: &str, error: anyhow::Error| Coded::wrap(Exit::Usage, text, error);
    let address = match &settings.password_file {
        None => url.0.clone(),
        Some(path) => url.with_password(&read_password(path)?).map_err(|what| {
            let text = "intake.database.url and intake.database.password_file do not fit together";
            wrong(text, anyhow::anyhow!(what))
        })?,
    };
    let database: Arc<dyn forebay_intake::Database> = match url.kind() {
        DatabaseKind::Postgres => {
            let settings = postgres_settings(config, address);
            let server = postgres::connect::Server::new(&settings.server).map_err(|error| {
                wrong("the settings of intake.database are wrong", error.into())
            })?;
            let name = format!("schema {} of {}", settings.schema, server.name());
            Arc::new(Postgres { settings, name })
        }
        DatabaseKind::Mongo => {
            let settings = mongo_settings(config, address);
            Arc::new(Mongo { settings, name: format!("{url:?}") })
        }
    };
    let mut options = ForwardOptions::new(database);
    options.spill_max = settings.spill_max.0;
    options.spill_after = settings.spill_after.get();
    options.log_max = settings.log_max.0;
    options.retry_max = settings.retry_max.get();
    options.retry_min = options.retry_min.min(options.retry_max);
    options.adopt = settings.adopt;
    Ok(Some(options))
}

fn postgres_settings(config: &Config, url: String) -> postgres::Settings {
    let from = &config.database;
    let mut settings = postgres::Settings::default();
    if let Some(schema) = &from.schema {
        settings.schema.clone_from(schema);
    }
    let server = &mut settings.server;
    server.url = Some(url);
    server.tls = match from.tls {
        DatabaseTls::Auto => postgres::Tls::Auto,
        DatabaseTls::Disable => postgres::Tls::Disable,
        DatabaseTls::Verify => postgres::Tls::Verify,
    };
    server.tls_ca_file.clone_from(&from.tls_ca_file);
    server.connect_timeout = from.connect_timeout.get();
    server.statement_timeout = Some(from.statement_timeout.get());
    settings
}

fn mongo_settings(config: &Config, url: String) -> mongo::Settings {
    let from = &config.database;
    mongo::Settings {
        url,
        database: from.schema.clone(),
        tls_ca_file: from.tls_ca_file.clone(),
        connections_min: from.connections_min,
        connections_max: from.connections_max,
        connect_timeout: from.connect_timeout.get(),
        answer_timeout: from.statement_timeout.get(),
        compression: from.compression,
        ..mongo::Settings::default()
    }
}

/// The first line of the password file.
fn read_password(path: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read intake.database.password_file {}", path.display()))
        .map_err(|error| Coded::wrap(Exit::Usage, "wrong configuration", error))?;
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(line.to_owned()),
        _ => {
            let text =
                format!("intake.database.password_file {} holds no password", path.display());
            Err(Coded::error(Exit::Usage, text))
        }
    }
}

struct Postgres {
    settings: postgres::Settings,
    name: String,
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl forebay_intake::Database for Postgres {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn open(&self) -> Result<Box<dyn RowSink>, OpenError> {
        Ok(Box::new(PostgresSink::open(&self.settings)?))
    }
}

struct Mongo {
    settings: mongo::Settings,
    name: String,
}

impl fmt::Debug for Mongo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl forebay_intake::Database for Mongo {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn open(&self) -> Result<Box<dyn RowSink>, OpenError> {
        Ok(Box::new(MongoSink::open(&self.settings)?))
    }
}
