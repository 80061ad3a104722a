//! Lines of `key=value` pairs, as firewalls and loggers write them: Fortinet, `SonicWall`, Sophos,
//! Stormshield, logfmt; and Check Point's `key:"value";`.
//!
//! Invariant: each byte of a line is read a fixed number of times, whatever it holds.

use super::json;
use super::time::{self, When};
use crate::event::Draft;

/// Number of pairs that a line of pairs has at least.
const PAIRS_MIN: usize = 2;
/// Maximum number of bytes before the first pair.
const LEAD_MAX: usize = 128;
/// Maximum number of pairs that are read.
const PAIRS_MAX: usize = 512;

/// Returns the draft of a line of pairs, or `None` if it is none.
pub(super) fn parse(line: &str, now_ms: i64) -> Option<Draft<'_>> {
    let pairs = || Pairs { rest: line };
    let (first, _) = pairs().next()?;
    let lead = first.as_ptr().addr() - line.as_ptr().addr();
    if lead > LEAD_MAX || pairs().take(PAIRS_MIN).count() < PAIRS_MIN {
        return None;
    }
    let mut draft = json::from_pairs(pairs().take(PAIRS_MAX), now_ms);
    if draft.timestamp_ns.is_none()
        && let Some(when) = audit(line)
    {
        draft.timestamp_ns = Some(when.ns);
        draft.time_source = when.source();
    }
    Some(draft)
}

/// The time in the message id of Linux's audit daemon: `msg=audit(1697034772.123:456): `.
fn audit(line: &str) -> Option<When> {
    let start = line.get(..line.len().min(LEAD_MAX))?;
    let (_, rest) = start.split_once("audit(")?;
    let (number, _) = rest.split_once(':')?;
    time::text(number, None)
}

/// The value of a key in a line of pairs.
pub(super) fn value_of<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    Pairs { rest: line }.take(PAIRS_MAX).find(|(known, _)| *known == key).map(|(_, value)| value)
}

/// Whether a line begins with a pair.
pub(super) fn begins(line: &[u8]) -> bool {
    let key = line.iter().take_while(|byte| is_key(**byte)).count();
    (1..=64).contains(&key)
        && line.first().is_some_and(u8::is_ascii_alphabetic)
        && line.get(key) == Some(&b'=')
}

const fn is_key(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'@')
}

/// The pairs of a line.
struct Pairs<'a> {
    rest: &'a str,
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let bytes = self.rest.as_bytes();
            let at = memchr::memchr2(b'=', b':', bytes)?;
            let key = bytes.get(..at)?.iter().rev().take_while(|byte| is_key(**byte)).count();
            let after = self.rest.get(at + 1..)?;
            // A colon separates a pair only before a quote, as Check Point writes it.
            if key == 0 || bytes.get(at) == Some(&b':') && !after.starts_with('"') {
                self.rest = after;
                continue;
            }
            let key = self.rest.get(at - key..at)?;
            let (value, rest) = value(after)?;
            self.rest = rest;
            return Some((key, value));
        }
    }
}

/// The value at the front, and what follows it. A time may hold a space.
fn value(text: &str) -> Option<(&str, &str)> {
    if let Some(inside) = text.strip_prefix('\'')
        && let Some(end) = inside.find(['\'', '"'])
        && inside.as_bytes().get(end) == Some(&b'\'')
    {
        return inside.split_at_checked(end).map(|(value, rest)| (value, &rest[1..]));
    }
    if let Some(inside) = text.strip_prefix('"') {
        let bytes = inside.as_bytes();
        let mut from = 0;
        loop {
            let Some(at) = bytes.get(from..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest))
            else {
                return Some((inside, ""));
            };
            if bytes.get(from + at) == Some(&b'"') {
                return inside.split_at_checked(from + at).map(|(value, rest)| (value, &rest[1..]));
            }
            from += at + 2;
        }
    }
    if text.as_bytes().first().is_some_and(u8::is_ascii_digit)
        && let Some((_, rest)) = time::leading(text.as_bytes(), None)
    {
        return text.split_at_checked(text.len() - rest.len());
    }
    let end = text.find([' ', '\t', ',', ';', '|']).unwrap_or(text.len());
    text.split_at_checked(end)
}
