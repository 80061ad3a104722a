//! What a start does before anything is served: the log, the views brought up to it, the blobs swept.
//!
//! A catalogue that is damaged is built again from the log. A document database that is damaged or
//! lacks what the log no longer has stops the start, since nothing here can make it whole.
//!
//! Invariants: no view is used before its checksums were verified (the document database's rows: when
//! they are read); no blob file is removed on the word of a catalogue that was not verified.

use std::path::Path;
use std::sync::Arc;

use forebay_base::clock::Clock;
use forebay_base::error_chain::chain;
use forebay_base::fs::{FileSystem, Lock, set_database_aside};
use forebay_log::{Log, Lsn, Recovery, SegmentInfo};
use forebay_sink::{Identity, Position, Sink as _};
use forebay_sqlite::SqliteSink;

use crate::apply::replay;
use crate::blob::{BlobStore, Swept};
use crate::blobs::{self, Blobs, Parts, Remote};
use crate::catalogue::{BlobLocation, Catalogue, CatalogueReader, Companions, Erasures};
use crate::documents::flatten::Bounds;
use crate::documents::forward::{Memory, Outbox, Remembered};
use crate::documents::view::{Held, Writer};
use crate::error::{ApplyError, OpenError};
use crate::file_namespaces::Records;
use crate::intake::{ENTRY_SIZE_MAX, StartReport, layout};
use crate::known::Known;
use crate::options::IntakeOptions;
use crate::pending::Pending;
use crate::quotas::Usages;
use crate::reclaim::record;
use crate::space;

pub(crate) fn prepare(dir: &Path, fs: &dyn FileSystem) -> Result<Box<dyn Lock>, OpenError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        |source| OpenError::Prepare { path, source }
    };
    if !fs.exists(dir).map_err(failed(dir))? {
        fs.create_dir_all(dir).map_err(failed(dir))?;
    }
    // The views live on the real file system even where the log does not.
    std::fs::create_dir_all(dir).map_err(failed(dir))?;
    let path = dir.join(layout::LOCK);
    fs.lock_exclusive(&path).map_err(|source| match source.kind() {
        std::io::ErrorKind::WouldBlock => OpenError::Locked { path: path.clone() },
        _ => OpenError::Prepare { path: path.clone(), source },
    })
}

pub(crate) fn open_log(
    options: &IntakeOptions,
    dir: &Path,
    fs: Arc<dyn FileSystem>,
    known_synced: Lsn,
) -> Result<(Log, Recovery), OpenError> {
    let log_options = forebay_log::Options {
        segment_size: options.segment_size,
        durability: options.durability,
        known_synced,
        hold_when_full: true,
        ..log_options_for_reading()
    };
    let (log, recovery) =
        Log::open(fs, &dir.join(layout::LOG), log_options).map_err(OpenError::Log)?;
    if let Some(cut) = &recovery.cut {
        tracing::warn!(
            file = %cut.path.display(),
            offset = cut.offset,
            bytes = cut.bytes,
            "cut a torn tail off the log; none of it had been acknowledged as synced"
        );
    }
    Ok((log, recovery))
}

/// Options that can read whatever any intake wrote.
pub(crate) fn log_options_for_reading() -> forebay_log::Options {
    forebay_log::Options { entry_size_max: ENTRY_SIZE_MAX, ..forebay_log::Options::default() }
}

/// Position up to which the views have seen the log on stable storage. They show nothing beyond it.
pub(crate) fn seen_by_views(catalogue: u64, documents: Option<Position>) -> Lsn {
    Lsn(documents.map_or(0, |position| position.0).max(catalogue))
}

/// A catalogue that was opened.
pub(crate) struct Opened {
    pub(crate) catalogue: Catalogue,
    /// Position up to which it, or the damaged one in its place, has seen the log on stable storage.
    pub(crate) seen: u64,
    /// It is empty, since the one in its place was damaged.
    pub(crate) is_rebuilt: bool,
}

