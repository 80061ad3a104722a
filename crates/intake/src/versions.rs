//! Versions of files: what a name referred to before it was replaced or deleted.
//!
//! A namespace keeps versions if its record says so. The entry that replaces or deletes a name says whether
//! what was there is kept, so a replay of the log decides nothing. A version stays until it is erased.
//!
//! Invariants: the bytes of a version stay stored as long as it exists; erasing one is a change like any
//! other, and the current file of a name is never one of its versions. Versions are erased one request at a
//! time, so none becomes current between the decision to erase it and the entry.

use std::sync::Arc;

use forebay_log::{AppendError, Lsn};

use crate::Intake;
use crate::catalogue::{Browse, BrowsedStates, Change, FileRecord, VersionRecord};
use crate::changes::FileCopy;
use crate::error::IntakeError;
use crate::files::{Condition, NewFile, Put};
use crate::format::{IdempotencyRecord, NewestErased, VersionsErased};
use crate::operations::StoredFile;
use crate::pending::{NameKey, NameSeen, Queued};
use crate::quotas;

/// Maximum number of versions erased by one entry.
const ERASED_MAX: usize = 1_000;
/// How often the newest state of a name is erased again because it was changed meanwhile.
pub(crate) const ATTEMPTS_MAX: usize = 100;

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

