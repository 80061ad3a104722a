//! The store: a log that makes batches durable, memory tables and segments to read them from, and a
//! tree to prove them.
//!
//! ```text
//! <dir>/lock          held by the one process that uses it
//! <dir>/log/          batches, as they came
//! <dir>/segments/     what was in the log, sorted and sealed
//! <dir>/manifest      which segments there are, and where the log continues
//! <dir>/arrivals      when events arrived
//! <dir>/requests      keys of requests, so that none is stored twice
//! <dir>/tree          roots of all complete subtrees of 256 events
//! <dir>/key           the key checkpoints are signed with
//! <dir>/checkpoints   every checkpoint that was signed
//! <dir>/newest-checkpoint   a copy of the last of them
//! <dir>/cosigned-checkpoint the newest one that witnesses cosigned
//! ```
//!
//! Locks are taken in this order: a publisher's `attempt`, `maintaining`, `checkpoints`, `sequencer`,
//! the tree's two, `view`. While `cosigned` or the state of a publisher is locked, only files are
//! written.

mod anchor;
mod append;
mod arrivals;
mod bundle;
mod checked;
mod compact;
mod cosigned;
mod counters;
mod error;
mod flush;
mod image;
mod journal;
mod manifest;
mod newest;
mod open;
mod options;
mod proofs;
mod read;
mod record;
mod replay;
mod requests;
mod retention;
mod revive;
mod seal;
mod sealing;
mod set_aside;
mod shortage;
mod signal;
mod tree;
mod verify;
mod view;
pub(crate) mod whole_file;

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_base::clock::Clock;
use forebay_base::error_chain::chain;
use forebay_base::fs::{FileSystem, Lock};
use forebay_log::Lsn;
use parking_lot::{Condvar, Mutex, RwLock};

pub use anchor::{
    AnchorError, AnchorFiles, AnchorPlace, AnchorStatus, AnchorTarget, Anchored, Directory,
    KeptFiles, Publication, read_anchor,
};
pub use append::{Accepted, Promise, Submitted};
pub use bundle::BundleError;
pub use compact::Pruned;
pub use cosigned::{WITNESS_ANSWER_SIZE_MAX, Witness, WitnessAnswer, WitnessTransport};
pub use counters::Stats;
pub use error::{AppendError, Disk, OpenError, ReadError};
pub use image::StoreImageError;
pub use open::Recovered;
pub use options::Options;
pub use read::Record;
pub use retention::Retention;
pub use shortage::Shortage;
pub use verify::{Fault, Kept, Verified, Witnessed, verify, verify_kept};

use crate::batch::Batch;
use crate::checkpoint::{Checkpoint, History, SigningKey};
use crate::format::request::{RequestKey, RequestNote};
use crate::format::system::PolicyEntry;
use crate::memory::Table;
use crate::merkle::TreeFile;
use anchor::Publisher;
use arrivals::Arrivals;
use checked::Checks;
use cosigned::Cosigned;
use counters::Counters;
use journal::Journal;
use manifest::Manifest;
use read::Blocks;
use requests::Requests;
use retention::Recorded;
use seal::FileKey;
use signal::Signal;
use tree::TreeKeeper;
pub(crate) use view::{Stored, View};

/// Assigns positions, and holds the newest events.
#[derive(Debug)]
pub(crate) struct Sequencer {
    next_seq: u64,
    /// Position in the log after the newest batch.
    log_end: Lsn,
    active: Arc<Table>,
    /// When `active` was first seen to contain events, by the monotonic clock.
    active_since: Option<Duration>,
    /// Tables that will become segments, with the log's position after each.
    frozen: VecDeque<(Arc<Table>, Lsn)>,
    /// Why the last flush failed, until one succeeds, and what was lacking.
    flush_failure: Option<(String, Option<Shortage>)>,
    /// Why nothing is accepted any more.
    closed: Option<String>,
}

impl Sequencer {
    /// One whose next event has position `next_seq`.
    fn new(next_seq: u64, log_end: Lsn, active: Arc<Table>) -> Self {
        Self {
            next_seq,
            log_end,
            active,
            active_since: None,
            frozen: VecDeque::new(),
            flush_failure: None,
            closed: None,
        }
    }
}

/// The key and the checkpoints signed with it.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    key: SigningKey,
    history: History,
    /// The newest checkpoint, and its note.
    latest: Option<(Checkpoint, String)>,
    /// Number of the checkpoint that was copied.
    copied: Option<u64>,
    /// How the copy contradicts the history, if it does.
    cut: Option<String>,
}

/// Called with the number of visible events whenever it has grown.
struct Watcher(Box<dyn Fn(u64) + Send + Sync>);

impl std::fmt::Debug for Watcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watcher")
    }
}

