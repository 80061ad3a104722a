//! Reading everything that is stored again, and reporting what is damaged.
//!
//! Offline: the intake's directory is locked meanwhile. First the log is read without changing it.
//! Only if that finds nothing wrong is it opened as at a start, the catalogue brought up to date, both
//! views compared with it as far as it reaches, every blob hashed, and every row of both views
//! verified. Unfinished uploads are in no log; their files are read on their own.
//!
//! Invariants: nothing is repaired or removed; a finding names the blob, where it is kept, and the
//! names that refer to it; what is damaged stops no other part of the check.

mod catalogue;
mod documents;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_base::error_chain::chain;
use forebay_base::fs::FileSystem;
use forebay_log::{Log, Lsn};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use self::catalogue::{Reference, Stored, damage};
use self::documents::{Documents, Known};
use crate::apply::replay;
use crate::blob::BlobStore;
use crate::blobs::storage::ObjectStorage;
use crate::blobs::{self, RemoteCheck};
use crate::blocks::BlockReader;
use crate::catalogue::{BlobLocation, BlobRecord, Catalogue, CatalogueReader};
use crate::digest::Digest;
use crate::documents::forward::{Spill, SpillError};
use crate::error::OpenError;
use crate::format::{BlobPlace, Entry, FilePut};
use crate::intake::layout;
use crate::opening::{check_holds, log_options_for_reading, seen_by_views};
use crate::search;
use crate::uploads;

/// Maximum number of names in a finding.
const NAMES_MAX: usize = 5;
/// Blobs read from the catalogue at a time.
const PAGE: usize = 1_000;

/// What is being checked, for progress.
#[derive(Debug, Clone, Copy)]
pub struct FsckProgress {
    /// Bytes of blobs re-hashed so far.
    pub bytes: u64,
    /// Total number of bytes of blobs.
    pub bytes_total: u64,
}

/// Something that differs from what was stored.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// `log`, `blob`, `catalogue`, `documents`, `search`, `spill` or `upload`.
    pub kind: &'static str,
    /// The fault.
    pub message: String,
    /// SHA-256 of the blob concerned.
    pub sha256: Option<String>,
    /// The file it is in.
    pub path: Option<PathBuf>,
    /// Names that refer to it, at most five.
    pub names: Vec<String>,
}

/// Result of a check.
#[derive(Debug, Clone, Default, Serialize)]
pub struct FsckReport {
    /// Number of valid log entries.
    pub log_entries: u64,
    /// Bytes of the log's entries.
    pub log_bytes: u64,
    /// Names in the catalogue.
    pub files: u64,
    /// Number of blobs whose SHA-256 was computed and matches.
    pub blobs: u64,
    /// Bytes of those blobs.
    pub blob_bytes: u64,
    /// Documents in the document database.
    pub documents: u64,
    /// Files in the search index.
    pub searchable: u64,
    /// Documents that wait in files for the database they are forwarded to.
    pub spilled: u64,
    /// Unfinished uploads that can be read, with those whose result is remembered.
    pub uploads: u64,
    /// Bytes of unfinished uploads that match their checksums.
    pub upload_bytes: u64,
    /// Bytes at the ends of unfinished uploads that were never acknowledged. They are cut off when the
    /// upload is used.
    pub upload_torn_bytes: u64,
    /// Parts of multipart uploads that do not exist any more. They expire.
    pub upload_orphans: u64,
    /// Files among the uploads that are none: those that were being created, which the next start
    /// removes, and foreign ones, which it leaves alone.
    pub upload_leftovers: u64,
    /// Bytes of a torn tail, which the next start cuts off. Nothing acknowledged is in it.
    pub torn_tail_bytes: u64,
    /// The findings.
    pub findings: Vec<Finding>,
}

/// Checks the intake in `dir`, all of whose blobs are on this machine.
///
/// # Errors
/// [`OpenError::Locked`]: a server has it open. Others: it could not be read at all.
pub fn fsck(
    dir: &Path,
    fs: Arc<dyn FileSystem>,
    progress: impl FnMut(FsckProgress),
) -> Result<FsckReport, OpenError> {
    fsck_with(dir, fs, None, progress)
}

