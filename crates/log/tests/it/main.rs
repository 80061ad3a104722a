//! What the log promises, seen from outside.

mod api;
mod compat;
mod concurrent;
mod corrupt;
mod crash;
mod model;
mod workload;
