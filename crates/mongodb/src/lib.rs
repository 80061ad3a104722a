//! MongoDB, and compatible servers: connections, a sink for tables and documents, and a connector of
//! pipelines.
//!
//! | module | |
//! |---|---|
//! | [`connect`] | connections: address, encryption, compression, pool |
//! | [`error`] | which errors may pass, their codes and messages |
//! | [`settings`] | settings of the connector |
//! | [`connector`] | the source and the destination of pipelines |
//! | [`sink`] | [`MongoSink`]: tables and documents with their position in a log |
//!
//! The driver is behind the feature `driver`. Without it only the settings of the connector are
//! here, and whatever uses it reports how to build it.
//!
//! Invariants: no message contains a password; a failure's class says whether a retry may help, and is
//! decided in one place ([`error::failure`]). This crate reads no configuration.

#[cfg(feature = "driver")]
pub mod connect;
#[cfg(feature = "driver")]
pub mod connector;
#[cfg(feature = "driver")]
pub mod error;
#[cfg(all(feature = "driver", any(test, feature = "fuzzing")))]
pub mod fuzzing;
#[cfg(feature = "driver")]
mod server;
pub mod settings;
#[cfg(feature = "driver")]
pub mod sink;

#[cfg(feature = "driver")]
pub use error::TRANSIENT_CODES;
#[cfg(feature = "driver")]
pub use server::{Acknowledgement, Compression, Pool, ServerSettings, Tls};
#[cfg(feature = "driver")]
pub use sink::MongoSink;
