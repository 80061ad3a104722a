//! A tamper-evident event store: appended events are stored exactly, found by id, time and field,
//! and can be proven to anyone who holds a signed checkpoint.
//!
//! Invariants:
//! - An event's canonical leaf bytes ([`format::leaf`]) never change: the log, the memory table and
//!   the segments hold these bytes, or columns from which the same bytes are assembled.
//! - An acknowledged event survives a crash, exactly once, at its assigned position.
//! - Nothing damaged is returned as data.
#![deny(missing_docs, clippy::unwrap_used)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test"))]

pub mod batch;
pub mod checkpoint;
pub mod event;
pub mod format;
#[cfg(any(test, feature = "fuzzing"))]
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
pub use store::{AppendError, OpenError, Options, ReadError, Record, Shortage, Store};
