//! PostgreSQL: connections to a server, a sink for tables and documents in it, and a connector of
//! pipelines.
//!
//! | module | |
//! |---|---|
//! | [`connect`] | connections, encryption, and which errors may pass |
//! | [`quote`] | names and texts in SQL |
//! | [`connector`] | the source and the destination of pipelines |
//! | [`replication`] | changes of tables, by logical replication |
//! | [`sink`] | [`PostgresSink`]: tables and documents with their position in a log |
//!
//! In a sandbox there are no sinks: for `wasm32` this crate is built without them.
//!
//! Both write rows by `bulk`. Rows of a COPY are joined while they are read (`coalesce`).
//!
//! Invariants: no message contains a password; an encrypted connection verifies the certificate and
//! its host name; a failure's class says whether a retry may help, and is decided in one place
//! ([`connect::failure`]). This crate reads no configuration.

mod address;
mod bulk;
mod coalesce;
pub mod connect;
pub mod connector;
pub mod quote;
pub mod replication;
mod settings;
#[cfg(not(target_family = "wasm"))]
pub mod sink;

pub use settings::{ServerSettings, Tls};
#[cfg(not(target_family = "wasm"))]
pub use sink::PostgresSink;
