//! A thread of the load generator.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read as _};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use super::client::{Client, Kind, flush, reply};
use super::draw::{Draw, key};
use super::pace::Pace;
use super::{Args, Totals};

/// Maximum time without any reply from the server.
const SILENCE_LIMIT: Duration = Duration::from_secs(10);

/// Token of the timer; connections have numbers from 0.
const TIMER: Token = Token(usize::MAX);

pub(super) struct Thread<'a> {
    args: &'a Args,
    draw: Draw,
    value: Vec<u8>,
    /// Bytes between key and value in RESP.
    value_head: Vec<u8>,
    /// Requests this thread may still send.
    left: u64,
    deadline: Option<Instant>,
    /// Set at a fixed rate.
    pace: Option<Pace>,
    /// Whether all requests were sent.
    ended: bool,
    seen: Totals,
}

impl<'a> Thread<'a> {
    /// * `left`: the number of requests to send at most.
    /// * `gap`: the average time between batches at a fixed rate.
    pub(super) fn new(
        args: &'a Args,
        draw: Draw,
        left: u64,
        gap: Option<Duration>,
    ) -> anyhow::Result<Self> {
        let gaps = Draw { state: draw.state ^ u64::MAX, keys: 1, zipf: None };
        let pace = gap.map(|gap| Pace::new(gap, gaps)).transpose()?;
        // Printable, and without repetition.
        let mut bytes = Draw { state: 0, keys: 64, zipf: None };
        let value = (0..args.size).map(|_| b'0' + u8::try_from(bytes.key()).unwrap_or(0)).collect();
        let value_head = format!("\r\n${}\r\n", args.size).into_bytes();
        let (deadline, ended, seen) = (None, false, Totals::default());
        Ok(Self { args, draw, value, value_head, left, deadline, pace, ended, seen })
    }

    pub(super) fn run(mut self, clients: u64, started: Instant) -> anyhow::Result<Totals> {
        let address = self.args.text.unwrap_or(self.args.resp);
        self.deadline = self.args.duration.map(|duration| started + duration.get());
        let mut poll = Poll::new().context("cannot create an event queue")?;
        let mut connections = Vec::new();
        for number in 0..usize::try_from(clients)? {
            let socket = std::net::TcpStream::connect(address)
                .with_context(|| format!("cannot connect to a cache at {address}"))?;
            socket.set_nodelay(true).context("cannot set TCP_NODELAY")?;
            socket.set_nonblocking(true).context("cannot make a socket non-blocking")?;
            let mut socket = TcpStream::from_std(socket);
            let interest = Interest::READABLE | Interest::WRITABLE;
            poll.registry()
                .register(&mut socket, Token(number), interest)
                .context("cannot register a socket")?;
            let (out, input, owed) = (Vec::new(), Vec::new(), 0);
            let since = Instant::now();
            connections.push(Client { socket, out, sent: 0, input, owed, waiting: 0, since });
        }
        if let Some(pace) = &self.pace {
            pace.register(poll.registry(), TIMER)?;
        }
        let mut idle: VecDeque<usize> = (0..connections.len()).collect();
        let mut events = Events::with_capacity(1_024);
        let mut buffer = vec![0; 64 << 10];
        loop {
            self.send_due(&mut connections, &mut idle)?;
            let busy = idle.len() < connections.len();
            if self.ended && !busy {
                return Ok(self.seen);
            }
            // With all connections idle only the timer is waited for.
            poll.poll(&mut events, busy.then_some(SILENCE_LIMIT))
                .context("cannot wait for replies")?;
            ensure!(!events.is_empty(), "the cache sent no reply for {SILENCE_LIMIT:?}");
            for event in &events {
                let number = event.token().0;
                let Some(client) = connections.get_mut(number) else { continue };
                if client.waiting > 0 && !self.advance(client, &mut buffer)? {
                    idle.push_back(number);
                }
            }
        }
    }

