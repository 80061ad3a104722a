//! The applier: one thread that brings the catalogue up to the log, in batches.
//!
//! A change is applied only once its entry is on stable storage, whatever the durability: no one
//! knows when the kernel writes the catalogue's own files back, and the catalogue must never be
//! ahead of what the log holds after a power cut. Batches wait briefly for more changes unless a
//! caller waits for them: one transaction for a thousand changes costs a tenth of a thousand
//! transactions.
//!
//! Invariants: the catalogue's position is never beyond what the log has synced; changes are
//! applied in log order, each exactly once; a batch leaves the queue only after its transaction has
//! committed. When the catalogue or the log fails, the applier stops and reports why to everyone
//! who waits; nothing is lost, because the log has it. A lack of space or of descriptors does not
//! stop it: it tries the same again, and it also makes a stalled log try again.

use std::borrow::Cow;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_base::error_chain::chain;
use forebay_log::{CommitError, Log, Lsn};
use parking_lot::MutexGuard;

use crate::answer::{PutAnswer, to_json};
use crate::catalogue::{Answered, AppliedChange, BlobLocation, Catalogue, Change, FileRecord};
use crate::documents::view::ViewQueue;
use crate::error::{ApplyError, CatalogueError};
use crate::format::{
    Amended, BlobPlace, Delete, DocumentChange, DocumentCommit, DocumentsDropped, Entry, FileMove,
    FilePut, NamespaceChange, NewestErased, Outcome, VersionsErased,
};
use crate::pace::Pace;
use crate::pending::Pending;
use crate::reclaim::reclaim;
use crate::shared::{Applied, Shared};
use crate::space::{RETRY_AFTER, catalogue_passes};

/// Maximum number of changes in one transaction.
pub(crate) const BATCH: usize = 32_768;
/// Changes processed while the queue is locked: requests wait for this lock, and have it in between.
const STEP: usize = 64;
/// How long a change waits for others to join its batch.
const GATHER: Duration = Duration::from_millis(250);
/// How often remembered requests are checked for old ones.
const FORGET_EVERY: Duration = Duration::from_secs(60);
/// Maximum number of changes in one transaction of a replay.
const REPLAY_BATCH: usize = 16_384;

