//! The next request of a connection's input: delimited by its protocol, run by the engine.
//!
//! Invariant: a command that panics ends only its connection; the engine handles its incomplete
//! changes. A line of HTTP ends its connection before it runs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;

use super::http;
use super::work::Work;
use crate::engine::{Flow, Session};
use crate::resp::{self, Args, Parsed, Reply};
use crate::text::{self, Line, Lines};

/// Maximum length of a line of text before authentication: that of an argument in RESP.
const UNAUTHENTICATED_LINE_MAX: usize = 16 << 10;

/// How requests are delimited.
#[derive(Debug)]
pub(super) enum Framing {
    Resp(Args),
    Text(Lines),
}

/// The result of the first request of some input.
pub(super) enum Step {
    Ran { consumed: usize, flow: Flow },
    Nothing { consumed: usize },
    Partial { needed: usize },
}

/// Parses and executes the first request of `input`.
#[inline]
pub(super) fn step(
    framing: &mut Framing,
    session: &mut Session,
    output: &mut Reply,
    input: &[u8],
    work: &mut Work,
) -> Step {
    match framing {
        Framing::Resp(args) => {
            work.limits.resp.unauthenticated = !session.authenticated;
            match resp::parse(input, &work.limits.resp, args) {
                Ok(Parsed::Request { consumed }) => {
                    if input.first() != Some(&b'*') && is_refused(input, consumed, session, work) {
                        return Step::Ran { consumed: input.len(), flow: Flow::Close };
                    }
                    let mut words: Vec<&[u8]> = std::mem::take(&mut work.words);
                    words.extend(args.iter(input));
                    let flow = guarded(session, output, work, |session, output, work| {
                        work.engine.execute(session, &words, output)
                    });
                    work.words = recycled(words);
                    Step::Ran { consumed, flow }
                }
                Ok(Parsed::Empty { consumed }) => Step::Nothing { consumed },
                Ok(Parsed::Incomplete { need }) => Step::Partial { needed: need },
                Err(error) => {
                    work.counters.protocol_errors.fetch_add(1, Relaxed);
                    output.error(&format!("ERR {error}"));
                    Step::Ran { consumed: input.len(), flow: Flow::Close }
                }
            }
        }
        Framing::Text(lines) => match lines.next(input, line_size_max(session, work)) {
            Line::Whole { consumed, line } => {
                if is_refused(line, line.len(), session, work) {
                    return Step::Ran { consumed: input.len(), flow: Flow::Close };
                }
                let flow = guarded(session, output, work, |session, output, work| {
                    text::run(line, &work.engine, session, output)
                });
                Step::Ran { consumed, flow }
            }
            Line::Partial => Step::Partial { needed: 0 },
            Line::TooLong => {
                work.counters.protocol_errors.fetch_add(1, Relaxed);
                text::error("line too long", output);
                Step::Ran { consumed: input.len(), flow: Flow::Close }
            }
        },
    }
}

/// Maximum length of a line of a text connection: an unauthenticated client may send little.
fn line_size_max(session: &Session, work: &Work) -> usize {
    let max = work.limits.line_size_max;
    if session.authenticated { max } else { max.min(UNAUTHENTICATED_LINE_MAX) }
}

/// Whether the line at the start of `input` is not meant for a cache; counts and logs it if so.
fn is_refused(input: &[u8], len: usize, session: &Session, work: &Work) -> bool {
    if !http::is_foreign(input.get(..len).unwrap_or(input)) {
        return false;
    }
    let counted = work.counters.http_refused.fetch_add(1, Relaxed) + 1;
    if work.counters.http_warned.may(work.now) {
        let client = &session.info.peer.address;
        tracing::warn!(
            ?client,
            counted,
            "a client sent HTTP or TLS to a cache port that supports neither: the connection is \
             closed and no command was run. A web page in a local browser can send such a request"
        );
    }
    true
}

/// Runs a command so that a bug in it ends its connection and no other.
#[inline]
fn guarded(
    session: &mut Session,
    output: &mut Reply,
    work: &Work,
    run: impl FnOnce(&mut Session, &mut Reply, &Work) -> Flow,
) -> Flow {
    let before = output.len();
    catch_unwind(AssertUnwindSafe(|| run(session, output, work))).unwrap_or_else(|_| {
        work.counters.panics.fetch_add(1, Relaxed);
        tracing::error!("a command panicked; its connection is closed");
        output.truncate(before);
        output.error("ERR the command failed because of a server bug; see the server's log");
        Flow::Close
    })
}

/// Returns the same allocation, empty, for slices with the lifetime of the next input.
fn recycled<'next>(mut slots: Vec<&[u8]>) -> Vec<&'next [u8]> {
    slots.clear();
    slots.into_iter().map(|_| &[][..]).collect()
}
