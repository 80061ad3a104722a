//! What a connector is written against.
//!
//! A *connector* is a source or destination of pipelines. It implements the traits of
//! [`connector`], and its settings those of [`registry`]; the engine (`forebay-pipeline`) moves the
//! rows. This crate knows no connector and no engine.
//!
//! | module | purpose |
//! |---|---|
//! | [`connector`] | the traits of sources and destinations |
//! | [`batch`], [`run`] | rows in transit; the run they belong to, and the channel they pass through |
//! | [`settings`] | settings of streams and targets, texts and secrets, what a connector may access |
//! | [`registry`] | connectors by name |
//! | [`changes`] | changes of rows, and the traits of those that report and apply them |
//! | [`values`], [`cast`], [`hash`] | values as text and JSON, lossless casts, content hashes |
//! | [`transform`] | the traits of transforms |
//! | [`platform`] | time, tasks and pauses, in a process and in a sandbox |
//! | [`component`] | the types of `wit/connector.wit`, converted |
//! | [`chosen`] | the columns that a target stores, where it leaves others out |
//! | [`bridge`] | readers that block a thread |
//! | [`absent`] | connectors that a build leaves out |
//! | `acceptance` | the promises of connectors as a suite of tests (feature `conformance`) |
//!
//! A sandbox has neither threads nor files: for `wasm32` this crate is built without [`bridge`], without
//! compression of batches in transit, and without checks of files.
//!
//! Invariants:
//! * Nothing here reads the environment, arguments or signals, or prints anything.
//! * A secret is never printed: [`settings::Secret`].
//! * The batches in transit use at most the memory they were given: [`run::Outlet`].

pub mod absent;
#[cfg(any(test, feature = "conformance"))]
pub mod acceptance;
pub mod batch;
#[cfg(not(target_family = "wasm"))]
pub mod bridge;
pub mod cast;
pub mod changes;
pub mod chosen;
pub mod component;
pub mod connector;
pub mod error;
pub mod hash;
pub mod platform;
pub mod registry;
pub mod run;
pub mod settings;
pub mod transform;
pub mod values;

pub use batch::{Batch, DeadRow, Rows};
pub use error::ConnectorError;
