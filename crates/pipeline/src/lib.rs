//! Pipelines: rows from a source to a destination, as Arrow or as the tuples of binary COPY, with
//! nothing lost or doubled wherever a run is killed.
//!
//! | room | what it does |
//! |---|---|
//! | [`config`] | the pipeline file |
//! | [`connector`] | the traits of sources and destinations |
//! | [`native`] | the connectors that are built in |
//! | [`transform`] | what is made of rows on the way |
//! | [`run`] | moving them: units, ledger, budget, phases |
//! | [`state`] | what is remembered of runs |
//!
//! Invariants:
//! * A unit of rows and its ledger entry are committed as one, at the destination. The ledger there is
//!   the truth; what this side remembers is for people.
//! * The batches on their way take no more than the memory they were given.
//! * No name or value from outside is part of SQL but quoted, or of a path.
//!
//! This crate reads no environment, no arguments and no signals, and prints nothing.

pub mod acceptance;
pub mod batch;
pub mod config;
pub mod connector;
pub mod error;
pub mod native;
pub mod run;
pub mod state;
pub mod transform;

pub use batch::{Batch, DeadRow, Rows};
pub use error::ConnectorError;
