//! Listings of a namespace with all that its names referred to.
//!
//! The names of two tables are walked side by side: what names refer to, and what they referred to before. A
//! name whose file was deleted is only in the second.
//!
//! Invariants: names are in the order of their bytes, the states of each the newest first; a shared prefix is
//! listed exactly once, also if pages end at it; every row that is shown, and the rows beside each range, were
//! verified.

use rusqlite::{Connection, params};

use forebay_base::rows::RowHasher;

use super::browse::Browse;
use super::list::{Page, Range, Source, Walk};
use super::query::CatalogueReader;
use super::rows::{Checked, VERSION_COLUMNS, VERSIONS, read_version};
use super::versions::versions_of;
use super::{FileFilter, FileRecord, VersionRecord};
use crate::error::{CatalogueError, CatalogueFault};
use crate::names::{FileName, Namespace, successor};

/// One state of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameState {
    /// The file or deletion.
    pub version: VersionRecord,
    /// Whether it is the newest, so that it holds now.
    pub is_latest: bool,
}

/// Where a page of states ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateMark {
    /// The name, or the shared prefix.
    pub name: String,
    /// The id of a state of the name; `None` behind all of them, and behind a prefix.
    pub id: Option<u64>,
}

/// A page of states.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BrowsedStates {
    /// The states, by name, the newest first.
    pub states: Vec<NameState>,
    /// The shared prefixes, by name.
    pub prefixes: Vec<String>,
    /// The last entry, if there are more.
    pub next: Option<StateMark>,
}

impl BrowsedStates {
    fn len(&self) -> usize {
        self.states.len() + self.prefixes.len()
    }
}

impl CatalogueReader {
    /// A page of at most `limit` states and prefixes.
    ///
    /// * `before`: of the name `browse.after`, only states with lesser ids; without it none.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said, or which row is damaged.
    pub fn browse_states(
        &self,
        browse: &Browse,
        before: Option<u64>,
        limit: usize,
    ) -> Result<BrowsedStates, CatalogueError> {
        self.ask("list versions of files", |connection| {
            let mut walk = States { connection, browse, hasher: RowHasher::default() };
            walk.page(before, limit)
        })
    }
}

struct States<'c> {
    connection: &'c Connection,
    browse: &'c Browse,
    hasher: RowHasher,
}

impl States<'_> {
    fn page(&mut self, before: Option<u64>, limit: usize) -> Checked<BrowsedStates> {
        let browse = self.browse;
        let mut page = BrowsedStates::default();
        // Where the next name is looked for.
        let mut from = browse.prefix.clone();
        let mut within = None;
        if let Some(seen) = &browse.after {
            let behind = match browse.shared(seen).filter(|shared| shared == seen) {
                Some(shared) => successor(shared),
                None if before.is_some() => {
                    within = before.map(|id| (seen.clone(), id));
                    Some(seen.clone())
                }
                // No name lies between.
                None => Some(format!("{seen}\0")),
            };
            match behind {
                Some(name) => from = from.max(name),
                None => return Ok(page),
            }
        }
        let mut last: Option<StateMark> = None;
        loop {
            let file = self.file_from(&from)?;
            let older = self.version_from(&from)?;
            let name = match (&file, older) {
                (None, None) => return Ok(page),
                (Some(file), None) => file.name.clone(),
                (None, Some(older)) => older,
                (Some(file), Some(older)) => older.min(file.name.clone()),
            };
            if page.len() == limit {
                page.next = last;
                return Ok(page);
            }
            if let Some(shared) = browse.shared(name.as_str()).map(str::to_owned) {
                page.prefixes.push(shared.clone());
                let Some(behind) = successor(&shared) else { return Ok(page) };
                last = Some(StateMark { name: shared, id: None });
                from = behind;
                continue;
            }
            let before = within.take().filter(|(of, _)| of == name.as_str()).map(|(_, id)| id);
            let file = file.filter(|file| file.name == name);
            let room = limit - page.len();
            let states = self.of_name(&name, file, before, room.saturating_add(1))?;
            let more = states.len() > room;
            page.states.extend(states.into_iter().take(room));
            let id = page.states.last().map(|state| state.version.file.id);
            last = Some(StateMark { name: name.as_str().to_owned(), id });
            if more {
                page.next = last;
                return Ok(page);
            }
            from = format!("{name}\0");
        }
    }

    /// The states of a name with ids below `before`, the newest first.
    fn of_name(
        &mut self,
        name: &FileName,
        current: Option<FileRecord>,
        before: Option<u64>,
        limit: usize,
    ) -> Checked<Vec<NameState>> {
        let namespace = &self.browse.namespace;
        let mut is_first = current.is_none() && before.is_none();
        let current = current.filter(|file| before.is_none_or(|before| file.id < before));
        let mut states: Vec<NameState> = current
            .into_iter()
            .map(|file| NameState {
                version: VersionRecord { file, is_deletion: false },
                is_latest: true,
            })
            .collect();
        let (connection, hasher) = (self.connection, &mut self.hasher);
        let older = versions_of(connection, hasher, namespace, name, before, limit - states.len())?;
        for version in older {
            // A name can have been deleted without a trace: then none of its states holds.
            let is_latest = is_first && version.is_deletion;
            is_first = false;
            states.push(NameState { version, is_latest });
        }
        Ok(states)
    }

    /// The file with the least name from `from` on that has the prefix.
    fn file_from(&self, from: &str) -> Checked<Option<FileRecord>> {
        let namespace = self.browse.namespace.as_str();
        let filter =
            FileFilter { namespace: Some(self.browse.namespace.clone()), ..FileFilter::default() };
        let start = (namespace, from);
        let prefix = &self.browse.prefix;
        let range = Range { start, after: None, namespace: Some(namespace), prefix };
        let page = Page { limit: 1, files: Vec::new() };
        let walk = Walk::new(self.connection, Source::FILES, &filter, &range, page);
        Ok(walk.run()?.files.pop())
    }

    /// The least name from `from` on that has the prefix and versions.
    fn version_from(&mut self, from: &str) -> Checked<Option<FileName>> {
        let namespace = self.browse.namespace.as_str();
        // A row whose name was altered to a lesser one is before the place where it is looked for.
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT {VERSION_COLUMNS} FROM versions WHERE (namespace, name) < (?1, ?2)
             ORDER BY namespace DESC, name DESC, id DESC LIMIT 1"
        ))?;
        let mut rows = statement.query(params![namespace, from])?;
        if let Some(row) = rows.next()? {
            VERSIONS.verify(&mut self.hasher, row, 0)?;
        }
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT {VERSION_COLUMNS} FROM versions WHERE (namespace, name) >= (?1, ?2)
             ORDER BY namespace, name, id LIMIT 1"
        ))?;
        let mut rows = statement.query(params![namespace, from])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let (version, _) = read_version(&mut self.hasher, row)?;
        let VersionRecord { file, .. } = version;
        // A row that was altered in its namespace only looks as if it were another's.
        if !is_ordered(&self.browse.namespace, &file, from) {
            let found = format!("versions of the namespace {namespace} are out of order");
            return Err(CatalogueFault::Damaged { found });
        }
        let is_ours = file.namespace == self.browse.namespace
            && file.name.as_str().starts_with(&self.browse.prefix);
        Ok(is_ours.then_some(file.name))
    }
}

fn is_ordered(namespace: &Namespace, file: &FileRecord, from: &str) -> bool {
    (file.namespace.as_str(), file.name.as_str()) >= (namespace.as_str(), from)
}
