//! How jobs change: each change is an entry of the log, and the same change of the table.
//!
//! Invariants:
//! - Both happen together, under the table's lock: the log has the changes in the order in which they
//!   happened.
//! - A change is reported once its entry is as durable as configured.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use forebay_log::{AppendError, Appended, CommitError, Lsn, ReadError};
use parking_lot::MutexGuard;

use crate::body::{BodyReader, ReceivedBody};
use crate::error::{BodyError, JobError, SubmitError};
use crate::format::{self, End, Entry, How, Key, ORDER_SIZE_MAX, StoredBody};
use crate::id::JobId;
use crate::queue::{Change, Inner, NewJob, Submitted};
use crate::status::Status;
use crate::table::{Body, Job, State, Table};
use crate::workers::TICK;

impl Inner {
    pub(crate) fn room(&self, table: &Table) -> Result<(), SubmitError> {
        if table.closed {
            return Err(SubmitError::Closed);
        }
        let (waiting, max) = (table.waiting(), self.options.queued_max);
        if waiting >= max {
            return Err(SubmitError::Full { waiting, max });
        }
        match self.log.stalled() {
            Some(source) => Err(SubmitError::Commit(CommitError::Stalled { source })),
            None => Ok(()),
        }
    }

    pub(crate) async fn submit(&self, mut new: NewJob) -> Result<Submitted, SubmitError> {
        let (size, max) = (new.order.len(), ORDER_SIZE_MAX);
        if size > max {
            return Err(SubmitError::TooLarge { size, max });
        }
        let _arriving = self.arrivals.arrive(self.options.workers.max(1), Instant::now());
        let id = new.body.as_ref().map_or_else(JobId::new, ReceivedBody::id);
        let key = new.key.map(|(key, fingerprint)| Key { key, fingerprint });
        let stored = new.body.as_ref().map_or(StoredBody::None, ReceivedBody::stored);
        let now_ms = self.clock.now_ms();
        let submitted = format::Submitted {
            priority: new.priority,
            work: &new.work,
            key,
            order: &new.order,
            body: stored,
        };
        let mut job = Job::new(&submitted, now_ms);
        let entry = format::encode(id, now_ms, &Entry::Submitted(submitted));
        let found = self.append_when(
            &entry,
            |table| {
                if let Some((known, job)) = key.and_then(|key| table.by_key(&key.key)) {
                    let same = job.key == key;
                    let found = Submitted { id: known, status: job.status(), is_new: false };
                    let end = job.stated.1;
                    return Err(if same {
                        Ok((found, end))
                    } else {
                        Err(SubmitError::KeyReused { job: known })
                    });
                }
                self.room(table).map_err(Err)
            },
            |table, appended| {
                job.stated = (appended.lsn, appended.end);
                table.add(id, job.clone());
                (Submitted { id, status: Status::Queued, is_new: true }, appended.end)
            },
        );
        let (found, end) = match found.await {
            Ok(found) => {
                if let Some(body) = &mut new.body {
                    body.keep();
                }
                found
            }
            Err(Refusal::By(Ok(found))) => found,
            Err(Refusal::By(Err(error))) => return Err(error),
            Err(Refusal::Log(error)) => return Err(SubmitError::Append(error)),
        };
        self.log.committed(end).await.map_err(SubmitError::Commit)?;
        self.wake.notify_one();
        if found.is_new {
            metrics::counter!("forebay_jobs_submitted_total").increment(1);
            self.announce(id);
        }
        Ok(found)
    }

    /// Appends an entry and changes the table, both under the table's lock; waits while the log has no room.
    ///
    /// * `may`: decides under the lock whether that happens.
    pub(crate) async fn append_when<T, E>(
        &self,
        entry: &[u8],
        mut may: impl FnMut(&Table) -> Result<(), E>,
        mut then: impl FnMut(&mut Table, Appended) -> T,
    ) -> Result<T, Refusal<E>> {
        loop {
            {
                let mut table = self.table.lock();
                may(&table).map_err(Refusal::By)?;
                match self.log.try_append(&[entry]) {
                    Ok(appended) => return Ok(then(&mut table, appended)),
                    Err(AppendError::Full { .. }) => {}
                    Err(error) => return Err(Refusal::Log(error)),
                }
            }
            self.log.room(entry.len()).await;
        }
    }

