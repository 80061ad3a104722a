//! Applying a batch of changes: names, blobs, remembered requests.
//!
//! Invariants: a row that is changed or deleted was verified before; the state's counts and digests
//! follow every row.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_base::rows::RowHasher;
use rusqlite::{Connection, Statement, params};

use super::rows::{
    BLOB_COLUMNS, BlobRow, Checked, FILE_COLUMNS, NAMESPACE_COLUMNS, REQUEST_COLUMNS, REQUESTS,
    VERSION_COLUMNS, blob_checksum, file_checksum, namespace_checksum, read_blob, read_file,
    read_namespace, read_version, request_checksum, stored_attributes, version_checksum,
};
use super::state::State;
use super::{
    Answered, AppliedChange, BlobLocation, BlobRecord, Catalogue, Change, FileRecord,
    NamespaceRecord, VersionRecord,
};
use crate::attributes::Attributes;
use crate::digest::Digest;
use crate::error::CatalogueError;
use crate::names::{FileName, Namespace};
use crate::pace::Pace;

impl Catalogue {
    /// Makes changes pause between their steps, as `pace` says.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said.
    pub(crate) fn set_pace(
        &mut self,
        pace: &Pace,
        pause: impl Fn(Duration) -> bool + Send + 'static,
    ) -> Result<(), CatalogueError> {
        let attached = pace.attach(&mut self.connection, pause);
        attached.map_err(|source| CatalogueError::new("pace the catalogue", source))
    }
}

/// Applies changes in log order.
pub(super) fn apply(
    connection: &Connection,
    state: &mut State,
    changes: &[AppliedChange],
) -> Checked<()> {
    let mut batch = Batch { connection, state, hasher: RowHasher::default() };
    let deltas = batch.names(changes)?;
    batch.blobs(deltas)?;
    for AppliedChange { lsn, change, answered } in changes {
        if let Some(answered) = answered {
            batch.remember(answered)?;
        }
        match change {
            Change::Extents { erased } => {
                batch.state.extents_at = *lsn;
                batch.state.documents_bound = *erased;
            }
            Change::Namespace { namespace, changed_ms, attributes } => {
                batch.namespace(namespace, *changed_ms, attributes.as_ref())?;
            }
            Change::Put { .. }
            | Change::Move { .. }
            | Change::VersionsErased { .. }
            | Change::NewestErased { .. }
            | Change::Amended { .. }
            | Change::Delete { .. }
            | Change::Nothing => {}
        }
    }
    Ok(())
}

/// The effect of a batch on one blob.
#[derive(Debug, Default)]
struct BlobDelta<'a> {
    /// Names gained minus names lost.
    refs: i64,
    /// The first copy of the bytes that the batch stored, and their size.
    stored: Option<(BlobLocation, u64)>,
    /// The name that copy was given.
    first: Option<&'a FileRecord>,
    size: u64,
}

/// A transaction and what it changes.
struct Batch<'a> {
    connection: &'a Connection,
    state: &'a mut State,
    hasher: RowHasher,
}

const INSERT_FILE: &str = "INSERT OR IGNORE INTO files
       (namespace, name, id, digest, size, mime, category, comment, created_ms, attributes, first,
        checksum)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";

