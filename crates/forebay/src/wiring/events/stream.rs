//! Events as a stream of lines, one JSON object each, that may go on with what comes.
//!
//! A thread scans and writes into a short channel; it stops where the client has left, and, if it
//! follows, where the server stops. An error ends the body without its end, so that a client sees
//! that something is missing.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::response::Response;
use bytes::Bytes;
use forebay_events::query::{Order, Query};
use forebay_events::{Record, Store};
use tokio::sync::mpsc::{Sender, channel};

use super::super::answer::streamed_lines;
use super::Shared;
use super::problem::Problem;
use super::question::Question;
use super::read::{Found, rendered};

/// Pieces on their way to the client.
const PIECES: usize = 4;
/// Events, and bytes of them, that make a piece.
const HELD_EVENTS: usize = 256;
const HELD_SIZE: usize = 256 << 10;
/// How often a thread that waits for events looks whether it is still needed.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// An empty line is sent after so long without events: it shows whether the client is there.
const BEAT_EVERY: Duration = Duration::from_secs(15);

/// Answers with a stream.
pub(super) fn answer(shared: &Arc<Shared>, asked: Question) -> Result<Response, Problem> {
    let newest = if asked.follow { asked.newest()? } else { 0 };
    let permit = shared.place(&shared.reads, "events.reads_max")?;
    let store = shared.store()?;
    let (to, from) = channel::<Result<Bytes, io::Error>>(PIECES);
    let shared = Arc::clone(shared);
    // Nobody waits for the thread: it ends with its channel.
    drop(tokio::task::spawn_blocking(move || {
        let mut lines = Lines {
            store: &store,
            proof: asked.proof,
            held: Vec::new(),
            size: 0,
            to,
            sent: Instant::now(),
        };
        let result = if asked.follow {
            lines.follow(&asked.query, newest, &shared)
        } else {
            lines.scan(&asked)
        };
        if let Err(Ended::Failed(_)) = result {
            let error = io::Error::other("the store could not be read");
            // Where the client has left too, nobody is there to be told.
            lines.to.blocking_send(Err(error)).unwrap_or_default();
        }
        drop(lines);
        drop(store);
        drop(permit);
    }));
    Ok(streamed_lines(from))
}

/// Why a stream ended before its end.
enum Ended {
    /// The client has left.
    Left,
    /// The store could not be read; that was logged.
    Failed(#[expect(dead_code, reason = "logged where it arose")] Problem),
}

impl<E: Into<Problem>> From<E> for Ended {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

struct Lines<'a> {
    store: &'a Store,
    proof: bool,
    held: Vec<Record>,
    size: usize,
    to: Sender<Result<Bytes, io::Error>>,
    sent: Instant,
}

impl Lines<'_> {
    fn scan(&mut self, asked: &Question) -> Result<(), Ended> {
        let mut left = asked.stream();
        let mut found = Found::new(self.store, asked.query.clone(), asked.positions.clone());
        while left > 0
            && let Some(record) = found.next()?
        {
            left -= 1;
            self.add(record)?;
        }
        self.send()
    }

    /// The newest events, then what comes.
    fn follow(&mut self, query: &Query, newest: u64, shared: &Shared) -> Result<(), Ended> {
        let mut next = self.store.len();
        let mut begin: Vec<Record> = Vec::new();
        let latest = Query { order: Order::NewestFirst, ..query.clone() };
        let mut scan = self.store.scan(latest);
        while (begin.len() as u64) < newest
            && let Some(record) = scan.next()?
        {
            if record.seq() < next {
                begin.push(record);
            }
        }
        drop(scan);
        for record in begin.into_iter().rev() {
            self.add(record)?;
        }
        // The answer's head is on its way with the first piece.
        self.beat()?;
        while !shared.draining.load(Ordering::Acquire) {
            let end = self.store.wait_for(next, LOOK_EVERY);
            while next < end {
                let found = self.store.at(next)?;
                next += 1;
                if let Some(record) = found.filter(|record| query.matches(record)) {
                    self.add(record)?;
                } else if self.to.is_closed() {
                    return Err(Ended::Left);
                }
            }
            self.send()?;
            if self.sent.elapsed() >= BEAT_EVERY {
                self.beat()?;
            }
        }
        Ok(())
    }

    fn add(&mut self, record: Record) -> Result<(), Ended> {
        self.size += record.leaf().len();
        self.held.push(record);
        if self.held.len() >= HELD_EVENTS || self.size >= HELD_SIZE { self.send() } else { Ok(()) }
    }

    /// Sends what is held.
    fn send(&mut self) -> Result<(), Ended> {
        if self.to.is_closed() {
            return Err(Ended::Left);
        }
        if self.held.is_empty() {
            return Ok(());
        }
        let mut text = String::with_capacity(2 * self.size);
        for event in rendered(self.store, &self.held, self.proof)? {
            text.push_str(&event.to_string());
            text.push('\n');
        }
        self.held.clear();
        self.size = 0;
        self.piece(text)
    }

    /// Sends an empty line, after what is held.
    fn beat(&mut self) -> Result<(), Ended> {
        self.send()?;
        self.piece("\n".to_owned())
    }

    fn piece(&mut self, text: String) -> Result<(), Ended> {
        self.sent = Instant::now();
        self.to.blocking_send(Ok(text.into())).map_err(|_| Ended::Left)
    }
}
