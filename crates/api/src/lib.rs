//! The face of Forebay: HTTP.
//!
//! - [`intake`], [`events`], [`inventory`], [`pipelines`]: the routes of a subsystem, their answers
//!   and their description in `/openapi.json`.
//! - [`pages`]: pages for people, and the description of the server's own routes.
//! - [`Subsystem`]: what the server knows of a subsystem.
//!
//! Handlers translate: a request into a call of an engine, its answer or error into a response.
//! What is stored, and when it is acknowledged, is the engine's. This crate deliberately does not
//! read configuration, environment, arguments or signals, or install a logger.

mod answer;
pub mod events;
pub mod intake;
pub mod inventory;
pub mod pages;
pub mod pipelines;
mod subsystem;

pub use subsystem::Subsystem;
