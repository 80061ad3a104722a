//! The arguments of LMPOP, ZMPOP and their blocking forms: keys, which end, how many.

use super::CommandError;
use crate::number;

/// The parsed arguments; an end is a list's or a sorted set's.
pub(super) struct PopWords<'a, E> {
    pub(super) keys: &'a [&'a [u8]],
    pub(super) end: E,
    pub(super) count: usize,
}

impl<'a, E> PopWords<'a, E> {
    /// Reads `numkeys key ... END [COUNT n]`.
    pub(super) fn parse(
        words: &'a [&'a [u8]],
        end: impl FnOnce(&[u8]) -> Result<E, CommandError>,
    ) -> Result<Self, CommandError> {
        let [keys, rest @ ..] = words else { return Err(CommandError::SYNTAX) };
        let keys = at_least_one(keys, "ERR numkeys should be greater than 0")?;
        let (keys, rest) = rest.split_at_checked(keys).ok_or(CommandError::SYNTAX)?;
        let [word, rest @ ..] = rest else { return Err(CommandError::SYNTAX) };
        let end = end(word)?;
        let count = match rest {
            [] => 1,
            [word, count, more @ ..] if word.eq_ignore_ascii_case(b"count") => {
                let count = at_least_one(count, "ERR count should be greater than 0")?;
                if !more.is_empty() {
                    return Err(CommandError::SYNTAX);
                }
                count
            }
            _ => return Err(CommandError::SYNTAX),
        };
        Ok(Self { keys, end, count })
    }
}

fn at_least_one(word: &[u8], refusal: &'static str) -> Result<usize, CommandError> {
    number::parse_i64(word)
        .and_then(|count| usize::try_from(count).ok())
        .filter(|&count| count > 0)
        .ok_or_else(|| CommandError::new(refusal))
}
