//! Sinks in a FerretDB of our own, which speaks MongoDB's protocol.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use forebay_sink::mongo::Settings;

/// Databases that were given to a test.
static DATABASES: AtomicU32 = AtomicU32::new(0);

/// A server, for one test or for all that do not kill it.
pub(crate) struct Ferret(Arc<forebay_testing::Ferret>);

/// The server all share; none, and it says so, where none is installed and none is required.
pub(crate) fn shared() -> Option<Ferret> {
    forebay_testing::Ferret::shared().map(Ferret)
}

/// A server for one test alone.
pub(crate) fn ferret() -> Option<Ferret> {
    forebay_testing::Ferret::start().map(Arc::new).map(Ferret)
}

impl Deref for Ferret {
    type Target = forebay_testing::Ferret;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Ferret {
    /// Settings of a sink in a database of its own.
    pub(crate) fn settings(&self) -> Settings {
        let number = DATABASES.fetch_add(1, Ordering::Relaxed);
        settings_at(self.port(), &format!("sink{number}"))
    }
}

/// Settings of a sink, reached by way of a port.
pub(crate) fn settings_at(port: u16, database: &str) -> Settings {
    Settings {
        url: format!("mongodb://127.0.0.1:{port}/{database}"),
        connections_min: 0,
        ..Settings::default()
    }
}
