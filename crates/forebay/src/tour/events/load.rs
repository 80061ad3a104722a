//! Sending events from several connections, up to a point or until the server is gone.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{Context as _, bail};
use parking_lot::Mutex;

use super::lines::Line;
use crate::child::Server;
use crate::tour::client::{Connection, Request};
use crate::tour::interrupt::Interrupt;

/// Lines of a request; fewer than the server puts into one batch, so a request is one.
const LINES: usize = 500;

/// Lines, and what became of them.
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

    /// Lines that were acknowledged.
    pub(super) fn acknowledged(&self) -> usize {
        self.acknowledged.load(Ordering::SeqCst)
    }

    /// Takes the requests that were never answered.
    pub(super) fn unanswered(&self) -> Vec<Range<usize>> {
        std::mem::take(&mut self.unanswered.lock())
    }

    /// Counts lines that turned out to be stored.
    pub(super) fn settle(&self, range: Range<usize>) {
        self.acknowledged.fetch_add(range.len(), Ordering::SeqCst);
    }

    /// Queues lines that turned out not to be.
    pub(super) fn again(&self, range: Range<usize>) {
        self.queue.lock().push_back(range);
    }

    /// Sends until `until` lines are acknowledged or nothing is left; a `victim` is killed half way
    /// through what was left.
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
        let killed = std::thread::scope(|scope| -> anyhow::Result<()> {
            let threads: Vec<_> = (0..self.connections)
                .map(|_| {
                    scope.spawn(|| {
                        let mut connection = Connection::new(address);
                        while self.acknowledged() < until {
                            if !self.one(&mut connection, &dying, sent)? {
                                return Ok(());
                            }
                            if self.acknowledged() >= kill_at
                                && let Some(server) = victim.lock().take()
                            {
                                dying.store(true, Ordering::SeqCst);
                                server.kill()?;
                            }
                        }
                        Ok(())
                    })
                })
                .collect();
            let joined: Vec<anyhow::Result<()>> = threads
                .into_iter()
                .map(|thread| {
                    thread.join().unwrap_or_else(|_| bail!("a connection of the tour panicked"))
                })
                .collect();
            joined.into_iter().collect()
        });
        // Where everything was acknowledged before the kill was due, it is due now.
        if let Some(server) = victim.into_inner() {
            server.kill()?;
        }
        killed
    }

    /// Sends one request; `false` where there is none left, or nobody to send it to.
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
        match connection.ask(request) {
            Ok(answer) if answer.status == 200 => {
                self.acknowledged.fetch_add(range.len(), Ordering::SeqCst);
                sent(body.len() as u64);
                Ok(true)
            }
            Ok(answer) if answer.status == 429 || answer.status == 503 => {
                self.queue.lock().push_front(range);
                std::thread::park_timeout(std::time::Duration::from_millis(20));
                Ok(true)
            }
            Ok(answer) => bail!("POST /v1/events was answered {}", answer.told()),
            Err(_) if dying.load(Ordering::SeqCst) => {
                self.unanswered.lock().push(range);
                Ok(false)
            }
            Err(error) => Err(error).context("POST /v1/events was not answered"),
        }
    }
}
