//! ClickHouse as a destination of pipelines, over its HTTP interface.
//!
//! | module | purpose |
//! |---|---|
//! | [`settings`] | settings, and the parts of an address |
//! | `sql` | quoted names and values |
//! | `client`, `error` | requests and answers; classes of errors |
//! | `types`, `columns` | types of columns; how the columns of a stream fit those of a table |
//! | `catalog` | tables as the server describes them |
//! | `bounds`, `encode`, `decode` | values that a type does not have; rows as they are sent, and as they are read back |
//! | `ledger`, `claim` | the record of loads; one run at a time, and the condition under which it may write |
//! | `target`, `swap`, `writer`, `commit`, `destination` | the traits of a destination |
//!
//! Without the feature `client` only the settings are here, and whatever uses them reports how to build
//! the rest. `docs/formats/pipeline-clickhouse.md` has the argument why rows are there exactly once.
//!
//! Invariants:
//! * The rows of a unit become visible with one part of a table, so all of them or none.
//! * A statement that adds rows or records fails on the server if another run, another load or another attempt has
//!   begun since: a request that arrives late changes nothing.
//! * A value that ClickHouse cannot store is refused here: the server would change some of them silently.
//! * Names are quoted and values escaped by `sql`. Passwords are in no message.
//! * Nothing that a server sends makes a run panic.

#![deny(clippy::indexing_slicing)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test"))]

#[cfg(feature = "client")]
mod bounds;
#[cfg(feature = "client")]
mod catalog;
#[cfg(feature = "client")]
mod claim;
#[cfg(feature = "client")]
mod client;
#[cfg(feature = "client")]
mod columns;
#[cfg(feature = "client")]
mod commit;
#[cfg(feature = "client")]
mod decode;
#[cfg(feature = "client")]
mod destination;
#[cfg(feature = "client")]
mod encode;
#[cfg(feature = "client")]
mod error;
#[cfg(feature = "client")]
mod ledger;
pub mod settings;
#[cfg(feature = "client")]
mod sql;
#[cfg(feature = "client")]
mod swap;
#[cfg(feature = "client")]
mod target;
#[cfg(feature = "client")]
mod types;
#[cfg(feature = "client")]
mod writer;

#[cfg(feature = "client")]
pub use destination::ClickHouse;
pub use settings::Settings;
