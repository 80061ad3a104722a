//! Listings of files: which ones a filter selects, and that none is left out because it was altered.
//!
//! A condition of SQL passes over a row that was altered in the column it looks at. So SQL only finds
//! where a listing begins: every row from there on is read in the order of the table, verified, and
//! compared with the filter here. The rows on both sides of the range are verified as well, since a
//! row whose name was altered stays where it was. A listing by digest reads all names of the blob in
//! an index; they are compared with their number in the blob's row, and each name that is shown with
//! the row that it refers to.
//!
//! SQLite compares a row with a condition on a single column only to find the first and the last one;
//! a condition on a pair of columns is looked at again for each row. Therefore the statements that walk
//! have none of those.
//!
//! Invariants: every row between the beginning and the end of a page was verified, and its name follows
//! the one before; a row that is altered in any column is an error, never a shorter listing. Rows that
//! are missing altogether are found by [`CatalogueReader::verify`].

use rusqlite::types::ValueRef;
use rusqlite::{Connection, Params, Row};

use forebay_base::rows::RowHasher;

use super::query::CatalogueReader;
use super::rows::{
    BLOB_COLUMNS, Checked, FILE_COLUMNS, FILES, Table, VERSION_COLUMNS, VERSIONS, read_blob,
    read_file,
};
use super::sorted::{First, Sorted};
use super::{BlobRecord, FileFilter, FileRecord};
use crate::digest::Digest;
use crate::error::{CatalogueError, CatalogueFault};
use crate::names::{FileName, Namespace};

/// Names by digest, from the index: those whose own entry does not hold the bytes.
pub(super) const NAMES_BY_DIGEST: &str =
    "SELECT namespace, name FROM files INDEXED BY files_by_digest
     WHERE first = 0 AND digest = ?1 ORDER BY namespace, name";

impl CatalogueReader {
    /// Up to `limit` files that pass `filter`, by namespace and name, after `after`.
    ///
    /// Reads and verifies every row of the namespace, and of the names with the prefix, up to the
    /// last one that is returned.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said, or which row is damaged.
    pub fn list(
        &self,
        filter: &FileFilter,
        after: Option<(&str, &str)>,
        limit: usize,
    ) -> Result<Vec<FileRecord>, CatalogueError> {
        self.ask("list files", |connection| {
            let range = Range::of(filter, after);
            let page = Page { limit, files: Vec::new() };
            Ok(Walk::new(connection, Source::FILES, filter, &range, page).run()?.files)
        })
    }

    /// Like [`CatalogueReader::list_sorted`] for the names of one blob, by index: no other name is read.
    ///
    /// * `holder`: the name given by the log entry that holds the bytes, if there is one
    ///   ([`BlobLocation::Entry`](super::BlobLocation::Entry)). Whether it still refers to them is
    ///   looked up.
    /// * Returns `None` if the blob is not, or no longer, as `blob` says.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said, or what is damaged.
    pub fn list_by_digest(
        &self,
        filter: &FileFilter,
        blob: &BlobRecord,
        holder: Option<&(Namespace, FileName)>,
        sorted: &Sorted<'_>,
        limit: usize,
    ) -> Result<Option<Vec<FileRecord>>, CatalogueError> {
        self.ask("list files by digest", |connection| {
            let mut names = Names::new(connection, blob.digest);
            let Some(refs) = names.refs(blob)? else { return Ok(None) };
            let held = names.held(holder)?;
            let (range, mut first) = (Range::of(filter, None), First::new(sorted, limit));
            let indexed = names.list(filter, &range, &mut first)?;
            let count = indexed + u64::from(held.is_some()) + names.versions()?;
            if count != refs {
                let digest = blob.digest;
                let found = format!("the blob {digest} has {refs} names, and {count} were found");
                return Err(damaged(found));
            }
            if let Some(file) = held
                && range.holds(file.namespace.as_str().as_bytes(), file.name.as_str().as_bytes())
                    == Position::Inside
                && filter.passes(&file)
            {
                first.offer(file);
            }
            Ok(Some(first.into_files()))
        })
    }
}

