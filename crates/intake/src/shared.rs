//! What every request of an intake works with: the log, the queue, the views, the limits.

use std::sync::Arc;
use std::time::Duration;

use forebay_base::clock::Clock;
use forebay_log::{Log, Lsn, ReadError};
use parking_lot::{Condvar, Mutex};
use tokio::sync::{Notify, Semaphore, watch};

use crate::blob::BlobStore;
use crate::catalogue::{CatalogueReader, FileFilter, FileRecord, Place};
use crate::digest::Digest;
use crate::error::{CatalogueError, IntakeError};
use crate::format::Entry;
use crate::options::IntakeOptions;
use crate::pending::{NameKey, Pending, PendingRequest};
use crate::request::Claim;

/// How often a listing by digest begins anew because the bytes moved meanwhile.
const PLACE_MOVES_MAX: usize = 3;
/// How long a write waits for room in the queue before it is told to come back.
const ROOM_WAIT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: IntakeOptions,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) log: Log,
    pub(crate) blobs: BlobStore,
    pub(crate) reader: CatalogueReader,
    pub(crate) pending: Mutex<Pending>,
    /// Told when the applier has something to do.
    pub(crate) work: Condvar,
    pub(crate) applier: Mutex<ApplierOrders>,
    /// Told when the queue has become shorter.
    pub(crate) room: Notify,
    /// How far the catalogue has come, or why it stopped.
    pub(crate) applied: watch::Sender<Applied>,
    /// Held while blob files are removed, and while one is given its final name.
    pub(crate) reclaim: Mutex<()>,
    pub(crate) large_uploads: Semaphore,
}

/// What the applier was asked to do.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct ApplierOrders {
    /// Somebody waits for the catalogue: do not gather more.
    pub(crate) hurry: bool,
    /// Somebody wants the space of what is deleted back now.
    pub(crate) reclaim: bool,
    pub(crate) stop: bool,
}

/// How far a view has come.
#[derive(Debug, Clone)]
pub(crate) struct Applied {
    pub(crate) position: Lsn,
    /// Passes of giving space back so far.
    pub(crate) reclaims: u64,
    pub(crate) stopped: Option<Arc<str>>,
}

impl Shared {
    pub(crate) fn now_ms(&self) -> i64 {
        i64::try_from(self.clock.now_ms()).unwrap_or(i64::MAX)
    }

    /// Waits until the queue has room for one more change.
    pub(crate) async fn wait_for_room(&self) -> Result<(), IntakeError> {
        let full = || self.pending.lock().len() >= self.options.limits.pending_changes_max;
        if !full() {
            return self.check_views();
        }
        let waiting = async {
            loop {
                let told = self.room.notified();
                if !full() || self.check_views().is_err() {
                    return;
                }
                self.hurry();
                told.await;
            }
        };
        tokio::time::timeout(ROOM_WAIT, waiting)
            .await
            .map_err(|_| IntakeError::Busy { what: "the catalogue is behind the log" })?;
        self.check_views()
    }

    pub(crate) fn check_views(&self) -> Result<(), IntakeError> {
        match &self.applied.borrow().stopped {
            Some(reason) => Err(IntakeError::ViewStopped { reason: reason.to_string() }),
            None => Ok(()),
        }
    }

    /// Waits until the log has made everything up to `end` as durable as it is asked to be.
    pub(crate) async fn committed(&self, end: Lsn) -> Result<(), IntakeError> {
        self.log.committed(end).await.map_err(IntakeError::Commit)
    }

    /// Asks the applier not to gather more changes before it applies those it has.
    pub(crate) fn hurry(&self) {
        self.applier.lock().hurry = true;
        self.work.notify_one();
    }

