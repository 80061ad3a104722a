//! Shared by the tests of commands: replies as trees and as text, the engine as a client, and a
//! separate redis-server.

use std::fmt::Write as _;
use std::io::{BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use forebay_cache::engine::{Engine, Flow, Session};
use forebay_cache::resp::{Proto, Reply};

/// A reply.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Node {
    Simple(String),
    Error(String),
    Int(i64),
    Bulk(Vec<u8>),
    /// A double, by its text.
    Double(String),
    Bool(bool),
    Null,
    NullArray,
    Array(Vec<Node>),
    Set(Vec<Node>),
    Map(Vec<Node>),
}

impl Node {
    /// Parses one reply.
    pub(crate) fn read(input: &mut impl std::io::BufRead) -> Self {
        let mut line = Vec::new();
        input.read_until(b'\n', &mut line).unwrap();
        let line = String::from_utf8(line).unwrap();
        let line = line.strip_suffix("\r\n").unwrap();
        let (kind, rest) = line.split_at(1);
        let many = |input: &mut _, count: usize| (0..count).map(|_| Self::read(input)).collect();
        match kind {
            "+" => Self::Simple(rest.to_owned()),
            "-" => Self::Error(rest.to_owned()),
            ":" => Self::Int(rest.parse().unwrap()),
            "," => Self::Double(rest.to_owned()),
            "#" => Self::Bool(rest == "t"),
            "_" => Self::Null,
            "$" if rest == "-1" => Self::Null,
            "*" if rest == "-1" => Self::NullArray,
            "$" | "=" => {
                let mut bytes = vec![0; rest.parse::<usize>().unwrap() + 2];
                input.read_exact(&mut bytes).unwrap();
                bytes.truncate(bytes.len() - 2);
                Self::Bulk(bytes)
            }
            "*" | ">" => Self::Array(many(input, rest.parse().unwrap())),
            "~" => Self::Set(many(input, rest.parse().unwrap())),
            "%" => Self::Map(many(input, rest.parse::<usize>().unwrap() * 2)),
            _ => panic!("no reply begins with {line:?}"),
        }
    }

    /// Formats it on a line: `[1 "a" nil]`, `#{...}`, `{field: value}`, `1.5f`, `!ERR ...`.
    pub(crate) fn text(&self) -> String {
        let join = |nodes: &[Self]| nodes.iter().map(Self::text).collect::<Vec<_>>().join(" ");
        match self {
            Self::Simple(text) => text.clone(),
            Self::Error(text) => format!("!{text}"),
            Self::Int(value) => value.to_string(),
            Self::Bulk(bytes) => format!("\"{}\"", bytes.escape_ascii()),
            Self::Double(text) => format!("{text}f"),
            Self::Bool(value) => value.to_string(),
            Self::Null => "nil".to_owned(),
            Self::NullArray => "nil[]".to_owned(),
            Self::Array(nodes) => format!("[{}]", join(nodes)),
            Self::Set(nodes) => format!("#{{{}}}", join(nodes)),
            Self::Map(nodes) => {
                let mut text = String::from("{");
                for (at, pair) in nodes.chunks(2).enumerate() {
                    let gap = if at > 0 { " " } else { "" };
                    write!(text, "{gap}{}: {}", pair[0].text(), pair[1].text()).unwrap();
                }
                text + "}"
            }
        }
    }

    /// Sorts its elements, in groups of `step`.
    pub(crate) fn sorted(self, step: usize) -> Self {
        let sort = |nodes: Vec<Self>, step: usize| {
            let mut chunks: Vec<&[Self]> = nodes.chunks(step).collect();
            chunks.sort();
            chunks.concat()
        };
        match self {
            Self::Array(nodes) if nodes.iter().all(|node| matches!(node, Self::Array(_))) => {
                Self::Array(sort(nodes, 1))
            }
            Self::Array(nodes) => Self::Array(sort(nodes, step)),
            Self::Set(nodes) => Self::Set(sort(nodes, 1)),
            Self::Map(nodes) => Self::Map(sort(nodes, 2)),
            other => other,
        }
    }
}

