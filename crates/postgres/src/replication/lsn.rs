//! Positions in the write-ahead log of a PostgreSQL server.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

/// A position in a server's write-ahead log, in bytes since its beginning.
///
/// Printed and parsed as the server does: two hexadecimal numbers, `16/B374D848`. Positions of two
/// servers, or of two timelines of one, cannot be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn(pub u64);

impl Lsn {
    /// The position that stands for none: no record begins here.
    pub const NONE: Self = Self(0);

    /// Number of bytes of log from `earlier` to here; 0 if it is not earlier.
    #[must_use]
    pub fn bytes_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & u64::from(u32::MAX))
    }
}

/// A text that is not a position in a write-ahead log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a position in a write-ahead log, such as 16/B374D848")]
pub struct LsnError {
    text: String,
    #[source]
    source: Option<ParseIntError>,
}

impl FromStr for Lsn {
    type Err = LsnError;

    fn from_str(text: &str) -> Result<Self, LsnError> {
        let invalid = |source| LsnError { text: text.chars().take(40).collect(), source };
        let (high, low) = text.split_once('/').ok_or_else(|| invalid(None))?;
        let half = |digits: &str| {
            // A sign is no digit, but `from_str_radix` accepts one.
            if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                return Err(invalid(None));
            }
            u32::from_str_radix(digits, 16).map_err(|error| invalid(Some(error)))
        };
        Ok(Self(u64::from(half(high)?) << 32 | u64::from(half(low)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_printed_as_the_server_prints_it() {
        for (value, text) in
            [(0, "0/0"), (0x16_b374_d848, "16/B374D848"), (u64::MAX, "FFFFFFFF/FFFFFFFF")]
        {
            assert_eq!(Lsn(value).to_string(), text);
            assert_eq!(text.parse(), Ok(Lsn(value)));
        }
        assert_eq!("16/b374d848".parse(), Ok(Lsn(0x16_b374_d848)));
    }

    #[test]
    fn other_texts_are_no_positions() {
        for text in
            ["", "/", "1", "1/", "/1", "+1/1", "1/-1", "1/1/1", "1/100000000", "1/g", " 1/1"]
        {
            let error = text.parse::<Lsn>().unwrap_err();
            assert!(error.to_string().contains(&format!("{text:?}")), "{error}");
        }
    }
}
