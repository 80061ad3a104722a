//! `forebay cache bench`: a load generator for both protocols.
//!
//! Threads share the connections; each polls its connections together and keeps a pipeline full
//! on every one of them. A latency is the time from sending a request to having its whole reply.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use forebay_base::duration::HumanDuration;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use serde_json::json;

use crate::bench::latency::Latencies;
use crate::exit::Exit;
use crate::{child, out};

const AFTER_HELP: &str = "\
Examples:
  forebay cache bench --clients 100 --duration 10s
  forebay cache bench --pipeline 16 --read-share 0.9 --zipf 0.99 --pid $(pgrep -f 'cache serve')
  forebay cache bench --text 127.0.0.1:8890 --requests 1000000 --json

With --pid the server's CPU time per operation is reported. It is a better measure than the rate if
the load generator runs on the same machine. The exit code is 1 if a reply was an error.";

/// Maximum time without any reply from the server.
const SILENCE_LIMIT: Duration = Duration::from_secs(10);

#[derive(clap::Args, Clone, Debug)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// Address of the RESP listener.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6380")]
    resp: SocketAddr,
    /// Load the text protocol at this address instead.
    #[arg(long, value_name = "ADDRESS")]
    text: Option<SocketAddr>,
    /// Number of connections.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    clients: u32,
    /// Number of threads of the load generator.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: u32,
    /// Number of requests in flight on each connection.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pipeline: u32,
    /// Size of a value, in bytes.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    size: u32,
    /// Number of different keys.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    keys: u64,
    /// Fraction of GETs; the rest are SETs.
    #[arg(long, default_value_t = 0.5, value_name = "SHARE")]
    read_share: f64,
    /// Skew of the keys (Zipf), 0 to less than 1; 0 is uniform.
    #[arg(long, default_value_t = 0.0, value_name = "THETA")]
    zipf: f64,
    /// Total number of requests.
    #[arg(long, default_value_t = 1_000_000, conflicts_with = "duration")]
    requests: u64,
    /// Run for this time instead.
    #[arg(long, value_name = "DURATION")]
    duration: Option<HumanDuration>,
    /// Process id of the server, to measure its CPU time.
    #[arg(long)]
    pid: Option<u32>,
    /// Print one flat JSON object.
    #[arg(long)]
    json: bool,
}

/// Results of a thread.
#[derive(Default)]
struct Totals {
    reads: u64,
    writes: u64,
    hits: u64,
    errors: u64,
    latencies: Latencies,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    ensure!((0.0..=1.0).contains(&args.read_share), "--read-share must be from 0 to 1");
    ensure!((0.0..1.0).contains(&args.zipf), "--zipf must be at least 0 and less than 1");
    let cpu_before = args.pid.map(child::cpu_seconds_of).transpose()?;
    let threads = args.threads.min(args.clients);
    let zipf = (args.zipf > 0.0).then(|| Zipf::new(args.keys, args.zipf));
    let started = Instant::now();
    let seen = std::thread::scope(|scope| {
        let share = |whole: u64, number: u64| {
            whole / u64::from(threads) + u64::from(number < whole % u64::from(threads))
        };
        let running: Vec<_> = (0..u64::from(threads))
            .map(|number| {
                let clients = share(args.clients.into(), number);
                let requests = match args.duration {
                    Some(_) => u64::MAX,
                    None => share(args.requests, number),
                };
                let draw = Draw { state: number + 1, keys: args.keys, zipf };
                scope.spawn(move || Thread::new(args, draw, requests).run(clients, started))
            })
            .collect();
        let mut all = Totals::default();
        for thread in running {
            let seen = thread.join().map_err(|_| anyhow::anyhow!("a load thread panicked"))??;
            all.reads += seen.reads;
            all.writes += seen.writes;
            all.hits += seen.hits;
            all.errors += seen.errors;
            all.latencies.merge(&seen.latencies)?;
        }
        anyhow::Ok(all)
    })?;
    let seconds = started.elapsed().as_secs_f64();
    let cpu_after = args.pid.map(child::cpu_seconds_of).transpose()?;
    let cpu_s = cpu_after.zip(cpu_before).map(|(after, before)| after - before);
    report(args, &seen, seconds, cpu_s)?;
    Ok(if seen.errors == 0 { Exit::Ok } else { Exit::Failed })
}

