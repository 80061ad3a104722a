//! Behaviour of the codecs as their users see it.
#![expect(clippy::unwrap_used, reason = "tests say what they mean by panicking")]

mod casts;
mod frames;
mod random;
mod server;
mod support;
mod values;
