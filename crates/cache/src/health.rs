//! Whether an open cache still works.

use forebay_log::CommitError;

/// Why a cache has to be restarted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unhealthy {
    /// The command log was closed by a failed write or sync. The last changes are in memory and may
    /// not be on disk, so nothing can be acknowledged, and a server shows nothing.
    #[error("the command log has failed, so nothing is acknowledged until a restart")]
    Log {
        /// What failed.
        #[source]
        source: CommitError,
    },
    /// The effects of a command could not be logged, so no later effects may be.
    #[error("a command could not be written to the log, so writes are refused until a restart")]
    Refusing,
    /// A background thread has ended because of a bug.
    #[error("the cache thread {name} has ended unexpectedly")]
    Thread {
        /// Its name.
        name: String,
    },
}
