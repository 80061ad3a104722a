//! Listings of files in an order other than that of the table.
//!
//! No table is in these orders, and an index would cost every write. So a page reads every name of its
//! range as [`list`](super::list) does, and keeps the first ones in memory: one more than it shows.
//!
//! ```text
//! order      newest  oldest  smallest  largest  -name
//! rank       -ms     ms      bytes     -bytes   0         lesser ones first; then by namespace and name,
//!                                                         for -name in reverse
//! mark       largest:-9:docs/a.txt                        the last file of a page
//!            largest::docs/a/                             the last shared prefix of a page
//! ```
//!
//! As in file managers, shared prefixes come before the files: they have neither a size nor a time.
//!
//! Invariants: no two files are at the same place of an order, so each is on exactly one page while
//! nothing changes; a mark belongs to one order, and is never taken for the cursor of a listing by name,
//! since no namespace has a colon; a page has at most as many files and prefixes in memory as it may show,
//! and one more of each.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt;
use std::ops::ControlFlow;

use forebay_base::rows::RowHasher;
use rusqlite::Row;

use super::browse::{Browse, Entry, each_entry};
use super::list::{Range, Source, Take, Walk, text};
use super::query::CatalogueReader;
use super::rows::{Checked, read_file};
use super::{FileFilter, FileRecord};
use crate::error::CatalogueError;
use crate::names::Namespace;

/// The order of a listing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FileOrder {
    /// By namespace and name.
    #[default]
    Name,
    /// By namespace and name, in reverse.
    NameReversed,
    /// The names that were given last first.
    Newest,
    /// The names that were given first first.
    Oldest,
    /// The smallest files first.
    Smallest,
    /// The largest files first.
    Largest,
}

impl FileOrder {
    /// Every order.
    pub const ALL: [Self; 6] =
        [Self::Name, Self::NameReversed, Self::Newest, Self::Oldest, Self::Smallest, Self::Largest];

    /// The order as one word: that of searches, where they have it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::NameReversed => "-name",
            Self::Newest => "newest",
            Self::Oldest => "oldest",
            Self::Smallest => "smallest",
            Self::Largest => "largest",
        }
    }

    /// The order with this name.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|order| order.as_str() == word)
    }

    fn rank(self, size: u64, created_ms: i64) -> i128 {
        match self {
            Self::Name | Self::NameReversed => 0,
            Self::Newest => -i128::from(created_ms),
            Self::Oldest => i128::from(created_ms),
            Self::Smallest => i128::from(size),
            Self::Largest => -i128::from(size),
        }
    }

    fn compare<N: Ord>(self, (a, x): (i128, N), (b, y): (i128, N)) -> Ordering {
        let named = if self == Self::NameReversed { y.cmp(&x) } else { x.cmp(&y) };
        a.cmp(&b).then(named)
    }
}

/// A place in an order: the last file, or the last shared prefix, of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileMark {
    order: FileOrder,
    /// `None` for a shared prefix.
    rank: Option<i128>,
    namespace: String,
    name: String,
}

impl FileMark {
    /// The place of a file.
    #[must_use]
    pub fn of(order: FileOrder, file: &FileRecord) -> Self {
        Self {
            order,
            rank: Some(order.rank(file.size, file.created_ms)),
            namespace: file.namespace.as_str().to_owned(),
            name: file.name.as_str().to_owned(),
        }
    }

    /// The order it belongs to.
    #[must_use]
    pub fn order(&self) -> FileOrder {
        self.order
    }

    /// Whether it is the place of a shared prefix, which only pages with a delimiter have.
    #[must_use]
    pub fn is_prefix(&self) -> bool {
        self.rank.is_none()
    }

    /// Its namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Reads what [`FileMark`] is displayed as.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (order, rest) = text.split_once(':')?;
        let (rank, rest) = rest.split_once(':')?;
        let (namespace, name) = rest.split_once('/')?;
        Namespace::parse(namespace).ok()?;
        let rank = match rank {
            "" => None,
            rank => Some(rank.parse().ok()?),
        };
        let mark = Self {
            order: FileOrder::parse(order)?,
            rank,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        // Nothing else is accepted, so that a mark has one form.
        (mark.to_string() == text).then_some(mark)
    }
}

