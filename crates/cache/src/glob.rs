//! Glob patterns, as `KEYS`, `SCAN ... MATCH`, `PSUBSCRIBE` and `CONFIG GET` match them.
//!
//! `*` any bytes, `?` any byte, `[abc]` one of these, `[^abc]` none of these, `[a-z]` one of a
//! range, `\x` the byte x itself. As in Redis' `stringmatchlen`, a class that is not closed ends
//! with the pattern, and a range may be written backwards.
//!
//! Invariant: the time is at most the pattern's length times the text's. Only the last `*` is ever
//! retried: bytes that an earlier one could match in addition, the later one can match instead.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

/// Whether `pattern` matches the whole of `text`.
#[must_use]
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    search(pattern, text, |byte| byte)
}

/// Whether `pattern` matches the whole of `text`, ignoring the case of ASCII letters.
#[must_use]
pub fn matches_ignoring_case(pattern: &[u8], text: &[u8]) -> bool {
    search(pattern, text, |byte| byte.to_ascii_lowercase())
}

fn search(mut pattern: &[u8], mut text: &[u8], fold: impl Fn(u8) -> u8 + Copy) -> bool {
    // What follows the last `*`, and the text at which it was last tried.
    let mut star: Option<(&[u8], &[u8])> = None;
    loop {
        if let Some((b'*', rest)) = pattern.split_first() {
            if rest.is_empty() {
                return true;
            }
            pattern = rest;
            star = Some((rest, text));
            continue;
        }
        let Some((&byte, text_rest)) = text.split_first() else { return pattern.is_empty() };
        if let Some(rest) = one(pattern, byte, fold) {
            (pattern, text) = (rest, text_rest);
            continue;
        }
        let Some((after, [_, later @ ..])) = star else { return false };
        star = Some((after, later));
        (pattern, text) = (after, later);
    }
}

/// The pattern after its first element, if that matches `byte`.
fn one(pattern: &[u8], byte: u8, fold: impl Fn(u8) -> u8) -> Option<&[u8]> {
    let same = |other: u8, rest| (fold(other) == fold(byte)).then_some(rest);
    match pattern {
        [] => None,
        [b'?', rest @ ..] => Some(rest),
        [b'[', b'^', class @ ..] => {
            let (found, rest) = in_class(class, byte, fold);
            (!found).then_some(rest)
        }
        [b'[', class @ ..] => {
            let (found, rest) = in_class(class, byte, fold);
            found.then_some(rest)
        }
        [b'\\', escaped, rest @ ..] => same(*escaped, rest),
        [other, rest @ ..] => same(*other, rest),
    }
}

/// Whether `byte` is in the class that begins here, and the pattern after it.
fn in_class(mut class: &[u8], byte: u8, fold: impl Fn(u8) -> u8) -> (bool, &[u8]) {
    let byte = fold(byte);
    let mut found = false;
    loop {
        class = match class {
            [] => return (found, class),
            [b'\\', escaped, rest @ ..] => {
                found |= fold(*escaped) == byte;
                rest
            }
            [b']', rest @ ..] => return (found, rest),
            [from, b'-', to, rest @ ..] => {
                let (from, to) = (fold(*from.min(to)), fold(*from.max(to)));
                found |= (from..=to).contains(&byte);
                rest
            }
            [other, rest @ ..] => {
                found |= fold(*other) == byte;
                rest
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(pattern: &str, yes: &[&str], no: &[&str]) {
        for text in yes {
            assert!(matches(pattern.as_bytes(), text.as_bytes()), "{pattern:?} {text:?}");
        }
        for text in no {
            assert!(!matches(pattern.as_bytes(), text.as_bytes()), "{pattern:?} {text:?}");
        }
    }

    #[test]
    fn patterns_match_as_redis_documents_them() {
        check("", &[""], &["a"]);
        check("*", &["", "a", "abc"], &[]);
        check("h?llo", &["hello", "hallo"], &["hllo", "heello"]);
        check("h*llo", &["hllo", "heeeello", "hllollo"], &["hell"]);
        check("h[ae]llo", &["hello", "hallo"], &["hillo"]);
        check("h[^e]llo", &["hallo", "h^llo"], &["hello", "hllo"]);
        check("h[a-b]llo", &["hallo", "hbllo"], &["hcllo"]);
        check("h[b-a]llo", &["hallo", "hbllo"], &["hcllo"]);
        check("a\\*b", &["a*b"], &["axb", "a\\*b"]);
        check("[\\]x]", &["]", "x"], &["\\"]);
        check("**a**b**", &["ab", "xaxbx"], &["ba"]);
        check("a\\", &["a\\"], &["a"]);
        // A range that ends with the bracket, which then does not end the class.
        check("[a-]", &["a", "]", "_"], &["b", "-"]);
    }

    #[test]
    fn classes_left_open_end_with_the_pattern() {
        check("[abc", &["a", "c"], &["d", "", "ab"]);
        check("[^", &["a"], &[""]);
        check("[", &[], &["", "["]);
        check("[]", &[], &["", "]"]);
    }

    #[test]
    fn case_is_ignored_where_asked() {
        assert!(matches_ignoring_case(b"MAX*", b"maxmemory"));
        assert!(matches_ignoring_case(b"[A-C]x", b"bX"));
        assert!(!matches(b"MAX*", b"maxmemory"));
    }

    #[test]
    fn hostile_patterns_take_no_longer_than_their_product() {
        let pattern = "a*".repeat(5_000) + "b";
        assert!(!matches(pattern.as_bytes(), "a".repeat(10_000).as_bytes()));
    }

    /// Tries every way of matching a pattern, one after another.
    fn model(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern, text) {
            ([], []) => true,
            ([b'*', rest @ ..], _) => (0..=text.len()).any(|taken| model(rest, &text[taken..])),
            (_, [byte, text @ ..]) => {
                one(pattern, *byte, |byte| byte).is_some_and(|rest| model(rest, text))
            }
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn one_star_tried_again_is_enough(pattern in "[ab*?\\[\\]^\\\\-]{0,10}", text in "[ab\\]]{0,8}") {
            prop_assert_eq!(
                matches(pattern.as_bytes(), text.as_bytes()),
                model(pattern.as_bytes(), text.as_bytes())
            );
        }
    }
}
