//! Errors, by family of operations.

use std::path::PathBuf;

use crate::address::AddressError;
use crate::hook::HookId;

/// Why the state does not open. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process has it open.
    #[error("the state of webhooks in {} is open in another process", path.display())]
    Locked {
        /// Its directory.
        path: PathBuf,
    },
    /// The device failed.
    #[error("cannot {act} {}", path.display())]
    Io {
        /// What was attempted.
        act: &'static str,
        /// On what.
        path: PathBuf,
        /// What the device said.
        #[source]
        source: std::io::Error,
    },
    /// The database cannot be used.
    #[error("cannot open the state of webhooks, {}", path.display())]
    State {
        /// The database.
        path: PathBuf,
        /// Why not.
        #[source]
        source: StoreError,
    },
}

/// Why the state cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// SQLite refuses.
    #[error("the database failed")]
    Database(#[from] rusqlite::Error),
    /// The file of the database cannot be made.
    #[error("cannot create the database")]
    Create(#[source] std::io::Error),
    /// What is stored is not what was stored.
    #[error(
        "the database is damaged: {found}; restore it from a backup, or remove it and create the hooks again"
    )]
    Damaged {
        /// What was found.
        found: String,
    },
    /// It is of another version.
    #[error("the database has version {found}; this program reads version {expected}")]
    Version {
        /// The version that was found.
        found: i64,
        /// The version of this program.
        expected: i64,
    },
}

/// Why something about a hook was not done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WebhookError {
    /// There is no such hook.
    #[error("no webhook has the id {0}")]
    Unknown(HookId),
    /// There is no such delivery of the hook.
    #[error("the webhook has no delivery {0}; only the last ones are known")]
    UnknownDelivery(u64),
    /// The URL is not permitted.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// What is asked for is wrong.
    #[error("{0}")]
    Rejected(String),
    /// There are too many hooks.
    #[error("there are {max} webhooks, which is the limit (webhooks.hooks_max)")]
    TooMany {
        /// The limit.
        max: usize,
    },
    /// Too much waits already.
    #[error("{what}; try again later")]
    Busy {
        /// What waits.
        what: &'static str,
    },
    /// The hook is disabled.
    #[error("the webhook is disabled; enable it first")]
    Disabled,
    /// The state cannot be read or written.
    #[error("cannot read or write the state of webhooks")]
    Store(#[from] StoreError),
    /// The webhooks are being closed.
    #[error("webhooks are being closed")]
    Closed,
}

impl StoreError {
    /// Whether it is the lack of space.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Database(error)
            if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull))
    }
}
