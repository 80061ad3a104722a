//! Running a pipeline: copying units from source to destination, each committed with its ledger
//! entry.

mod context;
mod engine;
mod open;
mod outlet;
mod packing;
mod plan;
mod report;
mod round;
mod units;
mod verify;

pub use context::{Cancel, Context, Moved, PHASES, Phase, PhaseSeconds, Phases};
pub use engine::{Options, Pipeline};
pub use outlet::{Budget, Inlet, Outlet};
pub use plan::{Plan, StreamPlan};
pub use report::{Report, StreamReport};
pub use verify::{StreamVerification, Verification};
