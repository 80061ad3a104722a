//! Parsing requests: arrays of bulk strings (`*2\r\n$3\r\nGET\r\n$1\r\nk\r\n`) and inline commands
//! (`GET k\r\n`, with the quotes of a shell).
//!
//! Invariants:
//! - Nothing is copied: arguments are ranges of the input. Only an inline command with quotes or
//!   escapes is unescaped into a buffer that [`Args`] keeps for it.
//! - No argument is scanned twice, however many reads it takes to arrive: [`Args`] remembers where
//!   parsing stopped, relative to the start of the request. Only the few bytes of a header may be.
//! - Memory grows with the bytes received, never with an announced length alone.
//! - No input panics. As in Redis, the `\n` after `\r` and the two bytes after an argument are
//!   skipped unread.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use thiserror::Error;

use crate::number;

/// Limits of a client's requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of arguments of a request.
    pub args_max: usize,
    /// Maximum size of an argument in bytes.
    pub arg_size_max: usize,
    /// Maximum size in bytes of an inline command, and of the line that announces a length.
    pub inline_size_max: usize,
    /// Whether the client has yet to authenticate: it may send 10 arguments of 16 KiB.
    pub unauthenticated: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            args_max: 1 << 20,
            arg_size_max: 512 << 20,
            inline_size_max: 64 << 10,
            unauthenticated: false,
        }
    }
}

const UNAUTHENTICATED_ARGS_MAX: usize = 10;
const UNAUTHENTICATED_ARG_SIZE_MAX: usize = 16 << 10;

/// The result of [`parse()`] at the start of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parsed {
    /// The beginning of a request. Call again with the same bytes and more.
    Incomplete {
        /// Minimum size of the input for the next call; 0 if unknown.
        need: usize,
    },
    /// A request with at least one argument; its arguments are in [`Args`].
    Request {
        /// Bytes of input consumed.
        consumed: usize,
    },
    /// An empty request, which gets no reply.
    Empty {
        /// Bytes of input consumed.
        consumed: usize,
    },
}

/// A violation of the protocol. The texts are those of Redis, to be sent after `ERR `; the
/// connection is closed afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The number of arguments is not a number, or exceeds [`Limits::args_max`].
    #[error("Protocol error: invalid multibulk length")]
    ArgumentCount,
    /// More arguments than a client may send before it has authenticated.
    #[error("Protocol error: unauthenticated multibulk length")]
    UnauthenticatedCount,
    /// The length of an argument is not a number, or exceeds [`Limits::arg_size_max`].
    #[error("Protocol error: invalid bulk length")]
    ArgumentLength,
    /// A longer argument than a client may send before it has authenticated.
    #[error("Protocol error: unauthenticated bulk length")]
    UnauthenticatedLength,
    /// An argument does not begin with `$`.
    #[error("Protocol error: expected '$', got '{}'", .0.escape_ascii())]
    ExpectedDollar(u8),
    /// A quote of an inline command is not closed, or followed by something other than a space.
    #[error("Protocol error: unbalanced quotes in request")]
    UnbalancedQuotes,
    /// The line with the number of arguments does not end.
    #[error("Protocol error: too big mbulk count string")]
    CountLine,
    /// The line with the length of an argument does not end.
    #[error("Protocol error: too big bulk count string")]
    LengthLine,
    /// An inline command longer than [`Limits::inline_size_max`].
    #[error("Protocol error: too big inline request")]
    InlineSize,
}

/// The position of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    start: usize,
    len: usize,
}

/// How far a request has been parsed. Positions count from its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing has been parsed; the first `seen` bytes contain no line end.
    Start { seen: usize },
    /// `left` arguments are missing, and the next begins at `at`; `seen` bytes from there contain
    /// no line end.
    Arguments { left: usize, at: usize, seen: usize },
    /// As above, but the length of the next argument is known, and its bytes begin at `at`.
    Bytes { left: usize, at: usize, len: usize },
}

/// The arguments of a request, and the position where parsing stopped. Kept for a connection's
/// lifetime, so that requests need no allocation.
#[derive(Debug, Clone)]
pub struct Args {
    ranges: Vec<Range>,
    /// Arguments that had to be unescaped; then all ranges refer to it.
    unescaped: Vec<u8>,
    is_unescaped: bool,
    state: State,
}

