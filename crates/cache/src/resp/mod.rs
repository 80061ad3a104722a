//! The Redis serialisation protocol: requests read, replies written. Bytes in, bytes out: no sockets.
//!
//! - [`parse()`] finds the arguments of the first request of a buffer without copying them, and goes on
//!   where it stopped when more bytes have come.
//! - [`Reply`] writes answers in RESP2 or RESP3 to the end of an output buffer.

mod parse;
mod reply;

pub use parse::{Args, Limits, Parsed, ProtocolError, parse};
pub use reply::{Proto, Reply};
