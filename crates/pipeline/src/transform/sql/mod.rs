//! `sql`: a query over whole streams.
//!
//! The query sees every row of the streams it names at once, whatever batches they come in, so that what
//! it counts, adds up and joins is right. What does not fit into its memory goes to files for the time
//! being.
//!
//! | room | what it does |
//! |---|---|
//! | [`settings`] | the settings |
//! | `query` | planning, with errors before anything is written |
//! | `columns` | the columns of the result |
//! | `present` | how a query sees columns, and back |
//! | `scan` | a stream as a table |
//! | `result` | what the query gives, as a stream |
//! | `spool` | streams that a query names more than once |
//! | `in_order` | sides of a union one after another |
//! | `spill` | files for these, and for what does not fit into memory |
//!
//! Invariants:
//! * Only a `SELECT`: no statement that makes or changes anything, no file and no address.
//! * The same rows give the same result: units are read one after another, by a plan without parts at
//!   work at once. So the result is a unit that can be read again, also where no order is asked for.
//! * A stream is read once, however often the query names it: no source is asked for a unit while it
//!   already gives that unit.

#[cfg(feature = "sql")]
mod columns;
#[cfg(feature = "sql")]
mod in_order;
#[cfg(feature = "sql")]
mod present;
#[cfg(feature = "sql")]
mod query;
#[cfg(feature = "sql")]
mod result;
#[cfg(feature = "sql")]
mod scan;
pub(super) mod settings;
#[cfg(feature = "sql")]
mod spill;
#[cfg(feature = "sql")]
mod spool;
#[cfg(feature = "sql")]
#[cfg(test)]
mod tests;

use self::settings::SqlSettings;
use super::streams::Named;
use crate::connector::Result;
#[cfg(not(feature = "sql"))]
use crate::error::ConnectorError;
use crate::run::Context;

/// Puts a query in the place of the streams it names.
#[cfg(feature = "sql")]
pub(super) async fn apply(
    settings: &SqlSettings,
    streams: Vec<Named>,
    memory: usize,
    context: &Context,
) -> Result<Vec<Named>> {
    query::apply(settings, streams, memory, context).await
}

/// Says that this build has no SQL.
#[cfg(not(feature = "sql"))]
#[expect(clippy::unused_async, reason = "planning a query waits where there is one")]
pub(super) async fn apply(
    _: &SqlSettings,
    _: Vec<Named>,
    _: usize,
    _: &Context,
) -> Result<Vec<Named>> {
    Err(ConnectorError::unsupported(
        "this build has no transform `sql`",
        "build with the feature `sql`",
    ))
}
