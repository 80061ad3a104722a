//! What the log promises, seen from outside.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod api;
mod compat;
mod concurrent;
mod corrupt;
mod crash;
mod erase;
mod model;
mod workload;