/// The running applier.
#[derive(Debug)]
pub(crate) struct Applier {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Applier {
    pub(crate) fn start(
        shared: Arc<Shared>,
        catalogue: Catalogue,
        view: Arc<ViewQueue>,
    ) -> std::io::Result<Self> {
        let run = shared.clone();
        let thread = std::thread::Builder::new().name("intake-apply".into()).spawn(move || {
            let (pace, forgot) = (Pace::default(), Instant::now());
            Worker { shared: run, catalogue, view, pace, forgot }.run();
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Applies what is queued and ends the thread.
    pub(crate) fn stop(&mut self) {
        self.shared.applier.lock().stop = true;
        self.shared.work.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the applier panicked");
        }
    }
}

impl Drop for Applier {
    fn drop(&mut self) {
        self.stop();
    }
}

struct Worker {
    shared: Arc<Shared>,
    catalogue: Catalogue,
    view: Arc<ViewQueue>,
    pace: Pace,
    forgot: Instant,
}

/// What the applier does next.
#[derive(Debug, Clone, Copy)]
struct Turn {
    /// It stops afterwards.
    is_last: bool,
    /// A caller waits for it.
    is_urgent: bool,
}

impl Worker {
    fn run(mut self) {
        let shared = self.shared.clone();
        if let Err(error) = self.catalogue.set_pace(&self.pace, move |pause| shared.pause(pause)) {
            tracing::warn!(error = %chain(&error), "the catalogue is written without pauses");
        }
        loop {
            let Turn { is_last: stopping, is_urgent } = self.gather();
            match self.apply_oldest(is_urgent).and_then(|applied| self.watch(applied)) {
                Ok(0) if stopping => {
                    self.close();
                    return;
                }
                Ok(_) => {}
                Err(error) if error.passes() && !stopping => self.wait(&error),
                Err(error) => {
                    self.fail(&error);
                    return;
                }
            }
            let asked = std::mem::take(&mut self.shared.applier.lock().reclaim);
            if asked || self.forgot.elapsed() >= FORGET_EVERY {
                self.forget();
                self.shared.applied.send_modify(|applied| applied.reclaims += 1);
            }
        }
    }

    /// Notices, while there is nothing to apply, that another program has written to the catalogue.
    fn watch(&mut self, applied: usize) -> Result<usize, Stopped> {
        if applied > 0 {
            return Ok(applied);
        }
        match self.catalogue.watch() {
            Err(error) if error.source.is_damage() => Err(Stopped::Catalogue(error)),
            Err(error) => {
                // The next change meets the same, and decides what to do about it.
                tracing::debug!(error = %chain(&error), "could not look for foreign changes");
                Ok(0)
            }
            Ok(()) => Ok(0),
        }
    }

    /// Waits for a batch, an urgent request, or [`GATHER`].
    fn gather(&self) -> Turn {
        let deadline = Instant::now() + FORGET_EVERY;
        let mut first_seen: Option<Instant> = None;
        let mut orders = self.shared.applier.lock();
        loop {
            // Never hold both locks: pushers hold the queue's and notify without this one.
            let queued = MutexGuard::unlocked(&mut orders, || self.shared.pending.lock().len());
            let now = Instant::now();
            if queued > 0 {
                let since = *first_seen.get_or_insert(now);
                if queued >= BATCH || orders.hurry || orders.stop || now - since >= GATHER {
                    let is_urgent = orders.stop || orders.hurry || queued >= BATCH;
                    orders.hurry = false;
                    return Turn { is_last: orders.stop, is_urgent };
                }
                self.shared.work.wait_until(&mut orders, since + GATHER);
            } else {
                let stalled = self.shared.log.stalled().is_some();
                if orders.stop || orders.reclaim || now >= deadline || stalled {
                    self.shared
                        .work
                        .wait_for(&mut orders, if stalled { GATHER } else { Duration::ZERO });
                    return Turn { is_last: orders.stop, is_urgent: true };
                }
                if self.shared.work.wait_for(&mut orders, GATHER).timed_out() {
                    return Turn { is_last: orders.stop, is_urgent: true };
                }
            }
        }
    }

    /// Applies what is queued, up to a batch.
    fn apply_oldest(&mut self, is_urgent: bool) -> Result<usize, Stopped> {
        let most = self.retry_log()?;
        self.pace.begin(is_urgent);
        let applied = self.apply_up_to(most);
        self.pace.end();
        applied
    }

    /// Lets requests have the queue's lock, and pauses if it is time for it.
    fn step(&self, pending: MutexGuard<'_, Pending>) {
        MutexGuard::unlock_fair(pending);
        self.pace.step(|pause| self.shared.pause(pause));
    }

    fn apply_up_to(&mut self, most: Option<Lsn>) -> Result<usize, Stopped> {
        let mut changes = Vec::new();
        let end = loop {
            let pending = self.shared.pending.lock();
            let (more, end) = pending.take_up(&mut changes, BATCH, STEP, most);
            self.step(pending);
            if !more {
                break end;
            }
        };
        let Some(end) = end else { return Ok(0) };
        self.shared.log.sync_to(end).map_err(Stopped::Log)?;
        let started = Instant::now();
        self.catalogue.apply(&changes, end.0).map_err(Stopped::Catalogue)?;
        crate::meters::applied(changes.len(), started.elapsed());
        let mut left = changes.len();
        while left > STEP {
            let mut pending = self.shared.pending.lock();
            pending.applied(STEP);
            self.step(pending);
            left -= STEP;
        }
        {
            // Under the lock, so that those who hold it always see what was appended, in the queue or as applied.
            let mut pending = self.shared.pending.lock();
            pending.applied(left);
            self.shared.applied.send_modify(|applied| {
                applied.position = end;
                applied.waiting = None;
            });
        }
        if let Some(search) = &self.shared.search {
            search.announce(end);
        }
        self.shared.room.notify_waiters();
        Ok(changes.len())
    }

    /// Makes a stalled log try again. Returns the position up to which changes may be applied if it
    /// is still stalled.
    fn retry_log(&self) -> Result<Option<Lsn>, Stopped> {
        let Some(before) = self.shared.log.stalled() else { return Ok(None) };
        match self.shared.log.retry() {
            Ok(()) => {
                tracing::info!("the log can be written again");
                Ok(None)
            }
            Err(CommitError::Stalled { .. }) => {
                tracing::debug!(error = %chain(before.as_ref()), "the log is still stalled");
                Ok(Some(self.shared.log.acknowledged()))
            }
            Err(error) => Err(Stopped::Log(error)),
        }
    }

    /// Waits before the same is tried again.
    fn wait(&self, error: &Stopped) {
        let reason: Arc<str> = chain(error).to_string().into();
        let waited = self.shared.applied.borrow().waiting.is_some();
        if !waited {
            tracing::warn!(
                %reason,
                "the catalogue waits for disk space; the log holds everything acknowledged"
            );
        }
        self.shared.applied.send_modify(|applied| applied.waiting = Some(reason));
        if !self.shared.reserve.release() {
            let mut orders = self.shared.applier.lock();
            self.shared.work.wait_for(&mut orders, RETRY_AFTER);
        }
    }

    /// Records that the catalogue is up to date with the log, so that the next start replays
    /// nothing.
    ///
    /// Nothing is appended any more when the applier stops. If this fails, the next start has a
    /// little more to replay.
    fn close(&mut self) {
        let end = self.shared.log.end();
        // Changes that wait for space are left to the next start.
        if self.shared.pending.lock().len() == 0
            && self.shared.log.sync_to(end).is_ok()
            && let Err(error) = self.catalogue.apply(&[], end.0)
        {
            tracing::warn!(error = %chain(&error), "could not record the catalogue's position");
        }
    }

    fn forget(&mut self) {
        self.forgot = Instant::now();
        if self.shared.log.stalled().is_none() {
            self.shared.reserve.restore();
        }
        let before = self.shared.requests_from_ms();
        if let Err(error) = self.catalogue.forget_requests(before) {
            // They are deleted at the next attempt. Until then an old key is refused by its age.
            tracing::warn!(error = %chain(&error), "could not delete old requests");
        }
        self.shared.uploads.purge();
        if self.shared.reader.damage().is_some() {
            // Nothing is removed on the word of a damaged catalogue.
            return;
        }
        let safe = self.view.safe();
        let safe = self.view.outbox.as_ref().map_or(safe, |outbox| outbox.release(safe));
        let held = self.view.held();
        match reclaim(&self.shared, &mut self.catalogue, safe, held.as_deref()) {
            Ok(0) => {}
            Ok(bytes) => tracing::info!(bytes, "freed the space of deleted data"),
            Err(error) => {
                tracing::warn!(error = %chain(&error), "could not free space; trying again");
            }
        }
    }

    fn fail(&self, error: &Stopped) {
        let reason: Arc<str> = chain(error).to_string().into();
        tracing::error!(
            %reason,
            "the catalogue has stopped; the log holds everything acknowledged"
        );
        self.shared.applied.send_modify(|applied| applied.stopped = Some(reason));
        self.shared.room.notify_waiters();
    }
}

/// Why the applier stopped.
#[derive(Debug, thiserror::Error)]
enum Stopped {
    #[error("the log failed")]
    Log(#[source] forebay_log::CommitError),
    #[error("the catalogue failed")]
    Catalogue(#[source] CatalogueError),
}

impl Stopped {
    /// Whether the failure can pass without a restart.
    fn passes(&self) -> bool {
        match self {
            Self::Log(error) => matches!(error, CommitError::Stalled { .. }),
            Self::Catalogue(error) => catalogue_passes(&error.source),
        }
    }
}

/// The result of a replay.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Replayed {
    pub(crate) entries: u64,
    pub(crate) position: Lsn,
}

/// Applies the log's entries after the catalogue's position, before any request is served.
pub(crate) fn replay(
    log: &Log,
    catalogue: &mut Catalogue,
    from: Lsn,
) -> Result<Replayed, ApplyError> {
    let mut replayed = Replayed { entries: 0, position: from };
    let mut reader = log.reader(from);
    let mut batch = Vec::new();
    loop {
        let next = reader.next().map_err(|source| ApplyError::Read { lsn: from.0, source })?;
        let Some(entry) = next else { break };
        let lsn = entry.lsn.0;
        let decoded =
            Entry::decode(entry.payload).map_err(|source| ApplyError::Decode { lsn, source })?;
        replayed.entries += 1;
        replayed.position = entry.next;
        if let Some(change) = change_of(lsn, &decoded) {
            batch.push(change);
        }
        if batch.len() >= REPLAY_BATCH {
            catalogue.apply(&batch, replayed.position.0)?;
            batch.clear();
        }
    }
    if replayed.entries > 0 {
        catalogue.apply(&batch, replayed.position.0)?;
    }
    match catalogue.lost_blobs()?.first() {
        Some(digest) => {
            Err(ApplyError::UnknownBlob { lsn: replayed.position.0, digest: digest.to_hex() })
        }
        None => Ok(replayed),
    }
}

/// Converts an entry into a change of the catalogue, for a live write and for a replay alike.
fn change_of(lsn: u64, entry: &Entry<'_>) -> Option<AppliedChange> {
    let (change, answered) = match entry {
        Entry::FilePut(put) => change_of_put(lsn, put),
        Entry::FileMove(FileMove { put, from_namespace, from_name, keeps: keeps_from }) => {
            let (file, answered) = record_of_put(lsn, put);
            let from = (from_namespace.clone(), from_name.clone());
            let (keeps, keeps_from) = (put.keeps, *keeps_from);
            (Change::Move { file, from, keeps, keeps_from }, answered)
        }
        Entry::Namespace(NamespaceChange { changed_ms, namespace, attributes }) => {
            let (namespace, attributes) = (namespace.clone(), attributes.clone());
            (Change::Namespace { namespace, changed_ms: *changed_ms, attributes }, None)
        }
        Entry::VersionsErased(VersionsErased { namespace, name, ids, .. }) => {
            let (namespace, name, ids) = (namespace.clone(), name.clone(), ids.as_slice().into());
            (Change::VersionsErased { namespace, name, ids }, None)
        }
        Entry::NewestErased(NewestErased { namespace, name, id, current, .. }) => {
            let (namespace, name, id, current) = (namespace.clone(), name.clone(), *id, *current);
            (Change::NewestErased { namespace, name, id, current, file: None }, None)
        }
        Entry::Amended(Amended { namespace, name, id, attributes, .. }) => {
            let (namespace, name, id) = (namespace.clone(), name.clone(), *id);
            let attributes = Arc::new(attributes.clone());
            (Change::Amended { namespace, name, id, attributes, file: None }, None)
        }
        Entry::Delete(Delete { deleted_ms, namespace, name, keeps, idempotency }) => {
            let answered = idempotency.map(|record| Answered {
                record,
                status: 204,
                answer: Vec::new(),
                created_ms: *deleted_ms,
            });
            let (namespace, name) = (namespace.clone(), name.clone());
            let kept_ms = keeps.then_some(*deleted_ms);
            let change = Change::Delete { namespace, name, kept_ms };
            (change, answered)
        }
        Entry::DocumentCommit(_)
        | Entry::DocumentChange(_)
        | Entry::DocumentsDropped(_)
        | Entry::Outcome(_) => (Change::Nothing, answer_of(entry)),
        Entry::DocumentExtents(extents) => (Change::Extents { erased: extents.erased }, None),
        Entry::DocumentChunk(_) => return None,
    };
    Some(AppliedChange { lsn, change, answered: answered.map(Arc::new) })
}

/// The answer that an entry without a file gives to a request with a key.
fn answer_of(entry: &Entry<'_>) -> Option<Answered> {
    let (record, status, answer, created_ms) = match entry {
        Entry::DocumentCommit(DocumentCommit {
            idempotency, status, answer, received_ms, ..
        }) => ((*idempotency)?, *status, *answer, *received_ms),
        Entry::DocumentChange(DocumentChange {
            idempotency, status, answer, changed_ms, ..
        }) => ((*idempotency)?, *status, *answer, *changed_ms),
        Entry::DocumentsDropped(DocumentsDropped { idempotency, dropped_ms, .. }) => {
            ((*idempotency)?, 204, &[][..], *dropped_ms)
        }
        Entry::Outcome(Outcome { created_ms, status, idempotency, answer }) => {
            (*idempotency, *status, *answer, *created_ms)
        }
        _ => return None,
    };
    Some(Answered { record, status, answer: answer.to_vec(), created_ms })
}

fn change_of_put(lsn: u64, put: &FilePut<'_>) -> (Change, Option<Answered>) {
    let (file, answered) = record_of_put(lsn, put);
    let stored = match put.place {
        BlobPlace::Existing => None,
        BlobPlace::Inline(_) => Some(BlobLocation::Entry(lsn)),
        BlobPlace::File => Some(BlobLocation::File),
    };
    (Change::Put { file, stored, keeps: put.keeps }, answered)
}

/// The file that a put names.
pub(crate) fn file_of(lsn: u64, put: &FilePut<'_>) -> FileRecord {
    FileRecord {
        id: lsn,
        namespace: put.namespace.clone(),
        name: put.name.clone(),
        digest: put.digest,
        size: put.size,
        mime: Cow::Owned(put.mime.to_owned()),
        category: put.category,
        comment: put.comment.to_owned(),
        created_ms: put.created_ms,
        attributes: put.attributes.clone(),
    }
}

/// The file that a put names, and the answer to its request.
fn record_of_put(lsn: u64, put: &FilePut<'_>) -> (Arc<FileRecord>, Option<Answered>) {
    let file = Arc::new(file_of(lsn, put));
    let answered = put.idempotency.map(|record| Answered {
        record,
        status: if put.created { 201 } else { 200 },
        answer: to_json(&PutAnswer::of(&file, put.duplicate, put.replaced)),
        created_ms: put.created_ms,
    });
    (file, answered)
}

impl Applied {
    pub(crate) fn at(position: Lsn) -> Self {
        Self { position, reclaims: 0, stopped: None, waiting: None }
    }
}
