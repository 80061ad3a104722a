//! Forgets old jobs, and truncates what the log says of them.
//!
//! Invariants:
//! - Before the log is truncated, everything known is stated behind the truncation, and on stable storage. An
//!   interruption leaves both, and replaying both gives the same.
//! - What a follower has not read is not truncated, unless it is further behind than its own limit.
//! - A job that was forgotten is not known after an opening either.

use std::sync::atomic::Ordering;

use forebay_log::{Appended, Lsn};

use crate::error::JobError;
use crate::format::{self, Entry, How, Kept, KeptState};
use crate::id::JobId;
use crate::queue::Inner;
use crate::status::Status;
use crate::table::{Body, Job, State};

/// Number of times a job that changes meanwhile is looked at.
const ROUNDS_MAX: usize = 10_000;
/// A log shorter than this is left as it is.
const SHORT: u64 = 16 << 20;

impl Inner {
    /// Forgets jobs that ended long ago, and the oldest of too many. Blocks. What the log does not take now is
    /// forgotten later.
    pub(crate) fn forget_old(&self) {
        let now_ms = self.clock.now_ms();
        let ms = |of: std::time::Duration| u64::try_from(of.as_millis()).unwrap_or(u64::MAX);
        let kept = (ms(self.options.ended_kept), ms(self.options.failed_kept));
        let (mut files, mut end) = (Vec::new(), None);
        {
            let mut table = self.lock();
            let many = table.ended.len().saturating_sub(self.options.ended_max);
            let is_old = |job: &Job, at_ms: u64| {
                let kept = if job.status() == Status::Failed { kept.1 } else { kept.0 };
                at_ms.saturating_add(kept) < now_ms
            };
            // By the time of their end: those behind the first that is too young are younger still.
            let shortest = kept.0.min(kept.1);
            let first = table.ended.iter().enumerate().take_while(|(at, (at_ms, _))| {
                *at < many || at_ms.saturating_add(shortest) < now_ms
            });
            let old = first.filter(|(at, (at_ms, id))| {
                *at < many || table.jobs.get(id).is_none_or(|job| is_old(job, *at_ms))
            });
            let old: Vec<JobId> = old.map(|(_, (_, id))| *id).collect();
            for id in old {
                let entry = format::encode(id, now_ms, &Entry::Forgotten);
                let Ok(appended) = self.log.try_append(&[&entry]) else { break };
                end = Some(appended.end);
                if let Some(Body::File { size, .. }) = table.remove(id).map(|job| job.body) {
                    files.push((id, size));
                }
            }
        }
        // A failure leaves the files to the next opening.
        if let Some(end) = end
            && !files.is_empty()
            && self.log.sync_to(end).is_ok()
        {
            files.into_iter().for_each(|(id, size)| self.bodies.remove(id, size));
        }
    }

    /// Shortens the log if most of it is superseded. Blocks.
    pub(crate) fn shorten_if_long(&self) {
        let size = self.log.end().0 - self.log.start().0;
        let from = self.shorten_from.load(Ordering::Relaxed);
        if size < SHORT.max(from) || self.log.stalled().is_some() {
            return;
        }
        // A walk over all jobs, under their lock: only where the log is long.
        let needed: u64 = self.lock().jobs.values().map(Job::stated_size).sum();
        // What a follower has not read stays, and stating all jobs again for a part of the log pays only if that is
        // large.
        let from = self.held_from().unwrap_or(self.log.end());
        let removable = from.0.saturating_sub(self.log.start().0);
        if removable < 2 * needed || removable < size / 2 {
            return;
        }
        let shortened = self.shorten();
        // A failure states jobs in vain: it is not repeated each second.
        self.shorten_from.store(if shortened.is_err() { 2 * size } else { 0 }, Ordering::Relaxed);
        match shortened {
            Ok(()) => {}
            Err(error @ JobError::Status { .. }) => {
                tracing::debug!(%error, "the log of the job queue is shortened later");
            }
            Err(error) => {
                let error = forebay_base::error_chain::chain(&error);
                tracing::error!("cannot shorten the log of the job queue: {error}");
            }
        }
    }

