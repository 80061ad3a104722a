//! From records to stored events: parsing, batching and appending, for callers that read a file or
//! a request body.
//!
//! Batches are submitted to the log as they fill and awaited at the end, so a long input is one
//! stream of group commits. Memory limits: one batch, and what the store accepts.
//!
//! An input with a request key is stored once however often it is sent (`tracked`): what an earlier
//! attempt stored is compared and passed over.

mod named;
mod tracked;

pub(crate) use named::NamedIds;
use named::{Claims, Known};
use tracked::Tracked;

use crate::batch::{Batch, BatchError};
use crate::event::{Draft, EventId, TimeSource};
use crate::format::request::Tally;
pub use crate::format::request::{ANSWER_SIZE_MAX, RequestKey};
use crate::input::{Format, Mapping, Parser, RECORD_SIZE_MAX, Record, Reject};
use crate::store::{AppendError, Promise, Store};

/// The result of an input.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Events stored.
    pub accepted: u64,
    /// Events that were stored before under the id that they name, and are not stored again.
    pub duplicates: u64,
    /// Records that are not events.
    pub rejected: u64,
    /// Id of the first event stored.
    pub first_id: Option<EventId>,
    /// Id of the last.
    pub last_id: Option<EventId>,
    /// Events stored with the time of appending, because no time was recognised in them.
    pub mistimed: u64,
    /// Events stored whose time has no offset, and was read as UTC.
    pub assumed: u64,
    /// The first of those without a recognised time.
    pub first_mistimed: Option<Mistimed>,
}

/// An event in which no time was recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mistimed {
    /// Its line, from 1; in a JSON document its number among the elements.
    pub line: u64,
    /// Why no time was recognised.
    pub reason: &'static str,
}

impl Summary {
    /// What is known of an earlier attempt.
    fn of(tally: &Tally) -> Self {
        let any = tally.accepted > 0;
        Self {
            accepted: tally.accepted,
            // An earlier attempt does not state them.
            duplicates: 0,
            rejected: tally.rejected,
            mistimed: tally.mistimed,
            assumed: tally.assumed,
            first_id: any.then_some(tally.first_id),
            last_id: any.then_some(tally.last_id),
            first_mistimed: None,
        }
    }

    /// Adds the result of another input, which came after this one.
    pub fn add(&mut self, other: Self) {
        self.accepted += other.accepted;
        self.duplicates += other.duplicates;
        self.rejected += other.rejected;
        self.mistimed += other.mistimed;
        self.assumed += other.assumed;
        self.first_id = self.first_id.or(other.first_id);
        self.last_id = other.last_id.or(self.last_id);
        self.first_mistimed = self.first_mistimed.or(other.first_mistimed);
    }
}

/// Turns records into stored events. It belongs to the store it was created for, but does not
/// borrow it, so that it can be kept while its input is awaited.
#[derive(Debug)]
pub struct Ingest {
    parser: Parser,
    stream: String,
    batch: Batch,
    batch_events: usize,
    newest: Option<Promise>,
    summary: Summary,
    request: Option<Tracked>,
    claims: Claims,
}

impl Ingest {
    /// Returns an ingest into `store`; records without a stream belong to `stream`.
    #[must_use]
    pub fn new(store: &Store, format: Format, stream: &str) -> Self {
        Self {
            parser: Parser::new(format),
            stream: stream.to_owned(),
            batch: Batch::new(stream),
            batch_events: store.options().batch_events.max(1),
            newest: None,
            summary: Summary::default(),
            request: None,
            claims: Claims::new(store),
        }
    }

    /// Names the input, so that it is stored once: what an earlier attempt under the same key stored
    /// is not stored again.
    ///
    /// * `about`: what else distinguishes requests, such as the stream and the format.
    #[must_use]
    pub fn with_request(mut self, store: &Store, key: RequestKey, about: &[u8]) -> Self {
        let known = store.request(key);
        if let Some(known) = &known {
            self.summary = Summary::of(&known.tally);
        }
        self.request = Some(Tracked::new(key, about, known));
        self
    }

    /// The result so far.
    #[must_use]
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Sets the answer to a request with a key, once its input has ended: a later one with the same
    /// key and input gets it.
    pub fn set_answer(&mut self, status: u16, answer: Vec<u8>) {
        if let Some(request) = &mut self.request {
            request.set_answer(status, answer);
        }
    }

    /// The answer that the request got before, as it was set; to be asked at the end of the input.
    ///
    /// # Errors
    /// [`AppendError::KeyReused`]: its input was another.
    pub fn earlier_answer(&self) -> Result<Option<(u16, &[u8])>, AppendError> {
        self.request.as_ref().map_or(Ok(None), Tracked::earlier_answer)
    }

