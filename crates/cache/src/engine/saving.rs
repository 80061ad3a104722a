//! Snapshots on request.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Engine;
use crate::command::CommandError;

/// Takes snapshots for an engine; implemented by the server's persistence.
pub trait Saver: Send + Sync + std::fmt::Debug {
    /// Takes one and returns when it is on stable storage.
    ///
    /// # Errors
    /// Why the snapshot failed.
    fn save(&self, engine: &Engine) -> Result<(), String>;

    /// Requests one; `false` if one is in progress. A request counts as a snapshot being taken
    /// from here on ([`Engine::begin_saving`]).
    fn save_soon(&self, engine: &Engine) -> bool;
}

impl Engine {
    /// Sets the saver; can be done once.
    pub fn set_saver(&self, saver: Arc<dyn Saver>) {
        // A second call is a harmless bug of the caller: the first saver stays.
        self.saver.set(saver).ok();
    }

    /// Whether a snapshot is being taken, or was requested.
    #[must_use]
    pub fn is_saving(&self) -> bool {
        self.saving.load(Ordering::Acquire) > 0
    }

    /// Counts a snapshot until [`Engine::end_saving`].
    pub fn begin_saving(&self) {
        self.saving.fetch_add(1, Ordering::AcqRel);
    }

    /// Ends what [`Engine::begin_saving`] counted.
    ///
    /// * `outcome`: when a snapshot was completed (seconds since 1970), `Some(Err(()))` if it
    ///   failed, `None` if none was attempted.
    pub fn end_saving(&self, outcome: Option<Result<u64, ()>>) {
        if let Some(Ok(ended_s)) = outcome {
            self.saved_s.store(ended_s, Ordering::Release);
        }
        if let Some(outcome) = outcome {
            self.save_failed.store(outcome.is_err(), Ordering::Release);
        }
        // Last: a client that sees the end also sees the outcome.
        self.saving.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether the last snapshot that was attempted failed.
    #[must_use]
    pub fn last_save_failed(&self) -> bool {
        self.save_failed.load(Ordering::Acquire)
    }

    /// When the last snapshot was completed, in seconds since 1970.
    #[must_use]
    pub fn last_save_s(&self) -> u64 {
        self.saved_s.load(Ordering::Acquire)
    }

    pub(crate) fn save(&self) -> Result<(), CommandError> {
        let saver = self.saver.get().ok_or_else(no_saver)?;
        saver.save(self).map_err(|why| CommandError::new(format!("ERR the snapshot failed: {why}")))
    }

    pub(crate) fn save_in_background(&self) -> Result<(), CommandError> {
        let saver = self.saver.get().ok_or_else(no_saver)?;
        // Also if another client waits for one with SAVE.
        if !self.is_saving() && saver.save_soon(self) {
            return Ok(());
        }
        Err(CommandError::new("ERR Background save already in progress"))
    }
}

fn no_saver() -> CommandError {
    CommandError::new("ERR persistence is off: the server runs without a data directory")
}
