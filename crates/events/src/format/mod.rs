//! The bytes of an event: its canonical leaf, the log entry of a batch, and the store's own events.
//!
//! Described in `docs/formats/event-leaf.md` and `docs/formats/event-log.md` and
//! `docs/formats/event-system.md`.

pub(crate) mod entry;
pub mod leaf;
pub(crate) mod request;
pub mod system;
pub mod tree;
mod varint;

pub(crate) use varint::{put_varint, take_varint};
