//! What a queue promises: accepted jobs survive, run, and are known.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod adopt;
mod api;
mod crash;
mod support;
