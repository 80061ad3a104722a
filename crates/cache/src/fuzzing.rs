//! Protocols and commands for fuzz targets: any bytes go in, nothing panics, the result does not
//! depend on how the bytes are split into reads, and memory stays within its limits.
//!
//! The decoders of files on disk are in [`crate::persist::fuzzing`].

pub use crate::store::compressed;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use forebay_base::clock::ManualClock;

use crate::engine::{Engine, Flow, Mailbox, Notify, Peer, Session, Via};
use crate::resp::{Args, Limits, Parsed, Proto, ProtocolError, Reply, parse};
use crate::store::{Keyspace, Policy, Rules};
use crate::text::{self, Line, Lines};

/// Memory limit of a session's data, and the excess allowed when a command has just run.
const MEMORY_MAX: usize = 4 << 20;
const MEMORY_SLACK: usize = 1 << 20;
/// Maximum size of a word.
const WORD_MAX: usize = 32 << 10;
/// Maximum length of a line of text.
const LINE_MAX: usize = 512;

/// Where the next read ends.
struct Cuts {
    state: u8,
    most: usize,
}

impl Cuts {
    fn next(&mut self) -> usize {
        self.state = self.state.wrapping_mul(73).wrapping_add(41);
        1 + usize::from(self.state) % self.most
    }
}

/// The requests of an input, and how it ended.
type Requests = (Vec<Vec<Vec<u8>>>, Result<usize, ProtocolError>);

/// Parses any bytes as RESP requests: two bytes choose the splits and the limits, the rest is what
/// a client sends.
///
/// # Panics
/// If the splits change the result, or more memory is used than the input justifies: a bug.
pub fn requests(data: &[u8]) {
    let [cut, bounds, input @ ..] = data else { return };
    let mut limits = Limits { unauthenticated: bounds & 1 != 0, ..Limits::default() };
    if bounds & 2 != 0 {
        limits = Limits { args_max: 8, arg_size_max: 64, inline_size_max: 48, ..limits };
    }
    let whole = read(input, &limits, &mut || input.len());
    let mut cuts = Cuts { state: *cut, most: 1 + usize::from(bounds >> 2) };
    let pieces = read(input, &limits, &mut || cuts.next());
    // Which of two faults is found first may depend on the splits.
    let outcome = |(requests, end): Requests| (requests, end.map_err(drop));
    assert_eq!(outcome(whole), outcome(pieces), "the splits change the result");
}

fn read(input: &[u8], limits: &Limits, piece: &mut dyn FnMut() -> usize) -> Requests {
    let (mut args, mut found) = (Args::new(), Vec::new());
    let (mut start, mut end) = (0, 0);
    loop {
        end = input.len().min(end + piece());
        loop {
            let here = &input[start..end];
            let parsed = parse(here, limits, &mut args);
            // An argument needs at least three bytes of input, and its slot sixteen.
            assert!(args.bytes() <= 64 * here.len() + (64 << 10), "more memory than came");
            start += match parsed {
                Err(error) => return (found, Err(error)),
                Ok(Parsed::Incomplete { need }) => {
                    assert!(need == 0 || need > here.len(), "wants what is there");
                    break;
                }
                Ok(Parsed::Empty { consumed }) => consumed,
                Ok(Parsed::Request { consumed }) => {
                    assert!(!args.is_empty() && consumed <= here.len());
                    found.push(args.iter(here).map(<[u8]>::to_vec).collect());
                    consumed
                }
            };
            if start == end {
                break;
            }
        }
        if end == input.len() {
            return (found, Ok(start));
        }
    }
}

/// Parses any bytes as the text protocol: one byte chooses the splits, the rest is what a client
/// sends.
///
/// # Panics
/// If the splits change the replies: a bug.
pub fn text_lines(data: &[u8]) {
    let [cut, input @ ..] = data else { return };
    let whole = answers(input, &mut || input.len());
    let mut cuts = Cuts { state: *cut, most: 1 + usize::from(*cut) };
    let pieces = answers(input, &mut || cuts.next());
    assert_eq!(whole, pieces, "the splits change the result");
}

fn answers(input: &[u8], piece: &mut dyn FnMut() -> usize) -> Vec<u8> {
    let fuzzed = Fuzzed::new(Policy::Lru);
    let mut session = fuzzed.session(Via::Text);
    let (mut lines, mut out) = (Lines::new(), Reply::new(Proto::Resp2));
    let (mut start, mut end) = (0, 0);
    'reading: while end < input.len() {
        end = input.len().min(end + piece().max(1));
        loop {
            match lines.next(&input[start..end], LINE_MAX) {
                Line::Whole { consumed, line } => {
                    start += consumed;
                    let flow = text::run(line, &fuzzed.engine, &mut session, &mut out);
                    fuzzed.check(&out);
                    if flow == Flow::Close {
                        break 'reading;
                    }
                }
                Line::Partial => break,
                Line::TooLong => {
                    out.raw(b"too long");
                    break 'reading;
                }
            }
        }
    }
    fuzzed.engine.close(session);
    out.take()
}