#[expect(clippy::cast_precision_loss, reason = "figures are printed with few digits")]
fn report(args: &Args, seen: &Totals, seconds: f64, cpu_s: Option<f64>) -> anyhow::Result<()> {
    let done = seen.reads + seen.writes;
    let us = |share: f64| seen.latencies.quantile(share).as_nanos() as f64 / 1_000.0;
    let mut figures = json!({
        "requests": done,
        "seconds": seconds,
        "requests_per_s": done as f64 / seconds,
        "reads": seen.reads,
        "writes": seen.writes,
        "hits": seen.hits,
        "errors": seen.errors,
        "latency_p50_us": us(0.5),
        "latency_p95_us": us(0.95),
        "latency_p99_us": us(0.99),
        "latency_p999_us": us(0.999),
        "latency_max_us": us(1.0),
        "clients": args.clients,
        "pipeline": args.pipeline,
    });
    if let Some(cpu_s) = cpu_s {
        figures["server_cpu_us_per_request"] = json!(cpu_s * 1e6 / done.max(1) as f64);
    }
    if args.json {
        return out::json(&figures);
    }
    for (name, value) in figures.as_object().into_iter().flatten() {
        match value.as_f64().filter(|_| value.is_f64()) {
            Some(value) => out::line(format_args!("{name:<26} {value:>16.2}"))?,
            None => out::line(format_args!("{name:<26} {value:>16}"))?,
        }
    }
    Ok(())
}

/// A connection of the load generator.
struct Client {
    socket: TcpStream,
    out: Vec<u8>,
    sent: usize,
    /// The beginning of a reply that has not arrived completely.
    input: Vec<u8>,
    /// Remaining bytes of a value whose beginning was read.
    owed: usize,
    /// Replies of the batch that have not arrived, and when the batch was sent.
    waiting: u32,
    since: Instant,
}

struct Thread<'a> {
    args: &'a Args,
    draw: Draw,
    value: Vec<u8>,
    /// Bytes between key and value in RESP.
    value_head: Vec<u8>,
    /// Requests this thread may still send.
    left: u64,
    deadline: Option<Instant>,
    seen: Totals,
}

impl<'a> Thread<'a> {
    fn new(args: &'a Args, draw: Draw, left: u64) -> Self {
        // Printable, and without repetition.
        let mut bytes = Draw { state: 0, keys: 64, zipf: None };
        let value = (0..args.size).map(|_| b'0' + u8::try_from(bytes.key()).unwrap_or(0)).collect();
        let value_head = format!("\r\n${}\r\n", args.size).into_bytes();
        Self { args, draw, value, value_head, left, deadline: None, seen: Totals::default() }
    }

    fn run(mut self, clients: u64, started: Instant) -> anyhow::Result<Totals> {
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
        let mut busy = 0_usize;
        for client in &mut connections {
            busy += usize::from(self.next_batch(client)?);
        }
        let mut events = Events::with_capacity(1_024);
        let mut buffer = vec![0; 64 << 10];
        while busy > 0 {
            poll.poll(&mut events, Some(SILENCE_LIMIT)).context("cannot wait for replies")?;
            ensure!(!events.is_empty(), "the cache sent no reply for {SILENCE_LIMIT:?}");
            for event in &events {
                let Some(client) = connections.get_mut(event.token().0) else { continue };
                if client.waiting > 0 && !self.advance(client, &mut buffer)? {
                    busy -= 1;
                }
            }
        }
        Ok(self.seen)
    }

