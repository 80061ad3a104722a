//! Running a pipeline: what its parts share, and the way of batches between them.

mod context;
mod outlet;

pub use context::{Cancel, Context, Moved, PHASES, Phase, PhaseSeconds, Phases};
pub use outlet::{Budget, Outlet};
