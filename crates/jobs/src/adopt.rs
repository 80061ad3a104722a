//! Adopts work that has begun already, so that there is one queue for all work.
//!
//! Invariants:
//! - An adopted job is submitted and started by two entries that follow each other. A crash between them leaves
//!   a job that waits, and was not acknowledged.
//! - It never waits, so the limit of waiting jobs and the number of workers are not its own; its number has a
//!   limit nevertheless.
//! - From the moment at which it is in the table, its task ends it, whatever becomes of the caller.

use std::sync::Arc;

use forebay_log::{AppendError, CommitError, Lsn};

use crate::body::ReceivedBody;
use crate::error::SubmitError;
use crate::format::{self, Entry, Key, ORDER_SIZE_MAX, StoredBody};
use crate::id::JobId;
use crate::queue::{Inner, NewJob, Submitted};
use crate::status::Status;
use crate::table::{Body, Job, State, Table};
use crate::workers::{Begun, Control, Running, Slot, SlotKind, Worker};

/// Jobs that may run beside the workers.
const ADOPTED_MAX: usize = 1_024;

impl Inner {
    /// Whether a further job may run beside the workers.
    pub(crate) fn adopts(&self, table: &Table) -> Result<(), SubmitError> {
        if table.closed {
            return Err(SubmitError::Closed);
        }
        let (running, max) = (table.adopted, ADOPTED_MAX);
        if running >= max {
            return Err(SubmitError::TooManyAdopted { running, max });
        }
        match self.log.stalled() {
            Some(source) => Err(SubmitError::Commit(CommitError::Stalled { source })),
            None => Ok(()),
        }
    }

    pub(crate) async fn adopt(
        self: &Arc<Self>,
        mut new: NewJob,
        worker: Arc<dyn Worker>,
    ) -> Result<Submitted, SubmitError> {
        let (size, max) = (new.order.len(), ORDER_SIZE_MAX);
        if size > max {
            return Err(SubmitError::TooLarge { size, max });
        }
        let id = new.body.as_ref().map_or_else(JobId::new, ReceivedBody::id);
        let begun = loop {
            {
                let mut table = self.lock();
                self.adopts(&table)?;
                match self.record(&mut table, id, &new, &worker) {
                    Ok(begun) => break begun,
                    Err(AppendError::Full { .. }) => {}
                    Err(error) => return Err(SubmitError::Append(error)),
                }
            }
            self.log.room(new.order.len()).await;
        };
        if let Some(body) = &mut new.body {
            body.keep();
        }
        let (begun, end) = begun;
        let control = Arc::clone(&begun.running.control);
        tokio::spawn(begun.finish());
        self.announce(id);
        if let Err(error) = self.log.committed(end).await {
            control.cancel();
            return Err(SubmitError::Commit(error));
        }
        metrics::counter!("forebay_jobs_submitted_total").increment(1);
        Ok(Submitted { id, status: Status::Running, is_new: true })
    }

    /// Appends the entries of a job whose work has begun, and adds it to the table, which is locked.
    fn record(
        self: &Arc<Self>,
        table: &mut Table,
        id: JobId,
        new: &NewJob,
        worker: &Arc<dyn Worker>,
    ) -> Result<(Begun, Lsn), AppendError> {
        let now_ms = self.clock.now_ms();
        let submitted = format::Submitted {
            priority: new.priority,
            work: &new.work,
            key: new.key.map(|(key, fingerprint)| Key { key, fingerprint }),
            order: &new.order,
            body: new.body.as_ref().map_or(StoredBody::None, ReceivedBody::stored),
        };
        let job = Job::new(&submitted, now_ms);
        let earlier = job.key.and_then(|key| replaced(table, &key));
        let entry = format::encode(id, now_ms, &Entry::Submitted(submitted));
        let appended = self.log.try_append(&[&entry])?;
        // These block for a write, never for a sync.
        let started = format::encode(id, now_ms, &Entry::Started { attempt: 1 });
        let mut end = self.log.append(&[&started])?.end;
        if let Some(earlier) = earlier {
            let forgotten = format::encode(earlier, now_ms, &Entry::Forgotten);
            end = self.log.append(&[&forgotten])?.end;
            table.remove(earlier);
        }
        let control = Arc::<Control>::default();
        let order = job.order.clone();
        let (stated, state) = ((appended.lsn, appended.end), State::Running(Arc::clone(&control)));
        table.add(id, Job { stated, state, attempts: 1, started_ms: now_ms, ..job });
        table.adopted += 1;
        let slot = Slot { inner: Arc::clone(self), kind: SlotKind::Adopted };
        let running = Running { id, attempt: 1, order, control, inner: Arc::clone(self) };
        let worker = Some(Arc::clone(worker));
        Ok((Begun { running, worker, durable: Some(end), slot }, end))
    }
}

/// The ended job with a key, whose place a new one takes. One with a body in a file stays until its time.
fn replaced(table: &Table, key: &Key) -> Option<JobId> {
    let (id, job) = table.by_key(&key.key)?;
    let has_file = matches!(job.body, Body::File { .. });
    (job.status().is_ended() && !has_file).then_some(id)
}
