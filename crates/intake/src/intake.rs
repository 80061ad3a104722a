//! The intake for its callers: opened, used, closed.
//!
//! ```text
//! <dir>/lock               one process at a time
//! <dir>/log/               the truth: names, small blobs, incoming documents, answers
//! <dir>/blobs/, staging/   large blobs
//! <dir>/blobs.sqlite, blob-cache   view and cache of blobs in object storage
//! <dir>/uploads/           uploads that arrive in several requests
//! <dir>/catalogue.sqlite   view: names, blobs, answered requests
//! <dir>/catalogue-damaged.sqlite   a damaged one that was set aside at a start
//! <dir>/documents.sqlite   view: documents
//! <dir>/search.sqlite      view: words of files
//! <dir>/forward.json       state of forwarding to an external database
//! <dir>/spill/             documents that wait for it
//! ```
//!
//! Opening brings both views up to date with the log, removes what a crash left, and reports what
//! it did. Closing applies what is queued and syncs the log. A process that is killed instead loses
//! nothing acknowledged; the next opening only has more to do.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use forebay_base::clock::Clock;
use forebay_base::fs::{FileSystem, Lock};
use forebay_log::{Committer, Lsn, Recovery};
use forebay_sink::Sink as _;
use forebay_sqlite::SqliteSink;
use parking_lot::{Condvar, Mutex};
use serde::Serialize;
use tokio::sync::{Notify, Semaphore, watch};

use crate::apply::Applier;
use crate::blobs::moving::MoveState;
use crate::bulk::Bulk;
use crate::catalogue::{Catalogue, CatalogueTotals, FileFilter, FileRecord};
use crate::documents::flatten::Bounds;
use crate::documents::forward::{DatabaseStatus, Forwarder, Outbox, Parts};
use crate::documents::namespaces::Namespaces;
use crate::documents::view::{View, ViewQueue};
use crate::error::{IntakeError, OpenError};
use crate::expiry::Expiry;
use crate::long_reads::LongReads;
use crate::names::Namespace;
use crate::opening::{
    catch_documents_up, catch_up, held, learn, open_blobs, open_catalogue, open_documents,
    open_log, open_outbox, prepare, record_extents, seen_by_views,
};
use crate::options::IntakeOptions;
use crate::search::{Follower, Search};
use crate::shared::{Applied, ApplierOrders, Shared, not_waiting};
use crate::space::{self, Reserve};
use crate::storing::Storing;
use crate::uploads::Uploads;
use crate::verifier::{Verified, Verifier, verify};

/// The intake. Cloning is cheap; all clones are the same intake.
#[derive(Debug, Clone)]
pub struct Intake {
    pub(crate) inner: Arc<Inner>,
}

/// State of every handler.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) shared: Arc<Shared>,
    pub(crate) namespaces: Namespaces,
    pub(crate) view: Arc<ViewQueue>,
    pub(crate) bounds: Bounds,
    /// Whether answers without an end are to end.
    pub(crate) draining: watch::Sender<bool>,
    running: Mutex<Option<Running>>,
}

/// What runs until the intake is closed, in the order in which it is stopped.
#[derive(Debug)]
struct Running {
    view: View,
    search: Option<Follower>,
    forwarder: Option<Forwarder>,
    verifier: Verifier,
    applier: Applier,
    committer: Committer,
    _lock: Box<dyn Lock>,
}

/// What the threads begin with.
struct Starting {
    catalogue: Catalogue,
    view: Arc<ViewQueue>,
    sink: SqliteSink,
    bounds: Bounds,
    outbox: Option<Arc<Outbox>>,
    search: Option<Arc<Search>>,
    lock: Box<dyn Lock>,
}

