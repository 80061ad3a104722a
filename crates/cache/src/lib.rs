//! A key-value cache: RESP and text protocols over sharded, bounded, logged data.
#![deny(missing_docs, clippy::unwrap_used)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test"))]

mod cache;
pub mod command;
pub mod engine;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod glob;
mod health;
pub mod number;
pub mod persist;
pub mod resp;
mod seldom;
pub mod server;
pub mod store;
pub mod text;
pub mod types;

pub use cache::{Cache, CacheOptions, check};
pub use health::Unhealthy;
