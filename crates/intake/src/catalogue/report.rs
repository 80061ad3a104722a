//! Reports over everything: what a namespace holds for its quota, and which contents have the most names.
//!
//! Both read and verify every row that they count, so an altered row is an error and not another sum.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use foldhash::HashMap;
use forebay_base::rows::RowHasher;
use forebay_base::waiting::Gone;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};

use super::contents::Contents;
use super::list::{Range, Source, Take, Walk};
use super::query::CatalogueReader;
use super::rows::{BLOB_COLUMNS, Checked, read_blob};
use super::state::{State, StoredState};
use super::statistics::CONTENTS_MAX;
use super::{FileFilter, Usage};
use crate::digest::Digest;
use crate::error::CatalogueError;
use crate::names::Namespace;

/// A content with several names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedContent {
    /// Its SHA-256.
    pub digest: Digest,
    /// Its size in bytes.
    pub size: u64,
    /// Number of names and versions that refer to it.
    pub names: u64,
}

impl SharedContent {
    /// Bytes that further copies would take.
    #[must_use]
    pub fn saved_bytes(&self) -> u64 {
        self.size.saturating_mul(self.names.saturating_sub(1))
    }
}

/// Adds up what a namespace holds.
#[derive(Default)]
struct Held(Usage);

impl Take for Held {
    fn is_full(&self) -> bool {
        false
    }

    fn take(&mut self, _: &mut RowHasher, row: &Row<'_>) -> Checked<()> {
        // A version that is a deletion has no bytes.
        if row.get_ref(3)? != ValueRef::Null {
            self.0.files += 1;
            let size = row.get::<_, i64>(4)?.cast_unsigned();
            self.0.bytes = self.0.bytes.saturating_add(size);
        }
        Ok(())
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
            let filter = within(namespace);
            let range = Range::of(&filter, None);
            let held = |source, held| Walk::new(connection, source, &filter, &range, held).run();
            let Held(mut usage) = held(Source::FILES, Held::default())?;
            let Held(versions) = held(Source::VERSIONS, Held::default())?;
            usage.bytes = usage.bytes.saturating_add(versions.bytes);
            Ok((usage, position))
        })
    }

    /// The `limit` contents whose further copies would take the most space, the largest first.
    ///
    /// * `namespace`: counts its names and versions alone; `None`: all.
    /// * `after`: bytes saved and digest of the content that precedes them; `None`: the first ones.
    /// * `gone`: makes it return `None` soon.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said, or which row is damaged.
    pub fn most_shared(
        &self,
        namespace: Option<&Namespace>,
        limit: usize,
        after: Option<(u64, Digest)>,
        gone: &Gone,
    ) -> Result<Option<Vec<SharedContent>>, CatalogueError> {
        self.ask("look for duplicates", |connection| {
            let mut top = Top::new(limit, after);
            match namespace {
                Some(namespace) => {
                    shared_within(connection, namespace, CONTENTS_MAX, gone, &mut top)?;
                }
                None => {
                    // A condition in SQL would pass over a row whose count was altered.
                    let mut statement =
                        connection.prepare(&format!("SELECT {BLOB_COLUMNS} FROM blobs"))?;
                    let (mut rows, mut hasher) = (statement.query([])?, RowHasher::default());
                    while let Some(row) = rows.next()?
                        && !gone.is_gone()
                    {
                        let (row, _) = read_blob(&mut hasher, row, 0)?;
                        let names = row.refs.cast_unsigned();
                        top.add(SharedContent {
                            digest: row.blob.digest,
                            size: row.blob.size,
                            names,
                        });
                    }
                }
            }
            Ok(Some(top.sorted()).filter(|_| !gone.is_gone()))
        })
    }
}

/// The contents whose further copies would take the most space, of those that were added.
pub(super) struct Top {
    limit: usize,
    after: Option<(u64, Digest)>,
    /// The least of those found so far is on top.
    found: BinaryHeap<Reverse<(u64, Digest)>>,
    contents: HashMap<Digest, SharedContent>,
}

impl Top {
    pub(super) fn new(limit: usize, after: Option<(u64, Digest)>) -> Self {
        Self { limit, after, found: BinaryHeap::new(), contents: HashMap::default() }
    }

    fn add(&mut self, content: SharedContent) {
        let place = (content.saved_bytes(), content.digest);
        let has_no_copies = content.names < 2 || content.size == 0;
        if has_no_copies || self.after.is_some_and(|after| place >= after) {
            return;
        }
        self.found.push(Reverse(place));
        self.contents.insert(content.digest, content);
        if self.found.len() > self.limit
            && let Some(Reverse((_, least))) = self.found.pop()
        {
            self.contents.remove(&least);
        }
    }

    pub(super) fn sorted(mut self) -> Vec<SharedContent> {
        let sorted = self.found.into_sorted_vec();
        sorted
            .into_iter()
            .filter_map(|Reverse((_, digest))| self.contents.remove(&digest))
            .collect()
    }
}

/// Adds the contents of a namespace with the number of its names and versions that have them.
///
/// * `contents_max`: how many are counted at once.
pub(super) fn shared_within(
    connection: &Connection,
    namespace: &Namespace,
    contents_max: usize,
    gone: &Gone,
    top: &mut Top,
) -> Checked<()> {
    let filter = within(namespace);
    let range = Range::of(&filter, None);
    let mut next = Some(Contents::first(contents_max, gone));
    while let Some(mut part) = next {
        for source in [Source::FILES, Source::VERSIONS] {
            part = Walk::new(connection, source, &filter, &range, part).run()?;
        }
        for (digest, counted) in part.counted() {
            top.add(SharedContent { digest, size: counted.size, names: counted.names });
        }
        next = part.next();
    }
    Ok(())
}

/// Selects everything in a namespace.
fn within(namespace: &Namespace) -> FileFilter {
    FileFilter { namespace: Some(namespace.clone()), ..FileFilter::default() }
}
