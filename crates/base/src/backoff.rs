//! Delays between attempts that fail: each is twice the one before, up to a maximum, and shortened
//! at random.
//!
//! Without the random part, clients that lost a server at the same moment would all return to it at
//! the same moments, and each time it would refuse the same ones.
//!
//! Invariant: a delay is at most the maximum, and at least half of what it would be without the
//! random part.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

/// The steps in which a delay is shortened.
const STEPS: u32 = 1024;

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
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    next: Duration,
    max: Duration,
}

impl Backoff {
    /// Starts with `first`; no delay is longer than `max`.
    #[must_use]
    pub fn new(first: Duration, max: Duration) -> Self {
        let first = first.min(max);
        Self { first, next: first, max }
    }

    /// Returns the delay before the next attempt. The caller waits, so that it can stop waiting.
    pub fn delay(&mut self) -> Duration {
        // Every state has other keys, which begin with randomness of the kernel.
        let random = RandomState::new().hash_one(0_u8);
        let delay = shortened(self.next, random);
        self.next = self.next.saturating_mul(2).min(self.max);
        delay
    }

    /// Starts over: an attempt succeeded.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

/// Shortens a delay by up to half.
fn shortened(delay: Duration, random: u64) -> Duration {
    let steps = u32::try_from(random % u64::from(STEPS + 1)).unwrap_or_default();
    delay - delay / (2 * STEPS) * steps
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const FIRST: Duration = Duration::from_millis(100);
    const MAX: Duration = Duration::from_secs(1);

    #[test]
    fn delays_double_up_to_the_maximum_and_keep_at_least_half() {
        let mut backoff = Backoff::new(FIRST, MAX);
        for _ in 0..2 {
            for whole_ms in [100, 200, 400, 800, 1000, 1000] {
                let (whole, delay) = (Duration::from_millis(whole_ms), backoff.delay());
                assert!(delay >= whole / 2 && delay <= whole, "{delay:?} of {whole:?}");
            }
            backoff.reset();
        }
    }

    #[test]
    fn any_delay_and_random_number_stay_within_the_limits() {
        for delay in [0, 1, 999, 1 << 20, u64::MAX].map(Duration::from_nanos) {
            for random in (0..=u64::from(STEPS)).chain([u64::MAX]) {
                let short = shortened(delay, random);
                assert!(short >= delay / 2 && short <= delay, "{delay:?} {random}");
            }
        }
        let mut endless = Backoff::new(Duration::MAX, Duration::MAX);
        assert!(endless.delay() >= Duration::MAX / 2 && endless.delay() >= Duration::MAX / 2);
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
