//! The thread that brings the search index up to the log.
//!
//! It follows the catalogue: only entries that the catalogue has applied are looked at, so the log has
//! them on stable storage and the catalogue says whether a name still refers to them. Where an entry
//! replaces another, or the text is not in it, the catalogue is asked, and an entry that was superseded
//! meanwhile is passed over; the later one comes soon. Of several changes to a name in one transaction
//! only the last is applied. Texts are read where every read takes them from, while the bytes are pinned,
//! so that no removal comes in between.
//!
//! Invariants: changes to a name are applied in log order, at most [`CHANGES_MAX`] a transaction, with the
//! position they lead to; no request waits for this thread; a lack of space makes it wait and try again,
//! never lose its place; while the reserve of the directory is used up it writes nothing, since that
//! space is for the views that acknowledged writes need.

use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_base::error_chain::chain;
use forebay_log::{Lsn, ReadError};

use super::schema::State;
use super::store::{Change, Opened, Store, remove_index};
use super::{Progress, Readers, Search, meters, text};
use crate::apply::file_of;
use crate::catalogue::{BlobRecord, FileRecord};
use crate::digest::Digest;
use crate::error::{CatalogueError, CatalogueFault, IntakeError};
use crate::format::{
    Amended, BlobPlace, DecodeError, Delete, Entry, FileMove, FilePut, NewestErased,
};
use crate::names::{FileName, Namespace};
use crate::pace::Pace;
use crate::shared::Shared;
use crate::space::{RETRY_AFTER, catalogue_passes};

/// Maximum number of changes in one transaction.
const CHANGES_MAX: usize = 16_384;
/// Bytes of text after which a transaction ends.
const TEXT_BYTES_MAX: usize = 32 << 20;
/// Bytes of log without a change to files after which the position is recorded.
const SCANNED_MAX: u64 = 64 << 20;
/// Minimum time from the start of one transaction to that of the next while changes keep coming: the cost
/// of a transaction is shared by all of its changes, and a small one costs several times as much a change.
const GATHERED: Duration = Duration::from_millis(100);
/// Pause after a failure that does not pass by itself soon.
const FAILED_PAUSE: Duration = Duration::from_secs(5);

/// The running thread.
#[derive(Debug)]
pub(crate) struct Follower {
    search: Arc<Search>,
    thread: Option<JoinHandle<()>>,
}

impl Follower {
    /// Opens the index and follows the log. An index that cannot be opened now is tried again later.
    pub(crate) fn start(shared: Arc<Shared>, search: Arc<Search>) -> std::io::Result<Self> {
        let mut worker = Worker {
            shared,
            search: search.clone(),
            store: None,
            pace: Pace::default(),
            is_awaited: false,
            seen: Lsn(0),
            begun: None,
        };
        if let Err(error) = worker.open() {
            worker.report(&error);
        }
        let thread =
            std::thread::Builder::new().name("intake-search".into()).spawn(move || worker.run())?;
        Ok(Self { search, thread: Some(thread) })
    }

