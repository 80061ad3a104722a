//! The store's log, which is put in place anew after a write or sync of it failed.
//!
//! A log that failed takes nothing more, and nobody may open its directory before every clone is gone.
//! So nobody keeps one: it is had for one use, with the number of failures before it.

use std::sync::Arc;

use forebay_log::{CommitError, Committer, DiskError, Log};
use parking_lot::RwLock;

#[derive(Debug)]
struct State {
    log: Option<Log>,
    committer: Option<Committer>,
    /// How often it was put in place anew.
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

    /// The log, and how often it was put in place anew.
    ///
    /// # Errors
    /// It failed, and could not be opened again yet.
    pub(crate) fn get(&self) -> Result<(Log, u64), CommitError> {
        let state = self.state.read();
        match &state.log {
            Some(log) => Ok((log.clone(), state.epoch)),
            None => Err(failure_of(&state)),
        }
    }

    /// Whether it takes nothing more.
    pub(crate) fn failed(&self) -> bool {
        self.state.read().log.as_ref().is_none_or(|log| log.usable().is_err())
    }

    /// Why it last failed, to be told to whom that concerned.
    pub(crate) fn failure(&self) -> CommitError {
        let state = self.state.read();
        match state.log.as_ref().map(Log::usable) {
            Some(Err(error)) => error,
            _ => failure_of(&state),
        }
    }

    /// Lets go of a log that failed.
    pub(crate) fn take_down(&self) {
        let mut state = self.state.write();
        if let Some(Err(CommitError::Poisoned { source })) = state.log.as_ref().map(Log::usable) {
            state.failure = Some(source);
        }
        // It has told everyone who waits; that it is no better now is known.
        drop(state.committer.take());
        state.log = None;
    }

    /// Puts a log in place.
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
                source: std::io::Error::other("it failed before"),
            }),
        },
    }
}