    /// Waits until the catalogue shows everything appended before this call.
    pub(crate) async fn catch_up(&self) -> Result<(), IntakeError> {
        let target = {
            let pending = self.pending.lock();
            match pending.last_end() {
                Some(end) => end,
                None => return self.check_views(),
            }
        };
        let mut applied = self.applied.subscribe();
        self.hurry();
        let reached = applied
            .wait_for(|applied| applied.position >= target || applied.stopped.is_some())
            .await;
        match reached {
            Ok(applied) => match &applied.stopped {
                Some(reason) => Err(IntakeError::ViewStopped { reason: reason.to_string() }),
                None => Ok(()),
            },
            Err(_) => Err(IntakeError::ViewStopped { reason: "the intake is closing".into() }),
        }
    }

    /// Has the applier give back space now, and waits until it has.
    pub(crate) async fn reclaim_now(&self) -> Result<(), IntakeError> {
        self.catch_up().await?;
        let mut applied = self.applied.subscribe();
        let before = applied.borrow_and_update().reclaims;
        self.applier.lock().reclaim = true;
        self.work.notify_one();
        let done = applied
            .wait_for(|applied| applied.reclaims > before || applied.stopped.is_some())
            .await;
        match done {
            Ok(_) => self.check_views(),
            Err(_) => Err(IntakeError::ViewStopped { reason: "the intake is closing".into() }),
        }
    }

    /// Lists files; where bytes are asked for, by index.
    pub(crate) fn list(
        &self,
        filter: &FileFilter,
        after: Option<(&str, &str)>,
        limit: usize,
    ) -> Result<Vec<FileRecord>, CatalogueError> {
        let Some(digest) = filter.digest else { return self.reader.list(filter, after, limit) };
        let mut blob = self.reader.blob(digest)?;
        for _ in 0..PLACE_MOVES_MAX {
            let Some(found) = blob else { return Ok(Vec::new()) };
            let Ok(holder) = self.holder(found.place) else { break };
            let files = self.reader.list_by_digest(filter, holder.as_ref(), after, limit)?;
            blob = self.reader.blob(digest)?;
            if blob == Some(found) {
                return Ok(files);
            }
            // Its last name went and the bytes came anew meanwhile: their holder is another.
        }
        // The bytes keep moving, or their entry cannot be read: every name is looked at.
        self.reader.list(filter, after, limit)
    }

    /// The name given by the log entry that holds bytes; an error where that cannot be told.
    fn holder(&self, place: Place) -> Result<Option<NameKey>, ReadError> {
        let Place::Entry(lsn) = place else { return Ok(None) };
        match self.log.read(Lsn(lsn)) {
            Ok(payload) => match Entry::decode(&payload) {
                Ok(Entry::FilePut(put)) => Ok(Some((put.namespace, put.name))),
                Ok(_) | Err(_) => Err(ReadError::NotAnEntry { lsn: Lsn(lsn) }),
            },
            // No name stands for them any more, or the bytes would be there.
            Err(ReadError::Erased { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Claims an idempotency key for a request.
    pub(crate) async fn claim(self: &Arc<Self>, key: Digest) -> Result<Claim, IntakeError> {
        let known = self.pending.lock().claim(key);
        match known {
            Some(PendingRequest::UnderWay) => Err(IntakeError::KeyInUse),
            Some(PendingRequest::Answered(end, answered)) => {
                self.committed(end).await?;
                Ok(Claim::Answered {
                    fingerprint: answered.record.fingerprint,
                    status: answered.status,
                    answer: answered.answer.clone(),
                })
            }
            None => {
                // From here on the key is ours, or the guard gives it back.
                let held = crate::request::HeldKey::new(self.clone(), key);
                let kept = self.options.limits.idempotency_kept;
                let kept_ms = i64::try_from(kept.as_millis()).unwrap_or(i64::MAX);
                match self.reader.request(key)? {
                    Some(stored) if stored.created_ms.saturating_add(kept_ms) > self.now_ms() => {
                        Ok(Claim::Answered {
                            fingerprint: stored.fingerprint,
                            status: stored.status,
                            answer: stored.answer,
                        })
                    }
                    _ => Ok(Claim::New(held)),
                }
            }
        }
    }
}