impl fmt::Display for FileMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { order, rank, namespace, name } = self;
        let rank = rank.map_or(String::new(), |rank| rank.to_string());
        write!(f, "{}:{rank}:{namespace}/{name}", order.as_str())
    }
}

/// An order, and where a page begins in it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sorted<'m> {
    order: FileOrder,
    /// The page has what comes after this place.
    after: Option<(i128, &'m str, &'m str)>,
}

impl<'m> Sorted<'m> {
    /// By namespace and name, after this one.
    #[must_use]
    pub fn by_name(after: Option<(&'m str, &'m str)>) -> Self {
        let after = after.map(|(namespace, name)| (0, namespace, name));
        Self { order: FileOrder::Name, after }
    }

    /// In this order, after a mark of it; one of a shared prefix is before all files.
    #[must_use]
    pub fn by(order: FileOrder, after: Option<&'m FileMark>) -> Self {
        let after = after.filter(|mark| mark.order == order);
        let after = after.and_then(|mark| Some((mark.rank?, &*mark.namespace, &*mark.name)));
        Self { order, after }
    }
}

/// A page of a sorted listing with shared prefixes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SortedPage {
    /// The shared prefixes, by name.
    pub prefixes: Vec<String>,
    /// The files, which come after all prefixes.
    pub files: Vec<FileRecord>,
    /// The place of the last entry, if there are more.
    pub next: Option<FileMark>,
}

/// The first files of an order, of those that were offered.
pub(super) struct First<'s> {
    sorted: &'s Sorted<'s>,
    limit: usize,
    /// The last of them is on top.
    heap: BinaryHeap<Placed>,
}

/// A file at its place.
struct Placed {
    order: FileOrder,
    rank: i128,
    file: FileRecord,
}

impl Placed {
    fn key(&self) -> (i128, (&[u8], &[u8])) {
        let (namespace, name) = (self.file.namespace.as_str(), self.file.name.as_str());
        (self.rank, (namespace.as_bytes(), name.as_bytes()))
    }
}

impl Ord for Placed {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order.compare(self.key(), other.key())
    }
}

impl PartialOrd for Placed {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Placed {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Placed {}

impl<'s> First<'s> {
    pub(super) fn new(sorted: &'s Sorted<'s>, limit: usize) -> Self {
        Self { sorted, limit, heap: BinaryHeap::new() }
    }

    fn wants(&self, key: (i128, (&[u8], &[u8]))) -> bool {
        let order = self.sorted.order;
        let is_after = self.sorted.after.is_none_or(|(rank, namespace, name)| {
            let after = (rank, (namespace.as_bytes(), name.as_bytes()));
            order.compare(key, after).is_gt()
        });
        let is_less = |last: &Placed| order.compare(key, last.key()).is_lt();
        is_after && (self.heap.len() < self.limit || self.heap.peek().is_some_and(is_less))
    }

    /// Whether a file of this name could be among them: in orders by name it is known.
    pub(super) fn may_want(&self, namespace: &[u8], name: &[u8]) -> bool {
        !matches!(self.sorted.order, FileOrder::Name | FileOrder::NameReversed)
            || self.wants((0, (namespace, name)))
    }

    fn keep(&mut self, rank: i128, file: FileRecord) {
        self.heap.push(Placed { order: self.sorted.order, rank, file });
        if self.heap.len() > self.limit {
            self.heap.pop();
        }
    }

    /// Keeps a file if it is among them.
    pub(super) fn offer(&mut self, file: FileRecord) {
        let rank = self.sorted.order.rank(file.size, file.created_ms);
        if self.wants((rank, (file.namespace.as_str().as_bytes(), file.name.as_str().as_bytes()))) {
            self.keep(rank, file);
        }
    }

