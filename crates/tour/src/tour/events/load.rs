//! Sends events over several connections, up to a number or until the server has ended.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context as _, bail};
use parking_lot::Mutex;

use super::lines::Line;
use crate::child::Server;
use crate::tour::client::{Answer, Connection, Request};
use crate::tour::first::{First, on_threads};
use crate::tour::load::{BUSY_LIMIT, BUSY_WAIT};
use forebay_console::interrupt::Interrupt;

/// Number of lines in a request; fewer than in one batch of the server, so a request is one batch.
const LINES: usize = 500;

/// Lines, and their state.
pub(super) struct Load<'a> {
    lines: &'a [Line],
    connections: usize,
    interrupt: &'a Interrupt,
    queue: Mutex<VecDeque<Range<usize>>>,
    unanswered: Mutex<Vec<Range<usize>>>,
    acknowledged: AtomicUsize,
}

impl<'a> Load<'a> {
    pub(super) fn new(lines: &'a [Line], connections: usize, interrupt: &'a Interrupt) -> Self {
        let ranges = (0..lines.len()).step_by(LINES);
        let queue = ranges.map(|from| from..lines.len().min(from + LINES)).collect();
        Self {
            lines,
            connections,
            interrupt,
            queue: Mutex::new(queue),
            unanswered: Mutex::default(),
            acknowledged: AtomicUsize::new(0),
        }
    }

    /// Returns the number of acknowledged lines.
    pub(super) fn acknowledged(&self) -> usize {
        self.acknowledged.load(Ordering::SeqCst)
    }

    /// Takes the unanswered requests.
    pub(super) fn unanswered(&self) -> Vec<Range<usize>> {
        std::mem::take(&mut self.unanswered.lock())
    }

    /// Counts lines that were found to be stored.
    pub(super) fn settle(&self, range: Range<usize>) {
        self.acknowledged.fetch_add(range.len(), Ordering::SeqCst);
    }

    /// Queues lines that were found not to be stored.
    pub(super) fn again(&self, range: Range<usize>) {
        self.queue.lock().push_back(range);
    }

    /// Sends until `until` lines are acknowledged or nothing is left; a `victim` is killed half way
    /// through the rest.
    pub(super) fn run(
        &self,
        address: SocketAddr,
        until: usize,
        victim: Option<Server>,
        sent: &(dyn Fn(u64) + Sync),
    ) -> anyhow::Result<()> {
        let left: usize = self.queue.lock().iter().map(|range| range.len()).sum();
        let kill_at = self.acknowledged() + left / 2;
        let dying = AtomicBool::new(false);
        let victim = Mutex::new(victim);
        let first = First::default();
        on_threads(self.connections, &first, &|_| {
            let mut connection = Connection::new(address);
            while self.acknowledged() < until && !first.is_noted() {
                if !self.one(&mut connection, &dying, sent)? {
                    break;
                }
                if self.acknowledged() >= kill_at
                    && let Some(server) = victim.lock().take()
                {
                    dying.store(true, Ordering::SeqCst);
                    server.kill()?;
                }
            }
            Ok(())
        });
        // An earlier error takes precedence: the kill of the server is not its cause.
        first.result()?;
        // If everything was acknowledged before the kill was due, it is due now.
        victim.into_inner().map_or(Ok(()), Server::kill)
    }

    /// Sends one request; `false` if there is none left, or the server has ended.
    fn one(
        &self,
        connection: &mut Connection,
        dying: &AtomicBool,
        sent: &(dyn Fn(u64) + Sync),
    ) -> anyhow::Result<bool> {
        self.interrupt.check()?;
        if dying.load(Ordering::SeqCst) {
            return Ok(false);
        }
        let Some(range) = self.queue.lock().pop_front() else { return Ok(false) };
        let mut body = String::new();
        for line in self.lines.get(range.clone()).unwrap_or_default() {
            body.push_str(&line.json);
            body.push('\n');
        }
        let headers = [("content-type", "application/x-ndjson".to_owned())];
        let request = Request {
            method: "POST",
            path: "/v1/events?stream=tour",
            headers: &headers,
            body: body.as_bytes(),
        };
        match self.until_taken(connection, request) {
            Ok(answer) if answer.status == 200 => {
                self.acknowledged.fetch_add(range.len(), Ordering::SeqCst);
                sent(body.len() as u64);
                Ok(true)
            }
            Ok(answer) => bail!("POST /v1/events was answered {}", answer.describe()),
            Err(_) if dying.load(Ordering::SeqCst) => {
                self.unanswered.lock().push(range);
                Ok(false)
            }
            Err(error) => Err(error).context("POST /v1/events was not answered"),
        }
    }

    /// Retries while the server is busy, for at most [`BUSY_LIMIT`]; returns the first other
    /// response.
    fn until_taken(
        &self,
        connection: &mut Connection,
        request: Request<'_>,
    ) -> anyhow::Result<Answer> {
        let begun = Instant::now();
        loop {
            let answer = connection.ask(request)?;
            if !matches!(answer.status, 429 | 503) || begun.elapsed() >= BUSY_LIMIT {
                return Ok(answer);
            }
            self.interrupt.check()?;
            std::thread::park_timeout(BUSY_WAIT);
        }
    }
}
