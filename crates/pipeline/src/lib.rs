//! Pipelines: copying rows from a source to a destination, as Arrow or as the tuples of binary
//! COPY, with nothing lost or duplicated wherever a run is killed.
//!
//! | module | purpose |
//! |---|---|
//! | [`config`] | the pipeline file |
//! | [`transform`] | transforms of rows in transit |
//! | [`run`] | moving them: units, ledger, budget, phases |
//! | [`state`] | the record of runs |
//!
//! Invariants:
//! * A unit of rows and its ledger entry are committed together, at the destination. The ledger
//!   there is the truth; local records are for people.
//! * The batches in transit use at most the memory they were given.
//! * Names and values from outside are always quoted in SQL, and never part of a path unescaped.
//!
//! This crate reads no environment, no arguments and no signals, and prints nothing.

pub mod config;
pub mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod run;
pub mod state;
pub mod transform;
