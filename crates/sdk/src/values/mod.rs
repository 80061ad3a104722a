//! Values as text and as JSON, in both directions: the forms in which CSV, NDJSON and SQLite store
//! types that they lack.
//!
//! | module | purpose |
//! |---|---|
//! | [`time`] | dates, times and intervals as ISO 8601 text |
//! | [`mod@write`] | converts cells of a batch to text or JSON |
//! | [`read`] | converts text or JSON to columns of a batch |
//! | [`types`] | converts names of SQL types to columns |
//! | [`number`] | which numbers in text a floating-point column can hold |
//!
//! Invariant: [`read`] converts the output of [`mod@write`] back to the same value of the same
//! column, for every type; only the payload bits of a NaN are lost.

pub mod number;
pub mod read;
pub mod time;
pub mod types;
pub mod write;

#[cfg(test)]
mod tests;
