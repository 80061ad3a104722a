//! Running a pipeline: copying units from source to destination, each committed with its ledger
//! entry.

mod columns;
mod engine;
mod feed;
mod fields;
mod open;
mod plan;
mod report;
mod round;
mod units;
mod verify;

pub use engine::{Options, Pipeline};
pub use plan::{Plan, StreamPlan};
pub use report::{FeedReport, Report, StreamReport};
pub use verify::{StreamVerification, Verification};
