//! Options of a queue, with defaults. The binary fills them from its configuration.

use std::path::PathBuf;
use std::time::Duration;

use forebay_base::Durability;

/// The longest delay before an attempt, without its random part.
pub(crate) const DELAY_MAX: Duration = Duration::from_secs(3600);

/// Where a queue is, and its limits.
#[derive(Debug, Clone)]
pub struct Options {
    /// Directory of this queue alone.
    pub dir: PathBuf,
    /// When a job is acknowledged.
    pub durability: Durability,
    /// Maximum number of jobs that wait. Further ones are refused.
    pub queued_max: usize,
    /// Number of jobs that run at once, at least 1. With more than one, jobs that take long leave one
    /// for the others.
    pub workers: usize,
    /// Maximum size of all bodies in files, in bytes.
    pub bodies_size_max: u64,
    /// Number of times that a job is tried again after a failure that may pass.
    pub retries_max: u32,
    /// The delay before the first of them; each later one is twice as long, with a random part.
    pub retry_after: Duration,
    /// How long a job that completed or was cancelled is known.
    pub ended_kept: Duration,
    /// How long a job that failed is known, and can be queued again.
    pub failed_kept: Duration,
    /// Maximum number of ended jobs that are known. The oldest are forgotten first.
    pub ended_max: usize,
    /// Size of a log segment in bytes.
    pub segment_size: u64,
}

impl Options {
    /// The longest delay before an attempt, in milliseconds, its random part included.
    pub(crate) fn delay_max_ms(&self) -> u64 {
        let doubled = self.retry_after.saturating_mul(1 << self.retries_max.min(20));
        let longest = doubled.min(DELAY_MAX).saturating_mul(2);
        u64::try_from(longest.as_millis()).unwrap_or(u64::MAX)
    }

    /// The defaults, for a queue in `dir`.
    #[must_use]
    pub fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            durability: Durability::Sync,
            queued_max: 1_000,
            workers: 10,
            bodies_size_max: 10 << 30,
            retries_max: 3,
            retry_after: Duration::from_secs(1),
            ended_kept: Duration::from_secs(24 * 3600),
            failed_kept: Duration::from_secs(7 * 24 * 3600),
            ended_max: 10_000,
            segment_size: 16 << 20,
        }
    }
}