/// Capacity for ranges and unescaped bytes kept for the next request; more is freed.
const RANGES_KEPT: usize = 1024;
const UNESCAPED_KEPT: usize = 4096;

impl Default for Args {
    fn default() -> Self {
        Self::new()
    }
}

impl Args {
    /// No arguments, at the start of a request.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            ranges: Vec::new(),
            unescaped: Vec::new(),
            is_unescaped: false,
            state: State::Start { seen: 0 },
        }
    }

    /// Returns the number of arguments, including the command's name.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether there are none.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the argument at `index`, or an empty one if there is none. `input` is what was
    /// parsed, from the same first byte on.
    #[must_use]
    #[inline]
    pub fn get<'a>(&'a self, input: &'a [u8], index: usize) -> &'a [u8] {
        let Some(range) = self.ranges.get(index) else { return &[] };
        let source = if self.is_unescaped { &self.unescaped } else { input };
        source.get(range.start..range.start + range.len).unwrap_or_default()
    }

    /// All arguments, in order.
    pub fn iter<'a>(&'a self, input: &'a [u8]) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone {
        (0..self.ranges.len()).map(move |index| self.get(input, index))
    }

    /// Bytes of memory kept.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.ranges.capacity() * size_of::<Range>() + self.unescaped.capacity()
    }

    /// Removes the arguments and the state of a partial request.
    #[inline]
    pub fn reset(&mut self) {
        self.ranges.clear();
        self.is_unescaped = false;
        self.state = State::Start { seen: 0 };
        if self.ranges.capacity() > RANGES_KEPT {
            self.ranges.shrink_to(RANGES_KEPT);
        }
        if self.unescaped.capacity() > UNESCAPED_KEPT {
            self.unescaped = Vec::new();
        }
    }
}

/// Finds the first request of `input`.
///
/// After [`Parsed::Incomplete`], call again with the same bytes followed by more; they may have
/// moved in memory. After any other result the next call starts a new request, and its input should
/// begin `consumed` bytes later.
///
/// # Errors
/// The client violates the protocol; nothing after this can be parsed.
#[inline]
pub fn parse(input: &[u8], limits: &Limits, args: &mut Args) -> Result<Parsed, ProtocolError> {
    if let State::Start { seen } = args.state {
        if seen == 0 {
            args.reset();
        }
        match input.first() {
            None => return Ok(Parsed::Incomplete { need: 0 }),
            Some(b'*') => {}
            Some(_) => return finish(inline(input, seen, limits, args), args),
        }
    }
    finish(array(input, limits, args), args)
}

/// The next call starts a new request, unless this one is incomplete.
#[inline]
fn finish(parsed: Result<Parsed, ProtocolError>, args: &mut Args) -> Result<Parsed, ProtocolError> {
    if !matches!(parsed, Ok(Parsed::Incomplete { .. })) {
        args.state = State::Start { seen: 0 };
    }
    parsed
}

/// A line of a type byte and a number.
enum Header {
    /// Its end has not arrived; this many bytes contain no `\r`.
    Incomplete(usize),
    /// Its number, and where the next line begins.
    Number(usize, usize),
    /// A negative number, and where the next line begins.
    Negative(usize),
    /// Something else.
    Invalid,
}

/// Parses the header at `at`, of which the first `seen` bytes contain no `\r`.
#[inline]
fn header(input: &[u8], at: usize, seen: usize) -> Header {
    // Ten digits cover every length that can be accepted; longer numbers take the slow path.
    let line = input.get(at + 1..).unwrap_or_default();
    let mut number = 0usize;
    for (index, &byte) in line.iter().take(11).enumerate() {
        match byte {
            b'0'..=b'9' => number = number * 10 + usize::from(byte - b'0'),
            b'\r' => {
                if line.len() < index + 2 {
                    return Header::Incomplete(1 + index);
                }
                let leading_zero = index > 1 && line.first() == Some(&b'0');
                if index == 0 || leading_zero {
                    return Header::Invalid;
                }
                return Header::Number(number, at + 1 + index + 2);
            }
            _ => break,
        }
    }
    header_slow(input, at, seen)
}

