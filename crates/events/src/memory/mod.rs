//! Events that are in the log and not yet in a segment, kept in memory for readers.
//!
//! Limits: the store freezes a table at its configured size, and lets only a few frozen ones wait.

mod merge;
mod run;
mod table;

pub(crate) use merge::Merge;
pub(crate) use run::Run;
pub(crate) use table::{JOINED_SIZE_MAX, Table};
