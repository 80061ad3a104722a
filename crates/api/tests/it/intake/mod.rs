//! What the intake promises, seen through its routes.

mod api;
mod batches;
mod documents;
mod hostile;
pub(crate) mod support;
mod truth;