    /// Sends on connections without a request in flight what is due.
    fn send_due(
        &mut self,
        connections: &mut [Client],
        idle: &mut VecDeque<usize>,
    ) -> anyhow::Result<()> {
        while let Some(&number) = idle.front().filter(|_| !self.ended) {
            let since = match &mut self.pace {
                None => Instant::now(),
                Some(pace) => match pace.take_due() {
                    Some(due) => due,
                    None => return pace.arm(),
                },
            };
            let Some(client) = connections.get_mut(number) else { return Ok(()) };
            if self.next_batch(client, since)? {
                idle.pop_front();
            }
        }
        Ok(())
    }

    /// Sends, reads and continues. Returns whether the connection waits for replies.
    fn advance(&mut self, client: &mut Client, buffer: &mut [u8]) -> anyhow::Result<bool> {
        flush(client)?;
        loop {
            match client.socket.read(buffer) {
                Ok(0) => anyhow::bail!("the cache closed the connection"),
                Ok(count) => {
                    self.take_replies(client, &buffer[..count]);
                    if client.waiting == 0
                        && (self.pace.is_some() || !self.next_batch(client, Instant::now())?)
                    {
                        return Ok(false);
                    }
                    if count < buffer.len() {
                        return Ok(true);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("cannot read from the cache"),
            }
        }
    }

    fn take_replies(&mut self, client: &mut Client, fresh: &[u8]) {
        let skipped = client.owed.min(fresh.len());
        if skipped > 0 {
            client.owed -= skipped;
            if client.owed == 0 {
                self.count(client, Kind::Value);
            }
        }
        let fresh = &fresh[skipped..];
        if client.input.is_empty() {
            let at = self.count_replies(client, fresh);
            client.input.extend_from_slice(&fresh[at..]);
            return;
        }
        let mut input = std::mem::take(&mut client.input);
        input.extend_from_slice(fresh);
        let at = self.count_replies(client, &input);
        input.drain(..at);
        client.input = input;
    }

    /// Counts the replies in `input`; returns where the rest begins.
    fn count_replies(&mut self, client: &mut Client, input: &[u8]) -> usize {
        let mut at = 0;
        let text = self.args.text.is_some();
        while let Some((len, kind)) = reply(&input[at..], text) {
            if len > input.len() - at {
                client.owed = len - (input.len() - at);
                return input.len();
            }
            at += len;
            self.count(client, kind);
        }
        at
    }

    fn count(&mut self, client: &mut Client, kind: Kind) {
        client.waiting = client.waiting.saturating_sub(1);
        self.seen.latencies.add(client.since.elapsed());
        match kind {
            Kind::Error => self.seen.errors += 1,
            Kind::Value => self.seen.hits += 1,
            Kind::Other => {}
        }
    }

    /// Sends the next pipeline of requests; returns whether there was one.
    ///
    /// * `since`: when latencies begin.
    fn next_batch(&mut self, client: &mut Client, since: Instant) -> anyhow::Result<bool> {
        let over = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        let count = u64::from(self.args.pipeline).min(self.left);
        if over || count == 0 {
            self.ended = true;
            return Ok(false);
        }
        self.left -= count;
        client.out.clear();
        client.sent = 0;
        for _ in 0..count {
            self.request(&mut client.out);
        }
        client.waiting = u32::try_from(count)?;
        client.since = since;
        flush(client)?;
        Ok(true)
    }

    fn request(&mut self, out: &mut Vec<u8>) {
        let key = key(self.draw.key());
        let read = self.draw.share() < self.args.read_share;
        let text = self.args.text.is_some();
        out.extend_from_slice(match (read, text) {
            (true, true) => b"GET ".as_slice(),
            (true, false) => b"*2\r\n$3\r\nGET\r\n$16\r\n",
            (false, true) => b"SET ",
            (false, false) => b"*3\r\n$3\r\nSET\r\n$16\r\n",
        });
        out.extend_from_slice(&key);
        match (read, text) {
            (false, true) => out.push(b' '),
            (false, false) => out.extend_from_slice(&self.value_head),
            (true, _) => {}
        }
        if !read {
            out.extend_from_slice(&self.value);
        }
        out.extend_from_slice(if text { b"\n" } else { b"\r\n" });
        if read {
            self.seen.reads += 1;
        } else {
            self.seen.writes += 1;
        }
    }
}