/// Runs any bytes as the requests of two clients: one byte chooses the memory limit, the rest is
/// RESP. The inline command `@` switches to the other client, and `@ n` also advances time by n
/// milliseconds.
///
/// # Panics
/// If a memory limit is exceeded, or anything panics: a bug.
pub fn session(data: &[u8]) {
    let Some((bounds, mut input)) = data.split_first() else { return };
    let policies = [Policy::S3Fifo, Policy::Lru, Policy::NoEviction];
    let policy = policies[usize::from(*bounds) % policies.len()];
    let fuzzed = Fuzzed::new(policy);
    let mut sessions = [fuzzed.session(Via::Resp), fuzzed.session(Via::Resp)];
    let (mut args, mut current) = (Args::new(), 0);
    let limits = Limits { arg_size_max: WORD_MAX, ..Limits::default() };
    while let Ok(Parsed::Request { consumed } | Parsed::Empty { consumed }) =
        parse(input, &limits, &mut args)
    {
        let words: Vec<&[u8]> = args.iter(input).collect();
        input = &input[consumed..];
        if words.first() == Some(&&b"@"[..]) {
            current = 1 - current;
            let ms = words.get(1).and_then(|word| crate::number::parse_i64(word)).unwrap_or(0);
            fuzzed.clock.advance(Duration::from_millis(ms.clamp(0, 1 << 40).unsigned_abs()));
            continue;
        }
        if words.is_empty() {
            continue;
        }
        if !fuzzed.run(&mut sessions[current], &words) {
            break;
        }
    }
    sessions.into_iter().for_each(|session| fuzzed.engine.close(session));
}

/// An engine with little memory.
struct Fuzzed {
    engine: Engine,
    clock: Arc<ManualClock>,
    bounded: bool,
}

#[derive(Debug)]
struct NoNotify;

impl Notify for NoNotify {
    fn notify(&self, _connection: u64) {}
}

impl Fuzzed {
    fn new(policy: Policy) -> Self {
        let clock = Arc::new(ManualClock::new(1_000_000));
        let rules = Rules::new(1);
        rules.set_max_memory(MEMORY_MAX);
        rules.set_policy(policy);
        let engine = Engine::new(Keyspace::new(rules), None, Arc::<ManualClock>::clone(&clock));
        engine.config().word_max.store(WORD_MAX, Relaxed);
        engine.config().output_max.store(MEMORY_MAX, Relaxed);
        Self { engine, clock, bounded: policy != Policy::NoEviction }
    }

    fn session(&self, via: Via) -> Session {
        let peer = Peer { address: "peer".into(), local: "local".into(), via };
        self.engine.session(peer, Arc::new(Mailbox::new(Arc::new(NoNotify), 1)))
    }

    /// Runs a command; returns whether another may follow.
    fn run(&self, session: &mut Session, words: &[&[u8]]) -> bool {
        let mut out = Reply::new(session.protocol);
        self.engine.begin_turn();
        let flow = self.engine.execute(session, words, &mut out);
        self.engine.end_turn();
        if let Flow::Blocked { .. } = flow {
            self.engine.time_out(session, &mut out);
            session.info.mailbox.drain(&mut out);
            self.engine.unblocked(session);
        }
        self.check(&out);
        flow != Flow::Close
    }

    fn check(&self, out: &Reply) {
        let used = self.engine.used_memory();
        assert!(!self.bounded || used <= MEMORY_MAX + MEMORY_SLACK, "{used} bytes of memory");
        // What a connection may leave unread, and what a word of a command may add to it.
        assert!(out.len() <= 16 * MEMORY_MAX, "a reply of {} bytes", out.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_the_same_in_pieces() {
        let inputs: [&[u8]; 6] = [
            b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*0\r\nPING\r\n",
            b"set a \"b c\"\r\nget a\n\n  \r\n*1\r\n$4\r\nPI",
            b"*-1\r\n*1\r\n$-1\r\n",
            b"*3\r\n$1\r\na\r\n:1\r\n",
            b"*99999999999999999999\r\n",
            b"\"open\r\n",
        ];
        for input in inputs {
            for cut in 0..64 {
                for bounds in [0, 1, 2, 3, 12, 255] {
                    requests(&[&[cut, bounds], input].concat());
                }
            }
        }
    }

    #[test]
    fn sessions_and_lines_keep_to_their_bounds() {
        let lines = b"SET a -t 5m \"x y\"\nGET a\r\nSETS l 1 2\nGET l\nKEYS *\n\"\nDEL a\nFLUSHALL";
        (0..80).for_each(|cut| text_lines(&[&[cut][..], lines].concat()));
        let commands =
            b"SET a 1\r\n@\r\nBLPOP l 0\r\n@ 50\r\nMULTI\r\nRPUSH l x\r\nEXEC\r\nHELLO 3\r\n\
            SETRANGE b 30000 x\r\nSRANDMEMBER s -5\r\nSUBSCRIBE c\r\n@\r\nPUBLISH c m\r\nQUIT\r\n";
        (0..3).for_each(|bounds| session(&[&[bounds][..], commands].concat()));
        // Millions of picks from one element: found by fuzzing.
        let picks = b"\x02HSET h f v\r\nHRANDFIELD h -8000000 WITHVALUES\r\nSADD s m\r\n\
            SRANDMEMBER s -9000000\r\nZADD z 1 m\r\nZRANDMEMBER z -9000000\r\n";
        session(picks);
        // A transaction whose replies in total exceed the limit of one reply.
        let many = "GET b\r\n".repeat(3_000);
        let exec = format!("\x02SETRANGE b 30000 x\r\nMULTI\r\n{many}EXEC\r\n");
        session(exec.as_bytes());
        // Elements times patterns, each a long value.
        let (keys, gets) = (" b".repeat(900), " GET *".repeat(300));
        let sort = format!("\x02SETRANGE b 30000 x\r\nRPUSH l{keys}\r\nSORT l BY nosort{gets}\r\n");
        session(sort.as_bytes());
    }
}
