//! Records billions of latencies in a few KiB.

use std::time::Duration;

/// Buckets for each power of two: latencies are accurate to 1/32.
const STEPS_LOG2: u32 = 5;
const STEPS: usize = 1 << STEPS_LOG2;
const BUCKETS: usize = STEPS * 60;

/// The count of each latency, in buckets whose width grows with it.
#[derive(Debug)]
pub struct Latencies {
    counts: Vec<u64>,
    total: u64,
    longest: Duration,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], total: 0, longest: Duration::ZERO }
    }
}

impl Latencies {
    /// Records one latency.
    pub fn add(&mut self, latency: Duration) {
        let ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        if let Some(count) = self.counts.get_mut(bucket(ns)) {
            *count += 1;
        }
        self.total += 1;
        self.longest = self.longest.max(latency);
    }

    /// Adds all latencies of another recorder.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.total += other.total;
        self.longest = self.longest.max(other.longest);
    }

    /// Returns the latency that this share of all does not exceed; zero if there are none.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rank within the count, which stays far below 2^53"
    )]
    pub fn quantile(&self, share: f64) -> Duration {
        let rank = (self.total as f64 * share).ceil() as u64;
        let mut below = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            below += count;
            if *count > 0 && below >= rank {
                return Duration::from_nanos(upper(bucket)).min(self.longest);
            }
        }
        self.longest
    }
}

fn bucket(ns: u64) -> usize {
    let ns = ns.max(1);
    let power = ns.ilog2();
    let step = if power >= STEPS_LOG2 { ns >> (power - STEPS_LOG2) } else { ns };
    let bucket = if power >= STEPS_LOG2 {
        u64::from(power - STEPS_LOG2 + 1) * STEPS as u64 + (step - STEPS as u64)
    } else {
        step
    };
    usize::try_from(bucket).unwrap_or(usize::MAX).min(BUCKETS - 1)
}

/// Returns the largest latency of a bucket.
fn upper(bucket: usize) -> u64 {
    let (row, step) = (bucket / STEPS, (bucket % STEPS) as u64);
    match u32::try_from(row).unwrap_or(0) {
        0 => step,
        row => ((step + STEPS as u64 + 1) << (row - 1)) - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_thirtieth_of_the_truth() {
        let mut latencies = Latencies::default();
        for us in 1..=10_000 {
            latencies.add(Duration::from_micros(us));
        }
        for (share, us) in [(0.5, 5_000.0), (0.99, 9_900.0), (1.0, 10_000.0), (0.0001, 1.0)] {
            let measured = latencies.quantile(share).as_secs_f64() * 1e6;
            assert!((measured - us).abs() <= us / 30.0, "{share}: {measured} for {us}");
        }
        assert_eq!(Latencies::default().quantile(0.5), Duration::ZERO);
    }

    #[test]
    fn every_latency_lies_within_its_bucket() {
        for ns in (0..64).map(|power| (1_u64 << power) + 1).chain(1..5_000) {
            assert!(upper(bucket(ns)) >= ns || bucket(ns) == BUCKETS - 1, "{ns}");
        }
    }
}
