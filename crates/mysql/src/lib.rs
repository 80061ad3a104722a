//! MySQL and MariaDB as a source of pipelines: every table and view of a database is a stream.
//!
//! | module | purpose |
//! |---|---|
//! | [`settings`], `address` | settings, and the parts of an address |
//! | `sql` | quoted names |
//! | `connect`, `error` | connections and their session; classes of errors |
//! | `catalog`, `types`, `columns` | tables as the server describes them; types; the columns that are read |
//! | `values` | values of the binary protocol to columns of a batch |
//! | `units` | how a table is divided |
//! | `order`, `horizon`, `incremental` | the order of a cursor; open transactions; rows that are new since the last run |
//! | `read`, `stream`, `source` | reading a unit; the traits of a source |
//!
//! Without the feature `driver` only the settings are here, and whatever uses them reports how to build
//! the rest.
//!
//! Invariants:
//! * All units of a stream are read in one snapshot.
//! * Values arrive by the binary protocol: no number or time passes through text that a server formats.
//! * Names are quoted, and values are parameters of prepared statements.
//! * Passwords are in no message.
//! * Nothing that a server sends makes a run panic.

#![deny(clippy::indexing_slicing)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test"))]
#![cfg_attr(
    not(feature = "driver"),
    expect(dead_code, reason = "without the driver settings are only checked")
)]

mod address;
#[cfg(feature = "driver")]
mod catalog;
#[cfg(feature = "driver")]
mod columns;
#[cfg(feature = "driver")]
mod connect;
#[cfg(feature = "driver")]
mod error;
#[cfg(feature = "driver")]
mod horizon;
#[cfg(feature = "driver")]
mod incremental;
#[cfg(feature = "driver")]
mod order;
#[cfg(feature = "driver")]
mod read;
pub mod settings;
#[cfg(feature = "driver")]
mod source;
#[cfg(feature = "driver")]
mod sql;
#[cfg(feature = "driver")]
mod stream;
#[cfg(feature = "driver")]
mod types;
#[cfg(feature = "driver")]
mod units;
#[cfg(feature = "driver")]
mod values;

pub use settings::Settings;
#[cfg(feature = "driver")]
pub use source::MysqlSource;
