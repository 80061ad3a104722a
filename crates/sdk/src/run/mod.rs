//! The run that a connector takes part in: its cancellation, its time accounting, and the channel
//! from its source to its destination.

mod context;
pub mod kept;
pub mod measures;
mod outlet;
mod packing;

pub use context::{Cancel, Context, Moved, PHASES, Phase, PhaseSeconds, Phases};
pub use outlet::{Budget, Inlet, Outlet, QUEUED_MAX};
