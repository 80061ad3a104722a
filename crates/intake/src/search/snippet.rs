//! Excerpts: the part of a text around the first word that was searched for.
//!
//! The index does not keep texts, so an excerpt is made from the file as it is read. It is plain text
//! on one line; what shows it escapes it.
//!
//! Invariants: only the first [`SCANNED_MAX`] bytes of a text are looked at; an excerpt has at most
//! about 200 characters, and no control characters.

use super::words::{Words, is_part};

/// Bytes of a text that are searched for a word.
const SCANNED_MAX: usize = 1 << 20;
/// Characters before and after the place that was found.
const BEFORE: usize = 60;
const AFTER: usize = 140;

/// The part of a text around the first place where one of the words is; `None` if none is found.
pub(super) fn snippet(text: &str, words: &Words) -> Option<String> {
    let scanned = text.get(..text.floor_char_boundary(SCANNED_MAX)).unwrap_or(text);
    let characters: Vec<char> = scanned.chars().collect();
    let at = words
        .iter()
        .flat_map(|word| word.text.split(|c| !is_part(c)))
        .filter(|part| !part.is_empty())
        .filter_map(|part| find(&characters, part))
        .min()?;
    let (from, to) = (at.saturating_sub(BEFORE), (at + AFTER).min(characters.len()));
    let mut excerpt = String::new();
    if from > 0 {
        excerpt.push('…');
    }
    let shown: String = characters.get(from..to).unwrap_or_default().iter().collect();
    let shown = shown.replace(|c: char| c.is_control(), " ");
    excerpt.push_str(&shown.split_whitespace().collect::<Vec<_>>().join(" "));
    if to < characters.len() {
        excerpt.push('…');
    }
    Some(excerpt)
}

/// The first place where a word begins with `part`, whatever the case of its letters.
fn find(characters: &[char], part: &str) -> Option<usize> {
    let part: Vec<char> = part.chars().map(folded).collect();
    let mut windows = characters.windows(part.len()).enumerate();
    let found = windows.find(|(at, window)| {
        let begins = at.checked_sub(1).and_then(|before| characters.get(before));
        begins.is_none_or(|before| !is_part(*before))
            && window.iter().zip(&part).all(|(found, wanted)| folded(*found) == *wanted)
    });
    found.map(|(at, _)| at)
}

/// A character without its case, as one character.
fn folded(character: char) -> char {
    match character {
        'A'..='Z' => character.to_ascii_lowercase(),
        _ if character.is_ascii() => character,
        _ => character.to_lowercase().next().unwrap_or(character),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, typed: &str) -> Option<String> {
        snippet(text, &Words::parse(typed).unwrap())
    }

    #[test]
    fn an_excerpt_surrounds_the_first_word_that_is_found() {
        assert_eq!(of("The quick\n\tbrown fox", "BROWN").as_deref(), Some("The quick brown fox"));
        assert_eq!(of("embrown", "brown"), None, "a word begins there");
        assert_eq!(of("straße ÉCOLE", "école").as_deref(), Some("straße ÉCOLE"));
        let long = format!("{} needle {}", "x ".repeat(500), "y\u{1b}".repeat(500));
        let found = of(&long, "missing needle").unwrap();
        assert!(found.starts_with("…x") && found.contains("needle y"), "{found}");
        assert!(found.ends_with('…') && !found.contains('\u{1b}') && found.chars().count() < 210);
    }
}
