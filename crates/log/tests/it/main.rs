//! The log's promises, tested through its public interface.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod api;
mod compat;
mod concurrent;
mod corrupt;
mod crash;
mod erase;
mod hold;
mod model;
mod workload;
