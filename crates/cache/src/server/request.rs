//! The next request of a connection's input: told apart by its protocol, run by the engine.
//!
//! Invariant: a command that panics ends its connection and nothing else here; what it leaves half
//! done is the engine's to answer for.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;

use super::work::Work;
use crate::engine::{Flow, Session};
use crate::resp::{self, Args, Parsed, Reply};
use crate::text::{self, Line, Lines};

/// How requests are told apart.
#[derive(Debug)]
pub(super) enum Framing {
    Resp(Args),
    Text(Lines),
}

/// What became of the first request of some input.
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
        Framing::Text(lines) => match lines.next(input, work.limits.line_size_max) {
            Line::Whole { consumed, line } => {
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
        tracing::error!("a command panicked: its connection is closed");
        output.truncate(before);
        output.error("ERR this command failed by a bug of the server; see its log");
        Flow::Close
    })
}

/// The same allocation, empty, for slices that live as long as the next input.
fn recycled<'next>(mut slots: Vec<&[u8]>) -> Vec<&'next [u8]> {
    slots.clear();
    slots.into_iter().map(|_| &[][..]).collect()
}
