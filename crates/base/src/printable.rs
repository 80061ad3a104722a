//! Text from outside as one line that is safe for a terminal and for a log.
//!
//! Invariant: the result has no control character, neither a line end nor a terminal's code, so that
//! a name cannot look like a line of output.

use std::borrow::Cow;

/// Returns `text` with its control characters escaped as in Rust: `\n`, `\u{1b}`.
///
/// ```
/// use forebay_base::printable::printable;
/// assert_eq!(printable("b\u{1b}[31m\nx.csv"), r"b\u{1b}[31m\nx.csv");
/// ```
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, char::is_control, |character, to| to.extend(character.escape_default()))
}

/// Returns `text` with every control character but line ends and tabs escaped as in JSON
/// (`\u001b`), so that lines of JSON stay valid.
#[must_use]
pub fn lines(text: &str) -> Cow<'_, str> {
    let is_unsafe = |character: char| character.is_control() && !matches!(character, '\n' | '\t');
    escaped(text, is_unsafe, |character, to| {
        to.push_str(&format!("\\u{:04x}", u32::from(character)));
    })
}

fn escaped(
    text: &str,
    is_unsafe: impl Fn(char) -> bool,
    escape: impl Fn(char, &mut String),
) -> Cow<'_, str> {
    if !text.contains(&is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_unsafe(character) {
            escape(character, &mut shown);
        } else {
            shown.push(character);
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_control_character_is_left_and_other_text_stays() {
        assert_eq!(printable("Größe \"x\"\\ 日本"), "Größe \"x\"\\ 日本");
        assert_eq!(printable("a\r\n\tb\u{7f}\u{9b}1m"), r"a\r\n\tb\u{7f}\u{9b}1m");
        assert_eq!(lines("a\r\n\tb\u{7f}\u{9b}1m"), "a\\u000d\n\tb\\u007f\\u009b1m");
    }
}