/// Opens the catalogue and verifies all of it. One that is damaged is set aside and begun again: the
/// log has what it is made of.
pub(crate) fn open_catalogue(dir: &Path) -> Result<Opened, OpenError> {
    let path = dir.join(layout::CATALOGUE);
    let (found, damaged) = match Catalogue::open(&path) {
        // Of another version only the version is known; it will be built again.
        Ok(catalogue) if !catalogue.is_current() => {
            return Ok(Opened { catalogue, seen: 0, is_rebuilt: false });
        }
        Ok(catalogue) => match catalogue.verify(1) {
            Ok(findings) if findings.is_empty() => {
                let seen = catalogue.position();
                return Ok(Opened { catalogue, seen, is_rebuilt: false });
            }
            Ok(findings) => (findings.concat(), Some(catalogue)),
            Err(error) if error.source.is_damage() => (chain(&error).to_string(), Some(catalogue)),
            Err(error) => return Err(OpenError::Catalogue(error)),
        },
        Err(error) if error.source.is_damage() => (chain(&error).to_string(), None),
        Err(error) => return Err(OpenError::Catalogue(error)),
    };
    let aside = dir.join(layout::CATALOGUE_DAMAGED);
    tracing::warn!(
        %found,
        aside = %aside.display(),
        "the catalogue is damaged: it was set aside and is built again from the log"
    );
    // Its own state has a checksum, which holds.
    let state = damaged.as_ref().map(Catalogue::erasures);
    let seen = damaged.as_ref().map_or(0, Catalogue::position);
    drop(damaged);
    set_database_aside(&path, &aside)
        .map_err(|source| OpenError::Prepare { path: path.clone(), source })?;
    let mut catalogue = Catalogue::open(&path).map_err(OpenError::Catalogue)?;
    if let Some(state) = state {
        catalogue.set_erasures(state).map_err(OpenError::Catalogue)?;
    }
    Ok(Opened { catalogue, seen, is_rebuilt: true })
}

/// Opens the document database.
pub(crate) fn open_documents(path: &Path) -> Result<SqliteSink, OpenError> {
    SqliteSink::open(path).map_err(documents_error)
}

/// An error of opening the document database, which says what to do about damage.
pub(crate) fn documents_error(error: forebay_sink::OpenError) -> OpenError {
    match error {
        forebay_sink::OpenError::Corrupt { path, found } => {
            OpenError::DocumentsDamaged { path, found }
        }
        other => OpenError::Documents(other),
    }
}

/// What the document database holds, if all of it is on stable storage.
pub(crate) fn held(sink: &SqliteSink, applied: Lsn, durable: Lsn) -> Option<Held> {
    (applied == durable).then(|| Held { position: durable, extents: sink.extents() })
}

/// Records what the document database holds if documents were erased from the log before that was
/// done at every erasure.
pub(crate) fn record_extents(
    log: &Log,
    catalogue: &mut Catalogue,
    held: Option<&Held>,
) -> Result<(), OpenError> {
    let bound = catalogue.documents_bound();
    if let Some(held) = held
        && bound > 0
        && catalogue.extents_at().is_none()
        // It is tried again at the next start, and at the next erasure.
        && log.stalled().is_none()
    {
        record(log, catalogue, held, Lsn(bound))
            .map_err(|error| OpenError::Extents(error.into()))?;
    }
    Ok(())
}

/// Refuses a log that lacks entries that a view has seen on stable storage.
///
/// Recovery has refused what the end of the log alone reveals. A log that was continued after the
/// loss has other entries there, or skipped those positions.
pub(crate) fn check_holds(log: &Log, view: &'static str, seen: u64) -> Result<(), OpenError> {
    let failed = |source| OpenError::Log(forebay_log::OpenError::Io(source));
    let segments = log.segments().map_err(failed)?;
    let holds = |segment: &SegmentInfo| (segment.base.0..=segment.end.0).contains(&seen);
    if seen <= log.start().0 || segments.iter().any(holds) {
        Ok(())
    } else {
        Err(OpenError::LogShort { view, end: log.end().0, seen })
    }
}

/// Clears a catalogue that was used with another log: what it says of files is not about this one's.
///
/// # Errors
/// [`OpenError::DocumentsForeign`]: the document database is not the one that was used with this log.
fn check_companions(
    opened: &mut Opened,
    documents: &SqliteSink,
    log: [u8; 16],
) -> Result<(), OpenError> {
    let (known, own) = (opened.catalogue.companions(), Companions::of(log, documents.identity().0));
    let is_foreign = known.log != 0 && known.log != own.log;
    // One of an earlier version has a random identity, which the catalogue has recorded.
    let is_recorded = known.documents == 0 || (known.documents == own.documents) != is_foreign;
    if documents.identity().0 != Companions::identity(log) && !is_recorded {
        return Err(OpenError::DocumentsForeign { path: documents.path().to_owned() });
    }
    if is_foreign {
        tracing::warn!("the catalogue belongs to another log: it is built again from this one");
        let cleared = opened.catalogue.clear();
        cleared
            .and_then(|()| opened.catalogue.set_erasures(Erasures::default()))
            .map_err(OpenError::Catalogue)?;
        (opened.seen, opened.is_rebuilt) = (0, true);
    }
    Ok(())
}

