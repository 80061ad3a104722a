//! Streams events as lines, one JSON object each; the stream may continue with new events.
//!
//! The stream is produced in steps. A step reads up to a piece of events on a thread, and is sent
//! when the client has room for it. Between two steps neither a thread nor the store is held, so
//! clients that are slow, or wait for events, take no slot from others. Searches take a slot of
//! `events.reads_max` for a step, followers a slot of a separate, smaller set, so that searches are
//! answered however many clients follow. An error aborts the body, so that a client detects the
//! loss.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use forebay_base::waiting::Waiting;
use forebay_events::query::{Cursor, Order, Query};
use forebay_events::{Record, Store};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;

use super::params::Params;
use super::problem::Problem;
use super::read::{Matches, rendered};
use super::{Shared, closing};
use crate::answer::{line, lines};
use crate::blocking::on_thread;
use crate::serve::Endless;

/// Maximum number of events, and of their bytes, in a step's piece.
const HELD_EVENTS: usize = 1024;
const HELD_SIZE: usize = 512 << 10;
/// Number of events formatted at a time.
const RENDERED_EVENTS: usize = 256;
/// Number of positions that a follower's step examines.
const LOOKED_AT_MAX: u64 = 64 << 10;
/// Delay of a follower after a piece, so that single events are read together.
const REST: Duration = Duration::from_millis(10);
/// Time without events after which an empty line is sent, to detect that a client has disconnected.
const BEAT_EVERY: Duration = Duration::from_secs(2);

/// Responds with a stream.
pub(super) fn answer(shared: &Arc<Shared>, mut asked: Params) -> Result<Response, Problem> {
    let waiting = Waiting::default();
    asked.query.gone = waiting.gone();
    let shared = Arc::clone(shared);
    let follow = asked.follow;
    let body = if follow {
        let newest = asked.newest()?;
        let permit = shared.permit(&shared.followers, "events.followers_max")?;
        let lines = Follow::new(shared, waiting, permit, asked, newest)?;
        Body::from_stream(futures_util::stream::unfold(Some(lines), |lines| async move {
            let mut lines = lines?;
            match lines.next().await {
                Ok(None) => None,
                Ok(Some(text)) => Some((Ok(Bytes::from(text)), Some(lines))),
                Err(problem) => Some((Err(unreadable(&problem)), None)),
            }
        }))
    } else {
        // The first step's slot: if there is none, the response is an error.
        let permit = shared.permit(&shared.reads, "events.reads_max")?;
        let lines = Search::new(shared, waiting, permit, asked);
        Body::from_stream(futures_util::stream::unfold(Some(lines), |lines| async move {
            let mut lines = lines?;
            match lines.next().await {
                Ok(None) => None,
                Ok(Some(text)) => Some((Ok(Bytes::from(text)), Some(lines))),
                Err(problem) => Some((Err(unreadable(&problem)), None)),
            }
        }))
    };
    let mut response = lines(body);
    if follow {
        response.extensions_mut().insert(Endless);
    }
    Ok(response)
}

/// The error with which the body is aborted; the problem itself was logged where it arose.
fn unreadable(_problem: &Problem) -> io::Error {
    io::Error::other("cannot read the store")
}

