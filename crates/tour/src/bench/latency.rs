//! Latencies as a histogram of constant size, accurate to one in a hundred.

use std::time::Duration;

use hdrhistogram::Histogram;

/// The longest latency that is distinguished; longer ones count as this one.
const LONGEST: Duration = Duration::from_secs(3_600);
/// Number of significant decimal digits.
const DIGITS: u8 = 2;

/// The count of each latency.
#[derive(Debug)]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        let longest = u64::try_from(LONGEST.as_nanos()).unwrap_or(u64::MAX);
        #[expect(clippy::expect_used, reason = "constant bounds, which a test covers")]
        Self(Histogram::new_with_bounds(1, longest, DIGITS).expect("bounds"))
    }
}

impl Latencies {
    /// Records one latency.
    pub fn add(&mut self, latency: Duration) {
        self.0.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Adds all latencies of another recorder.
    ///
    /// # Errors
    /// Never for two of these, which have the same bounds.
    pub fn merge(&mut self, other: &Self) -> anyhow::Result<()> {
        Ok(self.0.add(&other.0)?)
    }

    /// Returns the latency that this share of all does not exceed; zero if there are none.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Duration {
        Duration::from_nanos(self.0.value_at_quantile(share))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_hundredth_of_the_truth() {
        let (mut latencies, mut other) = (Latencies::default(), Latencies::default());
        for us in 1..=5_000 {
            latencies.add(Duration::from_micros(us));
            other.add(Duration::from_micros(5_000 + us));
        }
        latencies.merge(&other).unwrap();
        for (share, us) in [(0.5, 5_000.0), (0.99, 9_900.0), (1.0, 10_000.0), (0.0001, 1.0)] {
            let measured = latencies.quantile(share).as_secs_f64() * 1e6;
            assert!((measured - us).abs() <= us / 100.0, "{share}: {measured} for {us}");
        }
        assert_eq!(Latencies::default().quantile(0.5), Duration::ZERO);
    }

    #[test]
    fn a_latency_beyond_the_bounds_counts_as_the_longest() {
        let mut latencies = Latencies::default();
        latencies.add(Duration::ZERO);
        latencies.add(Duration::MAX);
        assert!(latencies.quantile(1.0) >= LONGEST);
    }
}
