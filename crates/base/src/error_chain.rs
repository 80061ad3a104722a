//! Prints an error together with all its causes.
//!
//! Errors in this workspace never repeat their source in `Display`, so the joined chain reports
//! each cause once. Foreign errors sometimes repeat it: a message with which the previous message
//! already ends is left out.
//!
//! Invariants: the result is one line without control characters, since a message may contain names
//! from outside; it has at most [`CHAIN_SIZE_MAX`] bytes, since a name may be long.

use std::{error::Error, fmt};

use crate::printable::printable;

/// Maximum size in bytes of a printed chain. Of a longer one the middle is left out.
pub const CHAIN_SIZE_MAX: usize = 8 << 10;
/// Size of the note in its place, and of the end that is kept.
const NOTE_SIZE: usize = 64;
const TAIL_SIZE: usize = 2 << 10;
/// Further lines of an error of PostgreSQL, which follow on the same line.
const PARTS: [(&str, &str); 2] = [("\nDETAIL: ", "; DETAIL: "), ("\nHINT: ", "; HINT: ")];

/// Returns `error` and its sources as one line, joined by `": "`.
///
/// ```
/// use forebay_base::error_chain::chain;
/// let error = std::io::Error::other("disk on fire");
/// assert_eq!(chain(&error).to_string(), "disk on fire");
/// ```
pub fn chain(error: &dyn Error) -> impl fmt::Display {
    Chain(error)
}

struct Chain<'a>(&'a dyn Error);

impl Chain<'_> {
    fn whole(&self) -> String {
        let mut said = self.0.to_string();
        let mut whole = said.clone();
        let mut next = self.0.source();
        while let Some(error) = next {
            let message = error.to_string();
            if !said.ends_with(&message) {
                whole.push_str(": ");
                whole.push_str(&message);
                said = message;
            }
            next = error.source();
        }
        whole
    }
}

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = PARTS.iter().fold(self.whole(), |text, (from, to)| text.replace(from, to));
        let shown = printable(&whole);
        if shown.len() <= CHAIN_SIZE_MAX {
            return f.write_str(&shown);
        }
        let head = shown.floor_char_boundary(CHAIN_SIZE_MAX - TAIL_SIZE - NOTE_SIZE);
        let tail = shown.ceil_char_boundary(shown.len() - TAIL_SIZE);
        let (before, left) = shown.split_at(head);
        let (left, after) = left.split_at(tail - head);
        write!(f, "{before} ... ({} bytes left out) ... {after}", left.len())
    }
}

/// Returns `error` and its sources, joined by `": "`, with the line ends that they contain.
///
/// For errors whose messages have several lines, and no line end from outside.
pub fn lines(error: &dyn Error) -> String {
    Chain(error).whole()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Link(&'static str, #[source] Option<Box<Link>>);

    fn link(message: &'static str, source: Option<Link>) -> Link {
        Link(message, source.map(Box::new))
    }

    #[test]
    fn names_with_line_ends_and_long_ones_make_one_line_with_a_maximum_size() {
        let error = link("ERROR: no\nDETAIL: Key (a)=(\u{1b}[31m\nERROR x)\nHINT: y", None);
        assert_eq!(
            chain(&error).to_string(),
            r"ERROR: no; DETAIL: Key (a)=(\u{1b}[31m\nERROR x); HINT: y"
        );
        assert!(lines(&error).contains('\n'));
        for size in [CHAIN_SIZE_MAX / 2, CHAIN_SIZE_MAX, 100_000] {
            let text = format!("cannot open {}: too long", "ä".repeat(size));
            let said = chain(&std::io::Error::other(text)).to_string();
            assert!(said.len() <= CHAIN_SIZE_MAX, "{}", said.len());
            assert!(said.starts_with("cannot open ä") && said.ends_with("ä: too long"), "{said}");
            assert!(said.contains(" bytes left out) "), "{said}");
        }
    }

    #[test]
    fn every_cause_is_said_once() {
        let error = link("open log", Some(link("read header", Some(link("EIO", None)))));
        assert_eq!(chain(&error).to_string(), "open log: read header: EIO");
    }

    #[test]
    fn a_message_that_repeats_its_source_is_not_doubled() {
        let error = link("open log: EIO", Some(link("EIO", Some(link("bad cable", None)))));
        assert_eq!(chain(&error).to_string(), "open log: EIO: bad cable");
    }
}
