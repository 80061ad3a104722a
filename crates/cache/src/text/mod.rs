//! The plain text protocol: one line per request, one line per reply.
//!
//! ```text
//! SET key [-t TTL] value          OK
//! SETS key [-t TTL] e1 e2 ...     OK            an array; a list to RESP
//! SETX key [-t TTL] f1 v1 ...     OK            an object; a hash to RESP
//! SETNX  SETSNX  SETXNX           OK | NOT_SET  the same, only if there is no such key
//! GET key                         value | [e1 e2] | {"f1":"v1"} | NULL
//! DEL key                         OK | NOT_FOUND
//! KEYS [pattern]                  k1 k2 | EMPTY
//! FLUSHALL                        OK
//! AUTH password                   OK authenticated
//! ```
//!
//! A TTL is a number of seconds, or a number with a unit `s m h d y`, right after the key. A word
//! that begins with `"` or `'` ends at the same quote, with `\n \t \r \" \' \\` inside. Errors are
//! returned as `ERROR` and a reason. Empty lines are ignored.
//!
//! Lines become commands of the engine, the same that RESP clients send, so both see the same keys
//! and everything is logged and limited in the same way.

mod answer;
mod command;
mod reply;
mod ttl;
mod words;

#[cfg(test)]
mod tests;

use crate::engine::{Engine, Flow, Session};
use crate::resp::Reply;

pub(crate) use answer::error;

/// The result of looking for a line at the start of the input.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line<'i> {
    /// A line, without its end.
    Whole {
        /// Bytes of input consumed.
        consumed: usize,
        /// The line.
        line: &'i [u8],
    },
    /// The beginning of a line; more input is needed.
    Partial,
    /// It exceeds the maximum length of a line.
    TooLong,
}

/// Splits lines, and remembers how far an incomplete line was scanned.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    seen: usize,
}

impl Lines {
    /// At the start of a line.
    pub(crate) const fn new() -> Self {
        Self { seen: 0 }
    }

    /// Returns the first line of `input`, at most `size_max` bytes with its end.
    ///
    /// After [`Line::Partial`], call again with the same bytes and more.
    pub(crate) fn next<'i>(&mut self, input: &'i [u8], size_max: usize) -> Line<'i> {
        let fresh = input.get(self.seen..).unwrap_or_default();
        match memchr::memchr(b'\n', fresh) {
            Some(at) if self.seen + at < size_max => {
                let end = std::mem::take(&mut self.seen) + at;
                let line = input.get(..end).unwrap_or_default();
                let line = line.strip_suffix(b"\r").unwrap_or(line);
                Line::Whole { consumed: end + 1, line }
            }
            None if input.len() < size_max => {
                self.seen = input.len();
                Line::Partial
            }
            _ => Line::TooLong,
        }
    }
}

/// Runs one line and appends its reply to `out`.
pub(crate) fn run(line: &[u8], engine: &Engine, session: &mut Session, out: &mut Reply) -> Flow {
    match words::split(line) {
        Ok(words) => match words.split_first() {
            Some((name, rest)) => command::Runner { engine, session, out }.run(name, rest),
            None => Flow::Continue,
        },
        Err(unbalanced) => {
            error(&unbalanced.to_string(), out);
            Flow::Continue
        }
    }
}
