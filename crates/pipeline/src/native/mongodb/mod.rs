//! MongoDB, and servers that speak its protocol, as a source and as a destination.
//!
//! | room | what it does |
//! |---|---|
//! | `settings`, `connect` | how a server is reached, and what its errors mean |
//! | `names` | names of streams and columns as collections and fields |
//! | `extjson` | BSON as extended JSON, and JSON as BSON |
//! | `decode`, `encode` | values between BSON and columns |
//! | `infer`, `ranges`, `source`, `stream` | collections to rows |
//! | `process`, `claim`, `ledger`, `bulk`, `statement`, `writer`, `target`, `destination` | rows to collections |
//!
//! What is used works on a single server, which has no transactions. What holds nevertheless:
//!
//! * A unit whose entry says `committed` is in the collection, whole and once. One that says `begun` was
//!   interrupted: the next run removes its documents, which it finds by their ids, before it writes them
//!   again. So nothing is lost and nothing doubled wherever a run is killed.
//! * Until a unit's commit begins, nothing of it is in the collection: its documents wait in memory or in a
//!   collection beside. While it lasts, and after a kill within it until the next run, a reader may see a
//!   part of the unit. With `replace` nobody sees any of it before the load is finished.
//! * An id is made of load, unit and row, so that what a lost connection still delivers meets its own like.
//!   What it delivers of a load that was given up is removed when the next load is finished. With `upsert`
//!   neither can be: such a command may put back the values it had, until the next time the row comes.

mod bulk;
mod claim;
mod connect;
mod decode;
mod destination;
mod encode;
mod extjson;
mod infer;
mod ledger;
mod names;
mod process;
mod ranges;
mod settings;
mod source;
mod statement;
mod stream;
mod target;
mod writer;

#[cfg(test)]
mod tests;

pub use destination::MongoDestination;
pub use settings::{
    Compression, Decimals, Json, Moments, Pool, Settings, Style, Tls, UnknownFields,
};
pub use source::MongoSource;
