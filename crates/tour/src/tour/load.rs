//! Sends requests over several connections; one thread handles all responses.
//!
//! Invariant: a request ends as exactly one event. Once the server is being killed, a request
//! without a complete response is `Unacknowledged` and is returned with its bytes; before that it
//! is an error of the tour.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use parking_lot::Mutex;

use super::HANGS_AFTER;
use super::client::{Answer, Connection};
use super::inputs::{Documents, Files};
use super::jobs::{Job, Prepared};
use forebay_console::interrupt::Interrupt;

/// How long a busy server is retried, and the delay between attempts: the slow part is the disk,
/// which others may use too.
pub(super) const BUSY_LIMIT: Duration = HANGS_AFTER;
pub(super) const BUSY_WAIT: Duration = Duration::from_millis(20);
/// Interval at which an idle wait checks for an interrupt.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Something to send: for the first time, or again.
#[derive(Debug)]
pub(super) enum Todo {
    New(Job),
    Again(Box<Prepared>),
}

/// The result of a request.
#[derive(Debug)]
pub(super) enum Event {
    Answered {
        prepared: Box<Prepared>,
        answer: Answer,
        took: Duration,
    },
    Unacknowledged(Box<Prepared>),
    /// The content to send could not be read.
    Unread(String),
    Failed(anyhow::Error),
}

/// A load on one server.
pub(super) struct Load<'a> {
    pub(super) files: &'a Files,
    pub(super) documents: &'a Documents,
    pub(super) address: SocketAddr,
    pub(super) connections: usize,
    /// Set before the server is killed.
    pub(super) dying: &'a AtomicBool,
    pub(super) interrupt: &'a Interrupt,
}

impl Load<'_> {
    /// Sends what is queued until nothing is left or the server has ended; returns what is left.
    ///
    /// * `on_event`: called on this thread for every request that ended.
    ///
    /// # Errors
    /// The first error of a request or of `on_event`; the rest is dropped.
    pub(super) fn run(
        &self,
        queue: VecDeque<Todo>,
        on_event: &mut dyn FnMut(Event) -> anyhow::Result<()>,
    ) -> anyhow::Result<VecDeque<Todo>> {
        let queue = Mutex::new(queue);
        let over = AtomicBool::new(false);
        let ended = std::thread::scope(|scope| {
            let (events, ended) = mpsc::sync_channel(self.connections);
            for _ in 0..self.connections {
                let (events, queue, over) = (events.clone(), &queue, &over);
                scope.spawn(move || self.connection(queue, over, &events));
            }
            drop(events);
            let result = loop {
                let event = match ended.recv_timeout(POLL_INTERVAL) {
                    Ok(event) => event,
                    Err(RecvTimeoutError::Disconnected) => break Ok(()),
                    Err(RecvTimeoutError::Timeout) => match self.interrupt.check() {
                        Ok(()) => continue,
                        Err(error) => break Err(error),
                    },
                };
                let taken = self.interrupt.check().and_then(|()| match event {
                    Event::Failed(error) => Err(error),
                    event => on_event(event),
                });
                if taken.is_err() {
                    break taken;
                }
            };
            over.store(true, Ordering::Relaxed);
            // Threads whose events are no longer received end when this is dropped.
            drop(ended);
            result
        });
        ended.map(|()| queue.into_inner())
    }

    fn connection(
        &self,
        queue: &Mutex<VecDeque<Todo>>,
        over: &AtomicBool,
        events: &SyncSender<Event>,
    ) {
        let mut connection = Connection::new(self.address);
        while !over.load(Ordering::Relaxed) {
            let Some(todo) = queue.lock().pop_front() else { return };
            let prepared = match todo {
                Todo::Again(prepared) => Ok(prepared),
                Todo::New(job) => job.prepare(self.files, self.documents).map(Box::new),
            };
            let event = match prepared {
                Ok(prepared) => self.send(&mut connection, prepared),
                Err(error) => Event::Unread(format!("{error:#}")),
            };
            let last = matches!(event, Event::Unacknowledged(_) | Event::Failed(_));
            if events.send(event).is_err() || last {
                return;
            }
        }
    }

    fn send(&self, connection: &mut Connection, prepared: Box<Prepared>) -> Event {
        match self.ask(connection, &prepared) {
            Ok((answer, took)) => Event::Answered { prepared, answer, took },
            Err(_) if self.dying.load(Ordering::SeqCst) => Event::Unacknowledged(prepared),
            Err(error) => {
                let path = &prepared.path;
                Event::Failed(error.context(format!("{} {path} failed", prepared.method)))
            }
        }
    }

    fn ask(
        &self,
        connection: &mut Connection,
        prepared: &Prepared,
    ) -> anyhow::Result<(Answer, Duration)> {
        let asked = Instant::now();
        loop {
            let begun = Instant::now();
            let answer = connection.ask(prepared.request()).context("no complete response")?;
            match answer.status {
                429 if asked.elapsed() < BUSY_LIMIT => {
                    self.interrupt.check()?;
                    std::thread::park_timeout(BUSY_WAIT);
                }
                429 => bail!("the server was busy for {} s", BUSY_LIMIT.as_secs()),
                500.. => bail!("the server failed: {}", answer.describe()),
                _ => return Ok((answer, begun.elapsed())),
            }
        }
    }
}
