//! The bytes of an event: its canonical leaf, and the log entry a batch of them makes.

pub(crate) mod entry;
pub mod leaf;
mod varint;

pub(crate) use varint::{put_varint, take_varint};
