//! State shared by all requests of an intake: the log, the queue, the views, the limits.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use forebay_base::clock::Clock;
use forebay_log::{Log, Lsn, ReadError};
use parking_lot::{Condvar, Mutex};
use tokio::sync::{Notify, Semaphore, watch};

use crate::blobs::Blobs;
use crate::blobs::moving::MoveState;
use crate::bulk::Bulk;
use crate::catalogue::{BlobLocation, CatalogueReader, FileFilter, FileRecord, Sorted};
use crate::digest::Digest;
use crate::error::{CatalogueError, IntakeError};
use crate::expiry::Expiry;
use crate::format::Entry;
use crate::long_reads::LongReads;
use crate::options::IntakeOptions;
use crate::pace;
use crate::pending::{NameKey, Pending, PendingName, PendingRequest};
use crate::request::Claim;
use crate::search::Search;
use crate::space::Reserve;
use crate::storing::Storing;
use crate::uploads::Uploads;
use crate::verifier::Verified;

/// How often a listing by digest is restarted because the bytes moved meanwhile.
const PLACE_MOVES_MAX: usize = 3;
/// How long a write waits for room in the queue before it is refused.
const ROOM_WAIT: Duration = Duration::from_secs(10);
/// How long a listing waits for a view that waits for space.
const SPACE_WAIT: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: IntakeOptions,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) log: Log,
    pub(crate) blobs: Blobs,
    /// The move of blobs to another place.
    pub(crate) moving: MoveState,
    pub(crate) uploads: Uploads,
    pub(crate) reader: CatalogueReader,
    pub(crate) pending: Mutex<Pending>,
    /// Notified when the applier has work.
    pub(crate) work: Condvar,
    pub(crate) applier: Mutex<ApplierOrders>,
    /// Notified when the queue has become shorter.
    pub(crate) room: Notify,
    /// The position of the catalogue, or why it stopped.
    pub(crate) applied: watch::Sender<Applied>,
    /// Held while blob files are removed, and while one is given its final name.
    pub(crate) reclaim: Mutex<()>,
    /// Held while versions are erased or amended, up to the entry that says so.
    pub(crate) version_changes: tokio::sync::Mutex<()>,
    /// Held during a pass that frees space, and while an image is made.
    pub(crate) imaging: Mutex<()>,
    pub(crate) large_uploads: Semaphore,
    /// Threads that hash and write them.
    pub(crate) bulk: Bulk,
    /// Turns of reads that may look at every file, or at many documents.
    pub(crate) long_reads: LongReads,
    /// Bytes in memory of incomplete small files.
    pub(crate) held: AtomicUsize,
    /// Files that have arrived and are being stored.
    pub(crate) storing: Storing,
    pub(crate) reserve: Arc<Reserve>,
    pub(crate) verified: Mutex<Verified>,
    pub(crate) expiry: Expiry,
    #[cfg(feature = "thumbnails")]
    pub(crate) thumbnails: crate::thumbnails::Thumbnails,
    /// The search index, if there is one.
    pub(crate) search: Option<Arc<Search>>,
    /// Since when remembered requests may be needed, whatever their age: see
    /// [`Intake::hold_requests`](crate::Intake::hold_requests).
    pub(crate) needed_since: OnceLock<NeededSince>,
    /// The position from which entries must stay in the log: see
    /// [`Intake::hold_log`](crate::Intake::hold_log).
    pub(crate) held_from: OnceLock<crate::feed::HeldFrom>,
}

/// Returns since when remembered requests are needed, in milliseconds since 1970.
pub(crate) struct NeededSince(pub(crate) Box<dyn Fn() -> Option<i64> + Send + Sync>);

impl std::fmt::Debug for NeededSince {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NeededSince")
    }
}

/// Requests to the applier.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct ApplierOrders {
    /// A caller waits for the catalogue: do not gather more.
    pub(crate) hurry: bool,
    /// A caller wants the space of deleted data freed now.
    pub(crate) reclaim: bool,
    pub(crate) stop: bool,
}

/// The progress of a view.
#[derive(Debug, Clone)]
pub(crate) struct Applied {
    pub(crate) position: Lsn,
    /// Number of passes that freed space so far.
    pub(crate) reclaims: u64,
    pub(crate) stopped: Option<Arc<str>>,
    /// Why it waits and tries again, if it does.
    pub(crate) waiting: Option<Arc<str>>,
}

