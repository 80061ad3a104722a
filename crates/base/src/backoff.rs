//! Delays between attempts that fail: each is twice the one before, up to a maximum, and shortened
//! at random.
//!
//! Without the random part, clients that lost a server at the same moment would all return to it at
//! the same moments, and each time it would refuse the same ones.
//!
//! Invariant: a delay is at most the maximum, and at least half of what it would be without the
//! random part.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};

/// No delay is longer, so that sums of delays and times stay within their types.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// The delays of one series of attempts.
///
/// ```
/// use forebay_base::backoff::Backoff;
/// use std::time::Duration;
///
/// let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(30));
/// let delay = backoff.delay();
/// assert!(delay >= Duration::from_millis(50) && delay <= Duration::from_millis(100));
/// let delay = backoff.delay();
/// assert!(delay >= Duration::from_millis(100) && delay <= Duration::from_millis(200));
/// ```
#[derive(Debug)]
pub struct Backoff {
    series: ExponentialBuilder,
    delays: ExponentialBackoff,
    max: Duration,
}

impl Backoff {
    /// Starts with `first`; no delay is longer than `max`, or than a day.
    #[must_use]
    pub fn new(first: Duration, max: Duration) -> Self {
        let max = max.min(LONGEST);
        // The random part is added to the delay and is at most as long.
        let series = ExponentialBuilder::new()
            .with_min_delay(first.min(max) / 2)
            .with_max_delay(max / 2)
            .without_max_times()
            .with_jitter();
        Self { series, delays: series.build(), max }
    }

    /// Returns the delay before the next attempt. The caller waits, so that it can stop waiting.
    pub fn delay(&mut self) -> Duration {
        // The series has no end; its sums are rounded to the precision of `f32`.
        self.delays.next().map_or(self.max, |delay| delay.min(self.max))
    }

    /// Starts over: an attempt succeeded.
    pub fn reset(&mut self) {
        self.delays = self.series.build();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const FIRST: Duration = Duration::from_millis(100);
    const MAX: Duration = Duration::from_secs(1);

    /// What `f32` may add or take from a delay of a second.
    const ROUNDING: Duration = Duration::from_micros(1);

    #[test]
    fn delays_double_up_to_the_maximum_and_keep_at_least_half() {
        let mut backoff = Backoff::new(FIRST, MAX);
        for _ in 0..2 {
            for whole_ms in [100, 200, 400, 800, 1000, 1000] {
                let (whole, delay) = (Duration::from_millis(whole_ms), backoff.delay());
                let least = whole / 2 - ROUNDING;
                assert!(delay >= least && delay <= whole + ROUNDING, "{delay:?} of {whole:?}");
                assert!(delay <= MAX, "{delay:?}");
            }
            backoff.reset();
        }
    }

    #[test]
    fn any_first_delay_and_maximum_keep_the_limits() {
        let times = [0, 1, 999, 1 << 20, 1 << 62, u64::MAX].map(Duration::from_nanos);
        for (first, max) in times.iter().flat_map(|first| times.map(|max| (*first, max))) {
            let mut backoff = Backoff::new(first, max);
            for _ in 0..200 {
                assert!(backoff.delay() <= max.min(LONGEST), "{first:?} {max:?}");
            }
        }
        let mut endless = Backoff::new(Duration::MAX, Duration::MAX);
        assert!(endless.delay() >= LONGEST / 2 - ROUNDING && endless.delay() <= LONGEST);
    }

    #[test]
    fn a_maximum_below_the_first_delay_wins() {
        assert!(Backoff::new(MAX, FIRST).delay() <= FIRST);
    }

    #[test]
    fn two_series_are_not_in_step() {
        let delays: HashSet<Duration> = (0..64).map(|_| Backoff::new(FIRST, MAX).delay()).collect();
        assert!(delays.len() > 8, "{delays:?}");
    }
}