/// A table with names, whose first ten columns are those of [`FILE_COLUMNS`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Source {
    table: Table,
    columns: &'static str,
    /// Names have several rows, by id.
    has_ids: bool,
}

impl Source {
    /// The names.
    pub(super) const FILES: Self = Self { table: FILES, columns: FILE_COLUMNS, has_ids: false };
    /// Their versions.
    pub(super) const VERSIONS: Self =
        Self { table: VERSIONS, columns: VERSION_COLUMNS, has_ids: true };

    /// Selects rows in order, or in the reverse of it.
    fn select(self, condition: &str, descending: bool) -> String {
        let Self { table, columns, has_ids } = self;
        let order = if descending { " DESC" } else { "" };
        let id = if has_ids { format!(", id{order}") } else { String::new() };
        let name = table.name;
        format!(
            "SELECT {columns} FROM {name} {condition} ORDER BY namespace{order}, name{order}{id}"
        )
    }
}

/// What takes the rows of a walk that pass its filter.
pub(super) trait Take {
    /// Whether it takes no more: then the walk ends.
    fn is_full(&self) -> bool;

    /// Takes a row, which was verified.
    fn take(&mut self, hasher: &mut RowHasher, row: &Row<'_>) -> Checked<()>;
}

/// The first files in the order of names.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) limit: usize,
    pub(super) files: Vec<FileRecord>,
}

impl Take for Page {
    fn is_full(&self) -> bool {
        self.files.len() >= self.limit
    }

    fn take(&mut self, hasher: &mut RowHasher, row: &Row<'_>) -> Checked<()> {
        self.files.push(read_file(hasher, row)?.0);
        Ok(())
    }
}

/// A walk through the table, in the order of names.
pub(super) struct Walk<'c, T> {
    connection: &'c Connection,
    source: Source,
    filter: &'c FileFilter,
    range: &'c Range<'c>,
    taken: T,
    hasher: RowHasher,
    order: Order,
}

impl<'c, T: Take> Walk<'c, T> {
    pub(super) fn new(
        connection: &'c Connection,
        source: Source,
        filter: &'c FileFilter,
        range: &'c Range<'c>,
        taken: T,
    ) -> Self {
        let (hasher, order) = (RowHasher::default(), Order::default());
        Self { connection, source, filter, range, taken, hasher, order }
    }

    /// Walks through the range, and returns what took its rows.
    pub(super) fn run(mut self) -> Checked<T> {
        match self.range.start {
            ("", "") => self.all()?,
            start => self.from(start)?,
        }
        Ok(self.taken)
    }

    /// Walks from the first row of the table.
    fn all(&mut self) -> Checked<()> {
        self.rows(&self.source.select("", false), []).map(drop)
    }

    /// Walks from a name, which need not exist.
    fn from(&mut self, (namespace, name): (&str, &str)) -> Checked<()> {
        let source = self.source;
        // A row whose name was altered to a lesser one is before the place where it is looked for.
        let before = source.select("WHERE (namespace, name) < (?1, ?2)", true);
        self.beside(&format!("{before} LIMIT 1"), [namespace, name])?;
        let within = source.select("WHERE namespace = ?1 AND name >= ?2", false);
        if self.rows(&within, [namespace, name])? {
            return Ok(());
        }
        // It ended at a row of another namespace, or at one that was altered to look like that.
        let than = if self.order.name.is_empty() { ">=" } else { ">" };
        let after = source.select(&format!("WHERE (namespace, name) {than} (?1, ?2)"), false);
        let last = match self.order.name.as_slice() {
            [] => name.to_owned(),
            last => String::from_utf8_lossy(last).into_owned(),
        };
        let next = self.beside(&format!("{after} LIMIT 1"), [namespace, &last])?;
        if next.as_ref().is_some_and(|(of, _)| *of == *namespace.as_bytes()) {
            return Err(damaged(format!("names of the namespace {namespace} are out of order")));
        }
        if self.range.namespace.is_some() {
            return Ok(());
        }
        let others = source.select("WHERE namespace > ?1", false);
        if self.beside(&format!("{others} LIMIT 1"), [namespace])? != next {
            return Err(damaged(format!("names after the namespace {namespace} are out of order")));
        }
        self.rows(&others, [namespace]).map(drop)
    }