/// Acquires a slot for one step.
async fn permit(among: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Problem> {
    Arc::clone(among).acquire_owned().await.map_err(|_| closing())
}

/// Events as lines.
fn text_of(store: &Store, records: &[Record], proof: bool) -> Result<String, Problem> {
    let size: usize = records.iter().map(|record| record.leaf().len()).sum();
    let mut text = String::with_capacity(2 * size);
    for records in records.chunks(RENDERED_EVENTS) {
        for event in rendered(store, records, proof)? {
            text.push_str(&line(&event));
            text.push('\n');
        }
    }
    Ok(text)
}

/// A stream of the current events.
struct Search {
    shared: Arc<Shared>,
    _waiting: Waiting,
    /// The slot of the first step.
    permit: Option<OwnedSemaphorePermit>,
    /// Position at which the next step begins; `None` at the end.
    rest: Option<Searched>,
}

/// The rest of a search.
struct Searched {
    query: Query,
    positions: Option<Range<u64>>,
    left: u64,
    proof: bool,
    /// Events from this position on are newer than the stream.
    end: Option<u64>,
}

impl Search {
    fn new(
        shared: Arc<Shared>,
        waiting: Waiting,
        permit: OwnedSemaphorePermit,
        asked: Params,
    ) -> Self {
        let left = asked.stream();
        let Params { query, positions, proof, .. } = asked;
        let rest = Some(Searched { query, positions, left, proof, end: None });
        Self { shared, _waiting: waiting, permit: Some(permit), rest }
    }

    async fn next(&mut self) -> Result<Option<String>, Problem> {
        let Some(mut rest) = self.rest.take() else { return Ok(None) };
        let permit = match self.permit.take() {
            Some(permit) => permit,
            None => permit(&self.shared.reads).await?,
        };
        let store = self.shared.store()?;
        let step = on_thread(move || {
            let (text, more) = rest.step(&store)?;
            drop(store);
            drop(permit);
            Ok((text, more.then_some(rest)))
        });
        let (text, rest) = step.await?;
        self.rest = rest;
        Ok((!text.is_empty()).then_some(text))
    }
}

impl Searched {
    /// Returns the next piece, and whether there may be more.
    fn step(&mut self, store: &Store) -> Result<(String, bool), Problem> {
        let end = *self.end.get_or_insert_with(|| store.len());
        let mut found = Matches::new(store, self.query.clone(), self.positions.clone());
        let (mut held, mut size): (Vec<Record>, usize) = (Vec::new(), 0);
        let mut more = false;
        while self.left > 0
            && let Some(record) = found.next()?
        {
            if record.seq() >= end {
                continue;
            }
            self.left -= 1;
            size += record.leaf().len();
            held.push(record);
            if held.len() == HELD_EVENTS || size >= HELD_SIZE {
                more = true;
                break;
            }
        }
        if let Some(last) = held.last() {
            match &mut self.positions {
                Some(positions) => positions.start = last.seq() + 1,
                None => {
                    let timestamp_ns = last.event().timestamp_ns;
                    self.query.after = Some(Cursor { timestamp_ns, seq: last.seq() });
                }
            }
        }
        Ok((text_of(store, &held, self.proof)?, more))
    }
}

/// A stream of the newest events, then of new ones.
struct Follow {
    shared: Arc<Shared>,
    _waiting: Waiting,
    _permit: OwnedSemaphorePermit,
    /// Position of the last event visible to readers.
    shown: watch::Receiver<u64>,
    draining: watch::Receiver<bool>,
    /// Number of newest events requested, until they were read.
    newest: Option<u64>,
    /// State of the next step; taken by it.
    followed: Option<Followed>,
    sent: Instant,
}

/// Progress of a follower.
struct Followed {
    query: Query,
    proof: bool,
    /// The newest events, oldest first.
    begin: VecDeque<u64>,
    next: u64,
}

impl Follow {
    fn new(
        shared: Arc<Shared>,
        waiting: Waiting,
        permit: OwnedSemaphorePermit,
        asked: Params,
        newest: u64,
    ) -> Result<Self, Problem> {
        let next = shared.store()?.len();
        let Params { query, proof, .. } = asked;
        let followed = Followed { query, proof, begin: VecDeque::new(), next };
        Ok(Self {
            shown: shared.shown.clone(),
            draining: shared.draining.subscribe(),
            shared,
            _waiting: waiting,
            _permit: permit,
            newest: Some(newest),
            followed: Some(followed),
            sent: Instant::now(),
        })
    }

    /// Returns the next lines; `None` if the server stops.
    async fn next(&mut self) -> Result<Option<String>, Problem> {
        loop {
            if *self.draining.borrow() {
                return Ok(None);
            }
            if let Some(newest) = self.newest.take() {
                let mut text = String::new();
                if newest > 0 {
                    text = self.step(move |followed, store| followed.begin(store, newest)).await?;
                }
                // The response's head is sent with the first piece.
                text.push('\n');
                return Ok(Some(text));
            }
            let Some(followed) = &self.followed else { return Ok(None) };
            let next = followed.next;
            let due = !followed.begin.is_empty() || *self.shown.borrow() > next;
            if due {
                let text = self.step(Followed::step).await?;
                if !text.is_empty() {
                    self.sent = Instant::now();
                    return Ok(Some(text));
                }
                continue;
            }
            tokio::select! {
                ended = grown(&mut self.shown, next) => if ended { return Ok(None) },
                () = drained(&mut self.draining) => return Ok(None),
                () = tokio::time::sleep_until(self.sent + BEAT_EVERY) => {
                    self.sent = Instant::now();
                    return Ok(Some("\n".to_owned()));
                }
            }
            tokio::time::sleep(REST).await;
        }
    }

    async fn step(
        &mut self,
        step: impl FnOnce(&mut Followed, &Store) -> Result<String, Problem> + Send + 'static,
    ) -> Result<String, Problem> {
        let permit = permit(&self.shared.follow_reads).await?;
        let store = self.shared.store()?;
        let Some(mut followed) = self.followed.take() else { return Err(closing()) };
        let stepped = on_thread(move || {
            let text = step(&mut followed, &store)?;
            drop(store);
            drop(permit);
            Ok((followed, text))
        });
        let (followed, text) = stepped.await?;
        self.followed = Some(followed);
        Ok(text)
    }
}

/// Completes once there are more than `next` events; returns true if none will come.
async fn grown(shown: &mut watch::Receiver<u64>, next: u64) -> bool {
    shown.wait_for(|end| *end > next).await.is_err()
}

/// Completes once the server stops.
async fn drained(draining: &mut watch::Receiver<bool>) {
    // The sender is dropped only with the server.
    draining.wait_for(|draining| *draining).await.map(drop).unwrap_or_default();
}

impl Followed {
    /// Reads the newest events.
    fn begin(&mut self, store: &Store, newest: u64) -> Result<String, Problem> {
        let latest = Query { order: Order::NewestFirst, ..self.query.clone() };
        let mut scan = store.scan(latest);
        while (self.begin.len() as u64) < newest
            && let Some(record) = scan.next()?
        {
            if record.seq() < self.next {
                self.begin.push_front(record.seq());
            }
        }
        drop(scan);
        self.step(store)
    }

    /// Continues reading.
    fn step(&mut self, store: &Store) -> Result<String, Problem> {
        let (mut held, mut size): (Vec<Record>, usize) = (Vec::new(), 0);
        let mut looked_at = 0;
        while looked_at < LOOKED_AT_MAX && held.len() < HELD_EVENTS && size < HELD_SIZE {
            looked_at += 1;
            let known = self.begin.pop_front();
            let record = match known {
                Some(seq) => store.at(seq)?,
                None if self.next < store.len() => {
                    self.next += 1;
                    store.at(self.next - 1)?
                }
                None => break,
            };
            if let Some(record) =
                record.filter(|record| known.is_some() || self.query.matches(record))
            {
                size += record.leaf().len();
                held.push(record);
            }
            if looked_at % 256 == 0 && self.query.gone.is_gone() {
                return Ok(String::new());
            }
        }
        text_of(store, &held, self.proof)
    }
}
