//! Replies of a cache: read from the wire, and formatted for people or programs.
//!
//! Invariant: whatever a server sends is a reply or an error, and takes no more memory than was
//! received.

use std::io::{BufRead, Read as _};

use anyhow::{Context as _, bail, ensure};

/// Maximum nesting of replies.
const DEPTH_MAX: usize = 64;
/// Maximum length of a string in a reply, equal to the server's largest value.
const STRING_MAX: usize = 1 << 30;

/// A reply.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// A status, a number with a fraction, a truth value: printed unchanged.
    Plain(String),
    /// An error, with its code.
    Error(String),
    /// The digits of a number.
    Integer(String),
    /// A value.
    Bytes(Vec<u8>),
    /// No value.
    Null,
    /// A list or a set.
    List(Vec<Reply>),
    /// Pairs, in the order of the server.
    Map(Vec<(Reply, Reply)>),
    /// A message that is not a reply to a command.
    Push(Vec<Reply>),
}

/// Reads a reply of RESP2 or RESP3.
///
/// # Errors
/// It cannot be read, or is not a reply.
pub(crate) fn read(reader: &mut impl BufRead) -> anyhow::Result<Reply> {
    read_at(reader, DEPTH_MAX)
}

/// Reads a line, without its line end.
///
/// # Errors
/// It cannot be read, or is incomplete.
pub(super) fn line(reader: &mut impl BufRead) -> anyhow::Result<String> {
    let mut line = Vec::new();
    let limit = STRING_MAX as u64;
    let read = reader.take(limit).read_until(b'\n', &mut line);
    ensure!(read.context("cannot read from the cache")? > 0, "the cache closed the connection");
    ensure!(line.pop() == Some(b'\n'), "the cache closed the connection within a reply");
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    Ok(String::from_utf8_lossy(&line).into_owned())
}

fn read_at(reader: &mut impl BufRead, depth: usize) -> anyhow::Result<Reply> {
    ensure!(depth > 0, "the reply is nested too deeply");
    let line = line(reader)?;
    let mut chars = line.chars();
    let kind = chars.next().context("the cache sent an empty line for a reply")?;
    let rest = chars.as_str();
    let count = || -> anyhow::Result<Option<usize>> {
        let count: i64 = rest.parse().with_context(|| format!("invalid reply: {line:?}"))?;
        Ok(usize::try_from(count).ok())
    };
    Ok(match kind {
        '+' | ',' | '(' => Reply::Plain(rest.to_owned()),
        '#' => Reply::Plain(if rest == "t" { "(true)" } else { "(false)" }.to_owned()),
        '-' => Reply::Error(rest.to_owned()),
        ':' => Reply::Integer(rest.to_owned()),
        '_' => Reply::Null,
        '$' => count()?.map_or(Ok(Reply::Null), |len| string(reader, len).map(Reply::Bytes))?,
        '=' => match count()? {
            Some(len) => {
                let mut bytes = string(reader, len)?;
                ensure!(bytes.get(3) == Some(&b':'), "a verbatim string does not name its form");
                Reply::Bytes(bytes.split_off(4))
            }
            None => Reply::Null,
        },
        '*' | '~' | '>' => match count()? {
            Some(count) => {
                let items: anyhow::Result<_> =
                    (0..count).map(|_| read_at(reader, depth - 1)).collect();
                if kind == '>' { Reply::Push(items?) } else { Reply::List(items?) }
            }
            None => Reply::Null,
        },
        '%' => {
            let mut pairs = Vec::new();
            for _ in 0..count()?.unwrap_or(0) {
                pairs.push((read_at(reader, depth - 1)?, read_at(reader, depth - 1)?));
            }
            Reply::Map(pairs)
        }
        _ => bail!("invalid reply: {line:?}"),
    })
}

/// Reads the `len` bytes of a string, and the line end after them.
fn string(reader: &mut impl BufRead, len: usize) -> anyhow::Result<Vec<u8>> {
    ensure!(len <= STRING_MAX, "the reply announces {len} bytes");
    let mut bytes = Vec::new();
    reader.take(len as u64 + 2).read_to_end(&mut bytes).context("cannot read from the cache")?;
    ensure!(bytes.len() == len + 2, "the cache closed the connection within a reply");
    ensure!(bytes.ends_with(b"\r\n"), "a string of {len} bytes has no line end");
    bytes.truncate(len);
    Ok(bytes)
}

impl Reply {
    /// Formats it as `redis-cli` does on a terminal.
    pub fn shown(&self) -> String {
        let mut out = String::new();
        self.show(&mut out, 0);
        out
    }