/// State shared by the store's threads.
#[derive(Debug)]
pub(crate) struct Inner {
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
    options: Options,
    clock: Arc<dyn Clock>,
    journal: Journal,
    sequencer: Mutex<Sequencer>,
    /// A memory table became a segment, or failed to.
    room: Condvar,
    view: RwLock<Arc<View>>,
    /// Events below this position are acknowledged and visible to readers.
    visible: AtomicU64,
    /// Ids that producers name, of events that are being stored.
    pub(crate) named: Arc<crate::ingest::NamedIds>,
    /// `visible` grew.
    shown: Signal,
    /// A callback for the same event.
    watcher: OnceLock<Watcher>,
    tree: Option<TreeKeeper>,
    tree_file: Option<Mutex<TreeFile>>,
    checkpoints: Option<Mutex<Checkpoints>>,
    manifest: Mutex<Manifest>,
    /// Held while segments are changed.
    maintaining: Mutex<()>,
    /// Segments of which the expired events are recorded but not yet removed, by number.
    recorded: Mutex<HashMap<u64, Recorded>>,
    /// Requests with a key. Locked after the sequencer.
    requests: Mutex<Requests>,
    /// When events arrived.
    arrivals: Mutex<Arc<Arrivals>>,
    /// The recorded retention rules, once they were read.
    policy: Mutex<Option<PolicyEntry>>,
    /// Numbers of segments that are neither joined nor pruned any more, since they are damaged.
    damaged: Mutex<HashSet<u64>>,
    /// Why nothing is signed any more: the events contradict what was signed.
    distrusted: OnceLock<String>,
    /// Why segments and manifest stay as they are: what they follow from is not authentic.
    suspended: OnceLock<String>,
    /// Makes the codes of the store's files; none without proofs.
    file_key: Option<FileKey>,
    /// Files that were not used, because they were not authentic, and why.
    unused: Mutex<Vec<(&'static str, &'static str)>>,
    /// Where the log ended when the store was opened.
    log_found: Lsn,
    /// Who gets checkpoints.
    publishers: Vec<Arc<Publisher>>,
    /// A checkpoint was signed; stopped when the last one is to be published.
    publishing: Signal,
    /// What witnesses cosigned.
    cosigned: Mutex<Cosigned>,
    /// Cache of blocks for readers.
    blocks: Blocks,
    /// What was compared with the tree.
    checks: Checks,
    /// Stopped when nothing more is to be signed.
    signing: Signal,
    /// There is something to flush.
    maintenance: Signal,
    counters: Counters,
    /// Whether there are no threads: appenders flush.
    quiet: bool,
    _lock: Box<dyn Lock>,
}

/// An open event store. Closing it ([`Store::close`]) puts everything on stable storage; dropping
/// it does the same but cannot report errors.
#[derive(Debug)]
pub struct Store {
    inner: Arc<Inner>,
    threads: Vec<JoinHandle<()>>,
    /// Those that publish checkpoints, which end last.
    publishing: Vec<JoinHandle<()>>,
    stopped: bool,
}

impl Inner {
    /// Returns the current view.
    pub(crate) fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.read())
    }

    /// Replaces the view with a changed copy.
    pub(crate) fn change_view(&self, change: impl FnOnce(&mut View)) {
        let mut view = self.view.write();
        let mut next = View { segments: view.segments.clone(), tables: view.tables.clone() };
        change(&mut next);
        *view = Arc::new(next);
    }

    /// Position below which all events are visible.
    pub(crate) fn visible(&self) -> u64 {
        self.visible.load(Ordering::Acquire)
    }

    fn start_threads(self: &Arc<Self>) -> Vec<JoinHandle<()>> {
        let mut threads = Vec::new();
        let inner = Arc::clone(self);
        threads.push(spawn("events-flush", move || inner.maintain()));
        if self.tree.is_some() {
            let inner = Arc::clone(self);
            threads.push(spawn("events-tree", move || {
                if let Some(tree) = &inner.tree {
                    tree.run();
                }
            }));
            let inner = Arc::clone(self);
            threads.push(spawn("events-sign", move || inner.sign_now_and_then()));
        }
        threads
    }

    fn start_publishing(self: &Arc<Self>) -> Vec<JoinHandle<()>> {
        let publishers = self.publishers.iter().map(|publisher| {
            let (inner, publisher) = (Arc::clone(self), Arc::clone(publisher));
            spawn("events-publish", move || inner.publish_now_and_then(&publisher))
        });
        publishers.collect()
    }
}

/// Waits for threads to end.
fn join(threads: &mut Vec<JoinHandle<()>>) {
    for thread in threads.drain(..) {
        if thread.join().is_err() {
            tracing::error!("a thread of the event store panicked");
        }
    }
}

/// Starts a named thread, like [`std::thread::spawn`].
fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    match std::thread::Builder::new().name(name.to_owned()).spawn(body) {
        Ok(thread) => thread,
        Err(error) => panic!("cannot start a thread: {error}"),
    }
}

