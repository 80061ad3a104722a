//! From records to stored events: parsing, batching and appending, for callers that read a file or
//! a request body.
//!
//! Batches are submitted to the log as they fill and awaited at the end, so a long input is one
//! stream of group commits. Memory limits: one batch, and what the store accepts.

use crate::batch::{Batch, BatchError};
use crate::event::EventId;
use crate::input::{Format, Parser, Record, Reject};
use crate::store::{AppendError, Promise, Store};

/// The result of an input.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Events stored.
    pub accepted: u64,
    /// Records that are not events.
    pub rejected: u64,
    /// Id of the first event stored.
    pub first_id: Option<EventId>,
    /// Id of the last.
    pub last_id: Option<EventId>,
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
        }
    }

    /// Adds a record; calls `on_reject` if it is not an event.
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
            self.submit(store)?;
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
            self.submit(store)?;
        }
        Ok(())
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
        self.flush(store)?;
        if let Some(newest) = self.newest {
            store.wait(newest)?;
        }
        Ok(self.summary)
    }

    /// Submits the batch and replaces it with an empty one.
    fn submit(&mut self, store: &Store) -> Result<(), AppendError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let next = Batch::with_capacity(&self.stream, self.batch.len(), self.batch.size());
        let submitted = store.submit(std::mem::replace(&mut self.batch, next))?.promise();
        if let Some(earlier) = self.newest.take()
            && !submitted.follows(&earlier)
        {
            // The log failed in between: a later acknowledgement does not cover the earlier batch.
            store.wait(earlier)?;
        }
        self.newest = Some(submitted);
        Ok(())
    }
}
