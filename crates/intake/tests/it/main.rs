//! What the intake promises, seen through its routes.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod api;
mod batches;
mod concurrent;
mod crash;
mod documents;
mod elsewhere;
mod forward;
mod forward_crash;
mod hostile;
mod model;
mod reclaim;
mod reclaim_crash;
mod support;
mod views;