impl Starting {
    /// Starts every thread.
    fn run(self, shared: &Arc<Shared>, fs: &Arc<dyn FileSystem>) -> std::io::Result<Running> {
        let Self { catalogue, view, sink, bounds, outbox, search, lock } = self;
        let (log, dir) = (&shared.log, &shared.options.dir);
        let parts = || Parts {
            log: log.clone(),
            fs: fs.clone(),
            clock: shared.clock.clone(),
            bounds,
            documents: dir.join(layout::DOCUMENTS),
            spill: dir.join(layout::SPILL),
        };
        Ok(Running {
            forwarder: outbox.map(|outbox| Forwarder::start(outbox, parts())).transpose()?,
            search: search.map(|search| Follower::start(shared.clone(), search)).transpose()?,
            view: View::start(view.clone(), log.clone(), sink, bounds)?,
            verifier: Verifier::start(shared.clone())?,
            applier: Applier::start(shared.clone(), catalogue, view)?,
            committer: log.start_committer(),
            _lock: lock,
        })
    }
}

/// Report of an opening.
#[derive(Debug, Clone, Default, Serialize)]
pub struct StartReport {
    /// Whether the directory was new.
    pub created: bool,
    /// Whether the log had been closed cleanly.
    pub clean: bool,
    /// Bytes of a torn tail cut off the log.
    pub torn_bytes: u64,
    /// Log entries applied to the catalogue.
    pub catalogue_entries: u64,
    /// Document commits applied to the document database.
    pub document_commits: u64,
    /// Whether the catalogue had to be rebuilt from the log's beginning.
    pub catalogue_rebuilt: bool,
    /// Unfinished uploads removed.
    pub staging_removed: u64,
    /// Number of removed blob files that no entry names.
    pub orphans_removed: u64,
    /// Number of names.
    pub files: u64,
    /// Duration of the opening, in milliseconds.
    pub took_ms: u64,
}

impl StartReport {
    fn of(recovery: &Recovery) -> Self {
        Self {
            created: recovery.created,
            clean: recovery.clean,
            torn_bytes: recovery.cut.as_ref().map_or(0, |cut| cut.bytes),
            ..Self::default()
        }
    }
}

/// Size of the largest log entry: the largest document and a chunk beside it.
pub(crate) const ENTRY_SIZE_MAX: u32 = 128 << 20;

/// Names of the files below an intake's directory.
pub(crate) mod layout {
    pub(crate) const LOCK: &str = "lock";
    pub(crate) const LOG: &str = "log";
    pub(crate) const CATALOGUE: &str = "catalogue.sqlite";
    pub(crate) const CATALOGUE_FSCK: &str = "catalogue-fsck.sqlite";
    pub(crate) const CATALOGUE_DAMAGED: &str = "catalogue-damaged.sqlite";
    pub(crate) const DOCUMENTS: &str = "documents.sqlite";
    pub(crate) const SEARCH: &str = "search.sqlite";
    pub(crate) const SPILL: &str = "spill";
}

impl Intake {
    /// Opens the intake in `options.dir` and creates it if it does not exist.
    ///
    /// Blocks while the views catch up. The log and the blobs go through `fs`; the views are SQLite
    /// databases in the same directory of the real file system.
    ///
    /// # Errors
    /// [`OpenError`]: nothing is served and nothing was lost. The message says what to do.
    pub fn open(
        options: IntakeOptions,
        fs: Arc<dyn FileSystem>,
        clock: Arc<dyn Clock>,
    ) -> Result<(Self, StartReport), OpenError> {
        match Self::open_once(options.clone(), fs.clone(), clock.clone()) {
            // The views need room for what was acknowledged before the disk was full.
            Err(error)
                if space::is_wanted(&error)
                    && Reserve::keep(fs.clone(), &options.dir).release() =>
            {
                Self::open_once(options, fs, clock)
            }
            opened => opened,
        }
    }

