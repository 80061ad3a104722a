//! When a write is acknowledged, and what it then survives: one type for every subsystem.
//!
//! | word | on acknowledgement the bytes are | survives |
//! |---|---|---|
//! | `sync` | on stable storage | power loss |
//! | `interval:50ms` | in the kernel, on stable storage at most 50 ms later | the process being killed |
//! | `os` | in the kernel, on stable storage when the kernel decides | the process being killed |
//!
//! Nothing is ever acknowledged while it is only in the process's own memory.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::duration::{self, HumanDuration};

/// When a write is acknowledged.
///
/// ```
/// use forebay_base::Durability;
/// use std::time::Duration;
/// assert_eq!("interval:50ms".parse(), Ok(Durability::Interval(Duration::from_millis(50))));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Durability {
    /// After it has reached stable storage.
    #[default]
    Sync,
    /// After it has reached the kernel; it reaches stable storage within this time.
    Interval(Duration),
    /// After it has reached the kernel; the kernel decides when it reaches stable storage.
    Os,
}

/// Why a text is not a durability.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// None of the three words.
    #[error("durability {text:?} is not sync, interval:<duration> or os")]
    Word {
        /// The text that was parsed.
        text: String,
    },
    /// `interval:` followed by text that is not a duration.
    #[error("durability {text:?} has an invalid interval")]
    Interval {
        /// The text that was parsed.
        text: String,
        /// Why the duration is invalid.
        #[source]
        source: duration::ParseError,
    },
    /// `interval:` with a duration of zero, which would be `sync`.
    #[error("durability {text:?} has an interval of zero; use sync instead")]
    Zero {
        /// The text that was parsed.
        text: String,
    },
}

impl FromStr for Durability {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match text {
            "sync" => Ok(Self::Sync),
            "os" => Ok(Self::Os),
            _ => {
                let Some(interval) = text.strip_prefix("interval:") else {
                    return Err(ParseError::Word { text: text.into() });
                };
                let interval: HumanDuration = interval
                    .parse()
                    .map_err(|source| ParseError::Interval { text: text.into(), source })?;
                if interval.get().is_zero() {
                    return Err(ParseError::Zero { text: text.into() });
                }
                Ok(Self::Interval(interval.get()))
            }
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sync => f.pad("sync"),
            Self::Interval(interval) => f.pad(&format!("interval:{}", HumanDuration(*interval))),
            Self::Os => f.pad("os"),
        }
    }
}

impl Serialize for Durability {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Durability {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(|error: ParseError| {
            de::Error::custom(crate::error_chain::chain(&error).to_string())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_parses_back_from_its_display() {
        for text in ["sync", "interval:50ms", "interval:2s", "os"] {
            assert_eq!(text.parse::<Durability>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn other_words_and_zero_intervals_are_refused() {
        for text in ["", "Sync", "fsync", "interval", "interval:", "interval:0ms", "interval:5"] {
            assert!(text.parse::<Durability>().is_err(), "{text}");
        }
    }
}
