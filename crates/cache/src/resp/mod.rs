//! The Redis serialisation protocol: parses requests, writes replies. Bytes in, bytes out: no
//! sockets.
//!
//! - [`parse()`] finds the arguments of the first request of a buffer without copying them, and
//!   continues where it stopped when more bytes have arrived.
//! - [`Reply`] appends replies in RESP2 or RESP3 to an output buffer.

mod parse;
mod reply;

pub use parse::{Args, Limits, Parsed, ProtocolError, parse};
pub use reply::{Proto, Reply};
