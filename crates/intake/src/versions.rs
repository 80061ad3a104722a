//! Versions of files: what a name referred to before it was replaced or deleted.
//!
//! A namespace keeps versions if its record says so. The entry that replaces or deletes a name says whether
//! what was there is kept, so a replay of the log decides nothing. A version stays until it is erased.
//!
//! Invariants: the bytes of a version stay stored as long as it exists; erasing one is a change like any
//! other, and the current file of a name is never one of its versions.

use std::sync::Arc;

use forebay_log::AppendError;

use crate::Intake;
use crate::catalogue::{Change, VersionRecord};
use crate::error::IntakeError;
use crate::files::{Condition, NewFile, Put};
use crate::format::{IdempotencyRecord, VersionsErased};
use crate::operations::StoredFile;
use crate::pending::{NameKey, Queued};

/// Maximum number of versions erased by one entry.
const ERASED_MAX: usize = 1_000;

/// The history of a name.
#[derive(Debug, Clone)]
pub struct FileVersions {
    /// What it refers to now; `None` if it does not exist.
    pub current: Option<StoredFile>,
    /// Earlier versions and deletions, the newest first.
    pub versions: Vec<VersionRecord>,
    /// Whether there are more.
    pub more: bool,
}

impl Intake {
    /// The history of a name: at most `limit` versions with ids below `before`.
    ///
    /// # Errors
    /// [`IntakeError`] if the catalogue cannot be queried.
    pub async fn versions(
        &self,
        key: &NameKey,
        before: Option<u64>,
        limit: usize,
    ) -> Result<FileVersions, IntakeError> {
        let shared = self.inner.shared.clone();
        shared.catch_up().await?;
        shared.check_whole()?;
        let current = self.find(key).await?;
        let owned = key.clone();
        let found = tokio::task::spawn_blocking(move || {
            shared.reader.versions(&owned.0, &owned.1, before, limit.saturating_add(1))
        });
        let interrupted =
            |_| IntakeError::ViewStopped { reason: "the query was interrupted".into() };
        let mut versions = found.await.map_err(interrupted)??;
        let more = versions.len() > limit;
        versions.truncate(limit);
        Ok(FileVersions { current, versions, more })
    }

    /// The file that a name referred to from the entry at `id` on, now or before; `None` if there is no such
    /// version, or if it is a deletion.
    ///
    /// # Errors
    /// [`IntakeError`] if the catalogue cannot be queried.
    pub async fn find_version(
        &self,
        key: &NameKey,
        id: u64,
    ) -> Result<Option<StoredFile>, IntakeError> {
        if let Some(current) = self.find(key).await?
            && current.record.id == id
        {
            return Ok(Some(current));
        }
        let shared = &self.inner.shared;
        shared.catch_up().await?;
        shared.check_whole()?;
        let found = shared.reader.version(&key.0, &key.1, id)?;
        Ok(found.and_then(|(version, blob)| Some(StoredFile::of(Arc::new(version.file), blob?))))
    }

    /// Makes a version the current file of its name again. No byte is copied.
    ///
    /// # Errors
    /// [`IntakeError::NotFound`]: there is no such version. Others as [`Intake::put`].
    pub async fn restore_version(
        &self,
        key: &NameKey,
        id: u64,
        condition: Condition,
        idempotency: Option<IdempotencyRecord>,
    ) -> Result<Put, IntakeError> {
        let missing = || IntakeError::NotFound { what: format!("version of {}/{}", key.0, key.1) };
        let file = self.find_version(key, id).await?.ok_or_else(missing)?.record;
        let new = NewFile {
            key: key.clone(),
            comment: file.comment.clone(),
            attributes: file.attributes.clone(),
            digest: file.digest,
            size: file.size,
            mime: file.mime.clone(),
            category: file.category,
            condition,
            idempotency,
            origin: None,
        };
        // Its bytes are removed only after it was erased.
        self.inner.shared.put(new, None).await?.ok_or_else(missing)
    }

    /// Erases versions of a name for good.
    ///
    /// * Returns the number of those that existed.
    ///
    /// # Errors
    /// As [`Intake::put`].
    pub async fn erase_versions(&self, key: &NameKey, ids: &[u64]) -> Result<usize, IntakeError> {
        let shared = &self.inner.shared;
        let mut erased = 0;
        for ids in ids.chunks(ERASED_MAX) {
            shared.wait_for_room().await?;
            shared.catch_up().await?;
            let mut found = Vec::with_capacity(ids.len());
            for id in ids {
                if shared.reader.version(&key.0, &key.1, *id)?.is_some() {
                    found.push(*id);
                }
            }
            if found.is_empty() {
                shared.check_whole()?;
                continue;
            }
            erased += found.len();
            self.append_erased(key, found).await?;
        }
        Ok(erased)
    }

    /// Erases all versions of a name but the newest `kept`.
    ///
    /// * Returns their number.
    ///
    /// # Errors
    /// As [`Intake::put`].
    pub async fn prune_versions(&self, key: &NameKey, kept: usize) -> Result<usize, IntakeError> {
        let newest = self.versions(key, None, kept).await?;
        if !newest.more {
            return Ok(0);
        }
        let mut before = newest.versions.last().map(|version| version.file.id);
        let mut erased = 0;
        loop {
            let page = self.versions(key, before, ERASED_MAX).await?;
            let ids: Vec<u64> = page.versions.iter().map(|version| version.file.id).collect();
            erased += self.erase_versions(key, &ids).await?;
            before = ids.last().copied();
            if !page.more {
                return Ok(erased);
            }
        }
    }

    async fn append_erased(&self, key: &NameKey, ids: Vec<u64>) -> Result<(), IntakeError> {
        let shared = &self.inner.shared;
        let (namespace, name) = key.clone();
        let entry = VersionsErased { erased_ms: shared.now_ms(), namespace, name, ids };
        let encoded = entry.encode();
        let VersionsErased { namespace, name, ids, .. } = entry;
        let change = Change::VersionsErased { namespace, name, ids: ids.into() };
        loop {
            let appended = {
                let mut pending = shared.pending.lock();
                match shared.log.try_append(&[&encoded]) {
                    Ok(appended) => {
                        let (lsn, end, change) = (appended.lsn, appended.end, change.clone());
                        shared.queue(&mut pending, Queued { lsn, end, change, answered: None });
                        Some(end)
                    }
                    Err(AppendError::Full { .. }) => None,
                    Err(error) => return Err(IntakeError::Append(error)),
                }
            };
            match appended {
                Some(end) => return shared.committed(end).await,
                None => shared.log.room(encoded.len()).await,
            }
        }
    }
}
