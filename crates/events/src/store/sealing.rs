//! What a store does with its files' codes when it is opened (`docs/formats/event-authentication.md`).
//!
//! Invariants:
//! - A store of an earlier version is upgraded once: after that, and after a signed checkpoint that
//!   says so, a file without a code is that of another.
//! - Without an authentic manifest nothing is written, removed or signed: the events can be read.
//! - Without authentic arrivals nothing is removed early, and without authentic notes of requests no
//!   request is answered as stored. That this happened is recorded in the tree.

use std::path::Path;
use std::sync::Arc;

use forebay_base::clock::Clock;
use forebay_base::error_chain::chain;
use forebay_base::fs::FileSystem;
use forebay_log::Lsn;

use super::Inner;
use super::arrivals::{self, Arrivals};
use super::error::{Disk, OpenError};
use super::flush::FlushError;
use super::manifest::Manifest;
use super::requests::{self, Requests};
use super::seal::{Code, FileKey, Kind, Sealer, UNAUTHENTIC};
use crate::checkpoint::{SigningKey, load_key};
use crate::format::entry::{self, BatchEntry};
use crate::format::request::RequestNote;
use crate::format::system::{SystemEntry, UnusedEntry};
use crate::merkle::Hash;

/// The store's key; `None` if there is none yet.
pub(super) fn read_key(fs: &dyn FileSystem, dir: &Path) -> Result<Option<SigningKey>, OpenError> {
    load_key(fs, &dir.join("key")).map_err(OpenError::Key)
}

/// The files beside manifest and segments.
pub(super) struct SmallFiles {
    pub(super) arrivals: Result<Arrivals, &'static str>,
    pub(super) requests: Result<Requests, &'static str>,
}

impl SmallFiles {
    pub(super) fn read(
        fs: &dyn FileSystem,
        dir: &Path,
        manifest: &Manifest,
        key: Option<&FileKey>,
    ) -> Result<Self, OpenError> {
        let sealer = key.map(|key| Sealer { key, log_id: &manifest.log_id });
        let sealed = manifest.sealed;
        let arrivals = Arrivals::read(fs, dir, manifest.flushed_seq, sealer, sealed)?;
        let requests = Requests::read(fs, dir, manifest.requests, sealer, sealed)?;
        Ok(Self { arrivals, requests })
    }

    /// The files that cannot be used, and why.
    pub(super) fn unused(&self) -> Vec<(&'static str, &'static str)> {
        let arrivals = self.arrivals.as_ref().err().map(|reason| (arrivals::NAME, *reason));
        let requests = self.requests.as_ref().err().map(|reason| (requests::NAME, *reason));
        arrivals.into_iter().chain(requests).collect()
    }

    /// What is used: in place of a file that cannot be used, what does no harm. Everything counts as
    /// arrived now; requests are forgotten.
    pub(super) fn into_usable(
        self,
        manifest: &Manifest,
        clock: &dyn Clock,
    ) -> (Arrivals, Requests) {
        let now_ns = i64::try_from(clock.now_ms()).unwrap_or(i64::MAX).saturating_mul(1_000_000);
        let arrivals = self.arrivals.unwrap_or_else(|reason| {
            tracing::error!(
                "the file arrivals of the event store is not used: {reason}; its events count as \
                 arrived now"
            );
            Arrivals::before(manifest.flushed_seq, now_ns)
        });
        let requests = self.requests.unwrap_or_else(|reason| {
            tracing::error!(
                "the file requests of the event store is not used: {reason}; requests that are sent \
                 again are stored again"
            );
            Requests::after(manifest.requests)
        });
        (arrivals, requests)
    }
}

/// Which entries of the log are the store's own.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entries<'a> {
    /// The key of the store's codes, and the id of its log.
    key: Option<(&'a FileKey, &'a [u8; 16])>,
    /// From where entries must have codes: notes before it are in the file of requests.
    sealed_from: Option<u64>,
    /// Number of events that the newest checkpoint covers: these are compared with the tree.
    signed: u64,
}

/// What is used of an entry: its note, and whether its events are.
#[derive(Debug)]
pub(super) struct Judged {
    /// The note, if it has one that counts; or why it does not count.
    pub(super) note: Result<Option<RequestNote>, &'static str>,
    /// Why its events are not used.
    pub(super) events: Result<(), &'static str>,
    /// The hashes of its leaves, if its code is made of them.
    pub(super) hashes: Option<Vec<Hash>>,
}

impl<'a> Entries<'a> {
    /// * `signed`: number of events that need no code.
    pub(super) fn of(manifest: &'a Manifest, key: Option<&'a FileKey>, signed: u64) -> Self {
        let sealed_from = manifest.sealed.then_some(manifest.codes_from);
        Self { key: key.map(|key| (key, &manifest.log_id)), sealed_from, signed }
    }

