//! From records to stored events: parsing, batching and appending, for whoever reads a file or a
//! request body.
//!
//! Batches are handed to the log as they fill and waited for at the end, so a long input is one
//! stream of group commits. Bounds: one batch, and what the store lets in.

use crate::batch::{Batch, BatchError};
use crate::event::EventId;
use crate::input::{Format, Parser, Record, Reject};
use crate::store::{AppendError, Store, Submitted};

/// What became of an input.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Events stored.
    pub accepted: u64,
    /// Records that are no events.
    pub rejected: u64,
    /// Id of the first event stored.
    pub first_id: Option<EventId>,
    /// Id of the last.
    pub last_id: Option<EventId>,
}

/// Turns records into stored events.
#[derive(Debug)]
pub struct Ingest<'a> {
    store: &'a Store,
    parser: Parser,
    stream: String,
    batch: Batch,
    batch_events: usize,
    newest: Option<Submitted<'a>>,
    summary: Summary,
}

impl<'a> Ingest<'a> {
    /// An ingest into `store`; records that name no stream go to `stream`.
    #[must_use]
    pub fn new(store: &'a Store, format: Format, stream: &str) -> Self {
        Self {
            store,
            parser: Parser::new(format),
            stream: stream.to_owned(),
            batch: Batch::new(stream),
            batch_events: store.options().batch_events.max(1),
            newest: None,
            summary: Summary::default(),
        }
    }

    /// Takes a record; `on_reject` is told of one that is no event.
    ///
    /// * `now_ns`: the time of an event that says none.
    ///
    /// # Errors
    /// The store takes nothing more. What was acknowledged before stays.
    pub fn record(
        &mut self,
        record: &Record<'_>,
        now_ns: i64,
        on_reject: &mut dyn FnMut(u64, &Reject, &[u8]),
    ) -> Result<(), AppendError> {
        let parsed = match &record.fault {
            Some(fault) => Err(fault.clone()),
            None => self.parser.parse(record.bytes),
        };
        let draft = match parsed {
            Ok(Some(draft)) => draft,
            Ok(None) => return Ok(()),
            Err(reject) => {
                self.summary.rejected += 1;
                on_reject(record.line, &reject, record.bytes);
                return Ok(());
            }
        };
        let mut pushed = self.batch.push(&draft, now_ns);
        if pushed == Err(BatchError::Full) {
            submit(self.store, &mut self.batch, &self.stream, &mut self.newest)?;
            pushed = self.batch.push(&draft, now_ns);
        }
        match pushed {
            Ok(id) => {
                self.summary.accepted += 1;
                self.summary.first_id.get_or_insert(id);
                self.summary.last_id = Some(id);
            }
            Err(error) => {
                self.summary.rejected += 1;
                let reject = Reject::new(forebay_base::error_chain::chain(&error).to_string());
                on_reject(record.line, &reject, record.bytes);
            }
        }
        if self.batch.len() >= self.batch_events {
            submit(self.store, &mut self.batch, &self.stream, &mut self.newest)?;
        }
        Ok(())
    }

    /// Hands over what is left, so that readers may soon see it, without waiting.
    ///
    /// # Errors
    /// As [`record`](Self::record).
    pub fn flush(&mut self) -> Result<(), AppendError> {
        submit(self.store, &mut self.batch, &self.stream, &mut self.newest)
    }

    /// Stores what is left and blocks until everything is acknowledged.
    ///
    /// # Errors
    /// Something was not acknowledged: whether it is stored is unknown until the store is opened again.
    pub fn finish(mut self) -> Result<Summary, AppendError> {
        self.flush()?;
        if let Some(newest) = self.newest {
            newest.wait()?;
        }
        Ok(self.summary)
    }
}

/// Hands a batch to the store, and puts an empty one in its place.
fn submit<'a>(
    store: &'a Store,
    batch: &mut Batch,
    stream: &str,
    newest: &mut Option<Submitted<'a>>,
) -> Result<(), AppendError> {
    if batch.is_empty() {
        return Ok(());
    }
    let next = Batch::with_capacity(stream, batch.len(), batch.size());
    let submitted = store.submit(std::mem::replace(batch, next))?;
    if let Some(earlier) = newest.take()
        && !submitted.follows(&earlier)
    {
        // The log failed in between: no later acknowledgement is the earlier one's too.
        earlier.wait()?;
    }
    *newest = Some(submitted);
    Ok(())
}