    /// Reports a change of a job to observers.
    pub(crate) fn announce(&self, id: JobId) {
        let number = {
            let mut table = self.table.lock();
            let Some(job) = table.jobs.get_mut(&id) else { return };
            job.changes += 1;
            job.changes
        };
        // Without observers it goes nowhere.
        self.changes.send(Change { id, number }).ok();
    }

    pub(crate) async fn cancel(self: Arc<Self>, id: JobId) -> Result<Status, JobError> {
        loop {
            if let Some(Job { state: State::Running(control), .. }) = self.lock().jobs.get(&id) {
                control.cancel();
                return Ok(Status::Running);
            }
            match Arc::clone(&self).cancel_waiting(id).await {
                // It was started meanwhile.
                Err(JobError::Status { status: "running", .. }) if self.lock().is_running(id) => {}
                cancelled => return cancelled,
            }
        }
    }

    async fn cancel_waiting(self: Arc<Self>, id: JobId) -> Result<Status, JobError> {
        let end = End { how: How::Cancelled, result: &[], reason: "" };
        let now_ms = self.clock.now_ms();
        let attempts = self.table.lock().jobs.get(&id).map_or(0, |job| job.attempts);
        let entry = format::encode(id, now_ms, &Entry::Ended { attempts, end });
        let needed = "only jobs that wait or run can be cancelled";
        let appended = self.append_when(
            &entry,
            |table| allow(table, id, needed, |status| status == Status::Queued),
            |table, appended| {
                table.leave(id);
                if let Some(job) = table.jobs.get_mut(&id) {
                    job.state = State::Ending { end: appended.end };
                }
                appended
            },
        );
        let appended = appended.await.map_err(|refusal| refusal.of(id))?;
        // Also if the caller goes away meanwhile.
        let settled = async move { self.settled(id, How::Cancelled, now_ms, (appended, 0)).await };
        tokio::spawn(settled).await.unwrap_or(Err(JobError::Closed))?;
        Ok(Status::Cancelled)
    }

    /// Shows that a job has ended, once that is durable.
    ///
    /// * `result`: the entry that says so, and the size of its result.
    pub(crate) async fn settled(
        self: &Arc<Self>,
        id: JobId,
        how: How,
        at_ms: u64,
        (appended, size): (Appended, usize),
    ) -> Result<(), JobError> {
        self.durable(appended.end).await.map_err(|source| JobError::Commit { id, source })?;
        let file = self.settle(id, how, at_ms, (appended.lsn, size));
        self.remove_file(id, file, appended.end).await;
        Ok(())
    }

    /// Waits until the log is as durable as configured up to `end`, through a lack of space.
    pub(crate) async fn durable(&self, end: Lsn) -> Result<(), CommitError> {
        loop {
            match self.log.committed(end).await {
                Err(CommitError::Stalled { source }) => {
                    if self.lock().closed {
                        return Err(CommitError::Stalled { source });
                    }
                    if self.log.retry().is_err() {
                        tokio::time::sleep(TICK).await;
                    }
                }
                done => return done,
            }
        }
    }

    /// Removes the file of a job's body, once the entry that makes it needless survives a power cut.
    async fn remove_file(self: &Arc<Self>, id: JobId, file: Option<u64>, end: Lsn) {
        let Some(size) = file else { return };
        let inner = Arc::clone(self);
        let removed = forebay_base::blocking::spawn(move || {
            // A failure leaves the file to the next opening.
            if inner.log.sync_to(end).is_ok() {
                inner.bodies.remove(id, size);
            }
        });
        if let Err(error) = removed.await {
            tracing::error!(job = %id, %error, "the body of a job was not removed");
        }
    }

    /// Shows that a job has ended; returns the size of its file if that is needless now.
    fn settle(&self, id: JobId, how: How, at_ms: u64, result: (Lsn, usize)) -> Option<u64> {
        let status = match how {
            How::Completed => Status::Completed,
            How::Failed => Status::Failed,
            How::Cancelled => Status::Cancelled,
        };
        let file = {
            let mut table = self.table.lock();
            table.end(id, status, at_ms, result);
            table.ends.add(status);
            // That of a failed job is kept: it may be queued again.
            let job = table.jobs.get(&id).filter(|_| how != How::Failed);
            job.map(|job| job.body)
        };
        metrics::counter!("forebay_jobs_ended_total", "status" => status.name()).increment(1);
        self.announce(id);
        match file {
            Some(Body::File { size, .. }) => Some(size),
            _ => None,
        }
    }