impl Shared {
    /// The time before which requests are forgotten, in milliseconds since 1970.
    pub(crate) fn requests_from_ms(&self) -> i64 {
        let kept = self.options.limits.idempotency_kept;
        let kept_ms = i64::try_from(kept.as_millis()).unwrap_or(i64::MAX);
        let usual = self.now_ms().saturating_sub(kept_ms);
        let needed = self.needed_since.get().and_then(|since| since.0());
        // One that was answered in the same millisecond is needed, too.
        needed.map_or(usual, |since| usual.min(since.saturating_sub(1)))
    }

    pub(crate) fn now_ms(&self) -> i64 {
        i64::try_from(self.clock.now_ms()).unwrap_or(i64::MAX)
    }

    /// Waits until the queue has room for one more change.
    pub(crate) async fn wait_for_room(&self) -> Result<(), IntakeError> {
        self.check_space()?;
        let full = || self.pending.lock().len() >= self.options.limits.pending_changes_max;
        if !full() {
            return self.check_views();
        }
        let waiting = async {
            loop {
                let notified = self.room.notified();
                if !full() || self.check_views().is_err() {
                    return;
                }
                self.hurry();
                notified.await;
            }
        };
        // In a box, so that the futures of those that need not wait stay small.
        Box::pin(tokio::time::timeout(ROOM_WAIT, waiting))
            .await
            .map_err(|_| IntakeError::Busy { what: "the catalogue is behind the log" })?;
        self.check_views()
    }

    /// Checks that the log can be written and that the catalogue can follow it. What is
    /// acknowledged must be shown to the next read, so no more is accepted than there is room to
    /// show.
    ///
    /// # Errors
    /// [`IntakeError::Full`], [`IntakeError::ViewWaiting`].
    pub(crate) fn check_space(&self) -> Result<(), IntakeError> {
        if let Some(source) = self.log.stalled() {
            return Err(IntakeError::Full { source });
        }
        if !self.reserve.is_kept() {
            // The remaining space is for the views, to show what was acknowledged before.
            let reason = "less than 16 MiB of disk space is free".to_owned();
            return Err(IntakeError::ViewWaiting { reason });
        }
        not_waiting(&self.applied)
    }

    pub(crate) fn check_views(&self) -> Result<(), IntakeError> {
        match &self.applied.borrow().stopped {
            Some(reason) => Err(IntakeError::ViewStopped { reason: reason.to_string() }),
            None => Ok(()),
        }
    }

    /// Checks that no damage of the catalogue is known. Until the next start builds it again, only
    /// what it has is an answer: what it does not have may exist all the same.
    ///
    /// # Errors
    /// [`IntakeError::ViewDamaged`].
    pub(crate) fn check_whole(&self) -> Result<(), IntakeError> {
        match self.reader.damage() {
            Some(found) => Err(IntakeError::catalogue_damaged(found.to_string())),
            None => Ok(()),
        }
    }

    /// Waits until the log has made everything up to `end` as durable as configured.
    pub(crate) async fn committed(&self, end: Lsn) -> Result<(), IntakeError> {
        self.log.committed(end).await.map_err(IntakeError::Commit)
    }

    /// Pauses the applier for a time, or until a caller waits for it or it has to stop. Returns whether one
    /// does.
    pub(crate) fn pause(&self, pause: Duration) -> bool {
        pace::wait(&self.applier, &self.work, pause, |orders| orders.stop || orders.hurry)
    }

    /// Asks the applier to apply the changes it has without gathering more.
    pub(crate) fn hurry(&self) {
        self.applier.lock().hurry = true;
        self.work.notify_one();
    }

