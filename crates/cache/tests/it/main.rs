//! The cache's behaviour as its users meet it.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod compat;
mod corrupt;
mod crash;
mod crash_concurrent;
mod crash_large;
mod crash_model;
mod kill;
