//! Reports over everything: what a namespace holds for its quota, and which contents have the most names.
//!
//! Both read and verify every row that they count, so an altered row is an error and not another sum.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use forebay_base::rows::RowHasher;
use rusqlite::Connection;

use super::list::{Page, Range, Source, Walk};
use super::query::CatalogueReader;
use super::rows::{BLOB_COLUMNS, Checked, VERSION_COLUMNS, read_blob, read_version};
use super::state::{State, StoredState};
use super::{BlobRecord, FileFilter, FileRecord, Usage};
use crate::digest::Digest;
use crate::error::CatalogueError;
use crate::names::Namespace;

/// Names read at a time.
const STEP: usize = 4_096;

/// A content with several names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedContent {
    /// The content.
    pub blob: BlobRecord,
    /// Number of names and versions that refer to it.
    pub names: u64,
}

impl SharedContent {
    /// Bytes that further copies would take.
    #[must_use]
    pub fn saved_bytes(&self) -> u64 {
        self.blob.size.saturating_mul(self.names.saturating_sub(1))
    }
}

/// Calls `each` with every file of a namespace.
fn each_file(
    connection: &Connection,
    namespace: &Namespace,
    mut each: impl FnMut(&FileRecord),
) -> Checked<()> {
    let filter = FileFilter { namespace: Some(namespace.clone()), ..FileFilter::default() };
    let mut last = String::new();
    loop {
        let name = namespace.as_str();
        let after = (!last.is_empty()).then_some((name, last.as_str()));
        let start = after.unwrap_or((name, ""));
        let range = Range { start, after, namespace: Some(name), prefix: "" };
        let page = Page { limit: STEP, files: Vec::new() };
        let files = Walk::new(connection, Source::FILES, &filter, &range, page).run()?.files;
        files.iter().for_each(&mut each);
        match files.last() {
            Some(file) if files.len() == STEP => file.name.as_str().clone_into(&mut last),
            _ => return Ok(()),
        }
    }
}

impl CatalogueReader {
    /// What a namespace holds as quotas count it, and the position of the log as of which it is that.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said, or which row is damaged.
    pub fn usage(&self, namespace: &Namespace) -> Result<(Usage, u64), CatalogueError> {
        self.ask("count what a namespace holds", |connection| {
            let position = match State::load(connection)? {
                StoredState::State(state) => state.position,
                StoredState::Nothing | StoredState::Other { .. } => 0,
            };
            let mut usage = Usage::default();
            each_file(connection, namespace, |file| {
                usage.files += 1;
                usage.bytes = usage.bytes.saturating_add(file.size);
            })?;
            let mut statement = connection.prepare_cached(&format!(
                "SELECT {VERSION_COLUMNS} FROM versions WHERE namespace = ?1"
            ))?;
            let (mut rows, mut hasher) =
                (statement.query([namespace.as_str()])?, RowHasher::default());
            while let Some(row) = rows.next()? {
                let (version, _) = read_version(&mut hasher, row)?;
                if !version.is_deletion {
                    usage.bytes = usage.bytes.saturating_add(version.file.size);
                }
            }
            Ok((usage, position))
        })
    }

    /// The `limit` contents whose further copies would take the most space, the largest first.
    ///
    /// * `after`: bytes saved and digest of the content that precedes them; `None`: the first ones.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said, or which row is damaged.
    pub fn most_shared(
        &self,
        limit: usize,
        after: Option<(u64, Digest)>,
    ) -> Result<Vec<SharedContent>, CatalogueError> {
        self.ask("look for duplicates", |connection| {
            // A condition in SQL would pass over a row whose count was altered.
            let mut statement = connection.prepare(&format!("SELECT {BLOB_COLUMNS} FROM blobs"))?;
            let (mut rows, mut hasher) = (statement.query([])?, RowHasher::default());
            // The least of those found so far is on top.
            let mut found: BinaryHeap<Reverse<(u64, Digest)>> = BinaryHeap::new();
            let mut contents = foldhash::HashMap::default();
            while let Some(row) = rows.next()? {
                let (row, _) = read_blob(&mut hasher, row, 0)?;
                let content = SharedContent { blob: row.blob, names: row.refs.cast_unsigned() };
                if content.names < 2 || content.blob.size == 0 {
                    continue;
                }
                let digest = content.blob.digest;
                let place = (content.saved_bytes(), digest);
                if after.is_some_and(|after| place >= after) {
                    continue;
                }
                found.push(Reverse(place));
                contents.insert(digest, content);
                if found.len() > limit
                    && let Some(Reverse((_, least))) = found.pop()
                {
                    contents.remove(&least);
                }
            }
            let sorted = found.into_sorted_vec();
            let contents =
                sorted.into_iter().filter_map(|Reverse((_, digest))| contents.remove(&digest));
            Ok(contents.collect())
        })
    }
}
