//! Whether an open cache still does what it is for.

use forebay_log::CommitError;

/// Why a cache should be started again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unhealthy {
    /// The command log was closed by a failed write or sync. What was changed last is in memory and
    /// may not be on disk, so nothing can be acknowledged, and a server shows nothing any more.
    #[error("the command log has failed, so nothing is acknowledged until a restart")]
    Log {
        /// What failed.
        #[source]
        source: CommitError,
    },
    /// The effects of a command did not get into the log, so nothing after them may.
    #[error("a command could not be logged, so writes are refused until a restart")]
    Refusing,
    /// A thread of the background work has ended, by a bug of ours.
    #[error("the thread {name} of the cache has ended")]
    Thread {
        /// Its name.
        name: String,
    },
}
