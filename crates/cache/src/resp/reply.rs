//! Writes replies in RESP2 or RESP3 to the end of an output buffer.
//!
//! Invariant: types that only RESP3 has are written to RESP2 clients as these expect them (a map as
//! an array of twice its pairs, a double as a bulk string, a boolean as 1 or 0), so that a command
//! writes one reply for both.

use crate::number;

/// The version of the protocol a connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Proto {
    /// The version when a connection starts.
    #[default]
    Resp2,
    /// After `HELLO 3`.
    Resp3,
}

/// The output of a connection.
#[derive(Debug, Clone, Default)]
pub struct Reply {
    buf: Vec<u8>,
    proto: Proto,
}

/// Where an aggregate of unknown length began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "an aggregate that was begun must be ended"]
pub struct Begun(usize);

impl Reply {
    /// An empty output.
    #[must_use]
    pub const fn new(proto: Proto) -> Self {
        Self { buf: Vec::new(), proto }
    }

    /// Returns an output that appends to `buf`.
    #[must_use]
    pub const fn with_buffer(buf: Vec<u8>, proto: Proto) -> Self {
        Self { buf, proto }
    }

    /// The version written.
    #[must_use]
    pub const fn proto(&self) -> Proto {
        self.proto
    }

    /// Changes the version of later replies.
    pub const fn set_proto(&mut self, proto: Proto) {
        self.proto = proto;
    }

