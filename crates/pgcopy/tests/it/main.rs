//! Behaviour of the codecs as their users see it.
#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "tests say what they mean by panicking, and what they leave out"
)]

mod casts;
mod frames;
mod postgres;
mod random;
mod server;
mod support;
mod values;
