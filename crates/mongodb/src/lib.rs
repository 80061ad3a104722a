//! MongoDB, and compatible servers: connections, and a sink for tables and documents.
//!
//! | module | |
//! |---|---|
//! | [`connect`] | connections, and which errors may pass |
//! | [`sink`] | [`MongoSink`]: tables and documents with their position in a log |
//!
//! Invariants: no message contains a password; a failure's class says whether a retry may help. This
//! crate reads no configuration.

pub mod connect;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod sink;

pub use sink::MongoSink;
