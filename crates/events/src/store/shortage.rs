//! Temporary failures: no space, no descriptors.
//!
//! The log holds what it could not write and writes it when it can
//! ([`hold_when_full`](forebay_log::Options::hold_when_full)); until then batches are refused
//! before they get positions. So at most the operations in progress at the beginning are held.
//! Acknowledged events can be read meanwhile, and the store can be opened.

use std::error::Error;
use std::io::{self, ErrorKind};

use forebay_base::error_chain::chain;
use forebay_log::CommitError;

use super::Inner;

/// `ENFILE` and `EMFILE`, for which the standard library has no kind; the same on every Unix.
const NO_DESCRIPTORS: [i32; 2] = [23, 24];

/// What is currently lacking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shortage {
    /// Space on the disk, or in the user's quota.
    Space,
    /// File descriptors.
    Descriptors,
}

impl Shortage {
    /// Returns what was lacking, if that caused the error.
    #[must_use]
    pub fn of(error: &(dyn Error + 'static)) -> Option<Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(error) = error.downcast_ref::<io::Error>() {
                return Self::of_io(error);
            }
            next = error.source();
        }
        None
    }

    fn of_io(error: &io::Error) -> Option<Self> {
        if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) {
            return Some(Self::Space);
        }
        let code = error.raw_os_error()?;
        NO_DESCRIPTORS.contains(&code).then_some(Self::Descriptors)
    }
}

impl Inner {
    /// Tries again to write what a waiting log holds, and makes it visible.
    ///
    /// Does nothing if the log does not wait.
    ///
    /// # Errors
    /// [`CommitError::Stalled`]: not yet.
    pub(crate) fn write_held(&self) -> Result<(), CommitError> {
        let Ok((log, epoch)) = self.journal.get() else { return Ok(()) };
        if log.stalled().is_none() {
            return Ok(());
        }
        let (next_seq, log_end) = {
            let sequencer = self.sequencer.lock();
            (sequencer.next_seq, sequencer.log_end)
        };
        log.retry()?;
        log.commit(log_end)?;
        // A log that replaced it meanwhile may have assigned these positions again.
        if self.journal.get()?.1 == epoch {
            self.show(next_seq);
        }
        tracing::info!("the log of the event store accepts events again");
        Ok(())
    }

    /// Recovers from a failure of the log, if possible by now.
    pub(crate) fn recover_log(&self) {
        if let Err(error) = self.write_held() {
            tracing::warn!("the log of the event store still cannot be written: {}", chain(&error));
        }
        if let Err(error) = self.revive() {
            tracing::warn!("cannot reopen the log of the event store: {}", chain(&error));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{AppendError, Disk};

    #[test]
    fn a_shortage_is_found_behind_other_errors() {
        let of = |source: io::Error| {
            let log = forebay_log::CommitError::Stalled {
                source: std::sync::Arc::new(forebay_log::DiskError {
                    act: "write to",
                    path: "log".into(),
                    source,
                }),
            };
            Shortage::of(&AppendError::Commit(log))
        };
        assert_eq!(of(ErrorKind::StorageFull.into()), Some(Shortage::Space));
        assert_eq!(of(io::Error::from_raw_os_error(24)), Some(Shortage::Descriptors));
        assert_eq!(of(io::Error::from_raw_os_error(5)), None);
        assert_eq!(Shortage::of(&Disk::new("read", "x", ErrorKind::NotFound.into())), None);
    }
}