/// Brings the catalogue up to date with the log, from its own position or from the beginning.
///
/// * `documents`: the database that is used beside it. A new one gets its identity.
pub(crate) fn catch_up(
    mut opened: Opened,
    documents: &mut SqliteSink,
    log: &Log,
    report: &mut StartReport,
) -> Result<Catalogue, OpenError> {
    let identity = Identity(Companions::identity(log.id()));
    if documents.position().is_none() && documents.identity() != identity {
        match documents.set_identity(identity) {
            // The catalogue records the one that it has.
            Err(error) if space::is_wanted(&error) => tracing::warn!(%error, "an identity stays"),
            set => set.map_err(documents_error)?,
        }
    }
    check_companions(&mut opened, documents, log.id())?;
    let own = Companions::of(log.id(), documents.identity().0);
    let Opened { mut catalogue, seen, is_rebuilt } = opened;
    report.catalogue_rebuilt = is_rebuilt;
    check_holds(log, "catalogue", seen)?;
    if !catalogue.is_current() {
        tracing::warn!("the catalogue is of another version: rebuilding it from the log");
        catalogue.clear().map_err(OpenError::Catalogue)?;
        report.catalogue_rebuilt = true;
    }
    let position = catalogue.position();
    let from = Lsn(position).max(log.start());
    let replayed = replay(log, &mut catalogue, from).map_err(OpenError::Replay)?;
    report.catalogue_entries = replayed.entries;
    if catalogue.companions() != own {
        match catalogue.set_companions(own) {
            Err(error) if !space::catalogue_passes(&error.source) => {
                return Err(OpenError::Catalogue(error));
            }
            // The next start does it.
            Err(error) => tracing::warn!(%error, "cannot record the log of the catalogue"),
            Ok(()) => {}
        }
    }
    Ok(catalogue)
}

/// Brings the document database up to date with the log.
///
/// It is made durable here only if an entry is to say what it holds (see [`record_extents`]). Otherwise
/// the view does that first of all, beside the first requests; the log keeps everything until then.
///
/// * Returns the positions up to which it reflects the log, and up to which it is durable.
pub(crate) fn catch_documents_up(
    sink: SqliteSink,
    log: &Log,
    bounds: Bounds,
    catalogue: &Catalogue,
    report: &mut StartReport,
) -> Result<(SqliteSink, Lsn, Lsn), OpenError> {
    let position = sink.position().map_or(0, |position| position.0);
    let erased = catalogue.documents_bound();
    let oldest = erased.max(log.start().0);
    if position < erased {
        return Err(OpenError::DocumentsLost { position, oldest });
    }
    check_holds(log, "document database", position)?;
    let from = Lsn(position).max(log.start());
    let mut writer = Writer { sink, bounds };
    report.document_commits = writer.replay(log, from).map_err(OpenError::Replay)?;
    if erased == 0 || catalogue.extents_at().is_some() {
        let applied = writer.sink.position().map_or(from, |position| Lsn(position.0));
        return Ok((writer.sink, applied, Lsn(oldest)));
    }
    // Entries up to the reported position may leave the log, so they must survive a power cut. They
    // may have been written just now, or by a process that was killed before its next checkpoint.
    match writer.sink.checkpoint() {
        Ok(reached) => {
            let reached = reached.map_or(from, |position| Lsn(position.0));
            Ok((writer.sink, reached, reached))
        }
        // All of it can be read; the log keeps it until a later checkpoint.
        Err(error) if space::is_wanted(&error) => {
            let applied = writer.sink.position().map_or(from, |position| Lsn(position.0));
            Ok((writer.sink, applied, Lsn(oldest)))
        }
        Err(error) => Err(OpenError::Replay(ApplyError::Sink(error))),
    }
}

/// Resumes forwarding, or records that there is none.
pub(crate) fn open_outbox(
    options: &IntakeOptions,
    fs: &Arc<dyn FileSystem>,
    log: &Log,
    applied: Lsn,
    clock: &dyn Clock,
) -> Result<Option<Arc<Outbox>>, OpenError> {
    let mut memory =
        Memory::open(fs.clone(), &options.dir, log.id()).map_err(OpenError::Forward)?;
    let known = memory.now();
    let Some(forward) = &options.forward else {
        // From now on nothing is kept for it.
        memory.keep(Remembered { held: false, ..known }).map_err(OpenError::Forward)?;
        return Ok(None);
    };
    let now_ms = i64::try_from(clock.now_ms()).unwrap_or(i64::MAX);
    Ok(Some(Arc::new(Outbox::new(forward.clone(), memory, applied, now_ms))))
}