/// Checks the intake in `dir`, and its blobs in object storage.
///
/// * `storage`: where they are; `None` if all are on this machine.
///
/// # Errors
/// As [`fsck`]. [`OpenError::BlobsElsewhere`]: some are in object storage.
pub fn fsck_with(
    dir: &Path,
    fs: Arc<dyn FileSystem>,
    storage: Option<Arc<dyn ObjectStorage>>,
    mut progress: impl FnMut(FsckProgress),
) -> Result<FsckReport, OpenError> {
    let prepare = |path: &Path| {
        let path = path.to_owned();
        move |source| OpenError::Prepare { path, source }
    };
    let lock_path = dir.join(layout::LOCK);
    let log_dir = dir.join(layout::LOG);
    if !fs.exists(&log_dir).map_err(prepare(&log_dir))? {
        let source = std::io::Error::new(
            std::io::ErrorKind::NotFound,
            "there is no intake here; specify the data directory of a server with --data",
        );
        return Err(OpenError::Prepare { path: log_dir, source });
    }
    let _lock = fs.lock_exclusive(&lock_path).map_err(|source| match source.kind() {
        std::io::ErrorKind::WouldBlock => OpenError::Locked { path: lock_path.clone() },
        _ => OpenError::Prepare { path: lock_path.clone(), source },
    })?;
    if storage.is_none()
        && let Some(url) = blobs::forgotten(dir).map_err(OpenError::Catalogue)?
    {
        return Err(OpenError::BlobsElsewhere { url });
    }
    let mut check = Check {
        dir: dir.to_owned(),
        fs,
        storage,
        report: FsckReport::default(),
        damaged: HashMap::new(),
    };
    check.uploads()?;
    let documents = Documents::open(dir, &mut check.report.findings)?;
    let mut stored = Stored::open(dir, &mut check.report.findings)?;
    let seen = seen_by_views(stored.seen(), documents.position);
    let sound = check.log(&log_dir, seen)?;
    let opened =
        if sound { check.open_log(&log_dir, &mut stored, &documents, seen)? } else { None };
    let (log, held) = opened.map_or((None, false), |(log, held)| (Some(log), held));
    if let Some(log) = &log {
        check.spill(log)?;
    }
    // A log that lacks what the views have seen says nothing about them.
    let whole = log.as_ref().filter(|_| held);
    let reference = whole.map(|log| Reference::build(dir, log)).transpose()?;
    let found = stored.catalogue.as_ref().filter(|_| stored.is_sound);
    if let (Some(found), Some(reference)) = (found, &reference) {
        reference.compare(found, dir, &mut check.report.findings)?;
    }
    let built = reference.as_ref().and_then(|reference| reference.catalogue.as_ref());
    check.search(whole, built)?;
    if let Some(catalogue) = found.or(built) {
        let reader = catalogue.reader().map_err(OpenError::Catalogue)?;
        check.files(log.as_ref(), &reader, &mut progress)?;
    }
    let bound = [found, built].into_iter().flatten().map(Catalogue::documents_bound).max();
    let known = Known {
        bound: bound.unwrap_or(0),
        // From the log alone: the stored catalogue is not believed.
        extents_at: built.and_then(Catalogue::extents_at),
        log: whole,
    };
    check.report.documents = documents.check(&known, &mut check.report.findings)?;
    Ok(check.report)
}

struct Check {
    dir: PathBuf,
    fs: Arc<dyn FileSystem>,
    storage: Option<Arc<dyn ObjectStorage>>,
    report: FsckReport,
    /// Positions of damaged log entries, and the index of the finding for each.
    damaged: HashMap<u64, usize>,
}

impl Check {
    /// Hashes the blobs of a sound catalogue, and adds names to the findings.
    fn files(
        &mut self,
        log: Option<&Log>,
        reader: &CatalogueReader,
        progress: &mut impl FnMut(FsckProgress),
    ) -> Result<(), OpenError> {
        self.blobs(log, reader, progress)?;
        self.name_findings(reader)?;
        self.report.files = reader.totals().map_err(OpenError::Catalogue)?.files;
        Ok(())
    }

