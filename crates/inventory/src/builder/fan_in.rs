//! How many runs a merge may open at once.
//!
//! The rule, also in `docs/formats/inventory-index.md`: as many as have a block each in the memory
//! of the merge, at most half of the file descriptors that the process has left (the rest is for
//! whatever else it does meanwhile), at most [`FAN_IN_MAX`], and at least two. More runs are merged
//! in several passes.

use rustix::process::{Resource, getrlimit};

use super::run::READER_SIZE;

/// Minimum that the memory permits: merging two at a time would read and write everything too
/// often, for the sake of two megabytes.
const BY_MEMORY_MIN: u64 = 8;
/// Maximum, beyond which a wider merge saves no pass.
const FAN_IN_MAX: u64 = 512;
/// Where the system lists the open descriptors of this process.
const DESCRIPTORS: &str = "/dev/fd";

/// Maximum number of runs to open at once, given the memory of a merge in bytes.
pub(crate) fn fan_in(memory: u64) -> usize {
    let fan_in = limit(memory, getrlimit(Resource::Nofile).current, open_descriptors());
    usize::try_from(fan_in).unwrap_or(usize::MAX)
}

/// `descriptors`: maximum number, if there is one. `open`: those in use, if known.
fn limit(memory: u64, descriptors: Option<u64>, open: Option<u64>) -> u64 {
    let by_memory = (memory / READER_SIZE).max(BY_MEMORY_MIN);
    // One of them is for the run that is written.
    let by_descriptors = descriptors.map_or(FAN_IN_MAX, |most| {
        let left = most.saturating_sub(open.unwrap_or(most / 2));
        (left / 2).saturating_sub(1)
    });
    by_memory.min(by_descriptors).clamp(2, FAN_IN_MAX)
}

/// The number of open descriptors; `None` if the system does not list them.
fn open_descriptors() -> Option<u64> {
    Some(std::fs::read_dir(DESCRIPTORS).ok()?.count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_descriptors_limit_the_runs_that_are_open() {
        let quarter = |mebibytes: u64| (mebibytes << 20) / 4;
        assert_eq!(limit(quarter(256), None, None), 186);
        assert_eq!(limit(quarter(256), Some(1 << 20), Some(10)), 186);
        assert_eq!(limit(quarter(256), Some(64), Some(10)), 26);
        assert_eq!(limit(quarter(256), Some(30), Some(10)), 9);
        assert_eq!(limit(quarter(256), Some(30), None), 6);
        assert_eq!(limit(quarter(256), Some(20), Some(20)), 2);
        assert_eq!(limit(quarter(1 << 20), None, None), FAN_IN_MAX);
        assert_eq!(limit(0, None, None), BY_MEMORY_MIN);
    }

    #[test]
    fn open_descriptors_are_counted() {
        let before = open_descriptors().unwrap();
        assert!(before >= 3 && fan_in(64 << 20) >= 2);
    }
}
