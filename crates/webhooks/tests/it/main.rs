//! Webhooks as their callers use them: sources in memory, receivers in this process, a clock that tests move.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod http;
mod order;
mod state;
mod support;
