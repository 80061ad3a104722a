//! `sql`: a query over whole streams.
//!
//! The query sees all rows of the streams it names, whatever batches they arrive in, so that
//! counts, sums and joins are correct. What does not fit in its memory is written to temporary
//! files.
//!
//! | module | purpose |
//! |---|---|
//! | [`settings`] | the settings |
//! | `query` | planning, with errors before anything is written |
//! | `dialect` | what PostgreSQL reads in another way than the engine |
//! | `exact` | arithmetic that is exact, or an error |
//! | `columns` | the columns of the result |
//! | `uuids` | texts that are compared with a `uuid` |
//! | `patterns` | regular expressions |
//! | `hints` | alternatives to what cannot be run |
//! | `words` | `upper`, `lower` and `initcap` |
//! | `padded` | texts that are compared with a `character(n)` |
//! | `zones` | `at time zone` and `date_trunc` |
//! | `joins` | joins that can spill |
//! | `present` | conversion of columns for a query, and back |
//! | `scan` | a stream as a table |
//! | `result` | the result of the query, as a stream |
//! | `apart` | the thread of a query, and how it is stopped |
//! | `spool` | streams that a query names more than once |
//! | `in_order` | sides of a union in sequence |
//! | `spill` | files for these, and for what does not fit into memory |
//!
//! Invariants:
//! * Only a `SELECT`: no statement that creates or changes anything, no file and no address.
//! * The same rows give the same result: units are read in sequence, by a plan without parallel
//!   parts. So the result is a unit that can be read again, even without ORDER BY.
//! * A stream is read once, however often the query names it: a source is never asked for a unit
//!   while it already sends that unit.

#[cfg(feature = "sql")]
mod apart;
#[cfg(feature = "sql")]
mod columns;
#[cfg(feature = "sql")]
mod dialect;
#[cfg(feature = "sql")]
mod enums;
#[cfg(feature = "sql")]
mod exact;
#[cfg(feature = "sql")]
mod hints;
#[cfg(feature = "sql")]
mod in_order;
#[cfg(feature = "sql")]
mod joins;
#[cfg(feature = "sql")]
mod meaning;
#[cfg(feature = "sql")]
mod padded;
#[cfg(feature = "sql")]
mod patterns;
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
mod syntax;
#[cfg(feature = "sql")]
#[cfg(test)]
mod tests;
#[cfg(feature = "sql")]
mod uuids;
#[cfg(feature = "sql")]
mod words;
#[cfg(feature = "sql")]
mod zones;

use self::settings::SqlSettings;
use super::streams::Named;
use forebay_sdk::connector::Result;
#[cfg(not(feature = "sql"))]
use forebay_sdk::error::ConnectorError;
use forebay_sdk::run::Context;

/// Checks that this build has SQL.
#[cfg(feature = "sql")]
#[expect(clippy::unnecessary_wraps, reason = "without the feature it is an error")]
pub(super) fn check() -> Result<()> {
    Ok(())
}

/// Reports that this build has no SQL.
#[cfg(not(feature = "sql"))]
pub(super) fn check() -> Result<()> {
    Err(ConnectorError::not_built("transform `sql`"))
}

/// Replaces the streams that a query names by its result.
#[cfg(feature = "sql")]
pub(super) async fn apply(
    settings: &SqlSettings,
    streams: Vec<Named>,
    memory: usize,
    context: &Context,
) -> Result<Vec<Named>> {
    query::apply(settings, streams, memory, context).await
}

/// Reports that this build has no SQL.
#[cfg(not(feature = "sql"))]
#[expect(clippy::unused_async, reason = "planning a query waits where there is one")]
pub(super) async fn apply(
    _: &SqlSettings,
    _: Vec<Named>,
    _: usize,
    _: &Context,
) -> Result<Vec<Named>> {
    Err(ConnectorError::not_built("transform `sql`"))
}
