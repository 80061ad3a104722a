//! Finding a file by its name or id, and its bytes in the log.
//!
//! Invariants: a reader sees everything acknowledged before its call, and nothing that a crash could still
//! undo; bytes of the log are returned only from the entry that stored them.

use std::sync::Arc;

use bytes::Bytes;
use forebay_log::{CommitError, Lsn};

use crate::catalogue::{BlobLocation, BlobRecord, FileRecord};
use crate::error::IntakeError;
use crate::format::{BlobPlace, Entry, FileMove, FilePut};
use crate::pending::{BlobSeen, NameKey, NameSeen};
use crate::shared::Shared;

impl Shared {
    /// The file with this name, as of everything acknowledged before the call.
    pub(crate) async fn file(
        &self,
        key: &NameKey,
    ) -> Result<Option<(Arc<FileRecord>, BlobRecord)>, IntakeError> {
        loop {
            let (seen, generation) = {
                let pending = self.pending.lock();
                let seen = match pending.name(key) {
                    NameSeen::Pending(name) => {
                        let blob = name.file.as_ref().map(|file| pending.blob(file.digest));
                        Some((name, blob))
                    }
                    NameSeen::New => return Ok(None),
                    NameSeen::Ask => None,
                };
                (seen, pending.generation())
            };
            let Some((name, blob)) = seen else {
                if let Some((file, blob)) = self.reader.file(&key.0, &key.1)? {
                    return Ok(Some((Arc::new(file), blob)));
                }
                // The name may have been given, and applied, between the two lookups.
                if self.pending.lock().generation() == generation {
                    return self.check_whole().map(|()| None);
                }
                continue;
            };
            let (name, blob) = match self.committed(name.end).await {
                Ok(()) => (name, blob),
                // What was not acknowledged is not shown: the name keeps its previous state.
                Err(IntakeError::Commit(CommitError::Stalled { .. })) => {
                    let Some(name) = self.acknowledged_name(key) else {
                        let found = self.stored(key)?;
                        return Ok(found.map(|(file, blob)| (Arc::new(file), blob)));
                    };
                    let file = name.file.as_ref();
                    let blob = file.map(|file| self.pending.lock().blob(file.digest));
                    (name, blob)
                }
                Err(error) => return Err(error),
            };
            let Some(file) = name.file else { return Ok(None) };
            let blob = match blob {
                // A later put may have stored the same bytes again, in an entry that is not
                // necessarily written yet. This name then uses the copy that the catalogue knows.
                Some(BlobSeen::Stored(blob)) if !is_after(&blob, name.end) => Some(blob),
                _ => self.reader.blob(file.digest)?,
            };
            if let Some(blob) = blob {
                return Ok(Some((file, blob)));
            }
        }
    }

    /// The file whose name was given by the entry at `id`, if the name still refers to it.
    pub(crate) async fn file_by_id(
        &self,
        id: u64,
    ) -> Result<Option<(Arc<FileRecord>, BlobRecord)>, IntakeError> {
        let lsn = Lsn(id);
        if lsn < self.log.start() || lsn >= self.log.end() {
            return Ok(None);
        }
        // An id that was never given points into the middle of an entry: not a fault of the log.
        let Ok(payload) = self.log.read(lsn) else { return Ok(None) };
        let key = match Entry::decode(&payload) {
            Ok(Entry::FilePut(put) | Entry::FileMove(FileMove { put, .. })) => {
                (put.namespace, put.name)
            }
            _ => return Ok(None),
        };
        Ok(self.file(&key).await?.filter(|(file, _)| file.id == id))
    }

    /// The bytes of a blob kept in the log, checked against its digest's entry.
    pub(crate) fn read_packed(&self, blob: &BlobRecord, lsn: u64) -> Result<Bytes, IntakeError> {
        let payload = self
            .log
            .read(Lsn(lsn))
            .map_err(|source| IntakeError::Read { lsn: Lsn(lsn), source })?;
        let damaged = |found: String| IntakeError::Damaged { digest: blob.digest.to_hex(), found };
        let header = match Entry::decode(&payload) {
            Ok(Entry::FilePut(FilePut { digest, place: BlobPlace::Inline(bytes), .. }))
                if digest == blob.digest =>
            {
                payload.len() - bytes.len()
            }
            Ok(_) => return Err(damaged(format!("the log holds another entry at {lsn}"))),
            Err(error) => {
                return Err(damaged(format!("the entry at {lsn} cannot be decoded: {error}")));
            }
        };
        Ok(Bytes::from(payload).slice(header..))
    }
}

/// Whether bytes are in a log entry at `end` or later.
fn is_after(blob: &BlobRecord, end: Lsn) -> bool {
    matches!(blob.place, BlobLocation::Entry(lsn) if lsn >= end.0)
}
