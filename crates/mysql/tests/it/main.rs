//! What this crate promises, against a MariaDB of our own.
//!
//! | file | |
//! |---|---|
//! | `server` | a server, and reading a stream to its end |
//! | `acceptance` | the promises of every source |
//! | `values` | every type, and values that are refused |
//! | `names` | names that are hostile |
//! | `snapshot` | one snapshot, whatever happens meanwhile |
//! | `faults` | connections that are cut, statements that are killed |
//! | `incremental` | cursors, and rows that are committed late |
//! | `tls` | encrypted connections |
#![expect(clippy::unwrap_used, reason = "tests say what they mean by panicking")]

mod acceptance;
mod faults;
mod incremental;
mod names;
mod server;
mod snapshot;
mod tls;
mod values;