    /// Sets where the fields of the records are.
    #[must_use]
    pub fn with_mapping(self, mapping: Mapping) -> Self {
        Self { parser: self.parser.with_mapping(mapping), ..self }
    }

    /// Adds a record, which may be an envelope of several events; calls `on_reject` for what is
    /// not an event.
    ///
    /// * `now_ns`: the time of an event without one.
    ///
    /// # Errors
    /// The store accepts no more events. What was acknowledged before stays stored.
    pub fn record(
        &mut self,
        store: &Store,
        record: &Record<'_>,
        now_ns: i64,
        on_reject: &mut dyn FnMut(u64, &Reject, &[u8]),
    ) -> Result<(), AppendError> {
        let Self { parser, batch, stream, batch_events, newest, summary, request, claims } = self;
        if let Some(request) = request {
            request.record(record.bytes);
        }
        let batch_events = *batch_events;
        let mut intake = Intake { batch, stream, batch_events, newest, summary, request, claims };
        let mut failed = None;
        let mut rejected = |intake: &mut Intake<'_>, reject: &Reject, bytes: &[u8]| {
            intake.summary.rejected += 1;
            on_reject(record.line, reject, bytes);
        };
        if let Some(fault) = &record.fault {
            if intake.is_new()? {
                rejected(&mut intake, fault, record.bytes);
            }
            return Ok(());
        }
        parser.parse_each(record.bytes, &mut |parsed| {
            if failed.is_some() {
                return;
            }
            match intake.is_new() {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    failed = Some(error);
                    return;
                }
            }
            let draft = match parsed {
                Ok(draft) if draft.raw.len() > RECORD_SIZE_MAX => {
                    let (size, limit) = (draft.raw.len(), RECORD_SIZE_MAX);
                    let text = format!("the record has {size} bytes; the maximum is {limit}");
                    return rejected(&mut intake, &Reject::new(text), beginning(&draft.raw));
                }
                Ok(draft) => draft,
                Err(reject) => {
                    let bytes = reject.element.as_deref().unwrap_or(record.bytes);
                    return rejected(&mut intake, &reject, bytes);
                }
            };
            match intake.draft(store, &draft, record.line, now_ns) {
                Ok(Ok(())) => {}
                Ok(Err(reject)) => rejected(&mut intake, &reject, &draft.raw),
                Err(error) => failed = Some(error),
            }
        });
        failed.map_or(Ok(()), Err)
    }

    /// Submits the remaining events, so that readers see them soon, without waiting.
    ///
    /// # Errors
    /// As [`record`](Self::record).
    pub fn flush(&mut self, store: &Store) -> Result<(), AppendError> {
        self.submit(store)?;
        // The next record may take long to arrive: release the memory.
        self.batch = Batch::new(&self.stream);
        Ok(())
    }

    /// Stores the remaining events and blocks until everything is acknowledged.
    ///
    /// # Errors
    /// Something was not acknowledged: whether it is stored is unknown until the store is opened
    /// again.
    pub fn finish(mut self, store: &Store) -> Result<Summary, AppendError> {
        self.submit(store)?;
        let Self { batch, stream, newest, summary, request, .. } = &mut self;
        // The answer of a request whose last event was submitted before the end was known.
        if let Some(note) = request.as_mut().and_then(|it| it.last_note(store.now_ns(), summary)) {
            let empty = std::mem::replace(batch, Batch::new(stream));
            let submitted = store.submit_noted(empty, note)?.promise();
            follow(store, newest, submitted)?;
        }
        if let Some(newest) = self.newest {
            store.wait(newest)?;
        }
        Ok(self.summary)
    }

    /// Submits the batch and replaces it with an empty one.
    fn submit(&mut self, store: &Store) -> Result<(), AppendError> {
        let Self { batch, stream, batch_events, newest, summary, request, claims, .. } = self;
        let batch_events = *batch_events;
        Intake { batch, stream, batch_events, newest, summary, request, claims }.submit(store)
    }
}

/// The part of an ingest that stores drafts, while its parser is in use.
struct Intake<'i> {
    batch: &'i mut Batch,
    stream: &'i str,
    batch_events: usize,
    newest: &'i mut Option<Promise>,
    summary: &'i mut Summary,
    request: &'i mut Option<Tracked>,
    claims: &'i mut Claims,
}