    /// Verifies one row beside the range, and returns its name.
    fn beside(&mut self, sql: &str, values: impl Params) -> Checked<Option<(Vec<u8>, Vec<u8>)>> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query(values)?;
        let Some(row) = rows.next()? else { return Ok(None) };
        self.source.table.verify(&mut self.hasher, row, 0)?;
        Ok(Some((text(row, 0)?.to_vec(), text(row, 1)?.to_vec())))
    }

    /// Takes what passes the filter; returns `true` if no more is taken or the range has ended.
    fn rows(&mut self, sql: &str, values: impl Params) -> Checked<bool> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query(values)?;
        while !self.taken.is_full() {
            let Some(row) = rows.next()? else { return Ok(false) };
            self.source.table.verify(&mut self.hasher, row, 0)?;
            let (namespace, name) = (text(row, 0)?, text(row, 1)?);
            let id = if self.source.has_ids { row.get::<_, i64>(2)?.cast_unsigned() } else { 0 };
            self.order.follow(namespace, name, id)?;
            match self.range.holds(namespace, name) {
                Position::Inside if self.filter.selects(row)? => {
                    self.taken.take(&mut self.hasher, row)?;
                }
                Position::Before | Position::Inside => {}
                Position::Beyond => return Ok(true),
            }
        }
        Ok(true)
    }
}

/// The names of one blob, in one state of the catalogue.
struct Names<'c> {
    connection: &'c Connection,
    digest: Digest,
    hasher: RowHasher,
}

impl<'c> Names<'c> {
    fn new(connection: &'c Connection, digest: Digest) -> Self {
        Self { connection, digest, hasher: RowHasher::default() }
    }

    /// Number of the blob's names, by its own row; `None` if that differs from `blob`.
    fn refs(&mut self, blob: &BlobRecord) -> Checked<Option<u64>> {
        let mut statement = self
            .connection
            .prepare_cached(&format!("SELECT {BLOB_COLUMNS} FROM blobs WHERE digest = ?1"))?;
        let mut rows = statement.query([self.digest.0])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let (found, _) = read_blob(&mut self.hasher, row, 0)?;
        Ok((found.blob == *blob).then(|| found.refs.cast_unsigned()))
    }

    /// The file whose entry holds the bytes, if its name still refers to them.
    fn held(&mut self, holder: Option<&(Namespace, FileName)>) -> Checked<Option<FileRecord>> {
        let Some((namespace, name)) = holder else { return Ok(None) };
        let found = self.file(namespace.as_str().as_bytes(), name.as_str().as_bytes())?;
        Ok(found.and_then(|(file, first)| (first && file.digest == self.digest).then_some(file)))
    }

    /// Number of versions that refer to the blob.
    fn versions(&mut self) -> Checked<u64> {
        let sql = "SELECT count(*) FROM versions WHERE digest = ?1";
        let mut statement = self.connection.prepare_cached(sql)?;
        let count: i64 = statement.query_row([self.digest.0], |row| row.get(0))?;
        Ok(count.cast_unsigned())
    }

    /// Offers the names of the index that are in the range; returns the number of all that it has.
    fn list(
        &mut self,
        filter: &FileFilter,
        range: &Range<'_>,
        first: &mut First<'_>,
    ) -> Checked<u64> {
        let connection = self.connection;
        let mut statement = connection.prepare_cached(NAMES_BY_DIGEST)?;
        let mut rows = statement.query([self.digest.0])?;
        let (mut order, mut count) = (Order::default(), 0);
        while let Some(row) = rows.next()? {
            count += 1;
            let (namespace, name) = (text(row, 0)?, text(row, 1)?);
            order.follow(namespace, name, 0)?;
            if first.may_want(namespace, name) && range.holds(namespace, name) == Position::Inside {
                let file = self.named(namespace, name)?;
                if filter.passes(&file) {
                    first.offer(file);
                }
            }
        }
        Ok(count)
    }

