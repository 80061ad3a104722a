//! Freeing the space of data that nothing refers to any more.
//!
//! Three kinds: blob files without names are removed; sealed log segments of which enough is dead
//! are rewritten without the dead entries (every other entry keeps its position); documents leave
//! the log once the document database holds them on stable storage. The entry that deleted the last
//! name is made durable first, so that no crash restores a name without its bytes.
//!
//! Before documents are erased from a segment, an entry says what the document database holds
//! ([`DocumentExtents`]): from then on it is the only one that has them, and a database that was lost
//! or replaced by an older copy has to be distinguished from the right one.
//!
//! Entries that a follower of the log has not read yet stay, with everything after them
//! ([`Intake::hold_log`](crate::Intake::hold_log)).
//!
//! Invariants: a blob that a queued or running request may refer to is never touched; what is
//! erased is forgotten by the catalogue in the same pass, or found dead again in the next; an entry
//! with an idempotency key that is still remembered stays, and so does the newest entry of extents, so that a catalogue that lost its last
//! transactions in a power cut, or is rebuilt, learns the key from it.

use std::collections::HashSet;

use forebay_log::{AppendError, Log, Lsn, SegmentInfo};

use crate::catalogue::{BlobLocation, BlobRecord, Catalogue};
use crate::digest::Digest;
use crate::documents::view::Held;
use crate::error::CatalogueError;
use crate::format::{
    DocumentChange, DocumentCommit, DocumentExtents, DocumentsDropped, Entry, NamespaceExtent,
    Outcome,
};
use crate::names::{NameError, Namespace};
use crate::shared::Shared;

/// Maximum number of dead blobs of one segment, and of dead blob files, in one pass: more than a
/// segment can hold unless its blobs are tiny.
const DEAD_MAX: usize = 200_000;
/// A segment is rewritten if at least 1/N of it is dead; this is N.
const DEAD_PART: u64 = 4;