    /// Reads the unfinished uploads.
    fn uploads(&mut self) -> Result<(), OpenError> {
        let found = uploads::check::check(self.fs.as_ref(), &self.dir)?;
        self.report.uploads = found.uploads;
        self.report.upload_bytes = found.bytes;
        self.report.upload_torn_bytes = found.torn_bytes;
        self.report.upload_orphans = found.orphans;
        self.report.upload_leftovers = found.leftovers;
        self.report.findings.extend(found.findings.into_iter().map(|(path, message)| Finding {
            kind: "upload",
            message,
            sha256: None,
            path: Some(path),
            names: Vec::new(),
        }));
        Ok(())
    }

    /// Reads the documents that wait for an external database.
    fn spill(&mut self, log: &Log) -> Result<(), OpenError> {
        let dir = self.dir.join(layout::SPILL);
        match Spill::check(self.fs.clone(), &dir, log.id()) {
            Ok(documents) => self.report.spilled = documents,
            Err(SpillError::Io { path, source, .. }) => {
                return Err(OpenError::Prepare { path, source });
            }
            Err(error) => {
                let path = match &error {
                    SpillError::Damaged { path, .. } => path.clone(),
                    _ => dir,
                };
                let message = format!(
                    "{error}; nothing is lost: the next start renames it and copies the documents \
                     from the document database",
                );
                let (kind, path) = ("spill", Some(path));
                let finding = Finding { kind, message, sha256: None, path, names: vec![] };
                self.report.findings.push(finding);
            }
        }
        Ok(())
    }

    /// Checks the search index, and compares it with a catalogue that was built from the log.
    fn search(&mut self, log: Option<&Log>, built: Option<&Catalogue>) -> Result<(), OpenError> {
        let path = self.dir.join(layout::SEARCH);
        let reader = built.map(Catalogue::reader).transpose().map_err(OpenError::Catalogue)?;
        let sound = match (&reader, built, log) {
            (Some(reader), Some(built), Some(log)) => {
                Some(search::Sound { reader, position: built.position(), log })
            }
            _ => None,
        };
        let (files, found) = search::check(&path, sound)?;
        self.report.searchable = files;
        self.report.findings.extend(found.into_iter().map(|message| Finding {
            kind: "search",
            message: format!(
                "{message}; nothing is lost: move the file away while the server is stopped, and \
                 the next start builds the search index again from the log"
            ),
            sha256: None,
            path: Some(path.clone()),
            names: Vec::new(),
        }));
        Ok(())
    }

    /// Reads the log without changing it; returns whether it may be opened.
    fn log(&mut self, log_dir: &Path, seen: Lsn) -> Result<bool, OpenError> {
        let mut damages = Vec::new();
        let verified = forebay_log::check(self.fs.as_ref(), log_dir, &mut |damage| {
            damages.push(damage);
        })
        .map_err(OpenError::Log)?;
        self.report.log_entries = verified.entries;
        self.report.log_bytes = verified.bytes;
        for damage in &damages {
            self.damaged.insert(damage.lsn.0, self.report.findings.len());
            let found = log_finding(damage.to_string(), Some(damage.path.clone()));
            self.report.findings.push(found);
        }
        let Some(tail) = verified.tail else { return Ok(damages.is_empty()) };
        self.report.torn_tail_bytes = tail.bytes;
        let at = tail_position(&tail.path, tail.offset);
        if at.is_none_or(|at| at >= seen.0) {
            return Ok(damages.is_empty());
        }
        let at = at.unwrap_or(0);
        self.damaged.insert(at, self.report.findings.len());
        let message = format!(
            "log segment {} is damaged at byte {} ({}): the catalogue or the document database has \
             seen entries on stable storage up to position {seen}",
            tail.path.display(),
            tail.offset,
            tail.fault
        );
        self.report.findings.push(log_finding(message, Some(tail.path)));
        Ok(false)
    }