    /// The file that an entry of the index refers to.
    fn named(&mut self, namespace: &[u8], name: &[u8]) -> Checked<FileRecord> {
        match self.file(namespace, name)? {
            Some((file, false)) if file.digest == self.digest => Ok(file),
            _ => {
                let name = String::from_utf8_lossy(name);
                Err(damaged(format!("the index files_by_digest has another row for {name:?}")))
            }
        }
    }

    fn file(&mut self, namespace: &[u8], name: &[u8]) -> Checked<Option<(FileRecord, bool)>> {
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT {FILE_COLUMNS} FROM files WHERE namespace = ?1 AND name = ?2"
        ))?;
        let as_text = |bytes| rusqlite::types::ToSqlOutput::Borrowed(ValueRef::Text(bytes));
        let mut rows = statement.query([as_text(namespace), as_text(name)])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let (file, first, _) = read_file(&mut self.hasher, row)?;
        Ok(Some((file, first)))
    }
}

/// Where a name is in relation to a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    /// Before it, or not selected by it.
    Before,
    Inside,
    /// After all of it.
    Beyond,
}

/// The names that a listing has to look at.
pub(super) struct Range<'f> {
    /// The first name; the last one of the previous page is not part of the range.
    pub(super) start: (&'f str, &'f str),
    pub(super) after: Option<(&'f str, &'f str)>,
    pub(super) namespace: Option<&'f str>,
    pub(super) prefix: &'f str,
}

impl<'f> Range<'f> {
    pub(super) fn of(filter: &'f FileFilter, after: Option<(&'f str, &'f str)>) -> Self {
        let namespace = filter.namespace.as_ref().map(Namespace::as_str);
        let prefix = filter.prefix.as_deref().unwrap_or("");
        let first = namespace.map_or(("", ""), |namespace| (namespace, prefix));
        Self { start: after.map_or(first, |after| after.max(first)), after, namespace, prefix }
    }

    fn holds(&self, namespace: &[u8], name: &[u8]) -> Position {
        let is_after = self
            .after
            .is_none_or(|(of, after)| (namespace, name) > (of.as_bytes(), after.as_bytes()));
        let is_named = name.starts_with(self.prefix.as_bytes());
        match self.namespace {
            Some(wanted) if (namespace, name) < (wanted.as_bytes(), self.prefix.as_bytes()) => {
                Position::Before
            }
            // The names with a prefix follow each other.
            Some(wanted) if namespace != wanted.as_bytes() || !is_named => Position::Beyond,
            _ if is_after && is_named => Position::Inside,
            _ => Position::Before,
        }
    }
}

/// Names in the order of their table, each greater than the one before.
#[derive(Debug, Default)]
struct Order {
    namespace: Vec<u8>,
    name: Vec<u8>,
    /// Of a version.
    id: u64,
}

impl Order {
    fn follow(&mut self, namespace: &[u8], name: &[u8], id: u64) -> Checked<()> {
        if (namespace, name, id) <= (&*self.namespace, &*self.name, self.id) {
            let name = String::from_utf8_lossy(name);
            return Err(damaged(format!("the name {name:?} is not in the order of its table")));
        }
        if self.namespace != namespace {
            self.namespace.clear();
            self.namespace.extend_from_slice(namespace);
        }
        self.name.clear();
        self.name.extend_from_slice(name);
        self.id = id;
        Ok(())
    }
}

pub(super) fn text<'r>(row: &'r Row<'_>, at: usize) -> Checked<&'r [u8]> {
    match row.get_ref(at)? {
        ValueRef::Text(bytes) => Ok(bytes),
        other => Err(damaged(format!("column {at} of a name is {:?}", other.data_type()))),
    }
}

fn damaged(found: String) -> CatalogueFault {
    CatalogueFault::Damaged { found }
}
