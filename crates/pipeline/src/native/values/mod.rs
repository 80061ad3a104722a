//! Values as text and as JSON, in both directions: what CSV, NDJSON and SQLite keep of types they have
//! no form for.
//!
//! | room | what it does |
//! |---|---|
//! | [`time`] | dates, times and intervals as ISO 8601 text |
//! | [`mod@write`] | cells of a batch to text or JSON |
//! | [`read`] | text or JSON to columns of a batch |
//! | [`types`] | names of SQL types to columns |
//!
//! Invariant: what [`mod@write`] wrote, [`read`] reads back into the same column as the same value, for every
//! type; only the bits of a NaN beyond its being one are lost.

pub(crate) mod read;
pub(crate) mod time;
pub(crate) mod types;
pub(crate) mod write;

#[cfg(test)]
mod tests;
