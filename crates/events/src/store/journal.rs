//! The store's log, which is reopened after a write or sync of it failed.
//!
//! A failed log accepts nothing, and its directory cannot be opened before every clone is dropped.
//! So no caller keeps one: it is borrowed for one use, with the number of earlier failures.

use std::sync::Arc;

use forebay_log::{CommitError, Committer, DiskError, Log};
use parking_lot::RwLock;

#[derive(Debug)]
struct State {
    log: Option<Log>,
    committer: Option<Committer>,
    /// Number of times it was reopened.
    epoch: u64,
    /// Why it last failed.
    failure: Option<Arc<DiskError>>,
}

/// The log, or why there is none.
#[derive(Debug)]
pub(crate) struct Journal {
    state: RwLock<State>,
}

impl Journal {
    pub(crate) fn new(log: Log) -> Self {
        let state = State { log: Some(log), committer: None, epoch: 0, failure: None };
        Self { state: RwLock::new(state) }
    }

    /// Starts the threads that write and sync for all.
    pub(crate) fn start_committer(&self) {
        let mut state = self.state.write();
        state.committer = state.log.as_ref().map(Log::start_committer);
    }

    /// Returns the log, and how often it was reopened.
    ///
    /// # Errors
    /// It failed, and could not be reopened yet.
    pub(crate) fn get(&self) -> Result<(Log, u64), CommitError> {
        let state = self.state.read();
        match &state.log {
            Some(log) => Ok((log.clone(), state.epoch)),
            None => Err(failure_of(&state)),
        }
    }

    /// Whether it accepts nothing more.
    pub(crate) fn failed(&self) -> bool {
        self.state.read().log.as_ref().is_none_or(|log| log.usable().is_err())
    }

    /// Why it waits for space or descriptors, if it does.
    pub(crate) fn stalled(&self) -> Option<CommitError> {
        let source = self.state.read().log.as_ref()?.stalled()?;
        Some(CommitError::Stalled { source })
    }

    /// Why it last failed, for callers affected by that.
    pub(crate) fn failure(&self) -> CommitError {
        let state = self.state.read();
        match state.log.as_ref().map(Log::usable) {
            Some(Err(error)) => error,
            _ => failure_of(&state),
        }
    }

    /// Drops a failed log.
    pub(crate) fn take_down(&self) {
        let mut state = self.state.write();
        if let Some(Err(CommitError::Poisoned { source })) = state.log.as_ref().map(Log::usable) {
            state.failure = Some(source);
        }
        // It has notified all waiters; that it has failed is already known.
        drop(state.committer.take());
        state.log = None;
    }

    /// Sets the log.
    pub(crate) fn put(&self, log: Log, with_committer: bool) {
        let mut state = self.state.write();
        state.committer = with_committer.then(|| log.start_committer());
        state.log = Some(log);
        state.epoch += 1;
    }

    /// Syncs everything and ends the threads.
    pub(crate) fn close(&self) -> Result<(), CommitError> {
        let mut state = self.state.write();
        match (state.committer.take(), &state.log) {
            (Some(committer), _) => committer.stop(),
            (None, Some(log)) => log.sync().map(drop),
            (None, None) => Err(failure_of(&state)),
        }
    }
}

fn failure_of(state: &State) -> CommitError {
    match &state.failure {
        Some(source) => CommitError::Poisoned { source: Arc::clone(source) },
        None => CommitError::Poisoned {
            source: Arc::new(DiskError {
                act: "write to the log",
                path: std::path::PathBuf::new(),
                source: std::io::Error::other("an earlier write failed"),
            }),
        },
    }
}