    /// Everything written.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.buf
    }

    /// The buffer itself, for sending.
    pub const fn buffer_mut(&mut self) -> &mut Vec<u8> {
        &mut self.buf
    }

    /// Takes everything written, with its buffer.
    #[must_use]
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.buf)
    }

    /// Bytes written.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buf.len()
    }

    /// Whether nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buf.is_empty()
    }

    /// Removes everything after the first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.buf.truncate(len);
    }

    /// Appends a reply, or a part of one, that is already encoded.
    #[inline]
    pub fn raw(&mut self, encoded: &[u8]) {
        self.buf.extend_from_slice(encoded);
    }

    /// Appends a long reply that is already encoded, without a copy if it is the first.
    pub fn adopt(&mut self, encoded: Vec<u8>) {
        if self.buf.is_empty() {
            self.buf = encoded;
        } else {
            self.buf.extend_from_slice(&encoded);
        }
    }

    /// `+OK`.
    #[inline]
    pub fn ok(&mut self) {
        self.buf.extend_from_slice(b"+OK\r\n");
    }

    /// A simple string. Line ends in it become spaces.
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// An error, its code first (`ERR no such key`). Line ends in it become spaces.
    pub fn error(&mut self, text: &str) {
        self.line(b'-', text.as_bytes());
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        self.buf.push(kind);
        let start = self.buf.len();
        self.buf.extend_from_slice(text);
        for byte in self.buf.iter_mut().skip(start) {
            if matches!(byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
        self.buf.extend_from_slice(b"\r\n");
    }

    /// An integer.
    #[inline]
    pub fn int(&mut self, value: i64) {
        match value {
            0 => self.buf.extend_from_slice(b":0\r\n"),
            1 => self.buf.extend_from_slice(b":1\r\n"),
            _ => self.header(b':', value),
        }
    }

    /// A count, as an integer.
    #[inline]
    pub fn count(&mut self, count: usize) {
        self.int(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// A bulk string.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.buf.reserve(bytes.len() + 26);
        self.size(b'$', bytes.len());
        self.buf.extend_from_slice(bytes);
        self.buf.extend_from_slice(b"\r\n");
    }

    /// A bulk string of `len` bytes, which `fill` appends.
    ///
    /// # Panics
    /// If it appends more or fewer bytes: the client would misread what follows.
    pub fn bulk_with(&mut self, len: usize, fill: impl FnOnce(&mut Vec<u8>)) {
        // `fill` may temporarily need a little more.
        self.buf.reserve(len + 128);
        self.size(b'$', len);
        let end = self.buf.len() + len;
        fill(&mut self.buf);
        assert_eq!(self.buf.len(), end, "a string is as long as was said");
        self.buf.extend_from_slice(b"\r\n");
    }

    /// A bulk string, or null.
    #[inline]
    pub fn bulk_or_null(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    /// An integer as a bulk string.
    pub fn bulk_int(&mut self, value: i64) {
        self.bulk(itoa::Buffer::new().format(value).as_bytes());
    }

    /// Null in place of a string.
    #[inline]
    pub fn null(&mut self) {
        self.buf.extend_from_slice(match self.proto {
            Proto::Resp2 => b"$-1\r\n",
            Proto::Resp3 => b"_\r\n",
        });
    }

    /// Null in place of an array.
    #[inline]
    pub fn null_array(&mut self) {
        self.buf.extend_from_slice(match self.proto {
            Proto::Resp2 => b"*-1\r\n",
            Proto::Resp3 => b"_\r\n",
        });
    }

    /// Begins an array of `count` replies, written next.
    #[inline]
    pub fn array(&mut self, count: usize) {
        self.size(b'*', count);
    }

    /// Begins a map of `pairs` keys and values, written next in turn.
    #[inline]
    pub fn map(&mut self, pairs: usize) {
        match self.proto {
            Proto::Resp2 => self.size(b'*', pairs * 2),
            Proto::Resp3 => self.size(b'%', pairs),
        }
    }

    /// Begins a set of `count` replies, written next.
    #[inline]
    pub fn set(&mut self, count: usize) {
        self.size(self.kind(b'~'), count);
    }

    /// Begins a push message of `count` replies, written next.
    #[inline]
    pub fn push(&mut self, count: usize) {
        self.size(self.kind(b'>'), count);
    }

    /// A floating point number: the shortest text that parses to the same value.
    pub fn double(&mut self, value: f64) {
        let text = number::Double::new(value);
        match self.proto {
            Proto::Resp2 => self.bulk(text.as_bytes()),
            Proto::Resp3 => self.line(b',', text.as_bytes()),
        }
    }

    /// True or false.
    pub fn bool(&mut self, value: bool) {
        match self.proto {
            Proto::Resp2 => self.int(value.into()),
            Proto::Resp3 => self.buf.extend_from_slice(if value { b"#t\r\n" } else { b"#f\r\n" }),
        }
    }

    /// An integer too big for 64 bits, in decimal digits.
    pub fn big(&mut self, digits: &[u8]) {
        match self.proto {
            Proto::Resp2 => self.bulk(digits),
            Proto::Resp3 => self.line(b'(', digits),
        }
    }

    /// Text for people; `format` is `txt` or `mkd`.
    pub fn verbatim(&mut self, format: [u8; 3], text: &[u8]) {
        match self.proto {
            Proto::Resp2 => self.bulk(text),
            Proto::Resp3 => {
                self.size(b'=', text.len() + 4);
                self.buf.extend_from_slice(&format);
                self.buf.push(b':');
                self.buf.extend_from_slice(text);
                self.buf.extend_from_slice(b"\r\n");
            }
        }
    }

    /// Begins an array, map or set whose length is given at its end.
    #[inline]
    pub fn begin(&mut self) -> Begun {
        let at = self.buf.len();
        // Room for a length of one digit; a longer one moves what was written since.
        self.buf.extend_from_slice(b"*0\r\n");
        Begun(at)
    }

    /// Ends an array of `count` replies.
    pub fn end_array(&mut self, begun: Begun, count: usize) {
        self.patch(begun, b'*', count);
    }

    /// Ends a map of `pairs` keys and values.
    pub fn end_map(&mut self, begun: Begun, pairs: usize) {
        match self.proto {
            Proto::Resp2 => self.patch(begun, b'*', pairs * 2),
            Proto::Resp3 => self.patch(begun, b'%', pairs),
        }
    }

    /// Ends a set of `count` replies.
    pub fn end_set(&mut self, begun: Begun, count: usize) {
        self.patch(begun, self.kind(b'~'), count);
    }

    fn patch(&mut self, Begun(at): Begun, kind: u8, count: usize) {
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(count).bytes();
        // Nothing to fix if the output was truncated before the aggregate.
        if self.buf.len() >= at + 4 {
            self.buf.splice(at..at + 2, std::iter::once(kind).chain(digits));
        }
    }

    /// Returns `kind`, or that of an array for RESP2.
    const fn kind(&self, kind: u8) -> u8 {
        match self.proto {
            Proto::Resp2 => b'*',
            Proto::Resp3 => kind,
        }
    }

    #[inline]
    fn size(&mut self, kind: u8, size: usize) {
        match u8::try_from(size) {
            // Most lengths have one or two digits.
            Ok(size @ 0..=9) => self.buf.extend_from_slice(&[kind, b'0' + size, b'\r', b'\n']),
            Ok(size @ 10..=99) => {
                let digits = [kind, b'0' + size / 10, b'0' + size % 10, b'\r', b'\n'];
                self.buf.extend_from_slice(&digits);
            }
            _ => self.header(kind, size),
        }
    }

    fn header(&mut self, kind: u8, value: impl itoa::Integer) {
        self.buf.push(kind);
        self.buf.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
        self.buf.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(proto: Proto, write: impl FnOnce(&mut Reply)) -> String {
        let mut reply = Reply::new(proto);
        write(&mut reply);
        String::from_utf8(reply.take()).unwrap()
    }

    fn check(write: impl Fn(&mut Reply), resp2: &str, resp3: &str) {
        assert_eq!(written(Proto::Resp2, &write), resp2);
        assert_eq!(written(Proto::Resp3, &write), resp3);
    }

    #[test]
    fn every_type_is_written_in_both_versions() {
        check(|r| r.simple("PONG"), "+PONG\r\n", "+PONG\r\n");
        check(|r| r.error("ERR a\r\nb"), "-ERR a  b\r\n", "-ERR a  b\r\n");
        check(|r| r.int(-7), ":-7\r\n", ":-7\r\n");
        check(|r| r.int(i64::MIN), ":-9223372036854775808\r\n", ":-9223372036854775808\r\n");
        check(|r| r.bulk(b"a\r\n"), "$3\r\na\r\n\r\n", "$3\r\na\r\n\r\n");
        check(|r| r.bulk(b""), "$0\r\n\r\n", "$0\r\n\r\n");
        let hello = |buf: &mut Vec<u8>| buf.extend_from_slice(b"hello");
        check(|r| r.bulk_with(5, hello), "$5\r\nhello\r\n", "$5\r\nhello\r\n");
        check(Reply::null, "$-1\r\n", "_\r\n");
        check(Reply::null_array, "*-1\r\n", "_\r\n");
        check(|r| r.array(12), "*12\r\n", "*12\r\n");
        check(|r| r.map(3), "*6\r\n", "%3\r\n");
        check(|r| r.set(123), "*123\r\n", "~123\r\n");
        check(|r| r.push(3), "*3\r\n", ">3\r\n");
        check(|r| r.double(1.5), "$3\r\n1.5\r\n", ",1.5\r\n");
        check(|r| r.double(f64::NEG_INFINITY), "$4\r\n-inf\r\n", ",-inf\r\n");
        check(|r| r.bool(true), ":1\r\n", "#t\r\n");
        check(|r| r.bool(false), ":0\r\n", "#f\r\n");
        check(|r| r.big(b"123"), "$3\r\n123\r\n", "(123\r\n");
        check(|r| r.verbatim(*b"txt", b"hi"), "$2\r\nhi\r\n", "=6\r\ntxt:hi\r\n");
    }

    #[test]
    fn a_length_known_last_is_written_first() {
        for (count, head) in [(0, "*0\r\n"), (7, "*7\r\n"), (10, "*10\r\n"), (1234, "*1234\r\n")] {
            let text = written(Proto::Resp2, |reply| {
                reply.ok();
                let begun = reply.begin();
                (0..count).for_each(|_| reply.int(1));
                reply.end_array(begun, count);
            });
            assert_eq!(text, format!("+OK\r\n{head}{}", ":1\r\n".repeat(count)));
        }
    }

    #[test]
    fn deferred_aggregates_nest() {
        let nested = |reply: &mut Reply| {
            let outer = reply.begin();
            for _ in 0..12 {
                let inner = reply.begin();
                reply.bulk(b"f");
                reply.bulk(b"v");
                reply.end_map(inner, 1);
            }
            reply.end_set(outer, 12);
        };
        let pair = "$1\r\nf\r\n$1\r\nv\r\n";
        let resp2 = format!("*12\r\n{}", format!("*2\r\n{pair}").repeat(12));
        let resp3 = format!("~12\r\n{}", format!("%1\r\n{pair}").repeat(12));
        check(nested, &resp2, &resp3);
    }
}
