//! What can go wrong, by the act that was attempted.

use forebay_log::AppendError;

/// Why the effects of a command were not taken into the log.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The log takes nothing more. Of what was split into several entries some may be in it;
    /// recovery passes over those.
    #[error("append {bytes} bytes of operations to the command log")]
    Append {
        /// Bytes of the operations.
        bytes: usize,
        /// Why.
        #[source]
        source: AppendError,
    },
}