/// Why space could not be freed. Nothing is lost; the next pass tries again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReclaimError {
    #[error("could not read or update the catalogue")]
    Catalogue(#[from] CatalogueError),
    #[error("could not make the log durable")]
    Sync(#[source] forebay_log::CommitError),
    #[error("could not list the log's segments")]
    Segments(#[source] forebay_log::DiskError),
    #[error("could not erase dead entries from the segment at {base}")]
    Erase {
        base: Lsn,
        #[source]
        source: forebay_log::EraseError,
    },
    #[error("could not read the segment at {base}")]
    Read {
        base: Lsn,
        #[source]
        source: forebay_log::ReadError,
    },
    #[error("could not remove a blob file")]
    Remove(#[source] std::io::Error),
    #[error("could not record in the log what the document database holds")]
    Append(#[source] forebay_log::AppendError),
    #[error("the document database has a namespace that no request can have named")]
    Namespace(#[source] NameError),
}

/// One pass. Runs on the applier's thread, which owns the catalogue.
///
/// * `documents_safe`: below this position everything is in the document database on stable
///   storage, and also in the external database or the spill if documents are forwarded; and no
///   request in progress has a chunk below it.
/// * `held`: what the document database holds on stable storage; without it no documents are
///   erased.
pub(crate) fn reclaim(
    shared: &Shared,
    catalogue: &mut Catalogue,
    documents_safe: Lsn,
    held: Option<&Held>,
) -> Result<u64, ReclaimError> {
    // While an image is made everything stays; the next pass comes.
    let Some(_no_image) = shared.imaging.try_lock() else { return Ok(0) };
    crate::blobs::sweep_unnamed(shared)?;
    let documents_safe = held.map_or(Lsn(0), |held| held.position.min(documents_safe));
    let dead = shared.reader.dead_blobs(1)?;
    let erased_to = catalogue.documents_erased();
    if dead.is_empty() && documents_safe.0 <= erased_to {
        return Ok(0);
    }
    shared.log.sync().map_err(ReclaimError::Sync)?;
    let files = shared.reader.dead_blobs_in(None, DEAD_MAX)?;
    let mut freed = remove_files(shared, catalogue, &files)?;
    let mut in_order = true;
    for segment in shared.log.segments().map_err(ReclaimError::Segments)? {
        if !segment.sealed || shared.is_held(segment.end) {
            break;
        }
        let blobs = shared.reader.dead_blobs_in(Some(segment.base.0..segment.end.0), DEAD_MAX)?;
        let mut entries = HashSet::new();
        let due = in_order && segment.end.0 > erased_to && segment.end <= documents_safe;
        if due {
            in_order = dead_documents(shared, &segment, &mut entries)?;
            if let Some(held) = held
                && !entries.is_empty()
                && !record(&shared.log, catalogue, held, segment.end)?
            {
                // The log's buffer is full: the next pass tries again.
                break;
            }
        } else if segment.end > documents_safe {
            in_order = false;
        }
        freed += erase(shared, catalogue, &segment, &blobs, entries)?;
        if due && in_order {
            catalogue.set_documents_erased(segment.end.0)?;
        }
    }
    crate::meters::reclaimed(freed);
    Ok(freed)
}

/// Records in the log and in the catalogue what the document database holds, before documents below
/// `erased` leave the log. Returns `false` if the log has no room at the moment.
pub(crate) fn record(
    log: &Log,
    catalogue: &mut Catalogue,
    held: &Held,
    erased: Lsn,
) -> Result<bool, ReclaimError> {
    let namespaces = held.extents.iter().map(|extent| {
        Ok(NamespaceExtent {
            namespace: Namespace::parse(&extent.namespace)?,
            count: extent.rows.count,
            digest: extent.rows.digest,
            last_id: extent.last_id,
        })
    });
    let namespaces = namespaces.collect::<Result<_, _>>().map_err(ReclaimError::Namespace)?;
    let entry = DocumentExtents { position: held.position.0, erased: erased.0, namespaces };
    let appended = match log.try_append(&[&entry.encode()]) {
        Ok(appended) => appended,
        Err(AppendError::Full { .. }) => return Ok(false),
        Err(error) => return Err(ReclaimError::Append(error)),
    };
    log.sync_to(appended.end).map_err(ReclaimError::Sync)?;
    catalogue.set_extents(appended.lsn.0, erased.0)?;
    Ok(true)
}

/// Removes blob files that no name refers to.
fn remove_files(
    shared: &Shared,
    catalogue: &mut Catalogue,
    files: &[BlobRecord],
) -> Result<u64, ReclaimError> {
    // No upload may give a file one of these names meanwhile.
    let _no_upload = shared.reclaim.lock();
    let doomed = doom(shared, files);
    let in_files = doomed.iter().filter(|blob| blob.place == BlobLocation::File);
    let digests: Vec<Digest> = in_files.map(|blob| blob.digest).collect();
    let removed = shared.blobs.remove(&digests).map_err(ReclaimError::Remove);
    let forgotten = removed.and_then(|()| Ok(catalogue.forget_blobs(&doomed)?));
    spare(shared, &doomed);
    forgotten.map(|()| doomed.iter().map(|blob| blob.size).sum())
}

/// Erases dead blobs and documents from one segment, if they are a large enough part of it.
fn erase(
    shared: &Shared,
    catalogue: &mut Catalogue,
    segment: &SegmentInfo,
    blobs: &[BlobRecord],
    mut entries: HashSet<u64>,
) -> Result<u64, ReclaimError> {
    let enough = |blobs: &[BlobRecord]| {
        let bytes: u64 = blobs.iter().map(|blob| blob.size).sum();
        bytes.saturating_mul(DEAD_PART) >= segment.disk_bytes
    };
    let free = if enough(blobs) { without_keys(shared, segment, blobs)? } else { Vec::new() };
    let doomed = if enough(&free) { doom(shared, &free) } else { Vec::new() };
    entries.extend(doomed.iter().filter_map(|blob| match blob.place {
        BlobLocation::Entry(lsn) => Some(lsn),
        BlobLocation::File | BlobLocation::Erased => None,
    }));
    if entries.is_empty() {
        return Ok(0);
    }
    let erased = shared
        .log
        .erase(segment.base, &mut |lsn| entries.contains(&lsn.0))
        .map_err(|source| ReclaimError::Erase { base: segment.base, source });
    let forgotten =
        erased.and_then(|erased| Ok(catalogue.forget_blobs(&doomed).map(|()| erased.bytes)?));
    spare(shared, &doomed);
    forgotten
}

/// The blobs whose entries have no idempotency key that is still remembered.
fn without_keys(
    shared: &Shared,
    segment: &SegmentInfo,
    blobs: &[BlobRecord],
) -> Result<Vec<BlobRecord>, ReclaimError> {
    let mut free = Vec::with_capacity(blobs.len());
    for blob in blobs {
        let BlobLocation::Entry(lsn) = blob.place else { continue };
        match shared.log.read(Lsn(lsn)) {
            Ok(payload) => match Entry::decode(&payload) {
                Ok(Entry::FilePut(put))
                    if put.idempotency.is_none() || expired(shared, put.created_ms) =>
                {
                    free.push(*blob);
                }
                // Still remembered, or invalid, which `fsck` reports.
                Ok(_) | Err(_) => {}
            },
            // A crash came between the erasing and the update of the catalogue.
            Err(forebay_log::ReadError::Erased { .. }) => free.push(*blob),
            Err(source) => return Err(ReclaimError::Read { base: segment.base, source }),
        }
    }
    Ok(free)
}

/// Whether the idempotency key of a request answered at `ms` is no longer remembered.
fn expired(shared: &Shared, ms: i64) -> bool {
    ms < shared.requests_from_ms()
}

/// Gathers the entries of a segment that received documents. Returns whether none of them has to
/// stay for an idempotency key that is still remembered.
fn dead_documents(
    shared: &Shared,
    segment: &SegmentInfo,
    entries: &mut HashSet<u64>,
) -> Result<bool, ReclaimError> {
    let mut reader = shared.log.reader(segment.base.max(shared.log.start()));
    let mut whole = true;
    // All of them are superseded by the one that is written before anything is erased.
    let mut extents = Vec::new();
    loop {
        let read =
            reader.next().map_err(|source| ReclaimError::Read { base: segment.base, source });
        let Some(entry) = read? else { break };
        if entry.lsn >= segment.end {
            break;
        }
        let dead = match Entry::decode(entry.payload) {
            Ok(Entry::DocumentChunk(_)) => true,
            Ok(Entry::DocumentCommit(DocumentCommit { idempotency, received_ms, .. })) => {
                idempotency.is_none() || expired(shared, received_ms)
            }
            Ok(Entry::DocumentChange(DocumentChange { idempotency, changed_ms, .. })) => {
                idempotency.is_none() || expired(shared, changed_ms)
            }
            Ok(Entry::DocumentsDropped(DocumentsDropped { idempotency, dropped_ms, .. })) => {
                idempotency.is_none() || expired(shared, dropped_ms)
            }
            Ok(Entry::Outcome(Outcome { created_ms, .. })) => expired(shared, created_ms),
            Ok(Entry::DocumentExtents(_)) => {
                extents.push(entry.lsn.0);
                continue;
            }
            Ok(
                Entry::FilePut(_)
                | Entry::FileMove(_)
                | Entry::Namespace(_)
                | Entry::VersionsErased(_)
                | Entry::NewestErased(_)
                | Entry::Amended(_)
                | Entry::Delete(_),
            ) => {
                continue;
            }
            // Invalid, which `fsck` reports.
            Err(_) => continue,
        };
        if dead {
            entries.insert(entry.lsn.0);
        } else {
            whole = false;
        }
    }
    if !entries.is_empty() {
        entries.extend(extents);
    }
    Ok(whole)
}

fn doom(shared: &Shared, blobs: &[BlobRecord]) -> Vec<BlobRecord> {
    blobs.iter().filter(|blob| shared.pending.lock().doom(blob.digest)).copied().collect()
}

fn spare(shared: &Shared, doomed: &[BlobRecord]) {
    for blob in doomed {
        shared.pending.lock().spare(blob.digest);
    }
}
