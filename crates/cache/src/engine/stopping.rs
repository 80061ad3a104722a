//! SHUTDOWN: a client's wish that the server ends.
//!
//! Only whoever runs the engine can end it. Where nobody offered to ([`Engine::set_stopper`]), as
//! inside a program that does more than serve the cache, the wish is refused.

use std::sync::Arc;

use super::Engine;
use crate::command::CommandError;

/// Ends the server an engine runs in.
pub trait Stopper: Send + Sync + std::fmt::Debug {
    /// Has it end soon, as its own signal to end does; returns at once.
    fn stop_soon(&self);
}

impl Engine {
    /// Sets who ends the server when a client asks for it; can be done once.
    pub fn set_stopper(&self, stopper: Arc<dyn Stopper>) {
        // A second one is a mistake of the caller that harms nobody: the first stays.
        self.stopper.set(stopper).ok();
    }

    /// Has the server end, after a snapshot if one is asked for.
    ///
    /// * `force`: end it even if the snapshot fails.
    pub(crate) fn shut_down(&self, save: bool, force: bool) -> Result<(), CommandError> {
        let stopper = self.stopper.get().ok_or_else(|| {
            CommandError::new(
                "ERR SHUTDOWN is refused: this cache is part of a program that does more; stop that",
            )
        })?;
        if save && let Err(error) = self.save() {
            if !force {
                return Err(error);
            }
            tracing::warn!(error = %error.0, "SHUTDOWN SAVE FORCE: stopping with no snapshot");
        }
        stopper.stop_soon();
        Ok(())
    }
}
