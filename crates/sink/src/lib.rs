//! The contract of bulk writers of tables and documents, each of which stores its position.
//!
//! A *sink* is a view of a log: rows and documents are written to it together with the log
//! [`Position`] they came from, and that position is stored in the same transaction. The writer can
//! therefore stop anywhere, read the position, and continue from there: nothing is missing and
//! nothing is duplicated.
//!
//! | trait | input |
//! |---|---|
//! | [`Sink`] | positions: commit, roll back, checkpoint |
//! | [`DocumentSink`] | JSON documents, kept byte for byte |
//! | [`RowSink`] | documents together with values lifted out of them |
//!
//! `SqliteSink`, `PostgresSink` and `MongoSink` implement all of them, each in the crate of its
//! database.
//!
//! Invariants:
//! * Bytes handed over as a document come back unchanged. A column is a copy for querying; where a
//!   value does not fit its column the column holds NULL, the sink counts a conflict, and the
//!   document still has the value.
//! * No data makes a sink fail. Odd keys, too many fields and mixed types are reported in
//!   [`Written`]; errors are reserved for devices, damaged files and callers that break a promise.
//! * No name taken from data reaches SQL or a path unchecked: see [`name`].
//!
//! This crate knows no database and reads no configuration. A sink is driven by one thread, which its
//! calls block. What is in a server is read with the server's own tools.
//!
//! What the sinks in servers share is in [`server`]; their network thread is behind the feature
//! `driver`. Behind `conformance` are the promises as a suite of tests that every sink passes.

pub mod column;
#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
pub mod name;
pub mod ndjson;
pub mod schema;
pub mod server;
mod sink;
pub mod time;
pub mod transaction;

pub use column::{ColumnType, Value};
pub use error::{OpenError, ReadError, SinkError};
pub use forebay_base::ServerError;
pub use schema::{Column, Field, NamespaceKind, Refusal, RefusedField, TableSchema};
pub use sink::{
    Derive, Document, DocumentSink, Identity, Position, RowSink, RowWriter, Sink, StoredDocument,
    Written,
};
