//! Splits a line into words.

use std::borrow::Cow;

use thiserror::Error;

/// A quote that is not closed, or is followed by something other than a space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("unbalanced quotes")]
pub(super) struct Unbalanced;

/// Splits at spaces and tabs. A quote opens only at the start of a word, so that `it's` is one.
pub(super) fn split(line: &[u8]) -> Result<Vec<Cow<'_, [u8]>>, Unbalanced> {
    let mut words = Vec::new();
    let mut rest = line;
    loop {
        rest = rest.trim_ascii_start();
        match rest.first() {
            None => return Ok(words),
            Some(&quote @ (b'"' | b'\'')) => {
                let (word, after) = quoted(rest.get(1..).unwrap_or_default(), quote)?;
                words.push(word);
                rest = after;
            }
            Some(_) => {
                let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
                let (word, after) = rest.split_at(end);
                words.push(Cow::Borrowed(word));
                rest = after;
            }
        }
    }
}

/// The word up to its closing quote, and what follows.
fn quoted(text: &[u8], quote: u8) -> Result<(Cow<'_, [u8]>, &[u8]), Unbalanced> {
    let plain = text.iter().position(|&byte| byte == quote || byte == b'\\').ok_or(Unbalanced)?;
    let (head, mut rest) = text.split_at(plain);
    let mut word = Cow::Borrowed(head);
    loop {
        match rest.split_first() {
            Some((&byte, after)) if byte == quote => {
                let ends = after.first().is_none_or(u8::is_ascii_whitespace);
                return if ends { Ok((word, after)) } else { Err(Unbalanced) };
            }
            Some((b'\\', after)) => {
                let (&escaped, after) = after.split_first().ok_or(Unbalanced)?;
                match escaped {
                    b'n' => word.to_mut().push(b'\n'),
                    b't' => word.to_mut().push(b'\t'),
                    b'r' => word.to_mut().push(b'\r'),
                    b'"' | b'\'' | b'\\' => word.to_mut().push(escaped),
                    // An unknown escape: both bytes are literal.
                    other => word.to_mut().extend([b'\\', other]),
                }
                rest = after;
            }
            Some((&byte, after)) => {
                word.to_mut().push(byte);
                rest = after;
            }
            None => return Err(Unbalanced),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: &[&str]) {
        let words = split(line.as_bytes()).unwrap();
        let words: Vec<&[u8]> = words.iter().map(AsRef::as_ref).collect();
        let expected: Vec<&[u8]> = expected.iter().map(|word| word.as_bytes()).collect();
        assert_eq!(words, expected, "{line}");
    }

    #[test]
    fn words_are_split_at_spaces_and_quotes_hold_them() {
        check("SET  key\tvalue ", &["SET", "key", "value"]);
        check("", &[]);
        check(" \t ", &[]);
        check(r#"SET k "hello world""#, &["SET", "k", "hello world"]);
        check("SET k 'say \"hi\"'", &["SET", "k", "say \"hi\""]);
        check(r#"SET k """#, &["SET", "k", ""]);
        check("SET k it's a\"b", &["SET", "k", "it's", "a\"b"]);
        check(r#"SET k "a\n\t\r\"\'\\\q""#, &["SET", "k", "a\n\t\r\"'\\\\q"]);
    }

    #[test]
    fn quotes_that_do_not_close_are_refused() {
        for line in [r#"SET k "abc"#, r#"SET k "abc\"#, r#"SET k "abc"def"#, "SET k '"] {
            assert_eq!(split(line.as_bytes()), Err(Unbalanced), "{line}");
        }
    }
}
