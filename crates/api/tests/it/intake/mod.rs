//! What the intake promises, seen through its routes.

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
mod reclaim_crash;
pub(crate) mod support;
mod truth;
mod views;
