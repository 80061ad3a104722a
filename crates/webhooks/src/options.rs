//! Options of webhooks, with defaults. The binary fills them from its configuration.

use std::path::PathBuf;
use std::time::Duration;

/// Where the state is, and its limits.
#[derive(Debug, Clone)]
pub struct Options {
    /// Directory of the state alone.
    pub dir: PathBuf,
    /// Maximum number of hooks. Each sends one request at a time.
    pub hooks_max: usize,
    /// Number of ended deliveries that are known of each hook.
    pub deliveries_kept: usize,
    /// The delay before the first repetition; each later one is twice as long, up to `retry_max`, and
    /// shortened at random by up to half.
    pub retry_first: Duration,
    /// The longest delay between two attempts.
    pub retry_max: Duration,
    /// Attempts of an event that was set aside, before it is given up; more if the receiver takes no other one.
    pub attempts_max: u32,
    /// How long a receiver may fail all the time before its hook is disabled.
    pub disable_after: Duration,
    /// Maximum number of bytes of log that a hook holds back from being freed. One that is further behind may
    /// lose events.
    pub log_held_max: u64,
}

impl Options {
    /// The defaults, for a state in `dir`.
    #[must_use]
    pub fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            hooks_max: 100,
            deliveries_kept: 200,
            retry_first: Duration::from_secs(5),
            retry_max: Duration::from_secs(3_600),
            attempts_max: 24,
            disable_after: Duration::from_secs(5 * 24 * 3_600),
            log_held_max: 1 << 30,
        }
    }
}