/// Splits a line into words: spaces apart, `"..."` with `\xNN`, `\n`, `\"`.
pub(crate) fn words(line: &str) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut rest = line.trim().as_bytes();
    while let [first, ..] = rest {
        let mut word = Vec::new();
        if *first == b'"' {
            rest = &rest[1..];
            while rest[0] != b'"' {
                match rest {
                    [b'\\', b'x', high, low, ..] => {
                        let hex = [*high, *low];
                        let hex = std::str::from_utf8(&hex).unwrap();
                        word.push(u8::from_str_radix(hex, 16).unwrap());
                        rest = &rest[4..];
                    }
                    [b'\\', other, ..] => {
                        word.push(if *other == b'n' { b'\n' } else { *other });
                        rest = &rest[2..];
                    }
                    _ => {
                        word.push(rest[0]);
                        rest = &rest[1..];
                    }
                }
            }
            rest = &rest[1..];
        } else {
            let end = rest.iter().position(|&byte| byte == b' ').unwrap_or(rest.len());
            word.extend_from_slice(&rest[..end]);
            rest = &rest[end..];
        }
        words.push(word);
        rest = rest.trim_ascii_start();
    }
    words
}

/// A session with an engine.
pub(crate) struct Ours<'e> {
    pub(crate) engine: &'e Engine,
    session: Session,
    out: Reply,
}

impl<'e> Ours<'e> {
    pub(crate) fn new(engine: &'e Engine, proto: Proto) -> Self {
        let mut session = engine.inner_session();
        session.protocol = proto;
        Self { engine, session, out: Reply::new(proto) }
    }

    /// Runs a command; a blocked one times out immediately.
    pub(crate) fn run(&mut self, words: &[impl AsRef<[u8]>]) -> Node {
        let words: Vec<&[u8]> = words.iter().map(AsRef::as_ref).collect();
        let flow = self.engine.execute(&mut self.session, &words, &mut self.out);
        if matches!(flow, Flow::Blocked { .. }) {
            self.engine.time_out(&mut self.session, &mut self.out);
        }
        let bytes = self.out.take();
        let mut left = &bytes[..];
        let reply = Node::read(&mut left);
        assert!(left.is_empty(), "more than a reply: {}", left.escape_ascii());
        reply
    }

    pub(crate) fn line(&mut self, line: &str) -> Node {
        self.run(&words(line))
    }
}

/// Runs `command => reply` lines; a line that begins with `#` is a comment.
pub(crate) fn transcript(proto: Proto, lines: &str) {
    let engine = Engine::in_memory(7);
    let mut ours = Ours::new(&engine, proto);
    let mut wrong = String::new();
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let Some((command, expected)) = line.split_once(" => ") else {
            assert!(line.starts_with('#'), "no reply is given for {line}");
            continue;
        };
        let reply = ours.line(command).text();
        if reply != expected.trim() {
            writeln!(wrong, "{command}\n  expected {expected}\n  replied  {reply}").unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// A separate redis-server for a test.
pub(crate) struct Redis {
    server: Child,
    dir: tempfile::TempDir,
}

impl Redis {
    /// Starts one; `None`, with a message, if none is installed.
    #[expect(clippy::print_stderr, reason = "a test that is left out says so")]
    pub(crate) fn start() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("redis.sock");
        let started = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
            .arg(&socket)
            .arg("--dir")
            .arg(dir.path())
            .stdout(Stdio::null())
            .spawn();
        let server = match started {
            Ok(server) => server,
            Err(error) => {
                let required =
                    std::env::var_os("FOREBAY_REQUIRE_SERVICES").is_some_and(|word| word == "1");
                assert!(!required, "redis-server cannot be started: {error}");
                eprintln!("LEFT OUT: redis-server cannot be started ({error}); cargo xtask setup");
                return None;
            }
        };
        let redis = Self { server, dir };
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while UnixStream::connect(&socket).is_err() {
            assert!(std::time::Instant::now() < deadline, "redis-server does not answer");
            std::thread::yield_now();
        }
        Some(redis)
    }

    pub(crate) fn connect(&self, proto: Proto) -> RedisClient {
        let stream = UnixStream::connect(self.dir.path().join("redis.sock")).unwrap();
        let mut client = RedisClient(BufReader::new(stream));
        client.run(&["HELLO", if proto == Proto::Resp3 { "3" } else { "2" }]);
        client
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // Nothing can be done about a server that has already exited.
        drop(self.server.kill());
        drop(self.server.wait());
    }
}

/// A connection to it.
pub(crate) struct RedisClient(BufReader<UnixStream>);

impl RedisClient {
    pub(crate) fn run(&mut self, words: &[impl AsRef<[u8]>]) -> Node {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words.iter().map(AsRef::as_ref) {
            request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            request.extend_from_slice(word);
            request.extend_from_slice(b"\r\n");
        }
        self.0.get_mut().write_all(&request).unwrap();
        Node::read(&mut self.0)
    }
}
