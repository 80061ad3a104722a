//! A tamper-evident event store: what was appended is kept exactly, found by id, time and field, and
//! can be proven to anyone who holds a signed checkpoint.
//!
//! Invariants:
//! - An event's canonical leaf bytes ([`format::leaf`]) never change: the log, the memory table and the
//!   segments carry those bytes or columns from which the same bytes are put together again.
//! - An acknowledged event is there after a crash, once, at the position it was given.
//! - Nothing damaged is returned as data.
#![deny(missing_docs, clippy::unwrap_used)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test"))]

pub mod batch;
pub mod checkpoint;
pub mod event;
pub mod format;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod ingest;
pub mod input;
pub mod load;
mod memory;
pub mod merkle;
pub mod query;
pub mod render;
pub mod segment;
pub mod store;

pub use batch::{Batch, BatchError};
pub use event::{Draft, Event, EventId, Severity, Tags, Value};
pub use store::{AppendError, OpenError, Options, ReadError, Record, Store};
