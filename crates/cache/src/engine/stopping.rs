//! SHUTDOWN: a client's request to stop the server.
//!
//! Only the program that runs the engine can stop it. If it set no [`Engine::set_stopper`], as in a
//! server with other parts than the cache, the request is refused.

use std::sync::Arc;

use super::Engine;
use crate::command::CommandError;

/// Stops the server in which an engine runs.
pub trait Stopper: Send + Sync + std::fmt::Debug {
    /// Requests a stop, as a termination signal does; returns immediately.
    fn stop_soon(&self);
}

impl Engine {
    /// Sets how the server is stopped on a client's request; can be done once.
    pub fn set_stopper(&self, stopper: Arc<dyn Stopper>) {
        // A second call is a harmless bug of the caller: the first stopper stays.
        self.stopper.set(stopper).ok();
    }

    /// Stops the server, after a snapshot if requested.
    ///
    /// * `force`: stop even if the snapshot fails.
    pub(crate) fn shut_down(&self, save: bool, force: bool) -> Result<(), CommandError> {
        let stopper = self.stopper.get().ok_or_else(|| {
            CommandError::new(
                "ERR SHUTDOWN is refused: this cache is part of a larger server; stop that one",
            )
        })?;
        if save && let Err(error) = self.save() {
            if !force {
                return Err(error);
            }
            tracing::warn!(error = %error.0, "SHUTDOWN SAVE FORCE: stopping without a snapshot");
        }
        stopper.stop_soon();
        Ok(())
    }
}
