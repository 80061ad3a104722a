//! The face of Forebay: HTTP.
//!
//! - [`intake`], [`events`], [`inventory`], [`pipelines`], [`jobs`], [`uploads`], [`webhooks`]: the routes of a subsystem, their answers
//!   and their description in `/openapi.json`.
//! - [`serve`]: the server around them: connections, limits, keys, metrics, its own routes and pages.
//! - [`keys`], [`tls`]: who may talk to it, and how.
//! - [`Subsystem`]: what the server knows of a subsystem.
//!
//! Handlers translate: a request into a call of an engine, its answer or error into a response.
//! What is stored, and when it is acknowledged, is the engine's. This crate deliberately does not
//! read configuration, environment, arguments or signals, or install a logger.

mod answer;
mod blocking;
mod describe;
pub mod events;
mod idempotency;
pub mod intake;
pub mod inventory;
pub mod jobs;
pub mod keys;
mod pages;
pub mod pipelines;
mod problem;
mod query;
pub mod serve;
mod subsystem;
pub mod tls;
pub mod uploads;
pub mod webhooks;
mod work;

pub use subsystem::Subsystem;

/// First path segments below `/v1`, each counted and timed separately in the request metrics.
pub const ROUTE_CLASSES: [&str; 11] = [
    "files",
    "uploads",
    "documents",
    "ingest",
    "database",
    "blobs",
    "events",
    "inventories",
    "pipelines",
    "jobs",
    "webhooks",
];
