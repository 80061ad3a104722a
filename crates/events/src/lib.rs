//! A tamper-evident event store: appended events are stored exactly, found by id, time and field,
//! and can be proven to anyone who holds a signed checkpoint.
//!
//! Invariants:
//! - An event's canonical leaf bytes ([`format::leaf`]) never change: the log, the memory table and
//!   the segments hold these bytes, or columns from which the same bytes are assembled.
//! - An acknowledged event survives a crash, exactly once, at its assigned position.
//! - Nothing damaged is returned as data.
//!
//! # Example
//!
//! An event is appended, found and proven; the proof is verified with nothing but the public key.
//!
//! ```
//! use std::sync::Arc;
//!
//! use forebay_base::clock::SystemClock;
//! use forebay_base::fs::RealFs;
//! use forebay_events::query::Query;
//! use forebay_events::{Batch, Draft, Options, Store};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let dir = tempfile::tempdir()?;
//! let clock = Arc::new(SystemClock::new());
//! let (store, _) = Store::open(Arc::new(RealFs), clock, dir.path(), Options::balanced())?;
//!
//! let mut batch = Batch::new("auth");
//! let login = Draft { kind: "login".into(), raw: b"ann logged in"[..].into(), ..Draft::default() };
//! let id = batch.push(&login, 1_700_000_000_000_000_000)?;
//! store.append(batch)?;
//!
//! let mut found = store.scan(Query { kind: Some("login".into()), ..Query::default() });
//! let record = found.next()?.ok_or("the event is stored")?;
//! assert_eq!(record.event().raw, b"ann logged in");
//!
//! let proof = store.prove(id)?;
//! let included = proof.verify(&store.verifier_key()?)?;
//! assert_eq!(included.leaf, record.leaf());
//! store.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! `examples/` has a program that keeps a checkpoint and detects a log that was replaced.
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
pub mod witness;

pub use batch::{Batch, BatchError};
pub use event::{Draft, Event, EventId, Severity, Tags, TimeSource, Value};
pub use store::{AppendError, OpenError, Options, ReadError, Record, Shortage, Store};
