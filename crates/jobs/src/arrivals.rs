//! Submissions before jobs: while many are being accepted, few jobs run.
//!
//! Who submits waits for an answer, and a job may run later. Jobs use the same processors, and what they store
//! is flushed to the same disk, so ten that run beside a burst of submissions make each of these wait several
//! times as long. Therefore, while more submissions wait for the log than there are workers, one short job runs
//! at a time: until shortly after the last moment of that kind, or until half of the places are taken. Then all
//! workers run, so that a load that lasts ends as many jobs as before.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long it counts as crowded after more submissions waited than there are workers: longer than those who
/// were answered by one flush take to submit again.
const LINGER: Duration = Duration::from_millis(5);

/// The submissions that are being accepted.
#[derive(Debug)]
pub(crate) struct Arrivals {
    opened: Instant,
    waiting: AtomicUsize,
    /// The end of the crowd in microseconds after `opened`; 0: there was none.
    crowded_until_us: AtomicU64,
}

/// A submission that is being accepted, until it is dropped.
#[derive(Debug)]
pub(crate) struct Arriving<'a>(&'a Arrivals);

impl Drop for Arriving<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Arrivals {
    pub(crate) fn new() -> Self {
        let (waiting, crowded_until_us) = (AtomicUsize::new(0), AtomicU64::new(0));
        Self { opened: Instant::now(), waiting, crowded_until_us }
    }

    /// Counts a submission.
    ///
    /// * `crowd`: how many may wait before it counts as crowded.
    pub(crate) fn arrive(&self, crowd: usize, now: Instant) -> Arriving<'_> {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= crowd {
            let until = now.saturating_duration_since(self.opened) + LINGER;
            let until_us = u64::try_from(until.as_micros()).unwrap_or(u64::MAX);
            self.crowded_until_us.fetch_max(until_us, Ordering::Relaxed);
        }
        Arriving(self)
    }

    /// How long jobs wait for submissions from now on, if none follow; `None`: they do not.
    pub(crate) fn crowded_for(&self, now: Instant) -> Option<Duration> {
        let until = Duration::from_micros(self.crowded_until_us.load(Ordering::Relaxed));
        let left = until.saturating_sub(now.saturating_duration_since(self.opened));
        (!left.is_zero()).then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_crowded_while_more_submissions_wait_than_workers_and_shortly_after() {
        let arrivals = Arrivals::new();
        let now = arrivals.opened + Duration::from_secs(1);
        let later = |ms| now + Duration::from_millis(ms);
        let two = [arrivals.arrive(2, now), arrivals.arrive(2, now)];
        assert_eq!(arrivals.crowded_for(now), None);
        drop(arrivals.arrive(2, now));
        drop(two);
        assert_eq!(arrivals.crowded_for(later(2)), Some(Duration::from_millis(3)));
        assert_eq!(arrivals.crowded_for(later(5)), None);
        // Those that were answered do not count.
        drop((arrivals.arrive(2, later(6)), arrivals.arrive(2, later(6))));
        assert_eq!(arrivals.crowded_for(later(6)), None);
    }
}