/// Bytes of a version; a deletion has none.
fn size_of(version: &VersionRecord) -> i64 {
    if version.is_deletion { 0 } else { version.file.size.cast_signed() }
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
        let found = forebay_base::blocking::spawn(move || {
            shared.reader.versions(&owned.0, &owned.1, before, limit.saturating_add(1))
        });
        let mut versions = found.await.map_err(crate::listing::interrupted)??;
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

    /// A listing of a namespace with everything that its names referred to.
    ///
    /// * `before`: of the name `browse.after`, only states with lesser ids; without it none.
    ///
    /// # Errors
    /// [`IntakeError`] if the catalogue cannot be queried.
    pub async fn browse_states(
        &self,
        browse: Browse,
        before: Option<u64>,
        limit: usize,
    ) -> Result<BrowsedStates, IntakeError> {
        self.listing(move |shared| shared.reader.browse_states(&browse, before, limit)).await
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
        let copy = FileCopy {
            from: key.clone(),
            to: key.clone(),
            source: Condition::None,
            condition,
            comment: None,
            attributes: None,
            idempotency,
        };
        self.copy_version(copy, id).await
    }

    /// Gives a name to the bytes of a version. No byte is copied.
    ///
    /// * `copy`: as for [`Intake::copy`]; its `source` is a condition on the version.
    ///
    /// # Errors
    /// [`IntakeError::NotFound`]: there is no such version. Others as [`Intake::put`].
    pub async fn copy_version(&self, copy: FileCopy, id: u64) -> Result<Put, IntakeError> {
        let FileCopy { from, to, source, condition, comment, attributes, idempotency } = copy;
        let missing =
            || IntakeError::NotFound { what: format!("version of {}/{}", from.0, from.1) };
        let file = self.find_version(&from, id).await?.ok_or_else(missing)?.record;
        source.check(Some(&file))?;
        let new = NewFile {
            key: to,
            comment: comment.unwrap_or_else(|| file.comment.clone()),
            attributes: attributes.unwrap_or_else(|| file.attributes.clone()),
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
            let turn = shared.version_turn().await?;
            let (mut found, mut freed) = (Vec::with_capacity(ids.len()), 0);
            for id in ids {
                if let Some((version, _)) = shared.reader.version(&key.0, &key.1, *id)? {
                    found.push(*id);
                    freed += size_of(&version);
                }
            }
            if found.is_empty() {
                shared.check_whole()?;
                continue;
            }
            erased += found.len();
            let end = self.append_erased(key, found, freed).await?;
            drop(turn);
            shared.committed(end).await?;
        }
        Ok(erased)
    }

    /// Erases one state of a name for good: an earlier version, a deletion, or the file that it refers to
    /// now. If it was the newest, the one before it holds again, with the id that it had.
    ///
    /// * Returns what was erased; `None` if there was no such state.
    ///
    /// # Errors
    /// [`IntakeError::Busy`]: the name is being changed all the time. Others as [`Intake::put`].
    pub async fn erase_version(
        &self,
        key: &NameKey,
        id: u64,
    ) -> Result<Option<VersionRecord>, IntakeError> {
        let shared = &self.inner.shared;
        for _ in 0..ATTEMPTS_MAX {
            let turn = shared.version_turn().await?;
            let generation = shared.pending.lock().generation();
            let current = shared.stored(key)?.map(|(file, _)| file);
            let is_current = current.as_ref().is_some_and(|file| file.id == id);
            let newest = shared.reader.versions(&key.0, &key.1, None, 2)?;
            let mut states = newest.into_iter().peekable();
            let holds = |newest: &VersionRecord| newest.is_deletion && newest.file.id == id;
            let erased = match current {
                Some(file) if is_current => VersionRecord { file, is_deletion: false },
                None if states.peek().is_some_and(holds) => match states.next() {
                    Some(deletion) => deletion,
                    None => continue,
                },
                _ => {
                    let Some((version, _)) = shared.reader.version(&key.0, &key.1, id)? else {
                        return shared.check_whole().map(|()| None);
                    };
                    let end = self.append_erased(key, vec![id], size_of(&version)).await?;
                    drop(turn);
                    shared.committed(end).await?;
                    return Ok(Some(version));
                }
            };
            let before = states.next().filter(|before| !before.is_deletion);
            let before = before.map(|version| Arc::new(version.file));
            if let Some(end) = self.append_newest(key, &erased, before, generation)? {
                drop(turn);
                shared.committed(end).await?;
                return Ok(Some(erased));
            }
            drop(turn);
            shared.log.room(16_384).await;
        }
        Err(IntakeError::Busy { what: "the file is being changed all the time" })
    }

    /// Appends that the newest state of a name is erased, if the catalogue has not changed since
    /// `generation` and no queued change is about the name; otherwise, and if the log's buffer is full,
    /// returns `None`.
    fn append_newest(
        &self,
        key: &NameKey,
        erased: &VersionRecord,
        file: Option<Arc<FileRecord>>,
        generation: u64,
    ) -> Result<Option<Lsn>, IntakeError> {
        let shared = &self.inner.shared;
        let mut pending = shared.pending.lock();
        if pending.generation() != generation || matches!(pending.name(key), NameSeen::Pending(_)) {
            return Ok(None);
        }
        let (namespace, name) = key.clone();
        let (id, current) = (erased.file.id, file.as_ref().map(|file| file.id));
        let names = i64::from(file.is_some()) - i64::from(!erased.is_deletion);
        let change = quotas::Change { files: names, bytes: -size_of(erased) };
        let entry = NewestErased { erased_ms: shared.now_ms(), namespace, name, id, current };
        let appended = match shared.log.try_append(&[&entry.encode()]) {
            Ok(appended) => appended,
            Err(AppendError::Full { .. }) => return Ok(None),
            Err(error) => return Err(IntakeError::Append(error)),
        };
        pending.usages.change(&key.0, appended.lsn, change);
        let NewestErased { namespace, name, .. } = entry;
        let change = Change::NewestErased { namespace, name, id, current, file };
        let (lsn, end) = (appended.lsn, appended.end);
        shared.queue(&mut pending, Queued { lsn, end, change, answered: None });
        Ok(Some(end))
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

    /// Appends that versions are erased, and returns the end of the entry.
    ///
    /// * `freed`: bytes of the versions.
    async fn append_erased(
        &self,
        key: &NameKey,
        ids: Vec<u64>,
        freed: i64,
    ) -> Result<Lsn, IntakeError> {
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
                        let less = quotas::Change { files: 0, bytes: -freed };
                        pending.usages.change(&key.0, lsn, less);
                        shared.queue(&mut pending, Queued { lsn, end, change, answered: None });
                        Some(end)
                    }
                    Err(AppendError::Full { .. }) => None,
                    Err(error) => return Err(IntakeError::Append(error)),
                }
            };
            match appended {
                Some(end) => return Ok(end),
                None => shared.log.room(encoded.len()).await,
            }
        }
    }
}