    /// Sends, reads and continues. Returns whether the connection has more to do.
    fn advance(&mut self, client: &mut Client, buffer: &mut [u8]) -> anyhow::Result<bool> {
        flush(client)?;
        loop {
            match client.socket.read(buffer) {
                Ok(0) => anyhow::bail!("the cache closed the connection"),
                Ok(count) => {
                    self.take_replies(client, &buffer[..count]);
                    if client.waiting == 0 && !self.next_batch(client)? {
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
    fn next_batch(&mut self, client: &mut Client) -> anyhow::Result<bool> {
        let over = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        let count = u64::from(self.args.pipeline).min(self.left);
        if over || count == 0 {
            return Ok(false);
        }
        self.left -= count;
        client.out.clear();
        client.sent = 0;
        for _ in 0..count {
            self.request(&mut client.out);
        }
        client.waiting = u32::try_from(count)?;
        client.since = Instant::now();
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

/// `key:` and twelve digits.
fn key(number: u64) -> [u8; 16] {
    let mut key = *b"key:000000000000";
    let mut rest = number;
    for digit in key.iter_mut().skip(4).rev() {
        *digit += u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
    }
    key
}

fn flush(client: &mut Client) -> anyhow::Result<()> {
    while client.sent < client.out.len() {
        match client.socket.write(&client.out[client.sent..]) {
            Ok(count) => client.sent += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("cannot send to the cache"),
        }
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Value,
    Error,
    Other,
}

/// Returns the length and kind of the first reply to a GET or a SET. The length of a value may
/// exceed what has arrived.
fn reply(input: &[u8], text: bool) -> Option<(usize, Kind)> {
    let end = input.iter().position(|&byte| byte == b'\n')? + 1;
    let line = &input[..end];
    if text {
        return Some(match line {
            [b'E', b'R', b'R', b'O', b'R', ..] => (end, Kind::Error),
            b"OK\n" | b"NULL\n" => (end, Kind::Other),
            _ => (end, Kind::Value),
        });
    }
    match line.first() {
        Some(b'$') if line.get(1) != Some(&b'-') => {
            let digits = std::str::from_utf8(line.get(1..)?).ok()?.trim_end();
            Some((end + digits.parse::<usize>().ok()? + 2, Kind::Value))
        }
        Some(b'-') => Some((end, Kind::Error)),
        _ => Some((end, Kind::Other)),
    }
}

/// Generates keys and random fractions (SplitMix64, Steele et al., OOPSLA 2014).
struct Draw {
    state: u64,
    keys: u64,
    zipf: Option<Zipf>,
}

impl Draw {
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from 0 to less than 1.
    #[expect(clippy::cast_precision_loss, reason = "53 bits are what a float holds")]
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn key(&mut self) -> u64 {
        match self.zipf {
            Some(zipf) => zipf.rank(self.share()),
            None => self.next() % self.keys,
        }
    }
}

/// Ranks by Zipf's law (Gray et al., "Quickly generating billion-record synthetic databases",
/// SIGMOD 1994).
#[derive(Clone, Copy)]
struct Zipf {
    keys: f64,
    theta: f64,
    zeta: f64,
    eta: f64,
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "ranks are far below 2^53, and never negative"
)]
impl Zipf {
    fn new(keys: u64, theta: f64) -> Self {
        let zeta = |count: u64| (1..=count).map(|rank| (rank as f64).powf(-theta)).sum::<f64>();
        let (zeta, two) = (zeta(keys), zeta(2.min(keys)));
        let keys = keys as f64;
        let eta = (1.0 - (2.0 / keys).powf(1.0 - theta)) / (1.0 - two / zeta);
        Self { keys, theta, zeta, eta: if eta.is_finite() { eta } else { 0.0 } }
    }

    fn rank(&self, share: f64) -> u64 {
        let scaled = share * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5_f64.powf(self.theta) {
            return 1.min(self.keys as u64 - 1);
        }
        let base = self.eta * share - self.eta + 1.0;
        let rank = self.keys * base.powf(1.0 / (1.0 - self.theta));
        (rank as u64).min(self.keys as u64 - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_distinguished_and_incomplete_ones_wait() {
        assert_eq!(reply(b"$3\r\nabc\r\n+OK\r\n", false), Some((9, Kind::Value)));
        assert_eq!(reply(b"$3\r\nab", false), Some((9, Kind::Value)));
        assert_eq!(reply(b"$3\r", false), None);
        assert_eq!(reply(b"$-1\r\n", false), Some((5, Kind::Other)));
        assert_eq!(reply(b"-ERR\r\n", false), Some((6, Kind::Error)));
        assert_eq!(reply(b"+O", false), None);
        assert_eq!(reply(b"value\n", true), Some((6, Kind::Value)));
        assert_eq!(reply(b"ERROR x\n", true), Some((8, Kind::Error)));
    }

    #[test]
    fn keys_have_their_number_in_twelve_digits() {
        assert_eq!(&key(0), b"key:000000000000");
        assert_eq!(&key(90_210), b"key:000000090210");
    }

    #[test]
    fn skewed_draws_stay_within_the_keys_and_favour_the_first() {
        for keys in [1, 2, 3, 1_000] {
            let mut draw = Draw { state: 1, keys, zipf: Some(Zipf::new(keys, 0.99)) };
            let drawn: Vec<u64> = (0..10_000).map(|_| draw.key()).collect();
            assert!(drawn.iter().all(|&key| key < keys), "{keys}");
            let first = drawn.iter().filter(|&&key| key == 0).count();
            assert!(first * usize::try_from(keys).unwrap() >= 10_000, "{keys}: {first}");
        }
    }
}
