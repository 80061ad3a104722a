//! Phrases: bytes that occur in an event as whole words.
//!
//! A word is a longest run of ASCII letters, digits and bytes from 0x80, as in the filters of
//! segments, so that a filter which lacks a word of the phrase excludes its block.

use memchr::memmem::Finder;

use crate::segment::in_word;

/// A phrase prepared for repeated search.
#[derive(Debug)]
pub(crate) struct Phrase {
    finder: Finder<'static>,
    /// Whether it begins, and ends, with a byte of a word.
    begins: bool,
    ends: bool,
}

impl Phrase {
    pub(crate) fn new(phrase: &[u8]) -> Self {
        Self {
            finder: Finder::new(phrase).into_owned(),
            begins: phrase.first().is_some_and(|&byte| in_word(byte)),
            ends: phrase.last().is_some_and(|&byte| in_word(byte)),
        }
    }

    /// Whether `raw` has the phrase, with no word that continues before or after it.
    pub(crate) fn is_in(&self, raw: &[u8]) -> bool {
        let size = self.finder.needle().len();
        let mut from = 0;
        while let Some(found) = raw.get(from..).and_then(|rest| self.finder.find(rest)) {
            let start = from + found;
            let before = start.checked_sub(1).and_then(|at| raw.get(at));
            let after = raw.get(start + size);
            let cut = |inside: bool, beside: Option<&u8>| {
                inside && beside.is_some_and(|&byte| in_word(byte))
            };
            if !cut(self.begins, before) && !cut(self.ends, after) {
                return true;
            }
            // One that begins with a word begins no sooner than the next word does.
            let rest = raw.get(start..).unwrap_or_default();
            let skipped = match self.begins {
                true => rest.iter().position(|&byte| !in_word(byte)).unwrap_or(rest.len()),
                false => 0,
            };
            from = start + skipped + 1;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definition, position by position.
    fn plainly(phrase: &[u8], raw: &[u8]) -> bool {
        (0..=raw.len().saturating_sub(phrase.len())).any(|start| {
            let Some(rest) = raw[start..].strip_prefix(phrase) else { return false };
            let joined = |left: Option<&u8>, right: Option<&u8>| {
                left.is_some_and(|&byte| in_word(byte)) && right.is_some_and(|&byte| in_word(byte))
            };
            !joined(raw[..start].last(), phrase.first()) && !joined(phrase.last(), rest.first())
        })
    }

    #[test]
    fn a_phrase_is_found_only_as_whole_words() {
        let is_in = |phrase: &str, raw: &str| Phrase::new(phrase.as_bytes()).is_in(raw.as_bytes());
        assert!(is_in("fail", "a fail.") && is_in("fail", "fail") && is_in("fail", "failed,fail"));
        assert!(!is_in("fail", "failed") && !is_in("fail", "unfail") && !is_in("Fail", "fail"));
        assert!(is_in("10.1.2.3", "from 10.1.2.3:80") && !is_in("10.1.2.3", "110.1.2.3 10.1.2.30"));
        assert!(is_in("=x", "y=x") && is_in("a.a", "xa.a.a") && !is_in("ü", "für"));
    }

    proptest! {
        #[test]
        fn a_phrase_is_found_where_its_definition_says(
            phrase in "[ab. ]{1,5}",
            raw in "[ab. ]{0,24}",
        ) {
            let found = Phrase::new(phrase.as_bytes()).is_in(raw.as_bytes());
            prop_assert_eq!(found, plainly(phrase.as_bytes(), raw.as_bytes()));
        }
    }
}
