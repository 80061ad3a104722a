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

#[cfg(feature = "driver")]
mod bulk;
#[cfg(feature = "driver")]
mod claim;
#[cfg(feature = "driver")]
mod connect;
#[cfg(feature = "driver")]
mod decode;
#[cfg(feature = "driver")]
mod destination;
#[cfg(feature = "driver")]
mod encode;
#[cfg(feature = "driver")]
mod extjson;
#[cfg(all(feature = "driver", any(test, feature = "fuzzing")))]
pub mod fuzzing;
#[cfg(feature = "driver")]
mod infer;
#[cfg(feature = "driver")]
mod ledger;
#[cfg(feature = "driver")]
mod names;
#[cfg(feature = "driver")]
mod process;
#[cfg(feature = "driver")]
mod ranges;
#[cfg(feature = "driver")]
mod servers;
mod settings;
#[cfg(feature = "driver")]
mod source;
#[cfg(feature = "driver")]
mod statement;
#[cfg(feature = "driver")]
mod stream;
#[cfg(feature = "driver")]
mod target;
#[cfg(feature = "driver")]
mod writer;

#[cfg(feature = "driver")]
#[cfg(test)]
mod tests;

#[cfg(feature = "driver")]
pub use destination::MongoDestination;
pub use settings::{
    Compression, Decimals, Json, Moments, Pool, Settings, Style, Tls, UnknownFields,
};
#[cfg(feature = "driver")]
pub use source::MongoSource;
