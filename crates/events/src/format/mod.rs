//! The bytes of an event: its canonical leaf.

pub mod leaf;
mod varint;

pub(crate) use varint::{put_varint, take_varint};
