//! Value types that only settings of the cache have.

use forebay_base::bytes::ByteSize;
use forebay_base::duration::HumanDuration;

use super::value::Value;

/// Limits on the unread output of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutputLimit {
    /// Beyond it the connection is closed at once; 0 for no limit.
    pub(crate) hard: ByteSize,
    /// Beyond it for longer than `limit` the connection is closed; 0 for no limit.
    pub(crate) soft: ByteSize,
    /// How long the soft limit may be exceeded.
    pub(crate) limit: HumanDuration,
}

impl Value for OutputLimit {
    const EXPECTED: &'static str = "two sizes and a duration such as 32MiB 8MiB 60s";

    fn parse(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let [hard, soft, limit] = words.as_slice() else {
            return Err(format!("{} words instead of three", words.len()));
        };
        let size = |word: &str| <ByteSize as Value>::parse(word);
        Ok(Self {
            hard: size(hard)?,
            soft: size(soft)?,
            limit: <HumanDuration as Value>::parse(limit)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_limit_is_two_sizes_and_a_duration() {
        let read = OutputLimit::parse("32MiB 0 60s").unwrap();
        assert_eq!((read.hard.0, read.soft.0), (32 << 20, 0));
        assert_eq!(read.limit.get().as_secs(), 60);
        for wrong in ["", "1MiB", "1MiB 1MiB", "1MiB 1MiB x", "x 0 0s", "1MiB 1MiB 1s 1s"] {
            assert!(OutputLimit::parse(wrong).is_err(), "{wrong}");
        }
    }
}
