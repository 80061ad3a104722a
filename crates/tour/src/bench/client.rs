//! The load: many HTTP/1.1 connections over real sockets, driven by one thread.
//!
//! A connection sends a request, reads its complete response, checks the status, and sends the
//! next. The same client measures Forebay and the baseline, so its own cost is in both.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::LocalSet;

/// Maximum size of a response.
const ANSWER_SIZE_MAX: usize = 1 << 20;

/// The result of a load.
#[derive(Debug, Clone, Default)]
pub(super) struct Load {
    /// Number of successful requests.
    pub(super) done: u64,
    pub(super) took: Duration,
    /// Every response time in microseconds, sorted.
    pub(super) latencies_us: Vec<u32>,
}

impl Load {
    pub(super) fn per_second(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a count of requests")]
        let done = self.done as f64;
        done / self.took.as_secs_f64()
    }

    pub(super) fn percentile_us(&self, share: f64) -> f64 {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an index into the latencies"
        )]
        let at = (self.latencies_us.len() as f64 * share) as usize;
        self.latencies_us.get(at).or(self.latencies_us.last()).map_or(0.0, |us| f64::from(*us))
    }
}

/// When a load ends.
#[derive(Debug, Clone, Copy)]
pub(super) enum Until {
    Elapsed(Duration),
    Requests(u64),
}

/// A steady load: each request is due at its time, whether or not those before it were answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    pub(super) per_second: f64,
    /// Before it, while a server that has just started warms up: made and checked, but not timed.
    pub(super) warming: Duration,
    pub(super) lasting: Duration,
}

impl Pace {
    /// Number of its requests.
    fn count(self) -> u64 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count of requests"
        )]
        let count = (self.per_second * (self.warming + self.lasting).as_secs_f64()) as u64;
        count.max(1)
    }

    /// When the request at this place is due, from the beginning on.
    fn due(self, place: u64) -> Duration {
        #[expect(clippy::cast_precision_loss, reason = "a count of requests")]
        let place = place as f64;
        Duration::from_secs_f64(place / self.per_second.max(1.0))
    }
}

/// As [`drive`], from the number 0 on at a steady rate. The time of a request that found no free connection
/// counts from when it was due.
pub(super) fn drive_paced(
    address: SocketAddr,
    connections: usize,
    pace: Pace,
    request: impl Fn(u64, &mut Vec<u8>) + 'static,
    check: impl Fn(u64, u16, &[u8]) -> anyhow::Result<()> + 'static,
) -> anyhow::Result<Load> {
    let until = Until::Requests(pace.count());
    run(address, connections, (until, Some(pace)), 0, request, check)
}

/// Sends requests made by `request(number, buffer)` over `connections` connections.
///
/// * `check`: checks a response's status and body; an error ends the load.
pub(super) fn drive(
    address: SocketAddr,
    connections: usize,
    until: Until,
    first: u64,
    request: impl Fn(u64, &mut Vec<u8>) + 'static,
    check: impl Fn(u64, u16, &[u8]) -> anyhow::Result<()> + 'static,
) -> anyhow::Result<Load> {
    run(address, connections, (until, None), first, request, check)
}

fn run(
    address: SocketAddr,
    connections: usize,
    plan: (Until, Option<Pace>),
    first: u64,
    request: impl Fn(u64, &mut Vec<u8>) + 'static,
    check: impl Fn(u64, u16, &[u8]) -> anyhow::Result<()> + 'static,
) -> anyhow::Result<Load> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the client")?;
    let (request, check) = (Rc::new(request), Rc::new(check));
    let next = Rc::new(Cell::new(first));
    let local = LocalSet::new();
    runtime.block_on(local.run_until(async move {
        let mut open = Vec::new();
        for _ in 0..connections {
            let stream = TcpStream::connect(address).await.context("cannot connect")?;
            stream.set_nodelay(true).context("cannot set TCP_NODELAY")?;
            open.push(stream);
        }
        let begun = Instant::now();
        let tasks: Vec<_> = open
            .into_iter()
            .map(|stream| {
                let (request, check, next) = (request.clone(), check.clone(), next.clone());
                tokio::task::spawn_local(connection(
                    stream, begun, plan, first, next, request, check,
                ))
            })
            .collect();
        let mut load = Load::default();
        for task in tasks {
            let (done, latencies) = task.await.context("a connection failed")??;
            load.done += done;
            load.latencies_us.extend(latencies);
        }
        load.took = begun.elapsed();
        load.latencies_us.sort_unstable();
        Ok(load)
    }))
}