/// As [`header`], for signs, long numbers, errors and incomplete lines.
#[cold]
fn header_slow(input: &[u8], at: usize, seen: usize) -> Header {
    let line = input.get(at..).unwrap_or_default();
    let Some(found) = memchr::memchr(b'\r', line.get(seen..).unwrap_or_default()) else {
        return Header::Incomplete(line.len());
    };
    let end = seen + found;
    if line.len() < end + 2 {
        return Header::Incomplete(end);
    }
    match number::parse_i64(line.get(1..end).unwrap_or_default()) {
        None => Header::Invalid,
        Some(number) if number < 0 => Header::Negative(at + end + 2),
        // What does not fit cannot be accepted either.
        Some(number) => Header::Number(usize::try_from(number).unwrap_or(usize::MAX), at + end + 2),
    }
}

fn array(input: &[u8], limits: &Limits, args: &mut Args) -> Result<Parsed, ProtocolError> {
    let (mut left, mut at, mut seen) = match args.state {
        State::Start { seen } => match count(input, seen, limits)? {
            Count::Incomplete(seen) => {
                args.state = State::Start { seen };
                return Ok(Parsed::Incomplete { need: 0 });
            }
            Count::Of(0, consumed) => return Ok(Parsed::Empty { consumed }),
            Count::Of(count, at) => (count, at, 0),
        },
        State::Arguments { left, at, seen } => (left, at, seen),
        State::Bytes { left, at, len } => {
            if input.len() < at + len + 2 {
                return Ok(Parsed::Incomplete { need: at + len + 2 });
            }
            args.ranges.push(Range { start: at, len });
            (left - 1, at + len + 2, 0)
        }
    };
    while left > 0 {
        if let Some(error) = wrong_type(input, at) {
            return Err(error);
        }
        let (len, start) = match header(input, at, seen) {
            Header::Number(len, start) => (len, start),
            Header::Incomplete(seen) => {
                return incomplete_length(input, at, left, seen, limits, args);
            }
            Header::Negative(_) | Header::Invalid => {
                return Err(ProtocolError::ArgumentLength);
            }
        };
        if len > limits.arg_size_max {
            return Err(ProtocolError::ArgumentLength);
        }
        if limits.unauthenticated && len > UNAUTHENTICATED_ARG_SIZE_MAX {
            return Err(ProtocolError::UnauthenticatedLength);
        }
        let next = start.saturating_add(len).saturating_add(2);
        if input.len() < next {
            args.state = State::Bytes { left, at: start, len };
            return Ok(Parsed::Incomplete { need: next });
        }
        args.ranges.push(Range { start, len });
        (left, at, seen) = (left - 1, next, 0);
    }
    Ok(Parsed::Request { consumed: at })
}

/// The number of arguments.
enum Count {
    /// Its line is incomplete; this many bytes contain no `\r`.
    Incomplete(usize),
    /// The number, and where the first argument begins.
    Of(usize, usize),
}

#[inline]
fn count(input: &[u8], seen: usize, limits: &Limits) -> Result<Count, ProtocolError> {
    match header(input, 0, seen) {
        Header::Incomplete(_) if input.len() > limits.inline_size_max => {
            Err(ProtocolError::CountLine)
        }
        Header::Incomplete(seen) => Ok(Count::Incomplete(seen)),
        Header::Invalid => Err(ProtocolError::ArgumentCount),
        Header::Negative(next) => Ok(Count::Of(0, next)),
        Header::Number(count, _) if count > limits.args_max => Err(ProtocolError::ArgumentCount),
        Header::Number(count, _) if limits.unauthenticated && count > UNAUTHENTICATED_ARGS_MAX => {
            Err(ProtocolError::UnauthenticatedCount)
        }
        Header::Number(count, next) => Ok(Count::Of(count, next)),
    }
}

/// Records that the length of the argument at `at` is incomplete.
#[cold]
fn incomplete_length(
    input: &[u8],
    at: usize,
    left: usize,
    seen: usize,
    limits: &Limits,
    args: &mut Args,
) -> Result<Parsed, ProtocolError> {
    if input.len() - at.min(input.len()) > limits.inline_size_max {
        return Err(ProtocolError::LengthLine);
    }
    args.state = State::Arguments { left, at, seen };
    Ok(Parsed::Incomplete { need: 0 })
}