    /// Position from which a follower still needs the log.
    fn held_from(&self) -> Option<Lsn> {
        self.held_from.get().and_then(|held| (held.0)()).map(Lsn)
    }

    /// States every job again, and truncates the log before that, but for what a follower needs. Blocks.
    pub(crate) fn shorten(&self) -> Result<(), JobError> {
        let mark = self.log.end();
        let ids: Vec<JobId> = self.lock().jobs.keys().copied().collect();
        let mut stated = Vec::with_capacity(ids.len());
        for id in ids {
            stated.extend(self.state_again(id)?.map(|(before, now)| (id, before, now)));
        }
        let id = JobId(0);
        self.log.sync().map_err(|source| JobError::Commit { id, source })?;
        // Only now can they be read there.
        self.lock().restate(&stated);
        let mark = self.held_from().map_or(mark, |held| held.min(mark));
        // A failure leaves more of the log than is needed.
        if let Err(error) = self.log.truncate_before(mark) {
            tracing::warn!(%error, "cannot truncate the log of the job queue");
        }
        Ok(())
    }

    /// Appends what is known of a job, if it is; returns it, and the entry.
    fn state_again(&self, id: JobId) -> Result<Option<(Job, Appended)>, JobError> {
        for _ in 0..ROUNDS_MAX {
            let Some(before) = self.lock().jobs.get(&id).cloned() else { return Ok(None) };
            if let State::Ending { end } = before.state {
                // It is shown as ended soon after.
                self.log.commit(end).map_err(|source| JobError::Commit { id, source })?;
                std::thread::yield_now();
                continue;
            }
            let read =
                |lsn: Lsn| self.log.read(lsn).map_err(|source| JobError::Read { id, source });
            // What was appended just now may not be written yet.
            self.log.commit(before.stated.1).map_err(|source| JobError::Commit { id, source })?;
            let stated = read(before.stated.0)?;
            let ended = match &before.state {
                State::Ended { result: (lsn, _), .. } => Some(read(*lsn)?),
                _ => None,
            };
            let entry = kept(id, &before, &stated, ended.as_deref());
            let table = self.lock();
            let Some(job) = table.jobs.get(&id) else { return Ok(None) };
            if !job.is_same_as(&before) {
                continue;
            }
            let appended =
                self.log.append(&[&entry]).map_err(|source| JobError::Append { id, source })?;
            return Ok(Some((before, appended)));
        }
        let (status, needed) = ("changing", "the log is shortened later");
        Err(JobError::Status { id, status, needed })
    }
}

/// What is known of a job, as an entry.
///
/// * `stated`: the entry with what it was submitted with.
/// * `ended`: the entry with its result.
fn kept(id: JobId, job: &Job, stated: &[u8], ended: Option<&[u8]>) -> Vec<u8> {
    let entry = format::decode(stated).ok().map(|(.., entry)| entry);
    let submitted = entry.as_ref().and_then(Entry::submitted).cloned();
    let submitted = submitted.unwrap_or_else(|| job.submitted());
    let ended = ended.and_then(|ended| format::decode(ended).ok()).map(|(.., entry)| entry);
    let reason = &job.reason;
    let (at_ms, state) = match &job.state {
        State::Ended { status, at_ms, .. } => {
            let how = match status {
                Status::Completed => How::Completed,
                Status::Cancelled => How::Cancelled,
                _ => How::Failed,
            };
            let result = ended.as_ref().and_then(Entry::result).unwrap_or_default();
            (*at_ms, KeptState::Ended(format::End { how, result, reason }))
        }
        State::Waiting { due_ms } => {
            (job.started_ms, KeptState::Waiting { due_ms: *due_ms, reason })
        }
        State::Running(_) | State::Ending { .. } => {
            (job.started_ms, KeptState::Waiting { due_ms: 0, reason })
        }
    };
    // A running one counts as started once more, should the process end.
    let crashes = job.crashes + u32::from(matches!(job.state, State::Running(_)));
    let Job { attempts, submitted_ms, started_ms, .. } = *job;
    let kept = Kept { submitted, attempts, crashes, submitted_ms, started_ms, state };
    format::encode(id, at_ms, &Entry::Kept(kept))
}
