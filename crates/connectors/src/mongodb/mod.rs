//! MongoDB, and compatible servers, as a source and as a destination.
//!
//! | module | purpose |
//! |---|---|
//! | `settings`, `connect` | connection settings, and the classification of errors |
//! | `names` | names of streams and columns as collections and fields |
//! | `extjson` | BSON as extended JSON, and JSON as BSON |
//! | `decode`, `encode` | values between BSON and columns |
//! | `infer`, `ranges`, `source`, `stream` | reading collections |
//! | `process`, `claim`, `ledger`, `bulk`, `statement`, `writer`, `target`, `destination` | writing collections |
//!
//! Only features of a single server, which has no transactions, are used. Nevertheless:
//!
//! * A unit whose entry is `committed` is in the collection, complete and once. A `begun` one was
//!   interrupted: the next run removes its documents, which it finds by their ids, before it writes
//!   them again. So nothing is lost and nothing duplicated wherever a run is killed.
//! * Until a unit's commit starts, nothing of it is in the collection: its documents wait in memory
//!   or in a separate collection. During the commit, and after a kill during it until the next run,
//!   a reader may see a part of the unit. With `replace` no reader sees any of it before the load
//!   is finished.
//! * An id consists of load, unit and row, so a write that a lost connection still delivers meets
//!   the same document. What it delivers of an abandoned load is removed when the next load is
//!   finished. With `upsert` neither is possible: such a command may restore old values, until the
//!   row is next written.

#[cfg(feature = "mongodb")]
mod bulk;
#[cfg(feature = "mongodb")]
mod claim;
#[cfg(feature = "mongodb")]
mod connect;
#[cfg(feature = "mongodb")]
mod decode;
#[cfg(feature = "mongodb")]
mod destination;
#[cfg(feature = "mongodb")]
mod encode;
#[cfg(feature = "mongodb")]
mod extjson;
#[cfg(all(feature = "mongodb", any(test, feature = "fuzzing")))]
pub(crate) mod fuzzing;
#[cfg(feature = "mongodb")]
mod infer;
#[cfg(feature = "mongodb")]
mod ledger;
#[cfg(feature = "mongodb")]
mod names;
#[cfg(feature = "mongodb")]
mod process;
#[cfg(feature = "mongodb")]
mod ranges;
#[cfg(feature = "mongodb")]
mod servers;
mod settings;
#[cfg(feature = "mongodb")]
mod source;
#[cfg(feature = "mongodb")]
mod statement;
#[cfg(feature = "mongodb")]
mod stream;
#[cfg(feature = "mongodb")]
mod target;
#[cfg(feature = "mongodb")]
mod writer;

#[cfg(feature = "mongodb")]
#[cfg(test)]
mod tests;

#[cfg(feature = "mongodb")]
pub use destination::MongoDestination;
pub use settings::{
    Compression, Decimals, Json, Moments, Pool, Settings, Style, Tls, UnknownFields,
};
#[cfg(feature = "mongodb")]
pub use source::MongoSource;
