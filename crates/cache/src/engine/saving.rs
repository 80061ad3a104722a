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

    /// Requests one; `false` if one is in progress.
    fn save_soon(&self) -> bool;
}

impl Engine {
    /// Sets the saver; can be done once.
    pub fn set_saver(&self, saver: Arc<dyn Saver>) {
        // A second call is a harmless bug of the caller: the first saver stays.
        self.saver.set(saver).ok();
    }

    /// Whether a snapshot is being taken.
    #[must_use]
    pub fn is_saving(&self) -> bool {
        self.saving.load(Ordering::Acquire)
    }

    /// Records that a snapshot is being taken, or was completed at this time (seconds since 1970).
    pub fn note_saving(&self, saving: bool, ended_s: Option<u64>) {
        self.saving.store(saving, Ordering::Release);
        if let Some(ended_s) = ended_s {
            self.saved_s.store(ended_s, Ordering::Release);
        }
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
        if !self.is_saving() && saver.save_soon() {
            return Ok(());
        }
        Err(CommandError::new("ERR Background save already in progress"))
    }
}

fn no_saver() -> CommandError {
    CommandError::new("ERR persistence is off: the server runs without a data directory")
}
