//! Raw connections: bytes over TCP, parsed as HTTP/1.1 and RESP only as far as checks need it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};

/// Maximum time for a response.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);

/// An answer over HTTP.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Answer {
    /// The value of a header; `name` in lower case.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Names of its headers that begin with `start`.
    pub(super) fn headers_of(&self, start: &str) -> Vec<&str> {
        let names = self.headers.iter().map(|(name, _)| name.as_str());
        names.filter(|name| name.starts_with(start)).collect()
    }

    /// Returns status and body for a message, truncated.
    pub(super) fn shown(&self) -> String {
        let text: String = String::from_utf8_lossy(&self.body).chars().take(200).collect();
        format!("{} {text}", self.status)
    }

    /// Its body as JSON.
    ///
    /// # Errors
    /// It is not JSON.
    pub(super) fn json(&self) -> anyhow::Result<serde_json::Value> {
        serde_json::from_slice(&self.body).with_context(|| format!("not JSON: {}", self.shown()))
    }
}

/// Opens a connection with timeouts.
///
/// # Errors
/// It cannot be opened.
pub(super) fn connect(address: SocketAddr) -> anyhow::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, ANSWER_LIMIT)
        .with_context(|| format!("cannot connect to {address}"))?;
    stream.set_nodelay(true).context("cannot set TCP_NODELAY")?;
    stream.set_read_timeout(Some(ANSWER_LIMIT)).context("cannot limit reads")?;
    stream.set_write_timeout(Some(ANSWER_LIMIT)).context("cannot limit writes")?;
    Ok(stream)
}

/// Sends one request on a separate connection; `head` has the header lines, each with its line end.
///
/// # Errors
/// No complete response was received.
pub(super) fn http(
    address: SocketAddr,
    method: &str,
    path: &str,
    head: &str,
    body: &[u8],
) -> anyhow::Result<Answer> {
    let length = match method {
        "GET" | "HEAD" if body.is_empty() => String::new(),
        _ => format!("content-length: {}\r\n", body.len()),
    };
    let request = format!("{method} {path} HTTP/1.1\r\n{head}{length}connection: close\r\n\r\n");
    let mut bytes = request.into_bytes();
    bytes.extend_from_slice(body);
    let mut stream = connect(address)?;
    // A server that refuses a request may respond before it has read all of it.
    let sent = stream.write_all(&bytes);
    match answer(&mut stream, method == "HEAD") {
        Ok(answer) => Ok(answer),
        Err(error) => {
            sent.with_context(|| format!("cannot send {method} {path}"))?;
            Err(error.context(format!("{method} {path}")))
        }
    }
}

/// Reads a response.
///
/// # Errors
/// No complete response was received.
pub(super) fn answer(stream: &mut TcpStream, is_bodiless: bool) -> anyhow::Result<Answer> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    ensure!(
        reader.read_line(&mut line).context("no answer")? > 0,
        "the connection was closed without a response"
    );
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.with_context(|| format!("{line:?} is not a status line"))?;
    let mut headers: Vec<(String, String)> = Vec::new();
    loop {
        line.clear();
        reader.read_line(&mut line).context("cannot read a response's head")?;
        match line.trim_end().split_once(':') {
            Some((name, value)) => {
                headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
            }
            None if line.trim_end().is_empty() => break,
            None => bail!("{line:?} is not a header"),
        }
    }
    let mut answer = Answer { status, headers, body: Vec::new() };
    if is_bodiless || matches!(status, 204 | 304) {
        return Ok(answer);
    }
    let length = answer.header("content-length").and_then(|length| length.parse::<u64>().ok());
    let limit = length.unwrap_or(64 << 20);
    reader.take(limit).read_to_end(&mut answer.body).context("cannot read a response's body")?;
    let came = answer.body.len() as u64;
    ensure!(length.is_none_or(|length| length == came), "received {came} bytes of {length:?}");
    Ok(answer)
}

/// A RESP connection that reads replies as their first line and the announced bytes.
#[derive(Debug)]
pub(super) struct Resp {
    pub(super) stream: BufReader<TcpStream>,
}

impl Resp {
    /// Connects.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(super) fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        Ok(Self { stream: BufReader::new(connect(address)?) })
    }

    /// Sends a command without reading its reply.
    ///
    /// # Errors
    /// It cannot be sent.
    pub(super) fn send(&mut self, words: &[&[u8]]) -> anyhow::Result<()> {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
        }
        self.stream.get_mut().write_all(&bytes).context("cannot send to the cache")
    }

    /// Sends a command and returns its reply: a status, an error with its `-`, a number, a
    /// string; `(nil)` for null.
    ///
    /// # Errors
    /// No reply was received.
    pub(super) fn ask(&mut self, words: &[&str]) -> anyhow::Result<String> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        self.send(&words)?;
        self.reply()
    }

    /// Reads a reply.
    ///
    /// # Errors
    /// No reply was received.
    pub(super) fn reply(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        let read = self.stream.read_line(&mut line).context("cannot read from the cache")?;
        ensure!(read > 0, "the cache closed the connection");
        let line = line.trim_end();
        let Some(length) = line.strip_prefix('$') else {
            return Ok(line.trim_start_matches(['+', ':']).to_owned());
        };
        let Ok(length) = length.parse::<usize>() else { return Ok("(nil)".to_owned()) };
        let mut bytes = vec![0; length + 2];
        self.stream.read_exact(&mut bytes).context("cannot read from the cache")?;
        bytes.truncate(length);
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Sends a command that must have this reply.
    ///
    /// # Errors
    /// Another reply, or none.
    pub(super) fn want(&mut self, words: &[&str], wanted: &str) -> anyhow::Result<()> {
        let reply = self.ask(words)?;
        ensure!(reply == wanted, "{} returned {reply:?}, not {wanted:?}", words.join(" "));
        Ok(())
    }
}
