//! A client of a cache: sends commands, reads replies, formats replies for people.

mod reply;
mod stream;

use std::io::{BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};

pub use self::reply::{Reply, quoted};
use self::stream::Stream;
pub use self::stream::{OF_CA, Trust, is_of_ca};

/// Time limit for connecting to a server.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// RESP, as Redis speaks it.
    Resp,
    /// The text protocol, as memcached speaks it.
    Text,
}

/// A connection.
#[derive(Debug)]
pub struct Client {
    reader: BufReader<Stream>,
    out: Vec<u8>,
    protocol: Protocol,
}

impl Client {
    /// Connects, over TLS if `trust` is given.
    ///
    /// # Errors
    /// The server is unavailable, or TLS fails.
    pub fn connect(
        address: SocketAddr,
        protocol: Protocol,
        trust: Option<&Trust>,
    ) -> anyhow::Result<Self> {
        let socket = TcpStream::connect_timeout(&address, CONNECT_LIMIT)
            .with_context(|| format!("cannot connect to a cache at {address}"))?;
        socket.set_nodelay(true).context("cannot set TCP_NODELAY")?;
        let stream = match trust {
            Some(trust) => Stream::over_tls(socket, address, trust)?,
            None => Stream::Plain(socket),
        };
        Ok(Self { reader: BufReader::with_capacity(64 << 10, stream), out: Vec::new(), protocol })
    }

    /// Connects over RESP and sends the password, if there is a password file.
    ///
    /// # Errors
    /// As [`connect`](Self::connect); the file cannot be read, or the password is refused.
    pub fn open(
        address: SocketAddr,
        trust: Option<&Trust>,
        password_file: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let mut client = Self::connect(address, Protocol::Resp, trust)?;
        if let Some(path) = password_file
            && let Reply::Error(text) = client.ask(&["AUTH", &password(path)?])?
        {
            bail!("AUTH: {text}");
        }
        Ok(client)
    }

    /// Queues a command.
    pub fn queue(&mut self, line: &str, words: &[Vec<u8>]) {
        match self.protocol {
            Protocol::Resp => self.command(words),
            Protocol::Text => {
                self.out.extend_from_slice(line.as_bytes());
                self.out.push(b'\n');
            }
        }
    }

    /// Queues a RESP command.
    pub fn command<W: AsRef<[u8]>>(&mut self, words: &[W]) {
        self.out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            let word = word.as_ref();
            self.out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            self.out.extend_from_slice(word);
            self.out.extend_from_slice(b"\r\n");
        }
    }

    /// Sends a RESP command and returns its reply, which may be an error.
    ///
    /// # Errors
    /// The connection fails.
    pub fn ask<W: AsRef<[u8]>>(&mut self, words: &[W]) -> anyhow::Result<Reply> {
        self.command(words);
        self.send()?;
        self.read()
    }

    /// Sets the time after which a server that neither sends nor receives is considered dead.
    ///
    /// # Errors
    /// The system refuses it, as it does a limit of zero.
    pub fn set_stall_limit(&mut self, limit: Duration) -> anyhow::Result<()> {
        let stream = self.reader.get_ref().socket();
        stream
            .set_read_timeout(Some(limit))
            .and_then(|()| stream.set_write_timeout(Some(limit)))
            .context("cannot set the timeouts of a connection")
    }

    /// Sends the queued commands.
    ///
    /// # Errors
    /// The connection fails.
    pub fn send(&mut self) -> anyhow::Result<()> {
        let stream = self.reader.get_mut();
        stream
            .write_all(&self.out)
            .and_then(|()| stream.flush())
            .context("cannot send to the cache")?;
        self.out.clear();
        Ok(())
    }

    /// Reads a reply.
    ///
    /// # Errors
    /// The connection fails, or what is received is not a reply.
    pub fn read(&mut self) -> anyhow::Result<Reply> {
        match self.protocol {
            Protocol::Resp => reply::read(&mut self.reader),
            Protocol::Text => Ok(match reply::line(&mut self.reader)? {
                line if line.starts_with("ERROR") => Reply::Error(line),
                line => Reply::Plain(line),
            }),
        }
    }
}

/// Returns the password in a file: its first line.
///
/// # Errors
/// The file cannot be read.
pub fn password(path: &Path) -> anyhow::Result<String> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}
