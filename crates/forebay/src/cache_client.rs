//! A client's end of a cache: commands out, replies in, and how a person reads them.

mod stream;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};

use self::stream::Stream;
pub(crate) use self::stream::Trust;

/// How long a server may take to be reached.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Replies within replies.
const DEPTH_MAX: usize = 64;
/// Longest string of a reply, as long as the server's longest value may be.
const STRING_MAX: usize = 1 << 30;

/// What a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaks {
    Resp,
    Text,
}

/// A reply.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    /// A status, a number with a fraction, a truth value: printed as it is.
    Plain(String),
    Error(String),
    Integer(String),
    Bytes(Vec<u8>),
    Null,
    List(Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
    /// A message that answers nothing.
    Push(Vec<Reply>),
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Client {
    reader: BufReader<Stream>,
    out: Vec<u8>,
    speaks: Speaks,
}

impl Client {
    /// Connects, over TLS where it is said whom to trust.
    pub(crate) fn connect(
        address: SocketAddr,
        speaks: Speaks,
        trust: Option<&Trust>,
    ) -> anyhow::Result<Self> {
        let socket = TcpStream::connect_timeout(&address, CONNECT_LIMIT)
            .with_context(|| format!("cannot reach a cache at {address}"))?;
        socket.set_nodelay(true).context("cannot set TCP_NODELAY")?;
        let stream = match trust {
            Some(trust) => Stream::over_tls(socket, address, trust)?,
            None => Stream::Plain(socket),
        };
        Ok(Self { reader: BufReader::with_capacity(64 << 10, stream), out: Vec::new(), speaks })
    }

    /// Connects over RESP and gives the password, where there is a file with one.
    pub(crate) fn open(
        address: SocketAddr,
        trust: Option<&Trust>,
        password_file: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let mut client = Self::connect(address, Speaks::Resp, trust)?;
        if let Some(path) = password_file
            && let Reply::Error(text) = client.ask(&["AUTH", &password(path)?])?
        {
            bail!("AUTH: {text}");
        }
        Ok(client)
    }

    /// Adds a command to what is sent next.
    pub(crate) fn queue(&mut self, line: &str, words: &[Vec<u8>]) {
        match self.speaks {
            Speaks::Resp => self.command(words),
            Speaks::Text => {
                self.out.extend_from_slice(line.as_bytes());
                self.out.push(b'\n');
            }
        }
    }

    /// Adds a RESP command to what is sent next.
    pub(crate) fn command<W: AsRef<[u8]>>(&mut self, words: &[W]) {
        self.out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            let word = word.as_ref();
            self.out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            self.out.extend_from_slice(word);
            self.out.extend_from_slice(b"\r\n");
        }
    }

    /// Sends a RESP command and returns its reply; a refusal is one too.
    pub(crate) fn ask<W: AsRef<[u8]>>(&mut self, words: &[W]) -> anyhow::Result<Reply> {
        self.command(words);
        self.send()?;
        self.read()
    }

    /// Takes a server that neither takes nor gives anything for so long as gone.
    pub(crate) fn set_stall_limit(&mut self, limit: Duration) -> anyhow::Result<()> {
        let stream = self.reader.get_ref().socket();
        stream
            .set_read_timeout(Some(limit))
            .and_then(|()| stream.set_write_timeout(Some(limit)))
            .context("cannot set the limits of a connection")
    }

    /// Sends what was queued.
    pub(crate) fn send(&mut self) -> anyhow::Result<()> {
        let stream = self.reader.get_mut();
        stream
            .write_all(&self.out)
            .and_then(|()| stream.flush())
            .context("cannot send to the cache")?;
        self.out.clear();
        Ok(())
    }

    /// Reads a reply.
    pub(crate) fn read(&mut self) -> anyhow::Result<Reply> {
        match self.speaks {
            Speaks::Resp => self.read_resp(DEPTH_MAX),
            Speaks::Text => Ok(match self.line()? {
                line if line.starts_with("ERROR") => Reply::Error(line),
                line => Reply::Plain(line),
            }),
        }
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = Vec::new();
        let limit = STRING_MAX as u64;
        let read = self.reader.by_ref().take(limit).read_until(b'\n', &mut line);
        ensure!(read.context("cannot read from the cache")? > 0, "the cache closed the connection");
        ensure!(line.pop() == Some(b'\n'), "the cache closed the connection within a reply");
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Ok(String::from_utf8_lossy(&line).into_owned())
    }

    fn read_resp(&mut self, depth: usize) -> anyhow::Result<Reply> {
        ensure!(depth > 0, "the reply is nested too deeply");
        let line = self.line()?;
        let mut chars = line.chars();
        let kind = chars.next().context("the cache sent an empty line for a reply")?;
        let rest = chars.as_str();
        let count = || -> anyhow::Result<Option<usize>> {
            let count: i64 = rest.parse().with_context(|| format!("odd reply: {line:?}"))?;
            Ok(usize::try_from(count).ok())
        };
        Ok(match kind {
            '+' | ',' | '(' => Reply::Plain(rest.to_owned()),
            '#' => Reply::Plain(if rest == "t" { "(true)" } else { "(false)" }.to_owned()),
            '-' => Reply::Error(rest.to_owned()),
            ':' => Reply::Integer(rest.to_owned()),
            '_' => Reply::Null,
            '$' | '=' => match count()? {
                Some(len) => {
                    ensure!(len <= STRING_MAX, "the reply announces {len} bytes");
                    let mut bytes = Vec::new();
                    let mut taken = self.reader.by_ref().take(len as u64 + 2);
                    taken.read_to_end(&mut bytes).context("cannot read from the cache")?;
                    ensure!(bytes.len() == len + 2, "the cache closed the connection");
                    bytes.truncate(len);
                    if kind == '=' {
                        bytes.drain(..bytes.len().min(4));
                    }
                    Reply::Bytes(bytes)
                }
                None => Reply::Null,
            },
            '*' | '~' | '>' => match count()? {
                Some(count) => {
                    let items: anyhow::Result<_> =
                        (0..count).map(|_| self.read_resp(depth - 1)).collect();
                    if kind == '>' { Reply::Push(items?) } else { Reply::List(items?) }
                }
                None => Reply::Null,
            },
            '%' => {
                let mut pairs = Vec::new();
                for _ in 0..count()?.unwrap_or(0) {
                    pairs.push((self.read_resp(depth - 1)?, self.read_resp(depth - 1)?));
                }
                Reply::Map(pairs)
            }
            _ => bail!("odd reply: {line:?}"),
        })
    }
}

impl Reply {
    /// As `redis-cli` shows it on a terminal.
    pub(crate) fn shown(&self) -> String {
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

    /// As it is, for other programs: a line an item.
    pub(crate) fn raw(&self, out: &mut Vec<u8>) {
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

/// The password in a file: its first line.
pub(crate) fn password(path: &Path) -> anyhow::Result<String> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// `1) ...`, each on a line of its own, further levels further in.
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

/// In double quotes, what cannot be shown escaped.
pub(crate) fn quoted(bytes: &[u8]) -> String {
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
    use super::Reply;

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
}
