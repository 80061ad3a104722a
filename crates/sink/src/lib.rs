//! Bulk writers of tables and documents, each of which stores its position.
//!
//! A *sink* is a view of a log: rows and documents are written to it together with the log
//! [`Position`] they came from, and that position is stored in the same transaction. The writer can
//! therefore stop anywhere, read the position, and continue from there: nothing is missing and
//! nothing is duplicated.
//!
//! | trait | input | implemented by |
//! |---|---|---|
//! | [`Sink`] | positions: commit, roll back, checkpoint | [`SqliteSink`], `PostgresSink`, `MongoSink` |
//! | [`DocumentSink`] | JSON documents, kept byte for byte | the same |
//! | [`RowSink`] | documents together with values lifted out of them | the same |
//!
//! Invariants:
//! * Bytes handed over as a document come back unchanged. A column is a copy for querying; where a
//!   value does not fit its column the column holds NULL, the sink counts a conflict, and the
//!   document still has the value.
//! * No data makes a sink fail. Odd keys, too many fields and mixed types are reported in
//!   [`Written`]; errors are reserved for devices, damaged files and callers that break a promise.
//! * No name taken from data reaches SQL or a path unchecked: see [`name`].
//!
//! This crate reads no configuration. A sink is driven by one thread, which its calls block;
//! [`SqliteReader`]s use their own connections in other threads. What is in a server is read with
//! its own tools; the sink there has one network thread, the one in SQLite none.
//!
//! Each server's driver is behind a feature: `postgres`, `mongodb`. So is `conformance`, the promises
//! as a suite of tests that every sink passes.

pub mod column;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod error;
#[cfg(feature = "mongodb")]
pub mod mongo;
pub mod name;
pub mod ndjson;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod schema;
pub mod server;
mod sink;
pub mod sqlite;
pub mod transaction;

pub use column::{ColumnType, Value};
pub use error::{OpenError, ReadError, SinkError};
#[cfg(feature = "mongodb")]
pub use mongo::MongoSink;
#[cfg(feature = "postgres")]
pub use postgres::PostgresSink;
pub use schema::{Column, Field, NamespaceKind, Refusal, RefusedField, TableSchema};
pub use server::ServerError;
pub use sink::{
    Document, DocumentSink, Identity, Position, RowSink, RowWriter, Sink, StoredDocument, Written,
};
pub use sqlite::{SqliteReader, SqliteSink};