    /// Waits for the turn to erase or amend versions, and until the catalogue shows everything appended
    /// before: what it says of a version then holds as long as the turn is held.
    pub(crate) async fn version_turn(
        &self,
    ) -> Result<tokio::sync::MutexGuard<'_, ()>, IntakeError> {
        let turn = self.version_changes.lock().await;
        self.wait_for_room().await?;
        self.catch_up().await?;
        Ok(turn)
    }

    /// Waits until the catalogue shows everything appended before this call.
    pub(crate) async fn catch_up(&self) -> Result<(), IntakeError> {
        // Entries that a stalled log still holds were not acknowledged and are not shown.
        let most = self.log.stalled().map(|_| self.log.acknowledged());
        let target = {
            let pending = self.pending.lock();
            match pending.last_end(most) {
                Some(end) => end,
                None => return self.check_views(),
            }
        };
        let mut applied = self.applied.subscribe();
        self.hurry();
        reached(&mut applied, target).await
    }

    /// The state of the name after the changes that were acknowledged, while the log is stalled.
    ///
    /// * Returns the change that gave it this state; `None` if the catalogue knows.
    pub(crate) fn acknowledged_name(&self, key: &NameKey) -> Option<PendingName> {
        self.pending.lock().name_up_to(key, self.log.acknowledged())
    }

    /// Makes the applier free space now, and waits until it has.
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

    /// Lists files; by index if a digest is given.
    pub(crate) fn list(
        &self,
        filter: &FileFilter,
        after: Option<(&str, &str)>,
        limit: usize,
    ) -> Result<Vec<FileRecord>, CatalogueError> {
        match self.list_by_digest(filter, &Sorted::by_name(after), limit)? {
            Some(files) => Ok(files),
            None => self.reader.list(filter, after, limit),
        }
    }

    /// Lists files in an order; by index if a digest is given.
    pub(crate) fn list_sorted(
        &self,
        filter: &FileFilter,
        sorted: &Sorted<'_>,
        limit: usize,
    ) -> Result<Vec<FileRecord>, CatalogueError> {
        match self.list_by_digest(filter, sorted, limit)? {
            Some(files) => Ok(files),
            None => self.reader.list_sorted(filter, sorted, limit),
        }
    }

    /// Lists files by index; returns `None` if every name must be examined.
    fn list_by_digest(
        &self,
        filter: &FileFilter,
        sorted: &Sorted<'_>,
        limit: usize,
    ) -> Result<Option<Vec<FileRecord>>, CatalogueError> {
        let Some(digest) = filter.digest else { return Ok(None) };
        for _ in 0..PLACE_MOVES_MAX {
            let Some(blob) = self.reader.blob(digest)? else { return Ok(Some(Vec::new())) };
            let Ok(holder) = self.holder(blob.place) else { break };
            let holder = holder.as_ref();
            // If there is none, its last name was deleted and the bytes were stored again meanwhile:
            // another entry holds them.
            let files = self.reader.list_by_digest(filter, &blob, holder, sorted, limit)?;
            if files.is_some() {
                return Ok(files);
            }
        }
        // The bytes keep moving, or their entry cannot be read.
        Ok(None)
    }

    /// The name given by the log entry that holds the bytes; an error if that cannot be determined.
    fn holder(&self, place: BlobLocation) -> Result<Option<NameKey>, ReadError> {
        let BlobLocation::Entry(lsn) = place else { return Ok(None) };
        match self.log.read(Lsn(lsn)) {
            Ok(payload) => match Entry::decode(&payload) {
                Ok(Entry::FilePut(put)) => Ok(Some((put.namespace, put.name))),
                Ok(_) | Err(_) => Err(ReadError::NotAnEntry { lsn: Lsn(lsn) }),
            },
            // No name refers to them any more; otherwise the bytes would exist.
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
                // From here on this request owns the key, or the guard releases it.
                let held = crate::request::HeldKey::new(self.clone(), key);
                match self.reader.request(key)? {
                    Some(stored) if stored.created_ms > self.requests_from_ms() => {
                        Ok(Claim::Answered {
                            fingerprint: stored.fingerprint,
                            status: stored.status,
                            answer: stored.answer,
                        })
                    }
                    _ => self.check_whole().map(|()| Claim::New(held)),
                }
            }
        }
    }
}

/// Checks that a view has room to follow the log.
///
/// # Errors
/// [`IntakeError::ViewWaiting`].
pub(crate) fn not_waiting(applied: &watch::Sender<Applied>) -> Result<(), IntakeError> {
    match &applied.borrow().waiting {
        Some(reason) => Err(IntakeError::ViewWaiting { reason: reason.to_string() }),
        None => Ok(()),
    }
}

/// Waits until a view shows everything up to `target`.
///
/// # Errors
/// The view has stopped, or waits for space for longer than a request should wait.
pub(crate) async fn reached(
    applied: &mut watch::Receiver<Applied>,
    target: Lsn,
) -> Result<(), IntakeError> {
    loop {
        let shown = tokio::time::timeout(
            SPACE_WAIT,
            applied.wait_for(|applied| applied.position >= target || applied.stopped.is_some()),
        );
        let closed = match shown.await {
            Ok(Ok(applied)) if applied.position >= target => return Ok(()),
            Ok(Ok(applied)) => {
                Some(applied.stopped.as_deref().unwrap_or("it was closed").to_owned())
            }
            Ok(Err(_)) => Some("the intake is closing".to_owned()),
            Err(_) => None,
        };
        if let Some(reason) = closed {
            return Err(IntakeError::ViewStopped { reason });
        }
        // A busy disk is worth waiting for, a full one is not.
        if let Some(reason) = &applied.borrow().waiting {
            return Err(IntakeError::ViewWaiting { reason: reason.to_string() });
        }
    }
}