impl Intake<'_> {
    /// Whether the next event or rejected record was not stored or reported by an earlier attempt.
    fn is_new(&mut self) -> Result<bool, AppendError> {
        self.request.as_mut().map_or(Ok(true), Tracked::is_new)
    }

    /// Adds an event; the inner error is that it cannot be stored.
    fn draft(
        &mut self,
        store: &Store,
        draft: &Draft<'_>,
        line: u64,
        now_ns: i64,
    ) -> Result<Result<(), Reject>, AppendError> {
        match self.known(store, draft)? {
            Known::New => {}
            Known::Elsewhere => {
                let text = "another request is storing an event with this id; send it again";
                return Ok(Err(Reject::new(text)));
            }
            Known::Same => {
                self.summary.duplicates += 1;
                return Ok(Ok(()));
            }
            Known::Other => {
                let text = "an event with this id and other contents is stored already";
                return Ok(Err(Reject::new(text)));
            }
        }
        let mut pushed = self.batch.push(draft, now_ns);
        if pushed == Err(BatchError::Full) {
            // The event itself is not in what is submitted.
            if let Some(request) = self.request {
                request.hold_back();
            }
            self.submit(store)?;
            if let Some(request) = self.request {
                request.let_go();
            }
            pushed = self.batch.push(draft, now_ns);
        }
        match pushed {
            Ok(id) => {
                let summary = &mut *self.summary;
                summary.accepted += 1;
                summary.first_id.get_or_insert(id);
                summary.last_id = Some(id);
                if draft.timestamp_ns.is_none() {
                    summary.mistimed += 1;
                    let reason = untimed(&draft.format);
                    summary.first_mistimed.get_or_insert(Mistimed { line, reason });
                } else if draft.time_source == TimeSource::Assumed {
                    summary.assumed += 1;
                }
            }
            Err(error) => {
                let text = forebay_base::error_chain::chain(&error).to_string();
                return Ok(Err(Reject::new(text)));
            }
        }
        if self.batch.len() >= self.batch_events {
            self.submit(store)?;
        }
        Ok(Ok(()))
    }

    /// What is known of the id that an event names.
    fn known(&mut self, store: &Store, draft: &Draft<'_>) -> Result<Known, AppendError> {
        let Some(id) = draft.id else { return Ok(Known::New) };
        let stream = if draft.stream.is_empty() { self.stream } else { draft.stream.as_ref() };
        match self.claims.take(store, id, stream, &draft.raw) {
            Known::Elsewhere => {}
            known => return Ok(known),
        }
        // What this input has is acknowledged first, so that it holds nothing for which others wait.
        if let Some(request) = self.request {
            request.hold_back();
        }
        self.submit(store)?;
        if let Some(request) = self.request {
            request.let_go();
        }
        if let Some(newest) = self.newest.take() {
            store.wait(newest)?;
        }
        self.claims.wait(id, stream);
        Ok(self.claims.take(store, id, stream, &draft.raw))
    }

    fn submit(&mut self, store: &Store) -> Result<(), AppendError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let next = Batch::with_capacity(self.stream, self.batch.len(), self.batch.size());
        let batch = std::mem::replace(self.batch, next);
        let note = self.request.as_mut().map(|it| it.note(store.now_ns(), self.summary));
        let submitted = match note {
            Some(note) => store.submit_noted(batch, note),
            None => store.submit(batch),
        };
        let submitted = match submitted {
            Ok(submitted) => submitted.promise(),
            Err(error) => {
                // What was submitted before is noted, if it is stored, so that it is not repeated.
                if self.request.is_some()
                    && let Some(earlier) = self.newest.take()
                {
                    store.wait(earlier)?;
                }
                return Err(error);
            }
        };
        self.claims.submit(store, submitted.end_seq());
        follow(store, self.newest, submitted)
    }
}

/// Replaces the newest batch that is waited for at the end.
fn follow(
    store: &Store,
    newest: &mut Option<Promise>,
    submitted: Promise,
) -> Result<(), AppendError> {
    if let Some(earlier) = newest.take()
        && !submitted.follows(&earlier)
    {
        // The log failed in between: a later acknowledgement does not cover the earlier batch.
        store.wait(earlier)?;
    }
    *newest = Some(submitted);
    Ok(())
}

/// The beginning of a record that is too large.
fn beginning(raw: &[u8]) -> &[u8] {
    const SIZE_MAX: usize = 1024;
    raw.get(..SIZE_MAX).unwrap_or(raw)
}

/// Why no time was recognised in an event of a format.
fn untimed(format: &str) -> &'static str {
    match format {
        "raw" => "no time was recognised near the start of the line",
        "ndjson" => {
            "no field is known to hold the time, or more than one may; name it with time_field"
        }
        "zeek" => "ts is missing or is not a time",
        "ocsf" => "time is missing or is not a time",
        "suricata" => "timestamp is missing or is not a time",
        _ => "the record has no time, or one that can be read in two ways",
    }
}