    /// What is used of the entry at `lsn`.
    ///
    /// # Errors
    /// Its note cannot be read.
    pub(super) fn judge(&self, lsn: u64, batch: &BatchEntry<'_>) -> Result<Judged, &'static str> {
        let unsigned = !batch.ends.is_empty() && batch.end_seq() > self.signed;
        if batch.note.is_none() && !unsigned {
            return Ok(Judged { note: Ok(None), events: Ok(()), hashes: None });
        }
        let mut hashes = None;
        let is_early = self.sealed_from.is_some_and(|from| lsn < from);
        let valid = match (batch.code, self.sealed_from) {
            (Some(code), _) => self.confirms(batch, code, &mut hashes),
            (None, Some(_)) if !is_early => Err("it has no authentication code: another wrote it"),
            (None, _) => Ok(()),
        };
        let note = match (batch.note, valid) {
            (None, _) => Ok(None),
            (Some(_), Err(reason)) => Err(reason),
            (Some(_), Ok(())) if batch.code.is_none() && is_early => Ok(None),
            (Some(bytes), Ok(())) => Ok(Some(RequestNote::decode(bytes)?)),
        };
        Ok(Judged { note, events: if unsigned { valid } else { Ok(()) }, hashes })
    }

    fn confirms(
        &self,
        batch: &BatchEntry<'_>,
        code: &Code,
        hashes: &mut Option<Vec<Hash>>,
    ) -> Result<(), &'static str> {
        let kind = if batch.note.is_some() { Kind::Note } else { Kind::Batch };
        let valid = self.key.is_some_and(|(key, log_id)| {
            let what = batch.authenticated(|| hashes.insert(batch.hashes()));
            key.confirms(kind, log_id, &what, code)
        });
        if valid { Ok(()) } else { Err(UNAUTHENTIC) }
    }
}

impl Inner {
    /// Reports a note of a request in the log that does not count.
    pub(super) fn ignore_note(&self, lsn: Lsn, reason: &'static str) {
        tracing::error!(
            "the note of a request in the log entry at {} of the event store is not used: {reason}",
            lsn.0
        );
        self.unused.lock().push(("log", reason));
    }

    /// What precedes the events of an entry of the log, with its code.
    ///
    /// * `first_seq`, `count`: where its events stand.
    /// * `events`: their digest.
    pub(super) fn entry_start(
        &self,
        log_id: &[u8; 16],
        kind: Kind,
        (first_seq, count): (u64, u32),
        note: Option<&[u8]>,
        events: &[u8; 32],
    ) -> Vec<u8> {
        let what = entry::authenticated(first_seq, count, note.unwrap_or_default(), events);
        let code = self.file_key.as_ref().map(|key| key.code(kind, log_id, &what));
        entry::start(first_seq, count, note, code.as_ref())
    }

    /// Makes codes, if the store's files have them.
    pub(super) fn sealer<'a>(&'a self, manifest: &'a Manifest) -> Option<Sealer<'a>> {
        let key = self.file_key.as_ref().filter(|_| manifest.sealed)?;
        Some(Sealer { key, log_id: &manifest.log_id })
    }

    /// Replaces the manifest.
    pub(super) fn write_manifest(&self, next: Manifest) -> Result<(), Disk> {
        next.write(&*self.fs, &self.dir, self.file_key.as_ref())?;
        *self.manifest.lock() = next;
        Ok(())
    }

    /// Leaves segments and manifest as they are, and accepts and signs nothing.
    pub(super) fn suspend(&self, reason: String) {
        self.suspended.get_or_init(|| reason.clone());
        self.distrust(reason);
    }

    /// Refuses to change segments or manifest if they are suspended.
    pub(super) fn refuse_suspended(&self) -> Result<(), FlushError> {
        if self.tree.is_some() {
            self.trust();
        }
        match self.suspended.get() {
            Some(reason) => Err(FlushError::Suspended { reason: reason.clone() }),
            None => Ok(()),
        }
    }

    /// Gives the files of a store of an earlier version, or of a new one, their codes.
    pub(super) fn seal_files(&self) -> Result<(), FlushError> {
        let mut next = self.manifest.lock().clone();
        if next.sealed || !next.recording || self.file_key.is_none() {
            return Ok(());
        }
        // What contradicts the signed checkpoints gets no code.
        self.trust();
        if self.distrusted.get().is_some() {
            return Ok(());
        }
        next.sealed = true;
        self.note_tree(&mut next)?;
        let sealer = self.sealer(&next);
        if next.flushed_seq > 0 {
            let arrivals = Arc::clone(&self.arrivals.lock());
            arrivals.write(&*self.fs, &self.dir, sealer).map_err(FlushError::Disk)?;
        }
        let generation = {
            let mut requests = self.requests.lock();
            requests.rewrite();
            let now = (self.now_ns(), self.options.request_window);
            requests.write(&*self.fs, &self.dir, now, sealer).map_err(FlushError::Disk)?;
            requests.generation()
        };
        next.requests = generation;
        // Notes before it are in the file of requests; events before it were accepted without a code.
        next.codes_from = self.log_found.0;
        self.write_manifest(next).map_err(FlushError::Disk)
    }

    /// Notes the root of the tree of the flushed events, and the hashes that no complete tile covers.
    pub(super) fn note_tree(&self, manifest: &mut Manifest) -> Result<(), FlushError> {
        let failed = |error| FlushError::Sign(Box::new(error));
        manifest.root = Some(self.root_of_size(manifest.flushed_seq).map_err(failed)?);
        manifest.edge = self.edge_of_size(manifest.flushed_seq).map_err(failed)?;
        Ok(())
    }

    /// Upgrades the store if that is possible now; otherwise it is of the earlier version still.
    pub(super) fn seal_or_warn(&self) {
        if let Err(error) = self.seal_files() {
            tracing::error!("cannot authenticate the files of the event store: {}", chain(&error));
        }
    }

    /// Records in the tree which files were not used.
    pub(super) fn record_unused(&self) {
        let unused = std::mem::take(&mut *self.unused.lock());
        if unused.is_empty() {
            return;
        }
        let entries = unused.iter().map(|(file, reason)| {
            SystemEntry::Unused(UnusedEntry {
                file: (*file).to_owned(),
                reason: (*reason).to_owned(),
            })
        });
        if let Err(error) = self.record(entries) {
            let error = chain(&error);
            tracing::error!("cannot record which files the event store did not use: {error}");
        }
    }
}
