//! The face of Forebay: HTTP.
//!
//! - [`intake`]: the routes of files and documents.
//!
//! Handlers translate: a request into a call of an engine, its answer or error into a response.
//! What is stored, and when it is acknowledged, is the engine's. This crate deliberately does not
//! read configuration, environment or arguments, or install a logger.

pub mod intake;
