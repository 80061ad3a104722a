//! MongoDB, and compatible servers, as a source and as a destination.
//!
//! | module | purpose |
//! |---|---|
//! | `connect`, `servers` | connections, the classification of errors, and the servers of a URL |
//! | `names` | names of streams and columns as collections and fields |
//! | `extjson` | BSON as extended JSON, and JSON as BSON |
//! | `decode`, `encode` | values between BSON and columns |
//! | `infer`, `ranges`, `order`, `source`, `stream` | reading collections |
//! | `claim`, `ledger`, `bulk`, `statement`, `writer`, `target`, `destination` | writing collections |
//! | `feed` | changes of another database |
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

mod bulk;
mod claim;
mod connect;
mod decode;
mod destination;
mod encode;
mod extjson;
mod feed;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod infer;
mod ledger;
mod names;
mod order;
mod ranges;
mod servers;
mod source;
mod statement;
mod stream;
mod target;
mod writer;

#[cfg(test)]
mod tests;

pub use destination::MongoDestination;
pub(crate) use servers::add as add_servers;
pub use source::MongoSource;
