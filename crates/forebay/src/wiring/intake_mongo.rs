//! MongoDB as the database that the intake's documents are forwarded to.

use std::fmt;
use std::sync::Arc;

use forebay_mongodb::sink::Settings;
use forebay_mongodb::{MongoSink, Tls};
use forebay_sink::{OpenError, RowSink};

use crate::config::{Config, DatabaseTls};

/// The database at `url`, which is `name` in messages.
pub(super) fn database(
    config: &Config,
    url: String,
    name: String,
) -> Arc<dyn forebay_intake::Database> {
    Arc::new(Mongo { settings: settings(config, url), name })
}

fn settings(config: &Config, url: String) -> Settings {
    let from = &config.database;
    Settings {
        url,
        database: from.schema.clone(),
        tls: match from.tls {
            DatabaseTls::Auto => Tls::Auto,
            DatabaseTls::Disable => Tls::Disable,
            DatabaseTls::Verify => Tls::Verify,
        },
        tls_ca_file: from.tls_ca_file.clone(),
        connections_min: from.connections_min,
        connections_max: from.connections_max,
        connect_timeout: from.connect_timeout.get(),
        answer_timeout: from.statement_timeout.get(),
        compression: from.compression,
        ..Settings::default()
    }
}

struct Mongo {
    settings: Settings,
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
