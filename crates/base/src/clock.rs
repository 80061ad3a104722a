//! Time as a dependency, so that a test controls the time.
//!
//! Wall time is for people and file names and may jump; monotonic time is for intervals and never
//! decreases.

use std::{
    fmt::Debug,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// A source of time.
pub trait Clock: Debug + Send + Sync {
    /// Returns the milliseconds since 1970-01-01T00:00:00Z; 0 if the system's clock is set before
    /// that.
    fn now_ms(&self) -> u64;

    /// Returns the time since an arbitrary fixed moment. It never decreases.
    fn monotonic(&self) -> Duration;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    started: Instant,
}

impl SystemClock {
    /// Returns a clock whose monotonic time starts at the call.
    #[must_use]
    pub fn new() -> Self {
        Self { started: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now_ms(&self) -> u64 {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }
}

/// A clock that moves only when a test moves it.
#[derive(Debug)]
pub struct ManualClock {
    wall_ms: AtomicU64,
    monotonic_ns: AtomicU64,
}

impl ManualClock {
    /// Returns a clock whose wall time is `now_ms` and whose monotonic time is zero.
    #[must_use]
    pub fn new(now_ms: u64) -> Self {
        Self { wall_ms: AtomicU64::new(now_ms), monotonic_ns: AtomicU64::new(0) }
    }

    /// Moves both times forward by `by`.
    pub fn advance(&self, by: Duration) {
        let ms = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        let ns = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        self.wall_ms.fetch_add(ms, Ordering::SeqCst);
        self.monotonic_ns.fetch_add(ns, Ordering::SeqCst);
    }

    /// Sets wall time alone, as an operator or NTP would; monotonic time does not change.
    pub fn set_wall(&self, now_ms: u64) {
        self.wall_ms.store(now_ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> u64 {
        self.wall_ms.load(Ordering::SeqCst)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_nanos(self.monotonic_ns.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setting_the_wall_clock_back_leaves_monotonic_time_alone() {
        let clock = ManualClock::new(5_000);
        clock.advance(Duration::from_millis(1_500));
        clock.set_wall(10);
        assert_eq!((clock.now_ms(), clock.monotonic()), (10, Duration::from_millis(1_500)));
    }
}
