//! Listings as directories show them: files of a namespace, and the prefixes that further ones share.
//!
//! ```text
//! names            a/b   a/c/d   a/c/e   f       prefix "", delimiter "/"
//! listing          a/    f                       prefix "a/": a/b   a/c/
//! ```
//!
//! A listing is read in runs of names. Where a run meets a shared prefix it ends, and the next one begins
//! behind all names with that prefix, so that a prefix costs one look-up whatever the number of its names.
//!
//! Invariants: entries are in the order of their bytes, each greater than the one before; a prefix is listed
//! exactly once, also if pages end at it; rows are verified as in [`list`](super::list).

use std::ops::ControlFlow;

use rusqlite::{Connection, params};

use forebay_base::rows::RowHasher;

use super::list::{Page, Range, Source, Walk};
use super::query::CatalogueReader;
use super::rows::{Checked, FILE_COLUMNS, NAMESPACE_COLUMNS, read_file, read_namespace};
use super::{FileFilter, FileRecord};
use crate::catalogue::NamespaceRecord;
use crate::error::CatalogueError;
use crate::names::{Namespace, successor};

/// Names read at once: few where prefixes follow each other, many where files do.
const RUN_MIN: usize = 2;
const RUN_MAX: usize = 512;

/// Which part of a namespace is listed.
#[derive(Debug, Clone)]
pub struct Browse {
    /// The namespace.
    pub namespace: Namespace,
    /// Only names that begin with this.
    pub prefix: String,
    /// Names that have this text after the prefix are listed as one: up to and with it. Empty: no names
    /// are.
    pub delimiter: String,
    /// Only what comes after this name or shared prefix, from the page before.
    pub after: Option<String>,
}

/// A page of a listing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Browsed {
    /// The files, by name.
    pub files: Vec<FileRecord>,
    /// The shared prefixes, by name.
    pub prefixes: Vec<String>,
    /// The last entry, if there are more: the `after` of the next page.
    pub next: Option<String>,
}

impl Browse {
    /// The prefix that a name is listed under; `None` if it is listed itself.
    pub(super) fn shared<'n>(&self, name: &'n str) -> Option<&'n str> {
        if self.delimiter.is_empty() {
            return None;
        }
        let at = name.get(self.prefix.len()..)?.find(&self.delimiter)?;
        name.get(..self.prefix.len() + at + self.delimiter.len())
    }
}

/// What a listing shows.
pub(super) enum Entry {
    File(FileRecord),
    Prefix(String),
}

/// Calls `each` with every entry after `browse.after`, by name, until it says that this is enough.
pub(super) fn each_entry(
    connection: &Connection,
    browse: &Browse,
    mut each: impl FnMut(Entry) -> ControlFlow<()>,
) -> Checked<()> {
    let namespace = browse.namespace.as_str();
    let filter = FileFilter { namespace: Some(browse.namespace.clone()), ..FileFilter::default() };
    // Where the next run begins: at a name, or after one.
    let (mut from, mut after) = (browse.prefix.clone(), None);
    if let Some(seen) = &browse.after {
        match browse.shared(seen).filter(|shared| shared == seen) {
            Some(shared) => match successor(shared) {
                Some(name) => from = from.max(name),
                None => return Ok(()),
            },
            None => after = Some(seen.clone()),
        }
    }
    let mut size = RUN_MIN;
    loop {
        let run = {
            let after = after.as_deref().map(|name| (namespace, name));
            let first = (namespace, from.as_str());
            let start = after.map_or(first, |after| after.max(first));
            let range = Range { start, after, namespace: Some(namespace), prefix: &browse.prefix };
            let page = Page { limit: size, files: Vec::new() };
            Walk::new(connection, Source::FILES, &filter, &range, page).run()?.files
        };
        let is_last = run.len() < size;
        let (mut skipped, mut last) = (None, None);
        for file in run {
            let entry = match browse.shared(file.name.as_str()).map(str::to_owned) {
                Some(shared) => {
                    skipped = Some(shared.clone());
                    Entry::Prefix(shared)
                }
                None => {
                    last = Some(file.name.as_str().to_owned());
                    Entry::File(file)
                }
            };
            if each(entry).is_break() {
                return Ok(());
            }
            if skipped.is_some() {
                break;
            }
        }
        match skipped {
            Some(shared) => {
                let Some(name) = successor(&shared) else { return Ok(()) };
                (from, after, size) = (name, None, RUN_MIN);
            }
            None if is_last => return Ok(()),
            None => {
                after = last;
                size = (size * 4).min(RUN_MAX);
            }
        }
    }
}

impl CatalogueReader {
    /// A page of at most `limit` files and prefixes.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said, or which row is damaged.
    pub fn browse(&self, browse: &Browse, limit: usize) -> Result<Browsed, CatalogueError> {
        self.ask("list files", |connection| {
            let mut page = Browsed::default();
            let mut last: Option<String> = None;
            each_entry(connection, browse, |entry| {
                if page.files.len() + page.prefixes.len() == limit {
                    page.next = last.take();
                    return ControlFlow::Break(());
                }
                match entry {
                    Entry::File(file) => {
                        last = Some(file.name.as_str().to_owned());
                        page.files.push(file);
                    }
                    Entry::Prefix(shared) => {
                        last = Some(shared.clone());
                        page.prefixes.push(shared);
                    }
                }
                ControlFlow::Continue(())
            })?;
            Ok(page)
        })
    }

    /// Up to `limit` namespaces that have files, by name, after `after`.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said, or which row is damaged.
    pub fn namespaces_with_files(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Namespace>, CatalogueError> {
        self.ask("list namespaces", |connection| {
            let mut statement = connection.prepare_cached(&format!(
                "SELECT {FILE_COLUMNS} FROM files WHERE namespace > ?1
                 ORDER BY namespace, name LIMIT 1"
            ))?;
            let (mut hasher, mut found) = (RowHasher::default(), Vec::new());
            let mut after = after.unwrap_or("").to_owned();
            while found.len() < limit {
                let mut rows = statement.query(params![after])?;
                let Some(row) = rows.next()? else { break };
                let (file, ..) = read_file(&mut hasher, row)?;
                file.namespace.as_str().clone_into(&mut after);
                found.push(file.namespace);
            }
            Ok(found)
        })
    }

    /// All records of namespaces, by name.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said, or which row is damaged.
    pub fn namespace_records(&self) -> Result<Vec<NamespaceRecord>, CatalogueError> {
        self.ask("read the records of namespaces", |connection| {
            let sql = format!("SELECT {NAMESPACE_COLUMNS} FROM namespaces ORDER BY namespace");
            let mut statement = connection.prepare_cached(&sql)?;
            let mut rows = statement.query([])?;
            let (mut hasher, mut records): (_, Vec<NamespaceRecord>) =
                (RowHasher::default(), Vec::new());
            while let Some(row) = rows.next()? {
                records.push(read_namespace(&mut hasher, row)?.0);
            }
            Checked::Ok(records)
        })
    }
}
