//! The layout of the data directory: where each subsystem has its files.

use std::path::{Path, PathBuf};

/// The directory of the intake.
#[must_use]
pub fn intake(data: &Path) -> PathBuf {
    data.join("intake")
}

/// The directory of the job queue.
#[must_use]
pub fn jobs(data: &Path) -> PathBuf {
    data.join("jobs")
}

/// The directory of the state of webhooks.
#[must_use]
pub fn webhooks(data: &Path) -> PathBuf {
    data.join("webhooks")
}

/// The directory of the cache.
#[must_use]
pub fn cache(data: &Path) -> PathBuf {
    data.join("cache")
}

/// The directory of the events.
#[must_use]
pub fn events(data: &Path) -> PathBuf {
    data.join("events")
}

/// The directory of the witness for the logs of others.
#[must_use]
pub fn witness(data: &Path) -> PathBuf {
    events(data).join("witness")
}

/// The directory of the indexes of inventories; each is in a directory of its name.
#[must_use]
pub fn inventories(data: &Path) -> PathBuf {
    data.join("inventories")
}