    fn open_once(
        mut options: IntakeOptions,
        fs: Arc<dyn FileSystem>,
        clock: Arc<dyn Clock>,
    ) -> Result<(Self, StartReport), OpenError> {
        let started = Instant::now();
        // A document and the chunk it is in must fit in one log entry.
        let document_size_most = to_size(ENTRY_SIZE_MAX / 2);
        options.limits.document_size_max = options.limits.document_size_max.min(document_size_most);
        let dir = options.dir.clone();
        let lock = prepare(&dir, fs.as_ref())?;
        let opened = open_catalogue(&dir)?;
        let mut sink = open_documents(&dir.join(layout::DOCUMENTS))?;
        let known_synced = seen_by_views(opened.seen, sink.position());
        let (log, recovery) = open_log(&options, &dir, fs.clone(), known_synced)?;
        let mut report = StartReport::of(&recovery);
        let mut catalogue = catch_up(opened, &mut sink, &log, &mut report)?;
        let bounds = bounds_of(&options);
        let (sink, document_position, documents_durable) =
            catch_documents_up(sink, &log, bounds, &catalogue, &mut report)?;
        let held = held(&sink, document_position, documents_durable);
        record_extents(&log, &mut catalogue, held.as_ref())?;
        let reader = catalogue.reader().map_err(OpenError::Catalogue)?;
        let outbox = open_outbox(&options, &fs, &log, document_position, clock.as_ref())?;
        let system = (fs.clone(), clock.clone());
        let blobs =
            open_blobs(&options, system, (&log, &recovery), &reader, &catalogue, &mut report)?;
        let pending = learn(&reader, catalogue.counts()).map_err(OpenError::Catalogue)?;
        report.files = catalogue.counts().0;

        let prepare = |source| OpenError::Prepare { path: dir.clone(), source };
        let bulk = Bulk::new().map_err(prepare)?;
        let reserve = Arc::new(Reserve::keep(fs.clone(), &dir));
        let applied = Lsn(catalogue.position());
        let search = Search::of(&options, applied);
        let storing = Storing::default();
        let shared = Arc::new(Shared {
            uploads: Uploads::open(fs.clone(), &dir, clock.clone(), &options, storing.clone())?,
            large_uploads: Semaphore::new(options.limits.large_uploads_max),
            long_reads: LongReads::default(),
            bulk,
            held: AtomicUsize::new(0),
            storing,
            options,
            clock,
            log: log.clone(),
            blobs,
            moving: MoveState::default(),
            reader,
            pending: Mutex::new(pending),
            work: Condvar::new(),
            applier: Mutex::new(ApplierOrders::default()),
            room: Notify::new(),
            applied: watch::Sender::new(Applied::at(applied)),
            reclaim: Mutex::new(()),
            version_changes: tokio::sync::Mutex::new(()),
            imaging: Mutex::new(()),
            reserve: Arc::clone(&reserve),
            verified: Mutex::new(Verified::now()),
            expiry: Expiry::default(),
            #[cfg(feature = "thumbnails")]
            thumbnails: crate::thumbnails::Thumbnails::default(),
            search: search.clone(),
            needed_since: OnceLock::new(),
            held_from: OnceLock::new(),
        });
        let outside = outbox.clone();
        let view = ViewQueue::new(document_position, documents_durable, held, outside, reserve);
        let view = Arc::new(view);
        let namespaces = Namespaces::new(bounds, &shared.options);
        let starting =
            Starting { catalogue, view: view.clone(), sink, bounds, outbox, search, lock };
        let running = starting.run(&shared, &fs).map_err(prepare)?;
        report.took_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (draining, running) = (watch::Sender::new(false), Mutex::new(Some(running)));
        let inner = Inner { shared, namespaces, view, bounds, draining, running };
        Ok((Self { inner: Arc::new(inner) }, report))
    }

    /// Ends what waits for news without an end, before the intake is closed.
    pub fn drain(&self) {
        self.inner.draining.send_replace(true);
    }