    pub(crate) async fn queue_again(&self, id: JobId) -> Result<(), JobError> {
        let entry = format::encode(id, self.clock.now_ms(), &Entry::QueuedAgain);
        let needed = "only failed jobs can be queued again";
        let end = self.append_when(
            &entry,
            |table| {
                if table.closed {
                    return Err(JobError::Closed);
                }
                let (waiting, max) = (table.waiting(), self.options.queued_max);
                allow(table, id, needed, |status| status == Status::Failed)?;
                if waiting >= max { Err(JobError::Full { waiting, max }) } else { Ok(()) }
            },
            |table, appended| {
                table.queue_again(id);
                appended.end
            },
        );
        let end = end.await.map_err(|refusal| refusal.of(id))?;
        self.log.committed(end).await.map_err(|source| JobError::Commit { id, source })?;
        self.wake.notify_one();
        self.announce(id);
        Ok(())
    }

    pub(crate) async fn forget(self: Arc<Self>, id: JobId) -> Result<(), JobError> {
        let entry = format::encode(id, self.clock.now_ms(), &Entry::Forgotten);
        let needed = "only jobs that have ended can be removed; cancel it first";
        let forgotten = self.append_when(
            &entry,
            |table| allow(table, id, needed, Status::is_ended),
            |table, appended| (table.remove(id), appended.end),
        );
        let (job, end) = forgotten.await.map_err(|refusal| refusal.of(id))?;
        let size = job.and_then(|job| match job.body {
            Body::File { size, .. } => Some(size),
            _ => None,
        });
        let task = tokio::spawn(async move {
            self.durable(end).await.map_err(|source| JobError::Commit { id, source })?;
            self.remove_file(id, size, end).await;
            Ok(())
        });
        task.await.unwrap_or(Err(JobError::Closed))
    }

    /// The body of a job.
    pub(crate) fn read_body(&self, id: JobId) -> Result<BodyReader, BodyError> {
        let body = self.lock().jobs.get(&id).map(|job| job.body);
        match body {
            Some(Body::File { size, sha256 }) => self.bodies.reader(id, size, sha256),
            Some(Body::Inline(_)) => {
                let payload = self.read_stated(id, |job| Some(job.stated.0));
                let payload = payload.map_err(BodyError::Read)?.unwrap_or_default();
                let damaged = || BodyError::Damaged { found: "its entry has none".to_owned() };
                let (_, _, entry) = format::decode(&payload).map_err(|_| damaged())?;
                match entry.submitted().map(|submitted| submitted.body) {
                    Some(StoredBody::Inline(bytes)) => {
                        Ok(BodyReader::of(Bytes::copy_from_slice(bytes)))
                    }
                    _ => Err(damaged()),
                }
            }
            Some(Body::None) | None => Ok(BodyReader::of(Bytes::new())),
        }
    }

    /// Reads an entry about a job. One that was truncated since it was looked up is stated again later.
    ///
    /// * `at`: where it is.
    pub(crate) fn read_stated(
        &self,
        id: JobId,
        at: impl Fn(&Job) -> Option<Lsn>,
    ) -> Result<Option<Vec<u8>>, ReadError> {
        for _ in 0..3 {
            let Some(lsn) = self.lock().jobs.get(&id).and_then(&at) else { return Ok(None) };
            match self.log.read(lsn) {
                Err(ReadError::BelowStart { .. }) => {}
                read => return read.map(Some),
            }
        }
        let Some(lsn) = self.lock().jobs.get(&id).and_then(&at) else { return Ok(None) };
        self.log.read(lsn).map(Some)
    }

    /// Locks the table.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock()
    }
}

/// Why an entry was not appended.
pub(crate) enum Refusal<E> {
    By(E),
    Log(AppendError),
}

impl Refusal<JobError> {
    fn of(self, id: JobId) -> JobError {
        match self {
            Self::By(error) => error,
            Self::Log(source) => JobError::Append { id, source },
        }
    }
}

/// Whether a job has a status that permits something.
fn allow(
    table: &Table,
    id: JobId,
    needed: &'static str,
    permits: impl Fn(Status) -> bool,
) -> Result<(), JobError> {
    let job = table.jobs.get(&id).ok_or(JobError::Unknown(id))?;
    let status = job.status();
    if permits(status) {
        return Ok(());
    }
    Err(JobError::Status { id, status: status.name(), needed })
}
