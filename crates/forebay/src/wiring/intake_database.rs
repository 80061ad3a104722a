//! The database to which the intake forwards documents: creates its sinks from the configuration.
//!
//! Settings that are not valid are reported before the server starts. A database that is
//! unavailable, or refuses, is not an error here: the intake accepts documents and tries again.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use forebay_intake::ForwardOptions;
use forebay_postgres::{self as postgres, PostgresSink};
use forebay_sink::{OpenError, RowSink};

use crate::config::{Config, DatabaseKind, DatabaseTls};
use crate::exit::{Coded, Exit};

/// Returns the configured database; `None` if there is none.
///
/// # Errors
/// The settings are not valid (exit code 2).
pub(super) fn options(config: &Config) -> anyhow::Result<Option<ForwardOptions>> {
    let settings = &config.database;
    let Some(url) = &settings.url else { return Ok(None) };
    let wrong = |text: &str, error: anyhow::Error| Coded::wrap(Exit::Usage, text, error);
    let address = match &settings.password_file {
        None => url.0.clone(),
        Some(path) => {
            let named = |key: &str| config.sources.named(&format!("intake.database.{key}"));
            let password = read_password(path, &named("password_file"))?;
            url.with_password(&password).map_err(|what| {
                let text = format!("{} and {} conflict", named("url"), named("password_file"));
                wrong(&text, anyhow::anyhow!(what))
            })?
        }
    };
    let database: Arc<dyn forebay_intake::Database> = match url.kind() {
        DatabaseKind::Postgres => {
            let settings = postgres_settings(config, address);
            let server = postgres::connect::Server::new(&settings.server)
                .map_err(|error| wrong("invalid settings of intake.database", error.into()))?;
            let name = format!("schema {} of {}", settings.schema, server.name());
            Arc::new(Postgres { settings, name })
        }
        DatabaseKind::Mongo => mongo(config, address, format!("{url:?}"))?,
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

fn postgres_settings(config: &Config, url: String) -> postgres::sink::Settings {
    let from = &config.database;
    let mut settings = postgres::sink::Settings::default();
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

#[cfg(feature = "mongodb")]
#[expect(clippy::unnecessary_wraps, reason = "without the feature it is an error")]
fn mongo(
    config: &Config,
    url: String,
    name: String,
) -> anyhow::Result<Arc<dyn forebay_intake::Database>> {
    Ok(super::intake_mongo::database(config, url, name))
}

#[cfg(not(feature = "mongodb"))]
fn mongo(_: &Config, _: String, _: String) -> anyhow::Result<Arc<dyn forebay_intake::Database>> {
    let text = "this build cannot write to MongoDB, which intake.database.url names; build everything \
        with `cargo build --release --features full`";
    Err(Coded::error(Exit::Usage, text.to_owned()))
}

/// Returns the first line of the password file.
///
/// * `setting`: the setting that names it, and its source.
fn read_password(path: &Path, setting: &str) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("{setting}: cannot read {}", path.display()))
        .map_err(|error| Coded::wrap(Exit::Usage, "invalid configuration", error))?;
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(line.to_owned()),
        _ => {
            let text = format!("{setting}: {} contains no password", path.display());
            Err(Coded::error(Exit::Usage, text))
        }
    }
}

struct Postgres {
    settings: postgres::sink::Settings,
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
