//! The sinks from outside: the promises all share, and those of each.

#![expect(clippy::unwrap_used, reason = "what a test sets up itself either works or ends the test")]

mod column;
mod conformance;
mod ferret;
mod model;
mod mongodb;
mod names;
mod pg;
mod postgres;
mod proxy;
mod servers;
mod sqlite;
mod stored;

use std::error::Error;

/// The error and everything beneath it.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
