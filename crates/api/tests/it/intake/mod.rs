//! What the intake promises, seen through its routes.

mod api;
mod batches;
mod changes;
mod database;
mod details;
mod documents;
mod faults;
mod hostile;
mod search;
pub(crate) mod support;
mod transfers;
mod truth;