    fn show(&self, out: &mut String, indent: usize) {
        match self {
            Self::Plain(text) => out.push_str(text),
            Self::Error(text) => out.push_str(&format!("(error) {text}")),
            Self::Integer(text) => out.push_str(&format!("(integer) {text}")),
            Self::Bytes(bytes) => out.push_str(&quoted(bytes)),
            Self::Null => out.push_str("(nil)"),
            Self::List(items) | Self::Push(items) if items.is_empty() => {
                out.push_str("(empty array)");
            }
            Self::List(items) | Self::Push(items) => {
                numbered(items.iter().map(|item| (None, item)), items.len(), out, indent);
            }
            Self::Map(pairs) if pairs.is_empty() => out.push_str("(empty hash)"),
            Self::Map(pairs) => {
                let each = pairs.iter().map(|(key, value)| (Some(key), value));
                numbered(each, pairs.len(), out, indent);
            }
        }
    }

    /// Formats it unchanged, for other programs: one line for each item.
    pub fn raw(&self, out: &mut Vec<u8>) {
        let mut line = |bytes: &[u8]| {
            out.extend_from_slice(bytes);
            out.push(b'\n');
        };
        match self {
            Self::Plain(text) | Self::Error(text) | Self::Integer(text) => line(text.as_bytes()),
            Self::Bytes(bytes) => line(bytes),
            Self::Null => line(b""),
            Self::List(items) | Self::Push(items) => items.iter().for_each(|item| item.raw(out)),
            Self::Map(pairs) => pairs.iter().for_each(|(key, value)| {
                key.raw(out);
                value.raw(out);
            }),
        }
    }
}

/// Formats `1) ...`, each on its own line, with nested levels indented.
fn numbered<'r>(
    items: impl Iterator<Item = (Option<&'r Reply>, &'r Reply)>,
    count: usize,
    out: &mut String,
    indent: usize,
) {
    let width = count.to_string().len();
    for (index, (key, value)) in items.enumerate() {
        if index > 0 {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
        }
        let mark = if key.is_some() { '#' } else { ')' };
        out.push_str(&format!("{:>width$}{mark} ", index + 1));
        if let Some(key) = key {
            key.show(out, indent + width + 2);
            out.push_str(" => ");
        }
        value.show(out, indent + width + 2);
    }
}

/// Returns the text in double quotes, with unprintable characters escaped.
pub fn quoted(bytes: &[u8]) -> String {
    let mut out = String::from("\"");
    for &byte in bytes {
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            0x07 => out.push_str("\\a"),
            0x08 => out.push_str("\\b"),
            b' '..=b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("\\x{byte:02x}")),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Reply {
        Reply::Bytes(text.into())
    }

    #[test]
    fn replies_look_as_they_do_in_redis_cli() {
        let check = |reply: Reply, shown: &str| assert_eq!(reply.shown(), shown);
        check(Reply::Plain("OK".into()), "OK");
        check(Reply::Integer("3".into()), "(integer) 3");
        check(Reply::Error("ERR no".into()), "(error) ERR no");
        check(bytes("a\"\n\u{1}"), r#""a\"\n\x01""#);
        check(Reply::Null, "(nil)");
        check(Reply::List(vec![]), "(empty array)");
        let nested = Reply::List(vec![bytes("a"), Reply::List(vec![bytes("b"), bytes("c")])]);
        check(nested, "1) \"a\"\n2) 1) \"b\"\n   2) \"c\"");
        check(
            Reply::Map(vec![(bytes("k"), Reply::Integer("1".into()))]),
            "1# \"k\" => (integer) 1",
        );
    }

    #[test]
    fn for_other_programs_every_item_is_a_line() {
        let mut out = Vec::new();
        Reply::List(vec![bytes("a b"), Reply::Null, Reply::Integer("3".into())]).raw(&mut out);
        assert_eq!(out, b"a b\n\n3\n");
    }

    fn parse(bytes: &[u8]) -> anyhow::Result<Reply> {
        read(&mut std::io::BufReader::with_capacity(1, bytes))
    }

    #[test]
    fn a_string_that_does_not_end_where_it_says_is_an_error() {
        assert_eq!(parse(b"$2\r\nok\r\n").unwrap(), bytes("ok"));
        for broken in [&b"$2\r\nokay\r\n"[..], b"$2\r\nok", b"$9\r\nok\r\n", b"=2\r\nok\r\n"] {
            assert!(parse(broken).is_err(), "{broken:?}");
        }
        assert_eq!(parse(b"=6\r\ntxt:ok\r\n").unwrap(), bytes("ok"));
    }

    #[test]
    fn what_is_announced_takes_no_memory_before_it_comes() {
        for announced in [&b"*9223372036854775807\r\n"[..], b"%4294967295\r\n", b"$1073741824\r\n"]
        {
            assert!(parse(announced).is_err());
        }
        assert!(parse(b"$1073741825\r\n").unwrap_err().to_string().contains("announces"));
        let deep = b"*1\r\n".repeat(65);
        assert!(parse(&deep).unwrap_err().to_string().contains("nested"));
    }
}
