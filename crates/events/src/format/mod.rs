//! The bytes of an event: its canonical leaf, and the log entry of a batch.
//!
//! Described in `docs/formats/event-leaf.md` and `docs/formats/event-log.md`.

pub(crate) mod entry;
pub mod leaf;
mod varint;

pub(crate) use varint::{put_varint, take_varint};