async fn connection(
    mut stream: TcpStream,
    begun: Instant,
    (until, pace): (Until, Option<Pace>),
    first: u64,
    next: Rc<Cell<u64>>,
    request: Rc<impl Fn(u64, &mut Vec<u8>)>,
    check: Rc<impl Fn(u64, u16, &[u8]) -> anyhow::Result<()>>,
) -> anyhow::Result<(u64, Vec<u32>)> {
    let (mut done, mut latencies) = (0, Vec::new());
    let mut out = Vec::with_capacity(8_192);
    let mut answer = vec![0; ANSWER_SIZE_MAX];
    loop {
        let number = next.get();
        let over = match until {
            Until::Elapsed(limit) => begun.elapsed() >= limit,
            Until::Requests(count) => number >= first + count,
        };
        if over {
            return Ok((done, latencies));
        }
        next.set(number + 1);
        out.clear();
        request(number, &mut out);
        let sent = match pace.map(|pace| begun + pace.due(number - first)) {
            Some(due) if due > Instant::now() => {
                tokio::time::sleep_until(due.into()).await;
                Instant::now()
            }
            Some(due) => due,
            None => Instant::now(),
        };
        stream.write_all(&out).await.context("cannot send")?;
        let (status, body, size) = read_answer(&mut stream, &mut answer).await?;
        let took = u32::try_from(sent.elapsed().as_micros()).unwrap_or(u32::MAX);
        done += 1;
        if pace.is_none_or(|pace| pace.due(number - first) >= pace.warming) {
            latencies.push(took);
        }
        let body = answer.get(body..size).context("a response ended early")?;
        check(number, status, body)?;
    }
}

/// Reads one response; returns its status, where its body begins, and where it ends.
async fn read_answer(
    stream: &mut TcpStream,
    buffer: &mut [u8],
) -> anyhow::Result<(u16, usize, usize)> {
    let mut size = 0;
    loop {
        let free = buffer.get_mut(size..).filter(|free| !free.is_empty());
        let free = free.context("a response is larger than expected")?;
        let read = stream.read(free).await.context("cannot read a response")?;
        ensure!(read > 0, "the server closed a connection in the middle of a response");
        size += read;
        let held = buffer.get(..size).unwrap_or_default();
        let mut headers = [httparse::EMPTY_HEADER; 32];
        let mut response = httparse::Response::new(&mut headers);
        let parsed = response.parse(held).context("a response is malformed")?;
        let httparse::Status::Complete(head) = parsed else { continue };
        let length = response
            .headers
            .iter()
            .find(|header| header.name.eq_ignore_ascii_case("content-length"))
            .and_then(|header| std::str::from_utf8(header.value).ok()?.parse::<usize>().ok());
        let Some(length) = length else { bail!("a response does not declare its length") };
        if size >= head + length {
            return Ok((response.code.unwrap_or(0), head, head + length));
        }
        // The head is complete: read the rest of the body without parsing again.
        while size < head + length {
            let free = buffer.get_mut(size..head + length);
            let free = free.context("a response is larger than expected")?;
            let read = stream.read(free).await.context("cannot read a response")?;
            ensure!(read > 0, "the server closed a connection in the middle of a response");
            size += read;
        }
        let status = response_code(buffer.get(..head).unwrap_or_default());
        return Ok((status, head, head + length));
    }
}

fn response_code(head: &[u8]) -> u16 {
    let code = head.get(9..12).and_then(|digits| std::str::from_utf8(digits).ok());
    code.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}