    /// Opens a sound log and brings the catalogue up to date if it is sound as well; `None` if the
    /// log has lost its end. Also returns whether it holds everything that the views have seen.
    fn open_log(
        &mut self,
        log_dir: &Path,
        stored: &mut Stored,
        documents: &Documents,
        known_synced: Lsn,
    ) -> Result<Option<(Log, bool)>, OpenError> {
        let options = forebay_log::Options {
            known_synced,
            // On a full disk everything can be read as well.
            hold_when_full: true,
            ..log_options_for_reading()
        };
        let log = match Log::open(self.fs.clone(), log_dir, options) {
            Ok((log, _)) => log,
            Err(forebay_log::OpenError::Corrupt(lost)) => {
                let message = format!(
                    "{lost}: the catalogue or the document database has seen later entries on \
                     stable storage"
                );
                self.report.findings.push(log_finding(message, Some(lost.path)));
                return Ok(None);
            }
            Err(error) => return Err(OpenError::Log(error)),
        };
        let of_documents = documents.position.map_or(0, |position| position.0);
        let mut held = true;
        for (view, seen) in [("catalogue", stored.seen()), ("document database", of_documents)] {
            match check_holds(&log, view, seen) {
                Err(lost @ OpenError::LogShort { .. }) => {
                    held = false;
                    let path = Some(log_dir.to_owned());
                    self.report.findings.push(log_finding(lost.to_string(), path));
                }
                other => other?,
            }
        }
        if let Some(catalogue) = stored.catalogue.as_mut().filter(|_| held && stored.is_sound) {
            if !catalogue.is_current() {
                catalogue.clear().map_err(OpenError::Catalogue)?;
            }
            let from = Lsn(catalogue.position()).max(log.start());
            replay(&log, catalogue, from).map_err(OpenError::Replay)?;
        }
        Ok(Some((log, held)))
    }

    fn blobs(
        &mut self,
        log: Option<&Log>,
        reader: &CatalogueReader,
        progress: &mut impl FnMut(FsckProgress),
    ) -> Result<(), OpenError> {
        let store = BlobStore::open(self.fs.clone(), &self.dir)
            .map_err(|(path, source)| OpenError::Prepare { path, source })?;
        let remote = self.remote(log)?;
        let bytes_total = reader.totals().map_err(OpenError::Catalogue)?.blob_bytes;
        let mut after = None;
        loop {
            let page = reader.blobs_after(after, PAGE).map_err(OpenError::Catalogue)?;
            let Some((last, _)) = page.last() else { break };
            after = Some(last.digest);
            for (blob, refs) in page {
                if let BlobLocation::Entry(lsn) = blob.place
                    && let Some(at) = self.damaged.get(&lsn)
                    && let Some(finding) = self.report.findings.get_mut(*at)
                {
                    finding.sha256 = Some(blob.digest.to_hex());
                }
                if refs > 0 {
                    self.blob(log, (&store, remote.as_ref()), &blob);
                }
                let bytes = self.report.blob_bytes;
                progress(FsckProgress { bytes, bytes_total });
            }
        }
        let wrong = match reader.wrong_counts() {
            Ok(wrong) => wrong,
            Err(error) => {
                // Which was reported when the catalogue was verified.
                damage(error)?;
                Vec::new()
            }
        };
        for (digest, refs, counted) in wrong {
            let message =
                format!("{counted} names refer to a blob whose reference count is {refs}");
            let (kind, sha256) = ("catalogue", Some(digest.to_hex()));
            self.report.findings.push(Finding { kind, message, sha256, path: None, names: vec![] });
        }
        Ok(())
    }

    /// Lists the packs in object storage.
    fn remote(&mut self, log: Option<&Log>) -> Result<Option<RemoteCheck>, OpenError> {
        let Some(storage) = self.storage.clone() else { return Ok(None) };
        let mut check = RemoteCheck::open(storage, &self.dir, log.map(Log::id))
            .map_err(OpenError::ObjectStorage)?;
        for message in std::mem::take(&mut check.findings) {
            let (kind, sha256) = ("blob", None);
            self.report.findings.push(Finding { kind, message, sha256, path: None, names: vec![] });
        }
        Ok(Some(check))
    }

