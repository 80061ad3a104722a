//! Snapshots on demand.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Engine;
use crate::command::CommandError;

/// Takes snapshots for an engine; the server's side of persistence.
pub trait Saver: Send + Sync + std::fmt::Debug {
    /// Takes one and returns when it is on stable storage.
    ///
    /// # Errors
    /// Why there is none.
    fn save(&self, engine: &Engine) -> Result<(), String>;

    /// Has one taken soon; `false` where one is under way.
    fn save_soon(&self) -> bool;
}

impl Engine {
    /// Sets who takes snapshots; can be done once.
    pub fn set_saver(&self, saver: Arc<dyn Saver>) {
        // A second one is a mistake of the caller that harms nobody: the first stays.
        self.saver.set(saver).ok();
    }

    /// Whether a snapshot is being taken.
    #[must_use]
    pub fn is_saving(&self) -> bool {
        self.saving.load(Ordering::Acquire)
    }

    /// Notes that a snapshot is being taken, or has ended at this time (seconds since 1970).
    pub fn note_saving(&self, saving: bool, ended_s: Option<u64>) {
        self.saving.store(saving, Ordering::Release);
        if let Some(ended_s) = ended_s {
            self.saved_s.store(ended_s, Ordering::Release);
        }
    }

    /// When the last snapshot ended, in seconds since 1970.
    #[must_use]
    pub fn last_save_s(&self) -> u64 {
        self.saved_s.load(Ordering::Acquire)
    }

    pub(crate) fn save(&self) -> Result<(), CommandError> {
        let saver = self.saver.get().ok_or_else(no_saver)?;
        saver.save(self).map_err(|why| CommandError::new(format!("ERR no snapshot: {why}")))
    }

    pub(crate) fn save_in_background(&self) -> Result<(), CommandError> {
        let saver = self.saver.get().ok_or_else(no_saver)?;
        if saver.save_soon() {
            return Ok(());
        }
        Err(CommandError::new("ERR Background save already in progress"))
    }
}

fn no_saver() -> CommandError {
    CommandError::new("ERR nothing is kept on disk here: the server runs without a data directory")
}