    /// Ends the thread after the transaction that is under way. What is left is indexed after the next
    /// start.
    pub(crate) fn stop(&mut self) {
        self.search.orders.lock().stop = true;
        self.search.work.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the search index panicked");
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Why the index does not follow.
#[derive(Debug, thiserror::Error)]
enum Stopped {
    #[error("could not write the search index")]
    Index(#[source] CatalogueFault),
    #[error("could not remove the search index to build it again")]
    Remove(#[source] std::io::Error),
    #[error("could not read the log at {lsn}")]
    Log {
        lsn: Lsn,
        #[source]
        source: ReadError,
    },
    #[error("could not decode the log entry at {lsn}")]
    Decode {
        lsn: Lsn,
        #[source]
        source: DecodeError,
    },
    #[error("could not query the catalogue")]
    Catalogue(#[source] CatalogueError),
    #[error("could not read a text")]
    Text(#[source] IntakeError),
    #[error("less than 16 MiB of disk space is free")]
    Reserve,
}

impl Stopped {
    /// Whether it is worth trying again soon.
    fn passes(&self) -> bool {
        match self {
            Self::Index(fault) => catalogue_passes(fault),
            Self::Text(_) | Self::Reserve => true,
            _ => false,
        }
    }
}

/// Whether a position is not one of this log: the log was restored from elsewhere.
fn is_elsewhere(error: &ReadError) -> bool {
    matches!(
        error,
        ReadError::BelowStart { .. } | ReadError::NotAnEntry { .. } | ReadError::Beyond { .. }
    )
}

struct Worker {
    shared: Arc<Shared>,
    search: Arc<Search>,
    store: Option<Store>,
    pace: Pace,
    /// A caller waits for the target.
    is_awaited: bool,
    /// Position up to which entries were looked at; the index's own is at most this.
    seen: Lsn,
    /// When the log was last followed.
    begun: Option<Instant>,
}

/// Changes that are about to be applied: one for each name.
#[derive(Default)]
struct Batch {
    changes: Vec<Change>,
    /// Index of the change to each name.
    by_name: HashMap<(Namespace, FileName), usize>,
    text_bytes: usize,
}

impl Worker {
    fn run(mut self) {
        crate::bulk::step_back();
        while let Some(target) = self.wait() {
            let done = match self.store {
                None => self.open(),
                Some(_) => {
                    self.pace.begin(self.is_awaited);
                    let followed = self.follow(target);
                    self.pace.end();
                    followed
                }
            };
            match done {
                Ok(()) => self.clear_report(),
                Err(Stopped::Index(fault)) if fault.is_damage() => self.discard(&fault.to_string()),
                Err(Stopped::Log { source, .. }) if is_elsewhere(&source) => {
                    self.discard("its position is not that of an entry of the log");
                }
                Err(error) => {
                    self.report(&error);
                    self.pause(if error.passes() { RETRY_AFTER } else { FAILED_PAUSE });
                }
            }
        }
        self.close();
    }

    /// Waits for work. Returns the position to reach, or `None` to stop.
    fn wait(&mut self) -> Option<Lsn> {
        loop {
            let damage = {
                let mut orders = self.search.orders.lock();
                loop {
                    if orders.stop {
                        return None;
                    }
                    if let Some(damage) = orders.damage.take() {
                        break damage;
                    }
                    let is_behind = self.store.is_none() || orders.target > self.seen;
                    let due = self.begun.map(|begun| begun + GATHERED);
                    match due.filter(|due| !orders.is_awaited && Instant::now() < *due) {
                        Some(due) if is_behind => {
                            self.search.work.wait_until(&mut orders, due);
                        }
                        _ if is_behind => {
                            self.is_awaited = std::mem::take(&mut orders.is_awaited);
                            self.begun = Some(Instant::now());
                            return Some(orders.target);
                        }
                        _ => self.search.work.wait(&mut orders),
                    }
                }
            };
            self.discard(&damage);
        }
    }

    /// Waits before the same is tried again, or until the thread has to stop.
    fn pause(&self, pause: Duration) {
        let until = Instant::now() + pause;
        let mut orders = self.search.orders.lock();
        while !orders.stop && !self.search.work.wait_until(&mut orders, until).timed_out() {}
    }

    fn is_stopping(&self) -> bool {
        self.search.orders.lock().stop
    }

    /// Opens the index, and begins a new one in place of one that cannot be used.
    fn open(&mut self) -> Result<(), Stopped> {
        let path = &self.search.path;
        let log = &self.shared.log;
        let mut opened = Store::open(path, log.id()).map_err(Stopped::Index)?;
        if let Opened::Current(store) = &opened
            && store.state().position > self.search.orders.lock().target.0
        {
            opened = Opened::Unusable("it has seen entries that the log does not have".to_owned());
        }
        let mut store = match opened {
            Opened::Current(store) => store,
            Opened::Unusable(reason) => {
                tracing::warn!(%reason, "the search index is built again from the log");
                meters::rebuilt();
                remove_index(path).map_err(Stopped::Remove)?;
                match Store::open(path, log.id()).map_err(Stopped::Index)? {
                    Opened::Current(store) => store,
                    Opened::Unusable(found) => {
                        return Err(Stopped::Index(CatalogueFault::Damaged { found }));
                    }
                }
            }
        };
        let search = self.search.clone();
        store.set_pace(&self.pace, move |pause| search.pause(pause)).map_err(Stopped::Index)?;
        let readers = Readers::open(path.clone()).map_err(Stopped::Index)?;
        self.seen = Lsn(store.state().position).max(log.start());
        self.publish(store.state());
        self.store = Some(store);
        *self.search.readers.write() = Some(readers);
        Ok(())
    }

    /// Closes an index that is damaged and removes it; the next step begins a new one.
    fn discard(&mut self, found: &str) {
        tracing::warn!(%found, "the search index is damaged: it is built again from the log");
        meters::rebuilt();
        // Waits for the searches that read it.
        *self.search.readers.write() = None;
        self.store = None;
        if let Err(error) = remove_index(&self.search.path) {
            self.report(&Stopped::Remove(error));
            self.pause(FAILED_PAUSE);
        } else {
            // Whatever damages it again and again must not take all of a processor.
            self.pause(RETRY_AFTER);
        }
    }

    /// Indexes the entries up to `target`.
    fn follow(&mut self, target: Lsn) -> Result<(), Stopped> {
        let mut reader = self.shared.log.reader(self.seen);
        let mut batch = Batch::default();
        let mut end = self.seen;
        loop {
            let next = reader.next().map_err(|source| Stopped::Log { lsn: end, source })?;
            let Some(entry) = next.filter(|entry| entry.next <= target) else { break };
            let decoded = Entry::decode(entry.payload)
                .map_err(|source| Stopped::Decode { lsn: entry.lsn, source })?;
            end = entry.next;
            match decoded {
                Entry::FilePut(put) => self.put(&mut batch, entry.lsn, &put)?,
                Entry::FileMove(FileMove { put, from_namespace, from_name, .. }) => {
                    batch.delete(from_namespace, from_name);
                    self.put(&mut batch, entry.lsn, &put)?;
                }
                Entry::Delete(Delete { namespace, name, .. }) => batch.delete(namespace, name),
                Entry::NewestErased(erased) => self.again(&mut batch, erased)?,
                Entry::Amended(amended) => self.amended(&mut batch, &amended)?,
                Entry::Namespace(_)
                | Entry::DocumentChunk(_)
                | Entry::DocumentCommit(_)
                | Entry::DocumentChange(_)
                | Entry::DocumentsDropped(_)
                | Entry::Outcome(_)
                | Entry::VersionsErased(_)
                | Entry::DocumentExtents(_) => {}
            }
            if batch.is_full() || self.is_far(end) {
                self.apply(std::mem::take(&mut batch), end)?;
            }
            if self.is_stopping() {
                break;
            }
            self.pace.step(|pause| self.search.pause(pause));
        }
        if !batch.changes.is_empty() {
            self.apply(batch, end)?;
        }
        if !self.is_stopping() {
            // Entries that were erased may be the last ones below the target.
            end = end.max(target);
        }
        self.reached(end);
        Ok(())
    }

    /// Whether the position has to be recorded although there are few changes.
    fn is_far(&self, end: Lsn) -> bool {
        let stored = self.store.as_ref().map_or(0, |store| store.state().position);
        end.0.saturating_sub(stored.max(self.shared.log.start().0)) >= SCANNED_MAX
    }

    /// Adds a file to the batch, unless its name is known to have another state by now.
    fn put(&self, batch: &mut Batch, lsn: Lsn, put: &FilePut<'_>) -> Result<(), Stopped> {
        let is_read = text::is_indexed(put.mime, put.size);
        let is_here = matches!(put.place, BlobPlace::Inline(_));
        // A name that was given again is often given once more, and its earlier states are not worth a change.
        if put.created && (is_here || !is_read) {
            return self.add(batch, file_of(lsn.0, put), None, put.place);
        }
        let _pinned = Pinned::new(&self.shared, put.digest);
        let found = self.shared.reader.file(&put.namespace, &put.name);
        let Some((file, blob)) = found.map_err(Stopped::Catalogue)? else { return Ok(()) };
        if file.id != lsn.0 {
            return Ok(());
        }
        self.add(batch, file, Some(&blob), put.place)
    }

    /// Adds what a name refers to again, unless it has another state by now.
    fn again(&self, batch: &mut Batch, erased: NewestErased) -> Result<(), Stopped> {
        let found = self.shared.reader.file(&erased.namespace, &erased.name);
        let found = found.map_err(Stopped::Catalogue)?;
        let Some((file, blob)) = found.filter(|(file, _)| Some(file.id) == erased.current) else {
            batch.delete(erased.namespace, erased.name);
            return Ok(());
        };
        let _pinned = Pinned::new(&self.shared, file.digest);
        self.add(batch, file, Some(&blob), BlobPlace::Existing)
    }

    /// Adds a file whose attributes were replaced, unless its name has another state by now.
    fn amended(&self, batch: &mut Batch, amended: &Amended) -> Result<(), Stopped> {
        let found = self.shared.reader.file(&amended.namespace, &amended.name);
        let found = found.map_err(Stopped::Catalogue)?;
        let Some((file, blob)) = found.filter(|(file, _)| file.id == amended.id) else {
            return Ok(());
        };
        let _pinned = Pinned::new(&self.shared, file.digest);
        self.add(batch, file, Some(&blob), BlobPlace::Existing)
    }

    fn add(
        &self,
        batch: &mut Batch,
        file: FileRecord,
        blob: Option<&BlobRecord>,
        place: BlobPlace<'_>,
    ) -> Result<(), Stopped> {
        let text = self.text(&file, blob, place)?;
        batch.text_bytes += text.as_ref().map_or(0, String::len);
        let key = (file.namespace.clone(), file.name.clone());
        batch.push(key, Change::Put { file: Box::new(file), text });
        Ok(())
    }

    /// The text of a file, if it is indexed and can be read.
    ///
    /// * `blob`: its bytes, unless they are in the entry.
    fn text(
        &self,
        file: &FileRecord,
        blob: Option<&BlobRecord>,
        place: BlobPlace<'_>,
    ) -> Result<Option<String>, Stopped> {
        if !text::is_indexed(&file.mime, file.size) {
            return Ok(None);
        }
        if let BlobPlace::Inline(bytes) = place {
            return Ok(Some(text::text_of(bytes, &file.mime)));
        }
        let Some(blob) = blob else { return Ok(None) };
        match text::read(&self.shared, blob) {
            Ok(bytes) => Ok(Some(text::text_of(&bytes, &file.mime))),
            Err(error) if error.shortage().is_some() => Err(Stopped::Text(error)),
            Err(error) => {
                meters::unreadable();
                tracing::warn!(
                    namespace = %file.namespace,
                    name = ?file.name.as_str(),
                    error = %chain(&error),
                    "the text of a file cannot be read: only its name is searched"
                );
                Ok(None)
            }
        }
    }

    fn apply(&mut self, batch: Batch, end: Lsn) -> Result<(), Stopped> {
        let Some(store) = &mut self.store else { return Ok(()) };
        if !self.shared.reserve.is_kept() {
            return Err(Stopped::Reserve);
        }
        let begun = Instant::now();
        store.apply(&batch.changes, end.0).map_err(Stopped::Index)?;
        meters::applied(batch.changes.len(), begun.elapsed());
        let state = store.state();
        self.seen = end;
        self.publish(state);
        Ok(())
    }

    /// Records that everything up to `end` was looked at.
    fn reached(&mut self, end: Lsn) {
        self.seen = self.seen.max(end);
        if let Some(store) = &self.store {
            self.publish(store.state());
        }
    }

    fn publish(&self, state: State) {
        let position = self.seen;
        let State { files, texts, text_bytes, .. } = state;
        self.search.progress.send_modify(|progress| {
            *progress = Progress { position, files, texts, text_bytes, ..progress.clone() };
        });
        let mut orders = self.search.orders.lock();
        if position >= orders.target {
            orders.since = None;
        }
    }

    /// Reports once that the index does not follow.
    fn report(&self, error: &Stopped) {
        let reason: Arc<str> = chain(error).to_string().into();
        let was = self.search.progress.borrow().waiting.clone();
        if was.as_ref() != Some(&reason) {
            tracing::warn!(%reason, "the search index does not follow; trying again");
        }
        self.search.progress.send_modify(|progress| progress.waiting = Some(reason));
    }

    fn clear_report(&self) {
        self.search.progress.send_if_modified(|progress| progress.waiting.take().is_some());
    }

    /// Records what was looked at, so that the next start looks at nothing twice.
    fn close(&mut self) {
        *self.search.readers.write() = None;
        if let Some(mut store) = self.store.take()
            && store.state().position < self.seen.0
            && let Err(fault) = store.apply(&[], self.seen.0)
        {
            tracing::warn!(error = %fault, "could not record the position of the search index");
        }
        self.search.progress.send_modify(|progress| progress.is_closed = true);
    }
}

impl Batch {
    fn delete(&mut self, namespace: Namespace, name: FileName) {
        let change =
            Change::Delete { namespace: namespace.as_str().into(), name: name.as_str().into() };
        self.push((namespace, name), change);
    }

    /// Adds a change, in place of an earlier one to the same name.
    fn push(&mut self, name: (Namespace, FileName), change: Change) {
        match self.by_name.entry(name) {
            MapEntry::Occupied(earlier) => {
                if let Some(earlier) = self.changes.get_mut(*earlier.get()) {
                    *earlier = change;
                }
            }
            MapEntry::Vacant(first) => {
                first.insert(self.changes.len());
                self.changes.push(change);
            }
        }
    }

    fn is_full(&self) -> bool {
        self.changes.len() >= CHANGES_MAX || self.text_bytes >= TEXT_BYTES_MAX
    }
}

/// Keeps bytes from being removed until dropped.
pub(super) struct Pinned<'a> {
    shared: &'a Shared,
    digest: Digest,
}

impl<'a> Pinned<'a> {
    pub(super) fn new(shared: &'a Shared, digest: Digest) -> Self {
        shared.pending.lock().pin(digest);
        Self { shared, digest }
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        self.shared.pending.lock().unpin(self.digest);
    }
}