    /// The files, in order.
    pub(super) fn into_files(self) -> Vec<FileRecord> {
        self.heap.into_sorted_vec().into_iter().map(|placed| placed.file).collect()
    }
}

impl Take for First<'_> {
    fn is_full(&self) -> bool {
        false
    }

    fn take(&mut self, hasher: &mut RowHasher, row: &Row<'_>) -> Checked<()> {
        let size = row.get::<_, i64>(4)?.cast_unsigned();
        let rank = self.sorted.order.rank(size, row.get(8)?);
        if self.wants((rank, (text(row, 0)?, text(row, 1)?))) {
            self.keep(rank, read_file(hasher, row)?.0);
        }
        Ok(())
    }
}

/// The prefixes of a page in order: at most `limit` of those after the mark.
struct Prefixes<'m> {
    order: FileOrder,
    /// `None` if the page begins with the first one.
    after: Option<&'m str>,
    limit: usize,
    found: VecDeque<String>,
}

impl Prefixes<'_> {
    /// Takes the next one by name.
    fn take(&mut self, prefix: String) {
        if self.order == FileOrder::NameReversed {
            if self.after.is_none_or(|after| *prefix < *after) {
                self.found.push_front(prefix);
                self.found.truncate(self.limit);
            }
        } else if self.found.len() < self.limit && self.after.is_none_or(|after| *prefix > *after) {
            self.found.push_back(prefix);
        }
    }
}

impl CatalogueReader {
    /// The first `limit` files that pass `filter`, in an order, from a place on.
    ///
    /// Reads and verifies every row of the namespace that may have the prefix, or of all namespaces.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said, or which row is damaged.
    pub fn list_sorted(
        &self,
        filter: &FileFilter,
        sorted: &Sorted<'_>,
        limit: usize,
    ) -> Result<Vec<FileRecord>, CatalogueError> {
        self.ask("list files in order", |connection| {
            let range = Range::of(filter, None);
            let first = First::new(sorted, limit);
            let walk = Walk::new(connection, Source::FILES, filter, &range, first);
            Ok(walk.run()?.into_files())
        })
    }

    /// A page of at most `limit` prefixes and files, in an order. `browse.after` is not used.
    ///
    /// Reads and verifies the row of every file that is listed on any page, and one for each prefix.
    ///
    /// * `after`: the place of the last entry of the previous page.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said, or which row is damaged.
    pub fn browse_sorted(
        &self,
        browse: &Browse,
        order: FileOrder,
        after: Option<&FileMark>,
        limit: usize,
    ) -> Result<SortedPage, CatalogueError> {
        self.ask("list files in order", |connection| {
            let sorted = Sorted::by(order, after);
            let more = limit.saturating_add(1);
            let mut files = First::new(&sorted, more);
            let seen = after.filter(|mark| mark.is_prefix()).map(|mark| mark.name.as_str());
            // Pages that begin with a file have no prefixes.
            let most = if sorted.after.is_some() { 0 } else { more };
            let mut prefixes = Prefixes { order, after: seen, limit: most, found: VecDeque::new() };
            let all = Browse { after: None, ..browse.clone() };
            each_entry(connection, &all, |entry| {
                match entry {
                    Entry::File(file) => files.offer(file),
                    Entry::Prefix(prefix) => prefixes.take(prefix),
                }
                let is_full = order != FileOrder::NameReversed && prefixes.found.len() > limit;
                if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            let mut page = SortedPage {
                prefixes: prefixes.found.into(),
                files: files.into_files(),
                next: None,
            };
            let has_more = page.prefixes.len() + page.files.len() > limit;
            page.prefixes.truncate(limit);
            page.files.truncate(limit - page.prefixes.len());
            if has_more {
                let last = page.prefixes.last().map(|prefix| FileMark {
                    order,
                    rank: None,
                    namespace: browse.namespace.as_str().to_owned(),
                    name: prefix.clone(),
                });
                page.next = page.files.last().map(|file| FileMark::of(order, file)).or(last);
            }
            Ok(page)
        })
    }
}
