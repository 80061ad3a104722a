//! A plain RESP client: one connection, commands in batches, unprocessed replies.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};

/// Time limit for a reply.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Client {
    reader: BufReader<TcpStream>,
    out: Vec<u8>,
}

/// A reply, as far as needed here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reply {
    Text(String),
    Integer(i64),
    Bytes(Vec<u8>),
    Nothing,
}

impl Client {
    pub(super) fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, LIMIT).context("cannot connect")?;
        stream.set_nodelay(true).context("cannot set TCP_NODELAY")?;
        stream.set_read_timeout(Some(LIMIT)).context("cannot set a time limit")?;
        Ok(Self { reader: BufReader::with_capacity(1 << 16, stream), out: Vec::new() })
    }

    /// Adds a command to the batch.
    pub(super) fn queue(&mut self, words: &[&[u8]]) {
        self.out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            self.out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            self.out.extend_from_slice(word);
            self.out.extend_from_slice(b"\r\n");
        }
    }

    /// Sends the batch.
    pub(super) fn flush(&mut self) -> anyhow::Result<()> {
        self.reader.get_mut().write_all(&self.out).context("cannot send commands")?;
        self.out.clear();
        Ok(())
    }

    /// Reads one reply.
    pub(super) fn reply(&mut self) -> anyhow::Result<Reply> {
        let mut line = String::new();
        self.reader.read_line(&mut line).context("cannot read a reply")?;
        let line = line.trim_end();
        let (kind, rest) = line.split_at_checked(1).context("a reply is empty")?;
        match kind {
            "+" => Ok(Reply::Text(rest.to_owned())),
            ":" => Ok(Reply::Integer(rest.parse().context("a reply is not an integer")?)),
            "-" => bail!("the server returned an error: {rest}"),
            "_" => Ok(Reply::Nothing),
            "$" => {
                let size: i64 = rest.parse().context("a reply has no length")?;
                let Ok(size) = usize::try_from(size) else { return Ok(Reply::Nothing) };
                let mut bytes = vec![0; size + 2];
                self.reader.read_exact(&mut bytes).context("a reply ended early")?;
                bytes.truncate(size);
                Ok(Reply::Bytes(bytes))
            }
            _ => bail!("an unexpected reply: {line}"),
        }
    }

    pub(super) fn command(&mut self, words: &[&[u8]]) -> anyhow::Result<Reply> {
        self.queue(words);
        self.flush()?;
        self.reply()
    }

    /// Sets keys in batches, and checks every reply.
    pub(super) fn set_all(
        &mut self,
        count: u64,
        mut make: impl FnMut(u64, &mut Vec<u8>, &mut Vec<u8>),
    ) -> anyhow::Result<()> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let mut done = 0;
        while done < count {
            let batch = (count - done).min(256);
            for number in done..done + batch {
                key.clear();
                value.clear();
                make(number, &mut key, &mut value);
                self.queue(&[b"SET", &key, &value]);
            }
            self.flush()?;
            for _ in 0..batch {
                let reply = self.reply()?;
                ensure!(reply == Reply::Text("OK".into()), "SET was answered {reply:?}");
            }
            done += batch;
        }
        Ok(())
    }
}
