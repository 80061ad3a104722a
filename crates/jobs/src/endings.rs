//! The ends of jobs as others follow them: by position in the log, in order.
//!
//! Shortening the log truncates it, and states every known job again behind the truncation. A follower that was
//! further behind learns which positions it lost, and finds the jobs that are still known among those that are
//! stated again ([`Ending::is_restated`]).
//!
//! Invariant: only acknowledged entries are shown, so that what a follower passes on is not taken back by a crash.

use bytes::Bytes;
use forebay_log::{Lsn, ReadError};

use crate::error::JobError;
use crate::format::{self, End, Entry, How, KeptState};
use crate::id::JobId;
use crate::queue::Queue;
use crate::status::Status;

/// The end of a job.
#[derive(Debug, Clone)]
pub struct Ending {
    /// Position of the entry that says so.
    pub position: u64,
    /// The position after it.
    pub next: u64,
    /// The job.
    pub id: JobId,
    /// When it ended, in milliseconds since 1970.
    pub at_ms: u64,
    /// How: completed, failed or cancelled.
    pub status: Status,
    /// Number of attempts that were started.
    pub attempts: u32,
    /// Why it failed; empty if it did not.
    pub reason: String,
    /// What its worker knew; `None` if the job was forgotten.
    pub order: Option<Bytes>,
    /// Whether it was stated again when the log was shortened: an earlier entry said the same.
    pub is_restated: bool,
}

/// Ends that were read.
#[derive(Debug, Clone, Default)]
pub struct Endings {
    /// The ends, in the order of the log.
    pub endings: Vec<Ending>,
    /// The position to continue from.
    pub reached: u64,
    /// Entries between these positions left the log before they were read.
    pub lost: Option<(u64, u64)>,
}

impl Queue {
    /// Identity of the log of this queue. A position is one of this log only.
    #[must_use]
    pub fn log_id(&self) -> [u8; 16] {
        self.inner.log.id()
    }

    /// The position up to which ends can be followed now.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        self.inner.log.acknowledged().0
    }

    /// Reads the ends of jobs on from a position. Blocks.
    ///
    /// * `bytes_max`: bytes of log after which reading ends; at least one entry is read.
    ///
    /// # Errors
    /// [`JobError::Follow`]: the log is damaged there.
    pub fn endings(&self, from: u64, bytes_max: u64) -> Result<Endings, JobError> {
        let (log, end) = (&self.inner.log, self.acknowledged());
        let mut found = Endings { reached: from, ..Endings::default() };
        let start = log.start().0;
        if from < start || from > end {
            // Truncated away, or a position of a log that was replaced by an older copy.
            found.lost = Some((from, start.max(from)));
            found.reached = start;
        }
        let began = found.reached;
        let mut reader = log.reader(Lsn(found.reached));
        while found.reached < end && found.reached - began < bytes_max {
            let position = found.reached;
            let failed = |source| JobError::Follow { position, source };
            let entry = match reader.next() {
                Ok(Some(entry)) if entry.next.0 <= end => entry,
                // Everything acknowledged was read; what follows may still be taken back.
                Ok(_) => {
                    found.reached = end;
                    break;
                }
                // Truncated while it was read, or no entry's: from the start, which states every job again.
                Err(ReadError::BelowStart { .. } | ReadError::NotAnEntry { .. }) => {
                    let start = log.start().0;
                    if start == position {
                        return Err(failed(ReadError::NotAnEntry { lsn: Lsn(position) }));
                    }
                    found.lost = Some((position, start.max(position)));
                    found.reached = start;
                    break;
                }
                Err(source) => return Err(failed(source)),
            };
            let decoded = format::decode(entry.payload);
            let (id, at_ms, decoded) =
                decoded.map_err(|reason| JobError::Entry { position: entry.lsn.0, reason })?;
            let place = (entry.lsn.0, entry.next.0);
            found.reached = entry.next.0;
            found.endings.extend(self.ending(place, id, at_ms, &decoded));
        }
        Ok(found)
    }

    fn ending(
        &self,
        (position, next): (u64, u64),
        id: JobId,
        at_ms: u64,
        entry: &Entry<'_>,
    ) -> Option<Ending> {
        let (end, attempts, order) = match entry {
            Entry::Ended { attempts, end } => {
                let order = self.inner.table.lock().jobs.get(&id).map(|job| job.order.clone());
                (end, *attempts, order)
            }
            Entry::Kept(kept) => match &kept.state {
                KeptState::Ended(end) => {
                    (end, kept.attempts, Some(Bytes::copy_from_slice(kept.submitted.order)))
                }
                KeptState::Waiting { .. } => return None,
            },
            _ => return None,
        };
        let End { how, reason, .. } = end;
        let status = match how {
            How::Completed => Status::Completed,
            How::Failed => Status::Failed,
            How::Cancelled => Status::Cancelled,
        };
        let is_restated = matches!(entry, Entry::Kept(_));
        let reason = (*reason).to_owned();
        Some(Ending { position, next, id, at_ms, status, attempts, reason, order, is_restated })
    }
}
