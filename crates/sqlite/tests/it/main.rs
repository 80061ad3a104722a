//! The sink in SQLite from outside: the promises all sinks share, and its own.

#![expect(clippy::unwrap_used, reason = "what a test sets up itself either works or ends the test")]

mod changes;
mod conformance;
mod history;
mod names;
mod sqlite;