/// Opens the files and the object store, and removes what a crash left in both.
pub(crate) fn open_blobs(
    options: &IntakeOptions,
    (fs, clock): (Arc<dyn FileSystem>, Arc<dyn Clock>),
    (log, recovery): (&Log, &Recovery),
    reader: &CatalogueReader,
    catalogue: &Catalogue,
    report: &mut StartReport,
) -> Result<Blobs, OpenError> {
    let dir = &options.dir;
    let blobs = BlobStore::open(fs.clone(), dir)
        .map_err(|(path, source)| OpenError::Prepare { path, source })?;
    let swept: Swept = blobs
        .sweep::<SweepError>(|digest| Ok(reader.blob(digest)?.is_some()))
        .map_err(|error| match error {
            SweepError::Io(source) => OpenError::Prepare { path: dir.to_owned(), source },
            SweepError::Catalogue(source) => OpenError::Catalogue(source),
        })?;
    if swept != Swept::default() {
        tracing::info!(
            staging = swept.staging,
            orphans = swept.orphans,
            bytes = swept.bytes,
            "removed files left by an interrupted run"
        );
    }
    report.staging_removed = swept.staging;
    report.orphans_removed = swept.orphans;
    let Some(options) = options.object_storage.clone() else {
        return match blobs::forgotten(dir).map_err(OpenError::Catalogue)? {
            Some(url) => Err(OpenError::BlobsElsewhere { url }),
            None => Ok(Blobs::new(blobs, None)),
        };
    };
    let reader = catalogue.reader().map_err(OpenError::Catalogue)?;
    let is_known = move |digest| {
        Ok(reader.blob(digest)?.is_some_and(|found| found.place == BlobLocation::File))
    };
    let synced = log.clone();
    let log_end = Arc::new(move || synced.synced().0);
    // Not where it continues: after a kill that is beyond positions that only a newer copy has.
    let end = recovery.entries_end.0;
    let (dir, log, is_known) = (dir.clone(), log.id(), Arc::new(is_known));
    let parts = Parts { options, dir, fs, clock, log, is_known, log_end, end };
    let (remote, counted_out) = Remote::open(parts).map_err(OpenError::ObjectStorage)?;
    if counted_out > 0 {
        tracing::info!(blobs = counted_out, "counted out blobs left by an interrupted run");
    }
    report.orphans_removed += counted_out;
    Ok(Blobs::new(blobs, Some(remote)))
}

enum SweepError {
    Io(std::io::Error),
    Catalogue(crate::error::CatalogueError),
}

impl From<std::io::Error> for SweepError {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<crate::error::CatalogueError> for SweepError {
    fn from(error: crate::error::CatalogueError) -> Self {
        Self::Catalogue(error)
    }
}

/// Prepares the queue of changes: an empty one, with the filter of possibly stored items and the records of
/// namespaces from the catalogue.
///
/// * `counts`: of names and of blobs.
pub(crate) fn learn(
    reader: &CatalogueReader,
    counts: (u64, u64),
) -> Result<Pending, crate::error::CatalogueError> {
    let items = usize::try_from(counts.0.saturating_add(counts.1)).unwrap_or(usize::MAX);
    let mut known = Known::with_room_for(items.saturating_mul(2));
    reader.for_each_name(|namespace, name, digest| {
        known.insert_pair(namespace, name);
        known.insert_digest(digest);
    })?;
    reader.for_each_version(|digest| known.insert_digest(digest))?;
    // Blobs without names are still stored until their space is reclaimed.
    for blob in reader.dead_blobs(usize::MAX)? {
        known.insert_digest(blob.digest);
    }
    let records = reader.namespace_records()?;
    let limited = records.iter().filter(|record| !record.quota().is_none());
    let counted = limited.map(|record| {
        let (usage, _) = reader.usage(&record.namespace)?;
        Ok((record.namespace.clone(), usage))
    });
    let usages = Usages::new(counted.collect::<Result<_, crate::error::CatalogueError>>()?);
    Ok(Pending::new(known, Records::new(records), usages))
}
