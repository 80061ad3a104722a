//! Rate limit for warnings that clients can cause, so that they do not fill the log.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Decides whether a warning may be logged again.
#[derive(Debug)]
pub(crate) struct Seldom {
    begun: Instant,
    /// Milliseconds since then from which the next warning may be logged.
    next_ms: AtomicU64,
}

impl Seldom {
    /// Minimum time between two warnings.
    const EVERY: Duration = Duration::from_secs(10);

    pub(crate) fn new() -> Self {
        Self { begun: Instant::now(), next_ms: AtomicU64::new(0) }
    }

    /// Whether the next warning may be logged at `now`; it then counts as logged.
    pub(crate) fn may(&self, now: Instant) -> bool {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let now_ms = ms(now.saturating_duration_since(self.begun));
        let next_ms = self.next_ms.load(Relaxed);
        let then_ms = now_ms.saturating_add(ms(Self::EVERY));
        now_ms >= next_ms
            && self.next_ms.compare_exchange(next_ms, then_ms, Relaxed, Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_comes_at_once_and_then_seldom() {
        let seldom = Seldom::new();
        let now = seldom.begun;
        assert!(seldom.may(now) && !seldom.may(now));
        assert!(!seldom.may(now + Seldom::EVERY / 2));
        assert!(seldom.may(now + Seldom::EVERY) && !seldom.may(now + Seldom::EVERY));
    }
}
