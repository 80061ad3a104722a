//! How many runs a merge may read at once.
//!
//! The rule, also in `docs/formats/inventory-index.md`: the number of blocks that fit in the memory
//! of the merge, at least [`BY_MEMORY_MIN`] and at most [`FAN_IN_MAX`]. More runs are merged in
//! several passes. File descriptors do not limit it: a run has none between two of its blocks.

use super::run::READER_SIZE;

/// Minimum that the memory permits: merging two at a time would read and write everything too
/// often, for the sake of two megabytes.
const BY_MEMORY_MIN: u64 = 8;
/// Maximum, beyond which a wider merge saves no pass.
const FAN_IN_MAX: u64 = 512;

/// Maximum number of runs to read at once, given the memory of a merge in bytes.
pub(crate) fn fan_in(memory: u64) -> usize {
    let fan_in = (memory / READER_SIZE).clamp(BY_MEMORY_MIN, FAN_IN_MAX);
    usize::try_from(fan_in).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_limits_the_runs_that_are_read_at_once() {
        let quarter = |mebibytes: u64| (mebibytes << 20) / 4;
        assert_eq!(fan_in(quarter(256)), 186);
        assert_eq!(fan_in(quarter(64)), 46);
        assert_eq!(fan_in(quarter(1 << 20)), 512);
        assert_eq!(fan_in(0), 8);
    }
}
