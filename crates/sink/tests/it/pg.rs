//! Sinks in a PostgreSQL of our own.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use forebay_sink::postgres::{ServerSettings, Settings};

/// Schemas that were given to a test.
static SCHEMAS: AtomicU32 = AtomicU32::new(0);

/// A server, for one test or for all that do not kill it.
pub(crate) struct Postgres(Arc<forebay_testing::Postgres>);

/// The server all share; none, and it says so, where none is installed and none is required.
pub(crate) fn shared() -> Option<Postgres> {
    forebay_testing::Postgres::shared().map(Postgres)
}

/// A server for one test alone.
pub(crate) fn postgres() -> Option<Postgres> {
    forebay_testing::Postgres::start().map(Arc::new).map(Postgres)
}

impl Deref for Postgres {
    type Target = forebay_testing::Postgres;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Postgres {
    /// What a query gives, as psql prints it.
    pub(crate) fn query(&self, sql: &str) -> String {
        self.0.query("postgres", sql)
    }

    /// Settings of a sink in a schema of its own.
    pub(crate) fn settings(&self) -> Settings {
        let number = SCHEMAS.fetch_add(1, Ordering::Relaxed);
        settings_at(self.port(), &format!("sink {number}"))
    }
}

/// Settings of a sink, reached by way of a port.
pub(crate) fn settings_at(port: u16, schema: &str) -> Settings {
    let defaults = Settings::default();
    let server = ServerSettings { port, database: Some("postgres".to_owned()), ..defaults.server };
    Settings { server, schema: schema.to_owned(), ..defaults }
}
