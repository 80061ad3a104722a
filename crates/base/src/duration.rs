//! Human-readable durations: `50ms`, `10s`, `5m`, `2h`, `7d`.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A duration whose text form is a whole number and a unit.
///
/// ```
/// use forebay_base::HumanDuration;
/// let wait: HumanDuration = "50ms".parse()?;
/// assert_eq!(wait.get().as_millis(), 50);
/// assert_eq!(wait.to_string(), "50ms");
/// # Ok::<(), forebay_base::duration::ParseError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct HumanDuration(pub Duration);

impl HumanDuration {
    /// Returns the duration.
    #[must_use]
    pub const fn get(self) -> Duration {
        self.0
    }
}

/// A text that is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("duration {text:?} is not a whole number with a unit (ns us ms s m h d), such as 50ms")]
pub struct ParseError {
    /// The text that was parsed.
    pub text: String,
}

const UNITS: [(&str, u128); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

impl FromStr for HumanDuration {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let error = || ParseError { text: text.into() };
        let trimmed = text.trim();
        let split = trimmed.find(|c: char| !c.is_ascii_digit()).ok_or_else(error)?;
        let (number, unit) = trimmed.split_at(split);
        let number: u64 = number.parse().map_err(|_| error())?;
        let unit = unit.trim();
        let (_, scale) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(error)?;
        let ns = u128::from(number) * scale;
        let seconds = u64::try_from(ns / 1_000_000_000).map_err(|_| error())?;
        let rest = u32::try_from(ns % 1_000_000_000).map_err(|_| error())?;
        Ok(Self(Duration::new(seconds, rest)))
    }
}

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0.as_nanos();
        if ns == 0 {
            return f.write_str("0s");
        }
        let (unit, scale) = UNITS
            .iter()
            .find(|(_, scale)| ns.is_multiple_of(*scale) && u64::try_from(ns / scale).is_ok())
            .unwrap_or(&("ns", 1));
        write!(f, "{}{unit}", ns / scale)
    }
}

impl Serialize for HumanDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HumanDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "5", "s", "-1s", "1.5s", "5 fortnights", "99999999999999999999s"] {
            assert!(text.parse::<HumanDuration>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_largest_exact_unit_is_shown() {
        for text in ["0s", "50ms", "90s", "2m", "36h", "7d", "1ns"] {
            assert_eq!(text.parse::<HumanDuration>().unwrap().to_string(), text);
        }
    }

    proptest! {
        #[test]
        fn display_parses_back(ns: u64) {
            let duration = HumanDuration(Duration::from_nanos(ns));
            prop_assert_eq!(duration.to_string().parse(), Ok(duration));
        }
    }
}
