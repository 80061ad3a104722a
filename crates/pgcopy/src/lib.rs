//! Codecs between Arrow and PostgreSQL's binary COPY, in both directions.
//!
//! Pure: bytes and batches in, batches and bytes out. Whoever has a connection brings it.
//!
//! | room | what it does |
//! |---|---|
//! | [`column`] | what a column is on the wire, in Arrow and in SQL |
//! | [`hash`] | the content hash: the same for the same rows in any order |
//!
//! Invariants:
//! * What is decoded and encoded again has the same bytes, for every type.
//! * Bytes from a server never panic: they are an error that names row and column.

pub mod column;
pub mod hash;

pub use column::{Column, Wire};
pub use hash::ContentHash;