impl Store {
    /// Appends a batch and blocks until it is acknowledged.
    ///
    /// # Errors
    /// [`AppendError::Commit`]: whether it was stored is unknown until the store is opened again.
    /// All others: nothing was stored.
    pub fn append(&self, batch: Batch) -> Result<Accepted, AppendError> {
        self.submit(batch)?.wait()
    }

    /// Assigns positions to a batch without waiting for its acknowledgement, so that a caller can
    /// submit many and wait once: the acknowledgement of the last covers all earlier ones
    /// that it [follows](Submitted::follows).
    ///
    /// Blocks while memory tables wait to become segments.
    ///
    /// # Errors
    /// As [`Store::append`].
    pub fn submit(&self, batch: Batch) -> Result<Submitted<'_>, AppendError> {
        self.inner.submit(batch)
    }

    /// How far a request with this key was stored, if it was sent within the window of requests.
    pub(crate) fn request(&self, key: RequestKey) -> Option<RequestNote> {
        let (now_ns, window) = (self.inner.now_ns(), self.inner.options.request_window);
        self.inner.requests.lock().get(key, now_ns, window).cloned()
    }

    /// Like [`Store::submit`], with the note of a request; the batch may be empty.
    pub(crate) fn submit_noted(
        &self,
        batch: Batch,
        note: RequestNote,
    ) -> Result<Submitted<'_>, AppendError> {
        self.inner.submit_noted(batch, note)
    }

    /// The wall clock time, in nanoseconds since 1970-01-01 UTC.
    pub(crate) fn now_ns(&self) -> i64 {
        self.inner.now_ns()
    }

    /// Blocks until a batch of this store is durable as configured, and visible to readers.
    ///
    /// # Errors
    /// As [`Submitted::wait`].
    pub fn wait(&self, promise: Promise) -> Result<Accepted, AppendError> {
        self.inner.wait(promise)
    }

    /// Calls `watcher` with the number of visible events whenever it has grown, on the thread that
    /// caused it: it must be brief. Only the first watcher is kept.
    pub fn watch(&self, watcher: impl Fn(u64) + Send + Sync + 'static) {
        // A second one is dropped, as documented.
        self.inner.watcher.get_or_init(|| Watcher(Box::new(watcher)));
    }

    /// State shared by its threads, for modules built on top of it here.
    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// Returns its directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.inner.dir
    }

    /// Returns the options it was opened with.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.inner.options
    }

    /// Counters and sizes.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.inner.stats()
    }

    /// Checks that events are accepted and become segments.
    ///
    /// # Errors
    /// Why not, as a sentence.
    pub fn health(&self) -> Result<(), String> {
        let sequencer = self.inner.sequencer.lock();
        let failure = sequencer.flush_failure.as_ref().map(|(why, _)| why);
        if let Some(why) = sequencer.closed.as_ref().or(failure) {
            return Err(why.clone());
        }
        drop(sequencer);
        let failure = self.inner.journal.failed().then(|| self.inner.journal.failure());
        let failure = failure.or_else(|| self.inner.journal.stalled());
        failure.map_or(Ok(()), |failure| Err(chain(&failure).to_string()))
    }

    /// Turns everything appended so far into a segment, immediately.
    ///
    /// # Errors
    /// [`AppendError::Closed`]: a segment could not be written; what was acknowledged is in the
    /// log.
    pub fn flush(&self) -> Result<(), AppendError> {
        self.inner.flush_all()
    }

    /// Signs a last checkpoint, puts everything on stable storage and ends the threads.
    ///
    /// # Errors
    /// The last sync failed, or the checkpoint: [`ReadError::Distrusted`] if this store signs nothing.
    /// The directory is released anyway.
    pub fn close(mut self) -> Result<(), ReadError> {
        self.stop()
    }

    fn stop(&mut self) -> Result<(), ReadError> {
        if std::mem::replace(&mut self.stopped, true) {
            return Ok(());
        }
        self.inner.maintenance.stop();
        self.inner.shown.stop();
        self.inner.signing.stop();
        if let Some(tree) = &self.inner.tree {
            tree.stop();
        }
        join(&mut self.threads);
        let signed = match self.inner.checkpoints {
            Some(_) => self.inner.checkpoint().map(drop),
            None => Ok(()),
        };
        // What cannot be published now is published after the next start.
        self.inner.publishing.stop();
        if self.inner.quiet
            && let Err(error) = self.inner.publish()
        {
            tracing::error!("cannot publish the last checkpoint: {}", chain(&error));
        }
        join(&mut self.publishing);
        let synced = self.inner.journal.close();
        synced.map_err(ReadError::Commit).and(signed)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            let error = forebay_base::error_chain::chain(&error);
            tracing::error!("the event store was not closed cleanly: {error}");
        }
    }
}
