//! How a hook reads its sources: from where it is, what its filter selects, by time.
//!
//! Invariants: the events of one source come in the order of its log, those of several by their times; at most
//! [`READY_MAX`] events of a source are in memory; what was lost comes before what follows it.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::value::{RawValue, to_raw_value};

use crate::event::{Event, Filter, GAP, Item, Point, body_of, event_id};
use crate::hook::{Cursor, Delivery, DeliveryRecord, DeliveryState, Holds, HookId};
use crate::live::Inner;
use crate::source::{Batch, SourceError};

/// Events of a source that are held ready.
const READY_MAX: usize = 256;

/// The sources of one hook.
#[derive(Default)]
pub(crate) struct Reading {
    parts: Vec<Part>,
}

/// One source of a hook.
struct Part {
    /// Its place among the sources.
    source: usize,
    /// What was looked at so far.
    scanned: Cursor,
    ready: VecDeque<Found>,
}

/// Something to be sent.
struct Found {
    what: What,
    /// Where the source continues after it.
    after: Cursor,
}

enum What {
    Event(Box<Event>),
    Gap(Gap),
}

#[derive(Debug, Clone, Copy)]
struct Gap {
    from: u64,
    next: Point,
    entries: u64,
}

/// What a look at the sources gave.
pub(crate) enum Looked {
    /// Something to be sent.
    Next(Box<Delivery>),
    /// Nothing yet; there is more to look at.
    More,
    /// Nothing: all was looked at.
    Nothing,
}

/// The data of the event about lost events.
#[derive(serde::Serialize)]
struct GapData<'a> {
    source: &'a str,
    from_position: u64,
    to_position: u64,
    entries: u64,
}

impl Reading {
    /// Starts from the positions that are stored. A source that the hook does not know yet starts at its end.
    pub(crate) fn start(inner: &Inner, cursors: &[Cursor]) -> Self {
        let parts = inner.sources.iter().enumerate().map(|(number, source)| {
            let known = cursors.iter().find(|cursor| cursor.source == source.name());
            let log = source.log_id();
            let end = Point { position: source.end(), item: 0 };
            let begin =
                |point, time_ms| Cursor { source: source.name().to_owned(), log, point, time_ms };
            let mut ready = VecDeque::new();
            let scanned = match known {
                Some(cursor) if cursor.log == log => cursor.clone(),
                // Another log: what the hook had not looked at is lost, and all of the new one is new to it.
                Some(cursor) => {
                    let after = begin(Point { position: 0, item: 0 }, cursor.time_ms);
                    let gap = Gap { from: cursor.point.position, next: after.point, entries: 0 };
                    ready.push_back(Found { what: What::Gap(gap), after: after.clone() });
                    after
                }
                None => begin(end, inner.clock.now_ms()),
            };
            Part { source: number, scanned, ready }
        });
        Self { parts: parts.collect() }
    }

    /// Positions that differ from those that are stored, if nothing before them is to be sent.
    pub(crate) fn ahead_of(&self, stored: &[Cursor]) -> Vec<Cursor> {
        let parts = self.parts.iter().filter(|part| part.ready.is_empty());
        parts.map(|part| part.scanned.clone()).filter(|cursor| !stored.contains(cursor)).collect()
    }

    /// Looks for the next event. Reads at most one batch of each source.
    pub(crate) async fn next(
        &mut self,
        inner: &Arc<Inner>,
        id: HookId,
        filter: &Filter,
    ) -> Result<Looked, SourceError> {
        let mut has_more = false;
        for part in &mut self.parts {
            if !part.ready.is_empty() {
                continue;
            }
            let Some(source) = inner.sources.get(part.source) else { continue };
            let point = part.scanned.point;
            if source.end() > point.position || point.item > 0 {
                let (inner, number) = (Arc::clone(inner), part.source);
                let read = forebay_base::blocking::spawn(move || {
                    inner.sources.get(number).map(|source| source.read(point))
                });
                let failed = |error: tokio::task::JoinError| SourceError {
                    name: source.name(),
                    source: Box::new(error),
                };
                let Some(batch) = read.await.map_err(failed)?.transpose()? else { continue };
                part.take(&batch, filter);
                has_more |= part.ready.is_empty() && source.end() > part.scanned.point.position;
            }
        }
        let first = self.parts.iter_mut().filter(|part| !part.ready.is_empty());
        let first = first.min_by_key(|part| part.ready.front().map(Found::time_ms));
        let found = first.and_then(|part| part.ready.pop_front());
        Ok(match found {
            Some(found) => Looked::Next(Box::new(found.delivery(id, inner.clock.now_ms()))),
            None if has_more => Looked::More,
            None => Looked::Nothing,
        })
    }

