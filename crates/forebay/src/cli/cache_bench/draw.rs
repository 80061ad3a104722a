//! Random keys, uniform or skewed, and random fractions.

/// `key:` and twelve digits.
pub(super) fn key(number: u64) -> [u8; 16] {
    let mut key = *b"key:000000000000";
    let mut rest = number;
    for digit in key.iter_mut().skip(4).rev() {
        *digit += u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
    }
    key
}

/// Generates keys and random fractions (SplitMix64, Steele et al., OOPSLA 2014).
pub(super) struct Draw {
    pub(super) state: u64,
    pub(super) keys: u64,
    pub(super) zipf: Option<Zipf>,
}

impl Draw {
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from 0 to less than 1.
    #[expect(clippy::cast_precision_loss, reason = "53 bits are what a float holds")]
    pub(super) fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(super) fn key(&mut self) -> u64 {
        match self.zipf {
            Some(zipf) => zipf.rank(self.share()),
            None => self.next() % self.keys,
        }
    }
}

/// Ranks by Zipf's law (Gray et al., "Quickly generating billion-record synthetic databases",
/// SIGMOD 1994).
#[derive(Clone, Copy)]
pub(super) struct Zipf {
    keys: f64,
    theta: f64,
    zeta: f64,
    eta: f64,
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "ranks are far below 2^53, and never negative"
)]
impl Zipf {
    pub(super) fn new(keys: u64, theta: f64) -> Self {
        let zeta = |count: u64| (1..=count).map(|rank| (rank as f64).powf(-theta)).sum::<f64>();
        let (zeta, two) = (zeta(keys), zeta(2.min(keys)));
        let keys = keys as f64;
        let eta = (1.0 - (2.0 / keys).powf(1.0 - theta)) / (1.0 - two / zeta);
        Self { keys, theta, zeta, eta: if eta.is_finite() { eta } else { 0.0 } }
    }

    fn rank(&self, share: f64) -> u64 {
        let scaled = share * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5_f64.powf(self.theta) {
            return 1.min(self.keys as u64 - 1);
        }
        let base = self.eta * share - self.eta + 1.0;
        let rank = self.keys * base.powf(1.0 / (1.0 - self.theta));
        (rank as u64).min(self.keys as u64 - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_their_number_in_twelve_digits() {
        assert_eq!(&key(0), b"key:000000000000");
        assert_eq!(&key(90_210), b"key:000000090210");
    }

    #[test]
    fn skewed_draws_stay_within_the_keys_and_favour_the_first() {
        for keys in [1, 2, 3, 1_000] {
            let mut draw = Draw { state: 1, keys, zipf: Some(Zipf::new(keys, 0.99)) };
            let drawn: Vec<u64> = (0..10_000).map(|_| draw.key()).collect();
            assert!(drawn.iter().all(|&key| key < keys), "{keys}");
            let first = drawn.iter().filter(|&&key| key == 0).count();
            assert!(first * usize::try_from(keys).unwrap() >= 10_000, "{keys}: {first}");
        }
    }
}
