//! The store: a log that makes batches true, memory tables and segments to read them from, and a tree
//! to prove them by.
//!
//! ```text
//! <dir>/lock          held by the one process that uses it
//! <dir>/log/          batches, as they came
//! <dir>/segments/     what was in the log, sorted and sealed
//! <dir>/manifest      which segments there are, and where the log goes on
//! <dir>/tree          roots of all complete subtrees of 256 events
//! <dir>/key           the key checkpoints are signed with
//! <dir>/checkpoints   every checkpoint that was signed
//! ```
//!
//! Locks are taken in this order: `maintaining`, `checkpoints`, `sequencer`, the tree's two, `view`.

mod append;
mod compact;
mod counters;
mod error;
mod flush;
mod journal;
mod manifest;
mod open;
mod options;
mod proofs;
mod read;
mod replay;
mod revive;
mod signal;
mod tree;
mod verify;
mod view;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_base::clock::Clock;
use forebay_base::error_chain::chain;
use forebay_base::fs::{FileSystem, Lock};
use forebay_log::Lsn;
use parking_lot::{Condvar, Mutex, RwLock};

pub use append::{Accepted, Submitted};
pub use compact::{Pruned, Retention};
pub use counters::Stats;
pub use error::{AppendError, Disk, OpenError, ReadError};
pub use open::Recovered;
pub use options::Options;
pub use read::Record;
pub use verify::{Fault, Verified, verify};

use crate::batch::Batch;
use crate::checkpoint::{Checkpoint, History, SigningKey};
use crate::memory::Table;
use crate::merkle::TreeFile;
use counters::Counters;
use journal::Journal;
use manifest::Manifest;
use read::Blocks;
use signal::Signal;
use tree::TreeKeeper;
pub(crate) use view::{Stored, View};

/// Who gets which position, and where the newest events are put.
#[derive(Debug)]
pub(crate) struct Sequencer {
    next_seq: u64,
    /// Position in the log after the newest batch.
    log_end: Lsn,
    active: Arc<Table>,
    /// When `active` was first seen with events in it, by the monotonic clock.
    active_since: Option<Duration>,
    /// Tables on their way to become segments, with the log's position after each.
    frozen: VecDeque<(Arc<Table>, Lsn)>,
    /// Why the last flush failed, until one succeeds.
    flush_failure: Option<String>,
    /// Why nothing is taken any more.
    closed: Option<String>,
}

/// The key and what was signed with it.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    key: SigningKey,
    history: History,
    /// The newest checkpoint, and its note.
    latest: Option<(Checkpoint, String)>,
}

/// What the store's threads share.
#[derive(Debug)]
pub(crate) struct Inner {
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
    options: Options,
    clock: Arc<dyn Clock>,
    journal: Journal,
    sequencer: Mutex<Sequencer>,
    /// A memory table became a segment, or could not.
    room: Condvar,
    view: RwLock<Arc<View>>,
    /// Events below are acknowledged, and readers see them.
    visible: AtomicU64,
    /// `visible` grew.
    shown: Signal,
    tree: Option<TreeKeeper>,
    tree_file: Option<Mutex<TreeFile>>,
    checkpoints: Option<Mutex<Checkpoints>>,
    manifest: Mutex<Manifest>,
    /// Held by whoever changes segments.
    maintaining: Mutex<()>,
    /// Blocks readers met.
    blocks: Blocks,
    /// Stopped when no more is to be signed.
    signing: Signal,
    /// There is something to flush.
    maintenance: Signal,
    counters: Counters,
    /// There are no threads: appenders flush.
    quiet: bool,
    _lock: Box<dyn Lock>,
}

/// An open event store. Closing it ([`Store::close`]) puts everything on stable storage; dropping it
/// does the same and can report nothing.
#[derive(Debug)]
pub struct Store {
    inner: Arc<Inner>,
    threads: Vec<JoinHandle<()>>,
    stopped: bool,
}

impl Inner {
    /// The store as it is now.
    pub(crate) fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.read())
    }

    /// Puts a changed copy of the view in its place.
    pub(crate) fn change_view(&self, change: impl FnOnce(&mut View)) {
        let mut view = self.view.write();
        let mut next = View { segments: view.segments.clone(), tables: view.tables.clone() };
        change(&mut next);
        *view = Arc::new(next);
    }

    /// Readers see every event below this position.
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
}

/// Starts a thread, as [`std::thread::spawn`] does, under a name.
fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    match std::thread::Builder::new().name(name.to_owned()).spawn(body) {
        Ok(thread) => thread,
        Err(error) => panic!("the operating system refuses a thread: {error}"),
    }
}

impl Store {
    /// Appends a batch and blocks until it is acknowledged.
    ///
    /// # Errors
    /// [`AppendError::Commit`]: whether it was stored is unknown until the store is opened again; all
    /// others: nothing was stored.
    pub fn append(&self, batch: Batch) -> Result<Accepted, AppendError> {
        self.submit(batch)?.wait()
    }

    /// Gives a batch its positions without waiting for it to be acknowledged, so that a caller may
    /// bring many and wait once: the last one's acknowledgement is that of all before it
    /// that it [follows](Submitted::follows).
    ///
    /// Blocks while memory tables wait to become segments.
    ///
    /// # Errors
    /// As [`Store::append`].
    pub fn submit(&self, batch: Batch) -> Result<Submitted<'_>, AppendError> {
        self.inner.submit(batch)
    }

    /// What its threads share: for what is built on top of it here.
    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// Where the store is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.inner.dir
    }

    /// How the store was opened.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.inner.options
    }

    /// Counters and sizes.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.inner.stats()
    }

    /// Whether events are taken, and become segments.
    ///
    /// # Errors
    /// Why not, in a sentence.
    pub fn health(&self) -> Result<(), String> {
        let sequencer = self.inner.sequencer.lock();
        let why = sequencer.closed.as_ref().or(sequencer.flush_failure.as_ref());
        if let Some(why) = why {
            return Err(why.clone());
        }
        drop(sequencer);
        let failure = self.inner.journal.failed().then(|| self.inner.journal.failure());
        failure.map_or(Ok(()), |failure| Err(chain(&failure).to_string()))
    }

    /// Makes everything appended a segment, now.
    ///
    /// # Errors
    /// [`AppendError::Closed`]: a segment could not be written; what was acknowledged is in the log.
    pub fn flush(&self) -> Result<(), AppendError> {
        self.inner.flush_all()
    }

    /// Signs a last checkpoint, puts everything on stable storage and ends the threads.
    ///
    /// # Errors
    /// The checkpoint or the last sync failed; the directory is released all the same.
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
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the event store panicked");
            }
        }
        let signed = match self.inner.checkpoints {
            Some(_) => self.inner.checkpoint().map(drop),
            None => Ok(()),
        };
        let synced = self.inner.journal.close();
        signed.and(synced.map_err(ReadError::Commit))
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