    fn blob(
        &mut self,
        log: Option<&Log>,
        (store, remote): (&BlobStore, Option<&RemoteCheck>),
        blob: &BlobRecord,
    ) {
        let (found, path) = match blob.place {
            BlobLocation::Entry(lsn) => match log {
                // The log is damaged somewhere, which was reported; its sound part stays sound.
                None => return,
                Some(log) => (packed_digest(log, lsn), None),
            },
            BlobLocation::File => stored_digest(store, remote, blob),
            BlobLocation::Erased => (Err("its bytes were erased".to_owned()), None),
        };
        let message = match found {
            Ok(digest) if digest == blob.digest => {
                self.report.blobs += 1;
                self.report.blob_bytes += blob.size;
                return;
            }
            Ok(digest) => format!("its bytes have the SHA-256 {digest}"),
            Err(message) => message,
        };
        let message = format!("blob {} is damaged: {message}", blob.digest);
        let (kind, sha256) = ("blob", Some(blob.digest.to_hex()));
        self.report.findings.push(Finding { kind, message, sha256, path, names: vec![] });
    }

    /// Adds to the findings the names that refer to their blobs, in one pass over all names: a
    /// lookup by digest uses the log's entries, which may be damaged.
    fn name_findings(&mut self, reader: &CatalogueReader) -> Result<(), OpenError> {
        let mut wanted: HashMap<String, Vec<usize>> = HashMap::new();
        for (at, finding) in self.report.findings.iter().enumerate() {
            if let Some(sha256) = &finding.sha256 {
                wanted.entry(sha256.clone()).or_default().push(at);
            }
        }
        if wanted.is_empty() {
            return Ok(());
        }
        let named = reader.for_each_name(|namespace, name, digest| {
            for at in wanted.get(&digest.to_hex()).into_iter().flatten() {
                if let Some(finding) = self.report.findings.get_mut(*at)
                    && finding.names.len() < NAMES_MAX
                {
                    finding.names.push(format!("{namespace}/{name}"));
                }
            }
        });
        named.map_err(OpenError::Catalogue)
    }
}

fn log_finding(message: String, path: Option<PathBuf>) -> Finding {
    Finding { kind: "log", message, sha256: None, path, names: Vec::new() }
}

/// Position where a torn tail starts. Segment files are named by the position of their start.
fn tail_position(path: &Path, offset: u64) -> Option<u64> {
    let base = u64::from_str_radix(path.file_stem()?.to_str()?, 16).ok()?;
    base.checked_add(offset)
}

fn packed_digest(log: &Log, lsn: u64) -> Result<Digest, String> {
    let payload = log.read(Lsn(lsn)).map_err(|error| chain(&error).to_string())?;
    match Entry::decode(&payload) {
        Ok(Entry::FilePut(FilePut { place: BlobPlace::Inline(bytes), .. })) => {
            Ok(Digest::of(bytes))
        }
        Ok(_) => Err(format!("the log entry at {lsn} holds other contents")),
        Err(error) => Err(format!("the log entry at {lsn}: {error}")),
    }
}

/// Hashes a blob in each place that has it. Returns the file at fault as well.
fn stored_digest(
    store: &BlobStore,
    remote: Option<&RemoteCheck>,
    blob: &BlobRecord,
) -> (Result<Digest, String>, Option<PathBuf>) {
    let is_local = match store.has(blob.digest) {
        Ok(is_local) => is_local,
        Err(error) => return (Err(error.to_string()), Some(store.path_of(blob.digest))),
    };
    let in_bucket = remote.map(|remote| remote.digest(blob, is_local));
    match in_bucket {
        // A move that was interrupted leaves both.
        Some(Ok(Some(digest))) if digest == blob.digest && is_local => {}
        Some(Ok(Some(digest))) => return (Ok(digest), None),
        Some(Err(message)) => return (Err(message), None),
        Some(Ok(None)) if !is_local => {
            return (Err("neither the bucket nor this machine has it".to_owned()), None);
        }
        Some(Ok(None)) | None => {}
    }
    (file_digest(store, blob), Some(store.path_of(blob.digest)))
}

fn file_digest(store: &BlobStore, blob: &BlobRecord) -> Result<Digest, String> {
    let file = store.open_blob(blob.digest).map_err(|error| error.to_string())?;
    let reader =
        BlockReader::new(file, blob.size, blob.digest).map_err(|error| error.to_string())?;
    let mut hasher = Sha256::new();
    let mut at = 0;
    while at < blob.size {
        let bytes = reader.read(at, blob.size).map_err(|error| error.to_string())?;
        at += bytes.len() as u64;
        hasher.update(&bytes);
    }
    Ok(Digest(hasher.finalize().into()))
}