    /// Applies what is queued, syncs the log and closes everything. Later calls do nothing.
    ///
    /// Blocks. What was acknowledged is safe with or without this.
    ///
    /// # Errors
    /// [`IntakeError::Commit`]: the log could not be synced.
    pub fn close(&self) -> Result<(), IntakeError> {
        let Some(mut running) = self.inner.running.lock().take() else { return Ok(()) };
        running.view.stop();
        if let Some(forwarder) = &mut running.forwarder {
            forwarder.stop();
        }
        running.verifier.stop();
        if let Some(search) = &mut running.search {
            search.stop();
        }
        running.applier.stop();
        let remote = self.inner.shared.blobs.remote();
        if let Some(remote) = remote {
            remote.close();
        }
        let committed = running.committer.stop().map_err(IntakeError::Commit);
        if let Some(remote) = remote {
            // The log is on stable storage to its end: the claim can say so.
            remote.leave();
        }
        committed
    }

    /// Checks that changes can be accepted and shown.
    ///
    /// # Errors
    /// [`IntakeError::ViewStopped`], [`IntakeError::ViewDamaged`], [`IntakeError::ViewWaiting`] or
    /// [`IntakeError::Full`].
    pub fn ready(&self) -> Result<(), IntakeError> {
        self.inner.shared.check_views()?;
        self.inner.shared.check_whole()?;
        if let Some(reason) = &self.inner.view.applied.borrow().stopped {
            return Err(IntakeError::ViewStopped { reason: reason.to_string() });
        }
        if let Some(remote) = self.inner.shared.blobs.written_remote() {
            remote
                .check_claim()
                .map_err(|error| IntakeError::Fenced { reason: error.to_string() })?;
        }
        self.inner.check_space()
    }

    /// State of the database that documents are forwarded to; `None` if there is none.
    #[must_use]
    pub fn database(&self) -> Option<DatabaseStatus> {
        let Inner { shared, view, .. } = self.inner.as_ref();
        let outbox = view.outbox.as_ref()?;
        let now_ms = shared.now_ms();
        let (unapplied, oldest_ms) = view.unapplied();
        let mut status = outbox.status(shared.log.end(), now_ms);
        if outbox.lacks_all() {
            // What it has is not known before it is reached.
            match self.inner.namespaces.list() {
                Ok(all) => status.documents_waiting = all.iter().map(|info| info.row_count).sum(),
                Err(error) => tracing::debug!(%error, "could not count the documents"),
            }
        }
        status.documents_waiting += unapplied;
        let age_ms = oldest_ms.map_or(0, |oldest| now_ms.saturating_sub(oldest).max(0));
        let age = Duration::from_millis(age_ms.unsigned_abs()).as_secs_f64();
        status.lag_seconds = status.lag_seconds.max(age);
        Some(status)
    }

    /// Asks for the documents that the database refused to be tried again at once: those of one
    /// namespace, or of all.
    ///
    /// # Errors
    /// [`IntakeError::NotFound`]: there is no database, or it does not refuse this namespace.
    pub fn replay_database(
        &self,
        namespace: Option<&Namespace>,
    ) -> Result<DatabaseStatus, IntakeError> {
        let outbox = self.inner.view.outbox.as_ref();
        let asked = outbox.map(|outbox| outbox.replay_now(namespace.map(Namespace::as_str)));
        let missing = |what: String| IntakeError::NotFound { what };
        if let (Some(false), Some(namespace)) = (asked, namespace) {
            return Err(missing(format!("quarantined namespace {namespace}")));
        }
        self.database()
            .ok_or_else(|| missing("database that documents are forwarded to".to_owned()))
    }

    /// Totals over everything acknowledged before the call.
    ///
    /// # Errors
    /// [`IntakeError`] if the catalogue cannot be queried.
    pub async fn totals(&self) -> Result<CatalogueTotals, IntakeError> {
        let shared = self.inner.shared.clone();
        shared.catch_up().await?;
        shared.check_whole()?;
        let totals = forebay_base::blocking::spawn(move || shared.reader.totals());
        let interrupted =
            |_| IntakeError::ViewStopped { reason: "the totals were interrupted".into() };
        Ok(totals.await.map_err(interrupted)??)
    }

