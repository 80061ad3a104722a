//! Running a pipeline: units from source to destination, each committed with its ledger entry.

mod context;
mod engine;
mod outlet;
mod plan;
mod units;
mod verify;

pub use context::{Cancel, Context, Moved, PHASES, Phase, PhaseSeconds, Phases};
pub use engine::{Options, Pipeline, Report, StreamReport};
pub use outlet::{Budget, Outlet};
pub use plan::{Plan, StreamPlan};
pub use verify::{StreamVerification, Verification};