impl Batch<'_> {
    /// Applies the changes to names, and returns their effect on blobs.
    ///
    /// Only the order of changes to the same name matters, so names are taken in the order of their
    /// table: a batch then touches each of its pages once.
    fn names<'c>(
        &mut self,
        changes: &'c [AppliedChange],
    ) -> Checked<BTreeMap<Digest, BlobDelta<'c>>> {
        let mut deltas: BTreeMap<Digest, BlobDelta<'c>> = BTreeMap::new();
        let mut by_name: Vec<(&Namespace, &FileName, &AppliedChange, bool)> =
            Vec::with_capacity(changes.len());
        for applied in changes {
            let AppliedChange { change, .. } = applied;
            match change {
                Change::Put { file, stored, .. } => {
                    let delta = deltas.entry(file.digest).or_default();
                    delta.refs += 1;
                    delta.size = file.size;
                    let mut first = false;
                    if let (None, Some(place)) = (delta.stored, *stored) {
                        delta.stored = Some((place, file.size));
                        delta.first = Some(file);
                        first = place == BlobLocation::Entry(file.id);
                    }
                    by_name.push((&file.namespace, &file.name, applied, first));
                }
                Change::Move { file, from, .. } => {
                    let delta = deltas.entry(file.digest).or_default();
                    delta.refs += 1;
                    delta.size = file.size;
                    by_name.push((&file.namespace, &file.name, applied, false));
                    by_name.push((&from.0, &from.1, applied, false));
                }
                Change::Delete { namespace, name, .. }
                | Change::VersionsErased { namespace, name, .. }
                | Change::NewestErased { namespace, name, .. }
                | Change::Amended { namespace, name, .. } => {
                    by_name.push((namespace, name, applied, false));
                }
                Change::Namespace { .. } | Change::Extents { .. } | Change::Nothing => {}
            }
        }
        by_name.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)));
        let connection = self.connection;
        let mut insert = connection.prepare_cached(INSERT_FILE)?;
        for (namespace, name, applied, first) in by_name {
            for (digest, size) in self.name(&mut insert, (namespace, name), applied, first)? {
                let delta = deltas.entry(digest).or_default();
                delta.refs -= 1;
                delta.size = size;
            }
        }
        Ok(deltas)
    }

    /// Applies one change to one name, and returns the bytes that it no longer refers to.
    fn name(
        &mut self,
        insert: &mut Statement<'_>,
        (namespace, name): (&Namespace, &FileName),
        applied: &AppliedChange,
        first: bool,
    ) -> Checked<Vec<(Digest, u64)>> {
        let lost = |file: &FileRecord| (file.digest, file.size);
        match &applied.change {
            Change::Put { file, keeps, .. } | Change::Move { file, keeps, .. }
                if (namespace, name) == (&file.namespace, &file.name) =>
            {
                if self.insert_file(insert, file, first)? {
                    return Ok(Vec::new());
                }
                let before = self.delete(namespace, name)?;
                self.insert_file(insert, file, first)?;
                match before {
                    Some(before) if *keeps => self.keep(before).map(|()| Vec::new()),
                    before => Ok(before.iter().map(lost).collect()),
                }
            }
            Change::VersionsErased { ids, .. } => {
                let mut erased = Vec::new();
                for id in ids.iter() {
                    erased.extend(self.erase_version(namespace, name, *id)?);
                }
                Ok(erased)
            }
            Change::NewestErased { id, current, .. } => {
                self.erase_newest(insert, (namespace, name), *id, *current)
            }
            Change::Amended { id, attributes, .. } => {
                self.amend(insert, (namespace, name), *id, attributes).map(|()| Vec::new())
            }
            // Of a move this is the name that it takes away.
            Change::Put { .. } | Change::Move { .. } | Change::Delete { .. } => {
                let kept_ms = match &applied.change {
                    Change::Move { file, keeps_from, .. } => keeps_from.then_some(file.created_ms),
                    Change::Delete { kept_ms, .. } => *kept_ms,
                    _ => None,
                };
                let before = self.delete(namespace, name)?;
                let (Some(before), Some(ms)) = (&before, kept_ms) else {
                    return Ok(before.iter().map(lost).collect());
                };
                self.keep(before.clone())?;
                let deletion = VersionRecord::deletion(namespace, name, applied.lsn, ms);
                self.insert_version(&deletion).map(|()| Vec::new())
            }
            Change::Namespace { .. } | Change::Extents { .. } | Change::Nothing => Ok(Vec::new()),
        }
    }

    /// Keeps what a name referred to as a version of it.
    fn keep(&mut self, file: FileRecord) -> Checked<()> {
        self.insert_version(&VersionRecord { file, is_deletion: false })
    }

    fn insert_version(&mut self, version: &VersionRecord) -> Checked<()> {
        let checksum = version_checksum(&mut self.hasher, version);
        let VersionRecord { file, is_deletion } = version;
        self.connection
            .prepare_cached(&format!(
                "INSERT INTO versions ({VERSION_COLUMNS})
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)"
            ))?
            .execute(params![
                file.namespace.as_str(),
                file.name.as_str(),
                file.id.cast_signed(),
                (!is_deletion).then_some(file.digest.0),
                file.size.cast_signed(),
                file.mime,
                file.category as u8,
                file.comment,
                file.created_ms,
                stored_attributes(&file.attributes),
                checksum.cast_signed(),
            ])?;
        self.state.versions.insert(checksum);
        Ok(())
    }

    /// Erases the newest state of a name, and makes the file `current` what it refers to.
    ///
    /// A replay may come here without what is erased: an entry whose bytes nothing refers to is removed
    /// from the log. The name then never ceased to refer to `current`.
    fn erase_newest(
        &mut self,
        insert: &mut Statement<'_>,
        (namespace, name): (&Namespace, &FileName),
        id: u64,
        current: Option<u64>,
    ) -> Checked<Vec<(Digest, u64)>> {
        let erased = match self.delete_if(namespace, name, |file| file.id == id)? {
            Some(file) => Some((file.digest, file.size)),
            None => self.erase_version(namespace, name, id)?,
        };
        if let Some(current) = current
            && let Some(version) = self.take_version(namespace, name, current)?
        {
            self.insert_file(insert, &version.file, false)?;
        }
        Ok(erased.into_iter().collect())
    }

    /// Replaces the attributes of a version, newest or earlier. Does nothing if it does not exist, since a
    /// replay may come here without it.
    fn amend(
        &mut self,
        insert: &mut Statement<'_>,
        (namespace, name): (&Namespace, &FileName),
        id: u64,
        attributes: &Attributes,
    ) -> Checked<()> {
        if let Some((mut file, first)) = self.take_if(namespace, name, |file| file.id == id)? {
            file.attributes = attributes.clone();
            return self.insert_file(insert, &file, first).map(drop);
        }
        match self.take_version(namespace, name, id)? {
            Some(mut version) => {
                version.file.attributes = attributes.clone();
                self.insert_version(&version)
            }
            None => Ok(()),
        }
    }

    /// Deletes a version and returns the bytes it referred to. Does nothing if it does not exist.
    fn erase_version(
        &mut self,
        namespace: &Namespace,
        name: &FileName,
        id: u64,
    ) -> Checked<Option<(Digest, u64)>> {
        let version = self.take_version(namespace, name, id)?;
        let version = version.filter(|version| !version.is_deletion);
        Ok(version.map(|version| (version.file.digest, version.file.size)))
    }

    /// Deletes a version and returns it; `None` if it does not exist.
    fn take_version(
        &mut self,
        namespace: &Namespace,
        name: &FileName,
        id: u64,
    ) -> Checked<Option<VersionRecord>> {
        let mut statement = self.connection.prepare_cached(&format!(
            "DELETE FROM versions WHERE namespace = ?1 AND name = ?2 AND id = ?3
             RETURNING {VERSION_COLUMNS}"
        ))?;
        let key = params![namespace.as_str(), name.as_str(), id.cast_signed()];
        let mut rows = statement.query(key)?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let (version, checksum) = read_version(&mut self.hasher, row)?;
        self.state.versions.remove(checksum);
        Ok(Some(version))
    }

    /// Inserts a name with [`INSERT_FILE`]; returns `false` if it exists.
    fn insert_file(
        &mut self,
        insert: &mut Statement<'_>,
        file: &FileRecord,
        first: bool,
    ) -> Checked<bool> {
        let checksum = file_checksum(&mut self.hasher, file, first);
        let inserted = insert.execute(params![
            file.namespace.as_str(),
            file.name.as_str(),
            file.id.cast_signed(),
            file.digest.0,
            file.size.cast_signed(),
            file.mime,
            file.category as u8,
            file.comment,
            file.created_ms,
            stored_attributes(&file.attributes),
            first,
            checksum.cast_signed(),
        ])?;
        if inserted == 1 {
            self.state.files.insert(checksum);
        }
        Ok(inserted == 1)
    }

    /// Deletes a name if what it refers to is as wanted, and returns that.
    fn delete_if(
        &mut self,
        namespace: &Namespace,
        name: &FileName,
        wanted: impl FnOnce(&FileRecord) -> bool,
    ) -> Checked<Option<FileRecord>> {
        Ok(self.take_if(namespace, name, wanted)?.map(|(file, _)| file))
    }

    /// The same, with whether the blob's place is the copy that was stored with the name.
    fn take_if(
        &mut self,
        namespace: &Namespace,
        name: &FileName,
        wanted: impl FnOnce(&FileRecord) -> bool,
    ) -> Checked<Option<(FileRecord, bool)>> {
        let found = {
            let mut statement = self.connection.prepare_cached(&format!(
                "SELECT {FILE_COLUMNS} FROM files WHERE namespace = ?1 AND name = ?2"
            ))?;
            let mut rows = statement.query(params![namespace.as_str(), name.as_str()])?;
            match rows.next()? {
                Some(row) => Some(read_file(&mut self.hasher, row)?),
                None => None,
            }
        };
        match found {
            Some((file, first, _)) if wanted(&file) => {
                Ok(self.delete(namespace, name)?.map(|file| (file, first)))
            }
            _ => Ok(None),
        }
    }

    /// Deletes a name and returns what it was. Does nothing if it does not exist.
    fn delete(&mut self, namespace: &Namespace, name: &FileName) -> Checked<Option<FileRecord>> {
        let mut statement = self.connection.prepare_cached(&format!(
            "DELETE FROM files WHERE namespace = ?1 AND name = ?2 RETURNING {FILE_COLUMNS}"
        ))?;
        let mut rows = statement.query(params![namespace.as_str(), name.as_str()])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let (file, _, checksum) = read_file(&mut self.hasher, row)?;
        self.state.files.remove(checksum);
        Ok(Some(file))
    }

    /// Records that the blob's place is another copy than the one stored with this name.
    fn not_first(&mut self, file: &FileRecord) -> Checked<()> {
        let (namespace, name) = (file.namespace.as_str(), file.name.as_str());
        let before = {
            let mut statement = self.connection.prepare_cached(&format!(
                "SELECT {FILE_COLUMNS} FROM files WHERE namespace = ?1 AND name = ?2 AND id = ?3"
            ))?;
            let mut rows = statement.query(params![namespace, name, file.id.cast_signed()])?;
            let Some(row) = rows.next()? else { return Ok(()) };
            let (_, _, checksum) = read_file(&mut self.hasher, row)?;
            checksum
        };
        let checksum = file_checksum(&mut self.hasher, file, false);
        self.connection
            .prepare_cached(
                "UPDATE files SET first = 0, checksum = ?3 WHERE namespace = ?1 AND name = ?2",
            )?
            .execute(params![namespace, name, checksum.cast_signed()])?;
        self.state.files.remove(before);
        self.state.files.insert(checksum);
        Ok(())
    }

    /// Applies a batch's effect on blobs, in the order of their table.
    fn blobs(&mut self, deltas: BTreeMap<Digest, BlobDelta<'_>>) -> Checked<()> {
        for (digest, delta) in deltas {
            if delta.stored.is_none() && delta.refs == 0 {
                continue;
            }
            // Without a copy this is reached only by a replay over entries whose bytes were erased
            // later: later entries delete the names that refer to them, which `lost_blobs` checks
            // at the end.
            let (place, size) = delta.stored.unwrap_or((BlobLocation::Erased, delta.size));
            let new = BlobRow { blob: BlobRecord { digest, size, place }, refs: delta.refs };
            // Most copies are of bytes that are new. To look for names is worth it for others only.
            if delta.stored.is_some() && self.insert_blob(&new)? {
                continue;
            }
            let Some((found, before)) = self.blob(digest)? else {
                self.insert_blob(&new)?;
                continue;
            };
            let mut row = BlobRow { refs: found.refs + delta.refs, ..found };
            // A row without names may point at bytes about to be reclaimed, and one read during a
            // replay may refer to bytes that were erased: a new copy replaces both.
            if delta.stored.is_some()
                && (found.refs == 0 || found.blob.place == BlobLocation::Erased)
            {
                row.blob.place = place;
            } else if let (Some(_), Some(file)) = (delta.stored, delta.first) {
                self.not_first(file)?;
            }
            self.update_blob(&row, before)?;
        }
        Ok(())
    }

    /// The row of a blob and its checksum.
    fn blob(&mut self, digest: Digest) -> Checked<Option<(BlobRow, u64)>> {
        let mut statement = self
            .connection
            .prepare_cached(&format!("SELECT {BLOB_COLUMNS} FROM blobs WHERE digest = ?1"))?;
        let mut rows = statement.query([digest.0])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        read_blob(&mut self.hasher, row, 0).map(Some)
    }

    /// Inserts a blob; returns `false` if it exists.
    fn insert_blob(&mut self, row: &BlobRow) -> Checked<bool> {
        let checksum = blob_checksum(&mut self.hasher, row);
        let BlobRow { blob, refs } = row;
        let inserted = self
            .connection
            .prepare_cached(
                "INSERT OR IGNORE INTO blobs (digest, size, place, refs, checksum)
                 VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![
                blob.digest.0,
                blob.size.cast_signed(),
                blob.place.to_sql(),
                refs,
                checksum.cast_signed(),
            ])?;
        if inserted == 1 {
            self.state.blobs.insert(checksum);
        }
        Ok(inserted == 1)
    }

    fn update_blob(&mut self, row: &BlobRow, before: u64) -> Checked<()> {
        let checksum = blob_checksum(&mut self.hasher, row);
        let BlobRow { blob, refs } = row;
        self.connection
            .prepare_cached(
                "UPDATE blobs SET place = ?2, refs = ?3, checksum = ?4 WHERE digest = ?1",
            )?
            .execute(params![blob.digest.0, blob.place.to_sql(), refs, checksum.cast_signed()])?;
        self.state.blobs.remove(before);
        self.state.blobs.insert(checksum);
        Ok(())
    }

    /// Applies a change of a namespace's record.
    fn namespace(
        &mut self,
        namespace: &Namespace,
        changed_ms: i64,
        attributes: Option<&Attributes>,
    ) -> Checked<()> {
        let mut created_ms = changed_ms;
        let before = {
            let mut statement = self.connection.prepare_cached(&format!(
                "DELETE FROM namespaces WHERE namespace = ?1 RETURNING {NAMESPACE_COLUMNS}"
            ))?;
            let mut rows = statement.query([namespace.as_str()])?;
            match rows.next()? {
                Some(row) => Some(read_namespace(&mut self.hasher, row)?),
                None => None,
            }
        };
        if let Some((record, checksum)) = before {
            self.state.namespaces.remove(checksum);
            created_ms = record.created_ms;
        }
        let Some(attributes) = attributes.cloned() else { return Ok(()) };
        let record = NamespaceRecord { namespace: namespace.clone(), created_ms, attributes };
        let checksum = namespace_checksum(&mut self.hasher, &record);
        self.connection
            .prepare_cached(
                "INSERT INTO namespaces (namespace, created_ms, attributes, checksum)
                 VALUES (?1, ?2, ?3, ?4)",
            )?
            .execute(params![
                namespace.as_str(),
                created_ms,
                stored_attributes(&record.attributes),
                checksum.cast_signed(),
            ])?;
        self.state.namespaces.insert(checksum);
        Ok(())
    }

    fn remember(&mut self, answered: &Answered) -> Checked<()> {
        let before = {
            let mut statement = self.connection.prepare_cached(&format!(
                "DELETE FROM requests WHERE key = ?1 RETURNING {REQUEST_COLUMNS}"
            ))?;
            let mut rows = statement.query([answered.record.key.0])?;
            match rows.next()? {
                Some(row) => Some(REQUESTS.verify(&mut self.hasher, row, 0)?),
                None => None,
            }
        };
        if let Some(before) = before {
            self.state.requests.remove(before);
        }
        let checksum = request_checksum(&mut self.hasher, answered);
        self.connection
            .prepare_cached(
                "INSERT INTO requests (key, fingerprint, status, answer, created_ms, checksum)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?
            .execute(params![
                answered.record.key.0,
                answered.record.fingerprint.0,
                answered.status,
                answered.answer,
                answered.created_ms,
                checksum.cast_signed(),
            ])?;
        self.state.requests.insert(checksum);
        Ok(())
    }
}
