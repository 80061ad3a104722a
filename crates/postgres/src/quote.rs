//! Names and texts in SQL.
//!
//! Invariant: whatever comes from outside enters SQL by way of these functions.

pub use forebay_pgcopy::quote_identifier;

/// `text` as an SQL literal: `'it''s'`; with a space before it, since one with a backslash starts
/// with `E`.
#[must_use]
pub fn literal(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 4);
    quoted.push_str(if text.contains('\\') { " E'" } else { " '" });
    for character in text.chars() {
        if matches!(character, '\'' | '\\') {
            quoted.push(character);
        }
        quoted.push(character);
    }
    quoted.push('\'');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_backslashes_are_doubled() {
        assert_eq!(literal("it's"), " 'it''s'");
        assert_eq!(literal("a\\'; --"), " E'a\\\\''; --'");
    }
}