    /// Completes when a source has more.
    pub(crate) async fn passed(&self, inner: &Inner) {
        let mut waits: Vec<_> = self
            .parts
            .iter()
            .filter_map(|part| {
                let source = inner.sources.get(part.source)?;
                Some(Box::pin(source.passed(part.scanned.point.position)))
            })
            .collect();
        std::future::poll_fn(|cx| {
            let is_ready = waits.iter_mut().any(|wait| wait.as_mut().poll(cx).is_ready());
            if is_ready { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
    }
}

impl Part {
    /// Takes what the filter selects of a batch.
    fn take(&mut self, batch: &Batch, filter: &Filter) {
        let mut gap: Option<Gap> = None;
        let begin = self.scanned.point;
        for item in batch.items.iter().filter(|item| item.next() > begin) {
            self.scanned.point = item.next();
            let event = match item {
                Item::Lost { from, next, entries } => {
                    let from = gap.map_or((*from).max(begin.position), |gap| gap.from);
                    let before = gap.map_or(0, |gap| gap.entries);
                    gap = Some(Gap { from, next: *next, entries: before + entries });
                    continue;
                }
                Item::Event(event) => event,
            };
            if event.is_restated {
                if event.time_ms <= self.scanned.time_ms {
                    continue;
                }
            } else {
                self.scanned.time_ms = self.scanned.time_ms.max(event.time_ms);
            }
            if filter.matches(event) {
                self.flush(gap.take());
                self.push(What::Event(event.clone()));
            }
            if self.ready.len() >= READY_MAX {
                return;
            }
        }
        self.flush(gap);
        let reached = Point { position: batch.reached, item: 0 };
        // A source whose position was none of its log continues at its end, which may be before.
        let is_elsewhere = gap.is_some_and(|gap| gap.next < begin);
        self.scanned.point = if is_elsewhere { reached } else { reached.max(self.scanned.point) };
    }

    fn flush(&mut self, gap: Option<Gap>) {
        if let Some(gap) = gap {
            let after = Cursor { point: gap.next, ..self.scanned.clone() };
            self.ready.push_back(Found { what: What::Gap(gap), after });
        }
    }

    fn push(&mut self, what: What) {
        self.ready.push_back(Found { what, after: self.scanned.clone() });
    }
}

impl Found {
    fn time_ms(&self) -> u64 {
        match &self.what {
            What::Event(event) => event.time_ms,
            // What is known of its time: it was before everything that follows.
            What::Gap(_) => self.after.time_ms,
        }
    }

    /// Makes a delivery, which those after it wait for.
    fn delivery(self, id: HookId, now_ms: u64) -> Delivery {
        let Self { what, after } = self;
        let (event, kind, event_ms, body) = match what {
            What::Event(event) => {
                let body = body_of(event.kind, event.time_ms, &event.data);
                (event.id, event.kind, event.time_ms, body)
            }
            What::Gap(gap) => {
                let data = gap_data(&after.source, gap);
                let identity = event_id(&[
                    b"gap",
                    &id.to_bytes(),
                    &after.log,
                    &gap.from.to_le_bytes(),
                    &gap.next.position.to_le_bytes(),
                ]);
                (identity, GAP, now_ms, body_of(GAP, now_ms, &data))
            }
        };
        let Cursor { source, log, point, time_ms } = after;
        let record = DeliveryRecord {
            event,
            kind: kind.to_owned(),
            event_ms,
            body,
            created_ms: now_ms,
            holds: Some(Holds { source, log, next: point, time_ms }),
            attempts: 0,
            attempted_ms: None,
            status: None,
            latency_ms: None,
            error: None,
            answer: None,
        };
        Delivery { number: 0, state: DeliveryState::Waiting, due_ms: Some(now_ms), record }
    }
}

fn gap_data(source: &str, gap: Gap) -> Box<RawValue> {
    let Gap { from, next, entries } = gap;
    let data = GapData { source, from_position: from, to_position: next.position, entries };
    // Numbers and a name of ours: nothing can fail.
    to_raw_value(&data).unwrap_or_default()
}
