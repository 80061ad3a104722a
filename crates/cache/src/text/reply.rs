//! Parses the engine's replies to single commands, in RESP2.

/// A reply, not copied.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer<'r> {
    /// `+OK`, `:1` as text.
    Plain(&'r [u8]),
    Error(&'r [u8]),
    Bulk(&'r [u8]),
    Null,
    Array(Vec<Answer<'r>>),
}

impl<'r> Answer<'r> {
    /// Parses the first reply of `encoded`. `None`: there is none, which the engine never produces.
    pub(super) fn read(encoded: &'r [u8]) -> Option<Self> {
        take(encoded, DEPTH_MAX).map(|(answer, _)| answer)
    }

    /// The bytes of a string or a number.
    pub(super) fn bytes(&self) -> &'r [u8] {
        match self {
            Self::Plain(bytes) | Self::Bulk(bytes) => bytes,
            _ => b"",
        }
    }
}

/// Maximum nesting of replies that commands of this protocol can cause.
const DEPTH_MAX: usize = 4;

fn take(encoded: &[u8], depth: usize) -> Option<(Answer<'_>, &[u8])> {
    let end = memchr::memchr(b'\r', encoded)?;
    let (head, rest) = (encoded.get(..end)?, encoded.get(end + 2..)?);
    let (&kind, text) = head.split_first()?;
    let number = || std::str::from_utf8(text).ok()?.parse::<i64>().ok();
    match kind {
        b'+' | b':' => Some((Answer::Plain(text), rest)),
        b'-' => Some((Answer::Error(text), rest)),
        b'$' => match usize::try_from(number()?) {
            Ok(len) => Some((Answer::Bulk(rest.get(..len)?), rest.get(len + 2..)?)),
            Err(_) => Some((Answer::Null, rest)),
        },
        b'*' => match usize::try_from(number()?) {
            Ok(count) if depth > 0 => {
                let mut rest = rest;
                let mut items = Vec::new();
                for _ in 0..count {
                    let (item, after) = take(rest, depth - 1)?;
                    items.push(item);
                    rest = after;
                }
                Some((Answer::Array(items), rest))
            }
            Ok(_) => None,
            Err(_) => Some((Answer::Null, rest)),
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::Answer;

    #[test]
    fn every_kind_of_reply_is_read_and_half_a_reply_is_none() {
        let read = |text: &'static str| Answer::read(text.as_bytes());
        assert_eq!(read("+OK\r\n"), Some(Answer::Plain(b"OK")));
        assert_eq!(read(":12\r\n"), Some(Answer::Plain(b"12")));
        assert_eq!(read("-ERR no\r\n"), Some(Answer::Error(b"ERR no")));
        assert_eq!(read("$3\r\na\rb\r\n"), Some(Answer::Bulk(b"a\rb")));
        assert_eq!(read("$-1\r\n"), Some(Answer::Null));
        assert_eq!(read("*-1\r\n"), Some(Answer::Null));
        let nested = Answer::Array(vec![Answer::Bulk(b"a"), Answer::Array(vec![])]);
        assert_eq!(read("*2\r\n$1\r\na\r\n*0\r\n"), Some(nested));
        for half in ["", "+OK", "$3\r\nab", "*2\r\n+a\r\n", "?\r\n"] {
            assert_eq!(read(half), None, "{half:?}");
        }
    }
}
