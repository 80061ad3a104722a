//! Human-readable sizes: `64MiB`, `1.5GB`, `4096`.
//!
//! `KiB`, `MiB`, `GiB`, `TiB` are powers of 1024; `KB`, `MB`, `GB`, `TB` powers of 1000; a bare
//! number or `B` counts bytes. A displayed size parses back to the same number.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A number of bytes.
///
/// ```
/// use forebay_base::ByteSize;
/// let size: ByteSize = "64MiB".parse()?;
/// assert_eq!(size.bytes(), 64 << 20);
/// assert_eq!(size.to_string(), "64MiB");
/// # Ok::<(), forebay_base::bytes::ParseError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// Returns `count` KiB.
    #[must_use]
    pub const fn kib(count: u64) -> Self {
        Self(count << 10)
    }

    /// Returns `count` MiB.
    #[must_use]
    pub const fn mib(count: u64) -> Self {
        Self(count << 20)
    }

    /// Returns `count` GiB.
    #[must_use]
    pub const fn gib(count: u64) -> Self {
        Self(count << 30)
    }

    /// Returns the number of bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

/// Why a text is not a valid size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// The text does not start with a decimal number.
    #[error("size {text:?} does not start with a number such as 64")]
    Number {
        /// The text that was parsed.
        text: String,
    },
    /// An unknown unit follows the number.
    #[error("size {text:?} has the unknown unit {unit:?} (known: B KiB MiB GiB TiB KB MB GB TB)")]
    Unit {
        /// The text that was parsed.
        text: String,
        /// The unknown unit.
        unit: String,
    },
    /// The size is not a whole number of bytes below 2^64.
    #[error("size {text:?} is not a whole number of bytes below 2^64")]
    Range {
        /// The text that was parsed.
        text: String,
    },
}

const UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("B", 1),
];

impl FromStr for ByteSize {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let trimmed = text.trim();
        let split =
            trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(split);
        let unit = unit.trim();
        let scale = if unit.is_empty() {
            1
        } else {
            UNITS
                .iter()
                .find(|(name, _)| name.eq_ignore_ascii_case(unit))
                .map(|(_, scale)| *scale)
                .ok_or_else(|| ParseError::Unit { text: text.into(), unit: unit.into() })?
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty()
            || fraction.contains('.')
            || (number.contains('.') && fraction.is_empty())
        {
            return Err(ParseError::Number { text: text.into() });
        }
        let range = || ParseError::Range { text: text.into() };
        let whole: u128 = whole.parse().map_err(|_| range())?;
        let mut bytes = whole.checked_mul(u128::from(scale)).ok_or_else(range)?;
        if !fraction.is_empty() {
            let digits = u32::try_from(fraction.len()).map_err(|_| range())?;
            let parts: u128 = fraction.parse().map_err(|_| range())?;
            let divisor = 10u128.checked_pow(digits).ok_or_else(range)?;
            let scaled = parts.checked_mul(u128::from(scale)).ok_or_else(range)?;
            if scaled % divisor != 0 {
                return Err(range());
            }
            bytes += scaled / divisor;
        }
        u64::try_from(bytes).map(Self).map_err(|_| range())
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact =
            UNITS.iter().filter(|(_, scale)| self.0 >= *scale && self.0.is_multiple_of(*scale));
        let (unit, scale) = exact.max_by_key(|(_, scale)| scale).unwrap_or(&("B", 1));
        write!(f, "{}{unit}", self.0 / scale)
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = ByteSize;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as \"64MiB\" or a number of bytes")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<ByteSize, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<ByteSize, E> {
                Ok(ByteSize(bytes))
            }

            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<ByteSize, E> {
                u64::try_from(bytes)
                    .map(ByteSize)
                    .map_err(|_| E::invalid_value(de::Unexpected::Signed(bytes), &self))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// Formats a size for people.
#[must_use]
pub fn size(bytes: u64) -> String {
    let mib = bytes as f64 / (1 << 20) as f64;
    match bytes {
        0..=9_999 => ByteSize(bytes).to_string(),
        10_000..=999_999 => format!("{:.1}KiB", bytes as f64 / 1_024.0),
        1_000_000..=1_073_741_823 => format!("{mib:.1}MiB"),
        _ => format!("{:.2}GiB", mib / 1_024.0),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn units_fractions_and_bare_numbers_are_read() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("1B", 1),
            (" 64 MiB ", 64 << 20),
            ("64mib", 64 << 20),
            ("1.5KiB", 1536),
            ("2GB", 2_000_000_000),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_the_text() {
        for text in ["", "MiB", "-1", "1.", "1..2KB", "1.0001KiB", "64 parsecs", "99999999999TiB"] {
            let error = text.parse::<ByteSize>().expect_err(text);
            assert!(error.to_string().contains(&format!("{text:?}")), "{error}");
        }
    }

    proptest! {
        #[test]
        fn display_parses_back(bytes: u64) {
            prop_assert_eq!(ByteSize(bytes).to_string().parse(), Ok(ByteSize(bytes)));
        }
    }
}
