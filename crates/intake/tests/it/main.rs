//! The intake as its callers use it, without HTTP.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod altered;
mod columns;
mod elsewhere;
mod erasure;
mod flips;
mod forwarding;
mod reclaim;
mod running;
mod support;
