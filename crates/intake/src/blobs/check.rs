//! Blobs in object storage, for fsck: found by the indexes of all packs, without a claim.
//!
//! Invariant: nothing is written to the bucket.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::index::{BlobIndex, Place};
use super::pack::{PACKS, PackId};
use super::storage::{ObjectStorage, StorageError};
use super::upkeep::read_index;
use super::{INDEX_FSCK, claim};
use crate::blocks::{BLOCK_SIZE, TRAILER_SIZE, verify_blocks};
use crate::catalogue::BlobRecord;
use crate::digest::Digest;
use crate::error::CatalogueError;

/// Blocks read with one request.
const BLOCKS_PER_READ: u64 = 128;

/// The packs of a bucket, for reading.
pub(crate) struct RemoteCheck {
    storage: Arc<dyn ObjectStorage>,
    /// Made from the packs.
    index: BlobIndex,
    /// That of the server, and whether it has to have everything.
    own: Option<(BlobIndex, bool)>,
    path: PathBuf,
    /// What is wrong with packs.
    pub(crate) findings: Vec<String>,
}

impl RemoteCheck {
    /// Lists the packs and reads their indexes into a file beside the others.
    ///
    /// # Errors
    /// The file cannot be written, or the bucket not be read.
    pub(crate) fn open(
        storage: Arc<dyn ObjectStorage>,
        dir: &Path,
        log: Option<[u8; 16]>,
    ) -> Result<Self, super::RemoteError> {
        let url = storage.url();
        let failed = |source| super::RemoteError::Storage { url: url.clone(), source };
        let path = dir.join(INDEX_FSCK);
        remove(&path);
        let (index, _) = BlobIndex::open(&path, [0; 16], &url)?;
        let own = match log {
            Some(log) => BlobIndex::existing(&dir.join(super::INDEX), log, &url)?,
            None => None,
        };
        let own = own.map(|(index, known)| (index, known.is_complete));
        let mut check = Self { storage, index, own, path, findings: Vec::new() };
        if let Some(found) = log.map(|log| claim::differs(&*check.storage, log)) {
            check.findings.extend(found.map_err(failed)?);
        }
        let mut packs = Vec::new();
        check
            .storage
            .list(PACKS, &mut |name, size| {
                packs.extend(PackId::of_name(name).map(|id| (id, size)));
            })
            .map_err(failed)?;
        for (id, size) in packs {
            match read_index(&*check.storage, id, size) {
                Ok(Ok(members)) => check.index.add(id, size, &members, 0, &mut |_| true)?,
                Ok(Err(found)) => check.findings.push(format!("the object {url}/{id}: {found}")),
                Err(StorageError::Missing) => {}
                Err(source) => return Err(failed(source)),
            }
        }
        Ok(check)
    }

    /// Where a blob is: as the server's index has it, which is then checked too, or else as the packs have it.
    fn place(&self, digest: Digest) -> Result<Option<Place>, String> {
        let text = |error: CatalogueError| forebay_base::error_chain::chain(&error).to_string();
        let in_packs = self.index.find(digest).map_err(text)?;
        let Some((own, is_complete)) = &self.own else { return Ok(in_packs) };
        match (own.find(digest).map_err(text)?, in_packs) {
            (None, Some(place)) if *is_complete => Err(format!(
                "{} has it, and {} does not say so; remove that file, and the next start makes it from the packs",
                place.pack,
                super::INDEX
            )),
            (own, in_packs) => Ok(own.or(in_packs)),
        }
    }

    /// Hashes a blob; `None` if no pack has it.
    ///
    /// * `is_local`: whether this machine has it too.
    pub(crate) fn digest(
        &self,
        blob: &BlobRecord,
        is_local: bool,
    ) -> Result<Option<Digest>, String> {
        let Some(place) = self.place(blob.digest).or_else(|found| match is_local {
            // It was moved from the bucket, where its pack stays for a time.
            true => Ok(None),
            false => Err(found),
        })?
        else {
            return Ok(None);
        };
        if place.member.size != blob.size {
            let found = place.member.size;
            return Err(format!("{} has {found} bytes of it, expected {}", place.pack, blob.size));
        }
        let name = place.pack.name();
        let mut hasher = Sha256::new();
        let read = |from: u64, to: u64| {
            let range = place.member.offset + from..place.member.offset + to;
            self.storage.read(&name, range).map_err(|error| format!("{name}: {error}"))
        };
        let step = BLOCKS_PER_READ * BLOCK_SIZE as u64;
        let mut at = 0;
        while at < blob.size {
            let end = (at + step).min(blob.size);
            let (first, last) = (at / BLOCK_SIZE as u64, end.div_ceil(BLOCK_SIZE as u64));
            let bytes = read(at, end)?;
            let checksums = read(blob.size + first * 4, blob.size + last * 4)?;
            verify_blocks(blob.digest, first, &bytes, &checksums)
                .map_err(|error: io::Error| format!("{name}: {error}"))?;
            hasher.update(&bytes);
            at = end;
        }
        let checksums = blob.size.div_ceil(BLOCK_SIZE as u64) * 4;
        let end = blob.size + checksums;
        let found = read(end, end + TRAILER_SIZE as u64)?;
        if found != crate::blocks::trailer(blob.digest, blob.size)[..] {
            return Err(format!("{name}: the end of the blob does not match"));
        }
        Ok(Some(Digest(hasher.finalize().into())))
    }
}

impl Drop for RemoteCheck {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Removes an index and what SQLite has beside it.
fn remove(path: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        match std::fs::remove_file(&name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, "an index that a check has made cannot be removed");
            }
            _ => {}
        }
    }
}
