//! What this crate promises, against servers that answer as they are asked to.
//!
//! | file | |
//! |---|---|
//! | `server`, `reading` | a server of raw answers; reading a stream to its end |
//! | `acceptance` | the promises of every source |
//! | `pagination` | how pages lead to each other, and that they end |
//! | `requests` | redirects, retries, limits, and answers that are none |
//! | `records` | columns and values |
//! | `incremental` | cursors |
//! | `tls` | encrypted connections |
#![expect(clippy::unwrap_used, reason = "tests say what they mean by panicking")]

mod acceptance;
mod incremental;
mod pagination;
mod reading;
mod records;
mod requests;
mod server;
mod tls;