    /// Verifies every row of the catalogue now. Blocks.
    ///
    /// A pass of this kind also runs after each [`verify_every`](IntakeOptions::verify_every).
    ///
    /// # Errors
    /// [`IntakeError::ViewDamaged`]: from now on [`Intake::ready`] fails, and so does every answer
    /// that depends on what the catalogue does not have. [`IntakeError::Catalogue`]: it could not be
    /// read.
    pub fn verify_catalogue(&self) -> Result<(), IntakeError> {
        let stop = std::sync::atomic::AtomicBool::new(false);
        verify(&self.inner.shared, &stop)
    }

    /// Up to `limit` files, by namespace and name, after `after`. Blocks. Includes what was
    /// acknowledged before the last call of [`Intake::totals`].
    ///
    /// # Errors
    /// [`IntakeError`] if the catalogue cannot be queried.
    pub fn files_after(
        &self,
        after: Option<(&str, &str)>,
        limit: usize,
    ) -> Result<Vec<FileRecord>, IntakeError> {
        self.inner.shared.check_whole()?;
        Ok(self.inner.shared.reader.list(&FileFilter::default(), after, limit)?)
    }

    /// Frees the space of deleted data now instead of within the next minute.
    ///
    /// Bytes in the log segment that is still being written stay until it is full, and so do
    /// segments of which less than a quarter is dead.
    ///
    /// # Errors
    /// [`IntakeError::ViewStopped`]: the catalogue has stopped. [`IntakeError::ObjectStorage`]: the bucket failed.
    pub async fn reclaim(&self) -> Result<(), IntakeError> {
        self.inner.view.started().await?;
        self.inner.shared.reclaim_now().await?;
        self.keep_blobs_in_order(false).await
    }

    /// Frees space in object storage now, which the intake does by itself.
    ///
    /// * `lists`: whether all objects are listed, to find those that the index does not have.
    ///
    /// # Errors
    /// [`IntakeError::ObjectStorage`]: the bucket failed.
    pub async fn keep_blobs_in_order(&self, lists: bool) -> Result<(), IntakeError> {
        let Some(remote) = self.inner.shared.blobs.remote().cloned() else { return Ok(()) };
        let passed = forebay_base::blocking::spawn(move || remote.pass(lists)).await;
        passed.map_err(crate::listing::interrupted)?.map_err(IntakeError::ObjectStorage)
    }

    /// Counters of the log since it was opened.
    #[must_use]
    pub fn log_stats(&self) -> forebay_log::Stats {
        self.inner.shared.log.stats()
    }
}

impl Inner {
    /// Checks that documents may be accepted as far as the external database is concerned.
    pub(crate) fn check_outbox(&self) -> Result<(), IntakeError> {
        match &self.view.outbox {
            Some(outbox) => outbox.check_room(self.shared.log.end()),
            None => Ok(()),
        }
    }

    /// Checks that documents can be written, and shown afterwards.
    pub(crate) fn check_space(&self) -> Result<(), IntakeError> {
        self.shared.check_space()?;
        not_waiting(&self.view.applied)
    }

    /// End of the newest commit of documents in the log.
    pub(crate) fn newest_commit(&self) -> Lsn {
        let states = self.namespaces.states.lock();
        states.values().map(|state| state.last_end).max().unwrap_or_default()
    }

    /// Waits until the document database shows a namespace as of its newest commit.
    pub(crate) async fn shown(&self, namespace: &Namespace) -> Result<(), IntakeError> {
        let mut end = self.namespaces.states.lock().get(namespace).map(|state| state.last_end);
        if self.shared.log.stalled().is_some() {
            // Entries that a stalled log still holds were not acknowledged, so they are not waited
            // for.
            end = self.view.newest_up_to(self.shared.log.acknowledged());
        }
        match end {
            Some(end) => self.view.reached(end).await,
            None => Ok(()),
        }
    }
}

fn bounds_of(options: &IntakeOptions) -> Bounds {
    Bounds {
        depth_max: options.limits.document_depth_max,
        key_size_max: options.limits.key_size_max,
        flatten_depth: options.decision.flatten_depth,
    }
}

fn to_size(n: u32) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}
