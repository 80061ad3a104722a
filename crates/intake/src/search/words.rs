//! The words of a search: what a person types, as expressions of FTS5.
//!
//! ```text
//! words       separated by white space or control characters
//! "a b"       a phrase: these words, one after the other
//! word*       any word that begins with this
//! a-b, f.txt  several words for the index, and therefore a phrase
//! ```
//!
//! Nothing that was typed is syntax of FTS5: each word is quoted, and what has neither letters nor
//! digits is left out.
//!
//! Invariants: an expression is valid FTS5 whatever was typed, and its size is limited; it is bound as
//! a parameter, never spliced into SQL.

use crate::error::IntakeError;

/// Maximum length of what is typed, in bytes.
pub const QUERY_SIZE_MAX: usize = 1_024;
/// Maximum number of words.
pub const WORDS_MAX: usize = 32;
/// Minimum number of letters and digits before a `*`: shorter beginnings match most of an index.
const PREFIX_MIN: usize = 3;
/// Length of the pieces that names are indexed by, in characters.
const PIECE: usize = 3;

/// A word, or a phrase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) text: String,
    /// Whether the last word of the text is only the beginning of one.
    is_prefix: bool,
}

/// The words of a search, at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Words(Vec<Word>);

impl Words {
    /// Reads what was typed.
    pub(super) fn parse(typed: &str) -> Result<Self, IntakeError> {
        let refused = |message: String| Err(IntakeError::rejected("query", message));
        if typed.len() > QUERY_SIZE_MAX {
            let size = typed.len();
            return refused(format!("the search has {size} bytes; the limit is {QUERY_SIZE_MAX}"));
        }
        let words: Vec<Word> =
            split(typed).into_iter().filter(|word| word.text.chars().any(is_part)).collect();
        if words.is_empty() {
            return refused("the search has no word: type at least one letter or digit".to_owned());
        }
        if words.len() > WORDS_MAX {
            let count = words.len();
            return refused(format!("the search has {count} words; the limit is {WORDS_MAX}"));
        }
        let is_short = |word: &&Word| {
            let last = word.text.chars().rev().skip_while(|c| !is_part(*c));
            word.is_prefix && last.take_while(|c| is_part(*c)).count() < PREFIX_MIN
        };
        if words.iter().any(|word| is_short(&word)) {
            return refused(format!("at least {PREFIX_MIN} letters or digits must precede a *"));
        }
        Ok(Self(words))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Word> {
        self.0.iter()
    }

    /// The expression that requires every word in the name, the text, the comment, metadata or tags.
    pub(super) fn of_words(&self) -> String {
        let words: Vec<String> = self.0.iter().map(Word::quoted).collect();
        format!("{{name text about}} : ({})", words.join(" AND "))
    }

    /// The texts that words begin with, as the index has them but for accents.
    pub(super) fn prefixes(&self) -> Vec<String> {
        let prefixes = self.0.iter().filter(|word| word.is_prefix).filter_map(|word| {
            let mut parts = word.text.rsplit(|c: char| !is_part(c) && c != '_');
            parts.find(|part| !part.is_empty()).map(str::to_lowercase)
        });
        prefixes.collect()
    }

    /// The expression that requires every word as a piece of the name; `None` if one of them is too
    /// short for that.
    pub(super) fn of_pieces(&self) -> Option<String> {
        if self.0.iter().any(|word| word.text.chars().count() < PIECE) {
            return None;
        }
        let pieces: Vec<String> = self.0.iter().map(|word| quote(&word.text)).collect();
        Some(pieces.join(" AND "))
    }
}

impl Word {
    fn quoted(&self) -> String {
        let mut quoted = quote(&self.text);
        if self.is_prefix {
            quoted.push_str(" *");
        }
        quoted
    }
}

/// What the index regards as a part of a word.
pub(super) fn is_part(character: char) -> bool {
    character.is_alphanumeric()
}

fn quote(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

/// Splits what was typed into words and phrases.
fn split(typed: &str) -> Vec<Word> {
    let is_space = |c: char| c.is_whitespace() || c.is_control();
    let clean = |text: &str| text.replace(|c: char| c.is_control(), " ");
    let mut words = Vec::new();
    let mut rest = typed.trim_start_matches(is_space);
    while !rest.is_empty() {
        if let Some(phrase) = rest.strip_prefix('"') {
            // A phrase that is not closed extends to the end.
            let (text, after) = phrase.split_once('"').unwrap_or((phrase, ""));
            words.push(Word { text: clean(text), is_prefix: false });
            rest = after;
        } else {
            let end = rest.find(|c| is_space(c) || c == '"').unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            let text = word.trim_end_matches('*');
            words.push(Word { text: text.to_owned(), is_prefix: text.len() < word.len() });
            rest = after;
        }
        rest = rest.trim_start_matches(is_space);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(typed: &str) -> String {
        Words::parse(typed).unwrap().of_words()
    }

    #[test]
    fn words_are_quoted_and_phrases_kept_together() {
        assert_eq!(words("one  two"), r#"{name text about} : ("one" AND "two")"#);
        assert_eq!(
            words(r#"a-b foo.txt "x y"z"#),
            r#"{name text about} : ("a-b" AND "foo.txt" AND "x y" AND "z")"#
        );
        assert_eq!(words("rep* 'x"), r#"{name text about} : ("rep" * AND "'x")"#);
        assert_eq!(words("\"left open"), r#"{name text about} : ("left open")"#);
        assert_eq!(words("a\0b - ** x"), r#"{name text about} : ("a" AND "b" AND "x")"#);
    }

    #[test]
    fn a_search_without_letters_or_beyond_a_limit_is_refused() {
        let long = "x".repeat(QUERY_SIZE_MAX + 1);
        let many = "a ".repeat(WORDS_MAX + 1);
        for typed in ["", " ", "\0", "\"", "\"\"", "- * .", "a*", "foo ab*", &long, &many] {
            assert!(matches!(Words::parse(typed), Err(IntakeError::Rejected { .. })), "{typed:?}");
        }
    }

    #[test]
    fn the_beginning_of_a_word_is_that_of_the_last_part() {
        let words = Words::parse("Foo.BAR* one foo_bar* x").unwrap();
        assert_eq!(words.prefixes(), ["bar", "foo_bar"]);
    }

    #[test]
    fn pieces_of_names_need_three_characters() {
        assert_eq!(Words::parse("v2 report").unwrap().of_pieces(), None);
        let pieces = Words::parse("rep* foo.txt").unwrap().of_pieces();
        assert_eq!(pieces.as_deref(), Some(r#""rep" AND "foo.txt""#));
    }
}
