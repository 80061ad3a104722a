//! File descriptors: the limit of the process, and its division among their uses.
//!
//! Each connection needs one, and so does each file of the storage. Without shares, connections to
//! the cache would leave none for the log of the intake, which then fails. So the limit is raised
//! as far as the system permits, a part is reserved for storage, and the rest limits the
//! connections.
//!
//! Invariant: the sum of the shares never exceeds the limit.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The shares of the file descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// The limit of the process.
    pub(crate) total: u64,
    /// Reserved for files, databases, event queues and everything else but client connections.
    pub(crate) storage: u64,
    /// Connections to the HTTP server.
    pub(crate) http: u64,
    /// Connections to the cache. A cache without an HTTP server has those of `http` too.
    pub(crate) cache: u64,
}

/// The reserve for storage: a part of all, within these limits.
const STORAGE_PART: u64 = 4;
const STORAGE_MIN: u64 = 64;
const STORAGE_MAX: u64 = 1_024;
/// One in this many of the rest is for the HTTP server, the others for the cache: its clients keep
/// their connections open permanently.
const HTTP_PART: u64 = 3;
/// Number requested if the system names no limit.
const TOTAL_MAX: u64 = 1 << 20;

/// Raises the limit as far as permitted, and divides it.
///
/// Calling it again changes nothing. If raising is refused, the limit stays unchanged.
pub(crate) fn raise() -> Limits {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.unwrap_or(TOTAL_MAX);
    let now = current.unwrap_or(TOTAL_MAX);
    if now >= wanted {
        return divide(now);
    }
    match setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }) {
        Ok(()) => divide(wanted),
        Err(error) => {
            tracing::warn!(%error, now, wanted, "cannot raise the limit on open files");
            divide(now)
        }
    }
}

/// Divides this many descriptors into shares.
fn divide(total: u64) -> Limits {
    // If there are very few, storage gets half of them.
    let storage = (total / STORAGE_PART).clamp(STORAGE_MIN, STORAGE_MAX).min(total / 2);
    let connections = total - storage;
    let http = connections / HTTP_PART;
    Limits { total, storage, http, cache: connections - http }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_and_storage_always_has_one() {
        for total in [0, 1, 2, 64, 100, 256, 1_024, 4_096, 65_536, 1 << 20, u64::MAX] {
            let limits = divide(total);
            assert_eq!(limits.storage + limits.http + limits.cache, total);
            assert!(limits.storage >= total.min(STORAGE_MIN) / 2 && limits.storage <= STORAGE_MAX);
        }
        let common = Limits { total: 1_024, storage: 256, http: 256, cache: 512 };
        assert_eq!(divide(1_024), common);
        assert!(divide(20_000).cache > 10_000, "the default of cache.connections_max fits");
    }

    #[test]
    fn raising_reaches_the_hard_limit_and_does_nothing_the_second_time() {
        let limits = raise();
        let found = getrlimit(Resource::Nofile);
        assert!(found.current == found.maximum || found.maximum.is_none());
        assert_eq!(found.current.unwrap_or(TOTAL_MAX), limits.total);
        assert_eq!(raise(), limits);
    }
}