#[inline]
fn wrong_type(input: &[u8], at: usize) -> Option<ProtocolError> {
    match input.get(at) {
        Some(b'$') | None => None,
        Some(&other) => Some(ProtocolError::ExpectedDollar(other)),
    }
}

/// An inline command: a line of words.
fn inline(
    input: &[u8],
    seen: usize,
    limits: &Limits,
    args: &mut Args,
) -> Result<Parsed, ProtocolError> {
    let Some(found) = memchr::memchr(b'\n', input.get(seen..).unwrap_or_default()) else {
        if input.len() > limits.inline_size_max {
            return Err(ProtocolError::InlineSize);
        }
        args.state = State::Start { seen: input.len() };
        return Ok(Parsed::Incomplete { need: 0 });
    };
    let consumed = seen + found + 1;
    // Refused however it is split into reads.
    if consumed - 1 > limits.inline_size_max {
        return Err(ProtocolError::InlineSize);
    }
    let line = input.get(..consumed - 1).unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    args.reset();
    if line.iter().any(|byte| matches!(byte, b'"' | b'\'')) {
        quoted_words(line, args)?;
    } else {
        plain_words(line, args);
    }
    if args.len() > limits.args_max {
        return Err(ProtocolError::ArgumentCount);
    }
    Ok(if args.is_empty() { Parsed::Empty { consumed } } else { Parsed::Request { consumed } })
}

/// C's `isspace`.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

fn plain_words(line: &[u8], args: &mut Args) {
    let mut start = 0;
    for word in line.split(|&byte| is_space(byte)) {
        if !word.is_empty() {
            args.ranges.push(Range { start, len: word.len() });
        }
        start += word.len() + 1;
    }
}

/// Splits as Redis' `sdssplitargs`: `"..."` with `\n \r \t \b \a \xHH` and `\` before anything
/// else, `'...'` with `\'` only; a closing quote ends its word.
fn quoted_words(line: &[u8], args: &mut Args) -> Result<(), ProtocolError> {
    args.is_unescaped = true;
    args.unescaped.clear();
    let mut rest = line;
    loop {
        while let Some((&byte, tail)) = rest.split_first().filter(|(byte, _)| is_space(**byte)) {
            debug_assert!(is_space(byte));
            rest = tail;
        }
        if rest.is_empty() {
            return Ok(());
        }
        let start = args.unescaped.len();
        rest = quoted_word(rest, &mut args.unescaped)?;
        args.ranges.push(Range { start, len: args.unescaped.len() - start });
    }
}

/// Appends the first word of `rest` to `word` and returns what comes after it.
fn quoted_word<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    while let Some((&byte, tail)) = rest.split_first() {
        match byte {
            b'"' => return closed(double_quoted(tail, word)?),
            b'\'' => return closed(single_quoted(tail, word)?),
            byte if is_space(byte) => return Ok(tail),
            byte => word.push(byte),
        }
        rest = tail;
    }
    Ok(rest)
}

/// A closing quote must be followed by a space or the end.
fn closed(rest: &[u8]) -> Result<&[u8], ProtocolError> {
    match rest.first() {
        Some(&byte) if !is_space(byte) => Err(ProtocolError::UnbalancedQuotes),
        _ => Ok(rest),
    }
}

fn double_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    loop {
        rest = match rest {
            [b'"', tail @ ..] => return Ok(tail),
            [b'\\', b'x', high, low, tail @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                word.push(hex(*high) << 4 | hex(*low));
                tail
            }
            [b'\\', escaped, tail @ ..] => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                tail
            }
            [byte, tail @ ..] => {
                word.push(*byte);
                tail
            }
            [] => return Err(ProtocolError::UnbalancedQuotes),
        };
    }
}

fn single_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    loop {
        rest = match rest {
            [b'\\', b'\'', tail @ ..] => {
                word.push(b'\'');
                tail
            }
            [b'\'', tail @ ..] => return Ok(tail),
            [byte, tail @ ..] => {
                word.push(*byte);
                tail
            }
            [] => return Err(ProtocolError::UnbalancedQuotes),
        };
    }
}

/// The value of a hexadecimal digit.
fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit.wrapping_sub(b'A').wrapping_add(10),
    }
}

#[cfg(test)]
mod tests;
