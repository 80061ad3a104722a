//! Versions: what names referred to before, in namespaces that keep it.
//!
//! Invariants: a version is verified wherever it is read, and so are the rows beside a range; the bytes of a
//! version are referred to, so they are not removed.

use rusqlite::{Connection, params};

use forebay_base::rows::RowHasher;

use super::query::CatalogueReader;
use super::rows::{Checked, VERSION_COLUMNS, VERSIONS, read_version};
use super::{BlobRecord, VersionRecord};
use crate::digest::Digest;
use crate::error::{CatalogueError, CatalogueFault};
use crate::names::{FileName, Namespace};

impl CatalogueReader {
    /// Up to `limit` versions of a name with ids below `before`, the newest first.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said, or which row is damaged.
    pub fn versions(
        &self,
        namespace: &Namespace,
        name: &FileName,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<VersionRecord>, CatalogueError> {
        self.ask("read versions of a file", |connection| {
            versions_of(connection, &mut RowHasher::default(), namespace, name, before, limit)
        })
    }

    /// The version of a name with this id, and the blob it refers to; no blob if it is a deletion.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said, or which row is damaged.
    pub fn version(
        &self,
        namespace: &Namespace,
        name: &FileName,
        id: u64,
    ) -> Result<Option<(VersionRecord, Option<BlobRecord>)>, CatalogueError> {
        let found = self.versions(namespace, name, Some(id.saturating_add(1)), 1)?.pop();
        let Some(version) = found.filter(|version| version.file.id == id) else { return Ok(None) };
        if version.is_deletion {
            return Ok(Some((version, None)));
        }
        let digest = version.file.digest;
        let blob = self.blob(digest)?.ok_or_else(|| {
            let found = format!("the blob {digest} has versions and no row");
            CatalogueError::new("read a version of a file", CatalogueFault::Damaged { found })
        })?;
        Ok(Some((version, Some(blob))))
    }

    /// Whether names of this namespace have versions.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said, or which row is damaged.
    pub fn has_versions(&self, namespace: &Namespace) -> Result<bool, CatalogueError> {
        self.ask("look for versions", |connection| {
            let mut statement = connection.prepare_cached(&format!(
                "SELECT {VERSION_COLUMNS} FROM versions WHERE namespace >= ?1
                 ORDER BY namespace, name, id LIMIT 1"
            ))?;
            let mut rows = statement.query([namespace.as_str()])?;
            let Some(row) = rows.next()? else { return Ok(false) };
            let (version, _) = read_version(&mut RowHasher::default(), row)?;
            Ok(version.file.namespace == *namespace)
        })
    }

    /// Calls `each` with the digest of every version.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said.
    pub fn for_each_version(&self, mut each: impl FnMut(Digest)) -> Result<(), CatalogueError> {
        self.ask("read the versions", |connection| {
            let sql = "SELECT digest FROM versions WHERE digest IS NOT NULL";
            let mut statement = connection.prepare(sql)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                each(Digest(row.get(0)?));
            }
            Ok(())
        })
    }
}

/// Up to `limit` versions of a name with ids below `before`, the newest first.
pub(super) fn versions_of(
    connection: &Connection,
    hasher: &mut RowHasher,
    namespace: &Namespace,
    name: &FileName,
    before: Option<u64>,
    limit: usize,
) -> Checked<Vec<VersionRecord>> {
    let before = before.map_or(i64::MAX, u64::cast_signed);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    // A row whose name was altered is beside the range.
    for (than, order) in [("<", "DESC"), (">", "ASC")] {
        let mut statement = connection.prepare_cached(&format!(
            "SELECT {VERSION_COLUMNS} FROM versions WHERE (namespace, name) {than} (?1, ?2)
             ORDER BY namespace {order}, name {order} LIMIT 1"
        ))?;
        let mut rows = statement.query(params![namespace.as_str(), name.as_str()])?;
        if let Some(row) = rows.next()? {
            VERSIONS.verify(hasher, row, 0)?;
        }
    }
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {VERSION_COLUMNS} FROM versions
         WHERE namespace = ?1 AND name = ?2 AND id < ?3 ORDER BY id DESC LIMIT ?4"
    ))?;
    let values = params![namespace.as_str(), name.as_str(), before, limit];
    let (mut rows, mut versions) = (statement.query(values)?, Vec::new());
    while let Some(row) = rows.next()? {
        versions.push(read_version(hasher, row)?.0);
    }
    Ok(versions)
}
