//! Statistics of the files that a filter selects, and of their earlier versions.
//!
//! Everything is added up from rows that were read and verified in one state of the catalogue, so an
//! altered row is an error and not another sum.
//!
//! Contents that have several names are counted once: part of them in the pass that adds up everything else,
//! the others in further passes ([`Contents`]).
//!
//! Invariants: memory is limited whatever is selected; the sum over categories, media types or sizes is the
//! sum over all.

use std::collections::BTreeMap;

use forebay_base::rows::RowHasher;
use forebay_base::waiting::Gone;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};

use super::contents::Contents;
use super::list::{Range, Source, Take, Walk, text};
use super::query::CatalogueReader;
use super::rows::Checked;
use super::sorted::{First, Sorted};
use super::{FileFilter, FileOrder, FileRecord};
use crate::classify::Category;
use crate::error::{CatalogueError, CatalogueFault};

/// Contents whose digests are in memory at once: about 42 MB.
pub(super) const CONTENTS_MAX: usize = 900_000;
/// Media types, and namespaces, that are counted by themselves. Further ones are counted together.
const GROUPS_MAX: usize = 4_096;
/// Media types in the result.
const TYPES_SHOWN: usize = 20;
/// Namespaces in the result.
const NAMESPACES_SHOWN: usize = 100;
/// Largest files in the result.
const LARGEST: usize = 10;

/// A number of files and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileSums {
    /// Number of files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl FileSums {
    fn add(&mut self, size: u64) {
        self.files += 1;
        self.bytes = self.bytes.saturating_add(size);
    }

    fn and(self, other: Self) -> Self {
        Self { files: self.files + other.files, bytes: self.bytes.saturating_add(other.bytes) }
    }
}

/// Files of a range of sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeClass {
    /// The least size, inclusive: 0, or a power of four.
    pub size_min: u64,
    /// The greatest size, inclusive.
    pub size_max: u64,
    /// The files.
    pub sums: FileSums,
}

/// Statistics of files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileStatistics {
    /// All files.
    pub all: FileSums,
    /// Different contents of the files, each counted once.
    pub different: FileSums,
    /// Earlier versions that pass the same filter. Deletions do not count.
    pub versions: FileSums,
    /// By category; none without files.
    pub categories: BTreeMap<&'static str, FileSums>,
    /// By media type, those with the most bytes first, at most 20.
    pub media_types: Vec<(String, FileSums)>,
    /// The files of all other media types.
    pub other_media_types: FileSums,
    /// By namespace, those with the most bytes first, at most 100.
    pub namespaces: Vec<(String, FileSums)>,
    /// The files of all other namespaces.
    pub other_namespaces: FileSums,
    /// By size, ascending; classes without files are left out.
    pub sizes: Vec<SizeClass>,
    /// When the oldest name was given, in milliseconds since 1970.
    pub oldest_ms: Option<i64>,
    /// When the newest name was given, in milliseconds since 1970.
    pub newest_ms: Option<i64>,
    /// The largest files, at most ten.
    pub largest: Vec<FileRecord>,
}

/// How much is in memory at once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Most {
    /// Contents.
    pub(super) contents: usize,
    /// Media types, and namespaces.
    pub(super) groups: usize,
}

impl Default for Most {
    fn default() -> Self {
        Self { contents: CONTENTS_MAX, groups: GROUPS_MAX }
    }
}

/// Sums by name: those of the first names, and that of all others.
struct Groups {
    named: foldhash::HashMap<String, FileSums>,
    named_max: usize,
    others: FileSums,
}

impl Groups {
    fn new(named_max: usize) -> Self {
        Self { named: foldhash::HashMap::default(), named_max, others: FileSums::default() }
    }

    fn add(&mut self, name: &str, size: u64) {
        let has_room = self.named.len() < self.named_max;
        match self.named.get_mut(name) {
            Some(known) => known.add(size),
            None if has_room => self.named.entry(name.to_owned()).or_default().add(size),
            None => self.others.add(size),
        }
    }

    /// Those with the most bytes, and the sum of all others.
    fn finish(self, shown: usize) -> (Vec<(String, FileSums)>, FileSums) {
        let mut named: Vec<_> = self.named.into_iter().collect();
        named.sort_by(|(a, x), (b, y)| (y.bytes, y.files).cmp(&(x.bytes, x.files)).then(a.cmp(b)));
        let rest = named.split_off(named.len().min(shown));
        let others = rest.into_iter().fold(self.others, |others, (_, sums)| others.and(sums));
        (named, others)
    }
}

/// Adds up the files.
struct Sums<'s> {
    sums: FileStatistics,
    types: Groups,
    namespaces: Groups,
    /// By the number of the class.
    sizes: BTreeMap<u32, FileSums>,
    largest: First<'s>,
    contents: Contents<'s>,
}

impl Take for Sums<'_> {
    fn is_full(&self) -> bool {
        self.contents.is_full()
    }

    fn take(&mut self, hasher: &mut RowHasher, row: &Row<'_>) -> Checked<()> {
        let size = row.get::<_, i64>(4)?.cast_unsigned();
        let (code, ms): (u8, i64) = (row.get(6)?, row.get(8)?);
        let category = Category::from_code(code)
            .ok_or_else(|| damaged(format!("there is no category {code}")))?;
        let sums = &mut self.sums;
        sums.all.add(size);
        sums.categories.entry(category.as_str()).or_default().add(size);
        sums.oldest_ms = Some(sums.oldest_ms.map_or(ms, |oldest| oldest.min(ms)));
        sums.newest_ms = Some(sums.newest_ms.map_or(ms, |newest| newest.max(ms)));
        self.sizes.entry(class(size)).or_default().add(size);
        self.types.add(utf8(row, 5, "a media type")?, size);
        self.namespaces.add(utf8(row, 0, "a namespace")?, size);
        self.largest.take(hasher, row)?;
        self.contents.take(hasher, row)
    }
}

impl Sums<'_> {
    /// What was added up, but for contents that were not looked at.
    fn finish(self) -> FileStatistics {
        let mut sums = self.sums;
        (sums.media_types, sums.other_media_types) = self.types.finish(TYPES_SHOWN);
        (sums.namespaces, sums.other_namespaces) = self.namespaces.finish(NAMESPACES_SHOWN);
        sums.sizes = self.sizes.into_iter().map(|(number, sums)| sized(number, sums)).collect();
        sums.largest = self.largest.into_files();
        sums.different = different(&self.contents);
        sums
    }
}

/// The number of the class of a size: 0 for nothing, then one for each power of four.
fn class(size: u64) -> u32 {
    size.checked_ilog2().map_or(0, |log| log / 2 + 1)
}

fn sized(number: u32, sums: FileSums) -> SizeClass {
    let least = number.checked_sub(1).map_or(0, |power| 1 << (2 * power));
    SizeClass { size_min: least, size_max: least.saturating_mul(3) + least.saturating_sub(1), sums }
}

/// Adds up contents, each once.
fn different(contents: &Contents<'_>) -> FileSums {
    let mut sums = FileSums::default();
    contents.counted().for_each(|(_, content)| sums.add(content.size));
    sums
}

/// Adds up versions.
struct Versions<'s> {
    sums: FileSums,
    gone: &'s Gone,
}

impl Take for Versions<'_> {
    fn is_full(&self) -> bool {
        self.gone.is_gone()
    }

    fn take(&mut self, _: &mut RowHasher, row: &Row<'_>) -> Checked<()> {
        let is_deletion = row.get_ref(3)? == ValueRef::Null;
        if !is_deletion {
            self.sums.add(row.get::<_, i64>(4)?.cast_unsigned());
        }
        Ok(())
    }
}

/// The text of a column.
fn utf8<'r>(row: &'r Row<'_>, column: usize, what: &str) -> Checked<&'r str> {
    std::str::from_utf8(text(row, column)?).map_err(|_| damaged(format!("{what} is not UTF-8")))
}

fn damaged(found: String) -> CatalogueFault {
    CatalogueFault::Damaged { found }
}

impl CatalogueReader {
    /// Adds up the files that pass `filter`. Reads every row of the namespace that may have the prefix, or of
    /// all namespaces: names once or, of many contents, several times, and versions once.
    ///
    /// * `gone`: makes it return `None` soon.
    ///
    /// # Errors
    /// [`CatalogueError`] with what SQLite said, or which row is damaged.
    pub fn statistics(
        &self,
        filter: &FileFilter,
        gone: &Gone,
    ) -> Result<Option<FileStatistics>, CatalogueError> {
        self.ask("add up files", |connection| {
            let sums = statistics(connection, filter, Most::default(), gone)?;
            Ok(Some(sums).filter(|_| !gone.is_gone()))
        })
    }
}

/// Adds up files with this much in memory.
pub(super) fn statistics(
    connection: &Connection,
    filter: &FileFilter,
    most: Most,
    gone: &Gone,
) -> Checked<FileStatistics> {
    let range = Range::of(filter, None);
    let largest = Sorted::by(FileOrder::Largest, None);
    let sums = Sums {
        sums: FileStatistics::default(),
        types: Groups::new(most.groups),
        namespaces: Groups::new(most.groups),
        sizes: BTreeMap::new(),
        largest: First::new(&largest, LARGEST),
        contents: Contents::first(most.contents, gone),
    };
    let sums = Walk::new(connection, Source::FILES, filter, &range, sums).run()?;
    let mut next = sums.contents.next();
    let mut found = sums.finish();
    while let Some(part) = next {
        let part = Walk::new(connection, Source::FILES, filter, &range, part).run()?;
        found.different = found.different.and(different(&part));
        next = part.next();
    }
    let versions = Versions { sums: FileSums::default(), gone };
    let versions = Walk::new(connection, Source::VERSIONS, filter, &range, versions).run()?;
    found.versions = versions.sums;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_is_in_the_class_that_says_so() {
        for size in (0..63).flat_map(|power| [1 << power, (1 << power) - 1, (1 << power) + 1]) {
            let class = sized(class(size), FileSums::default());
            assert!((class.size_min..=class.size_max).contains(&size), "{size} {class:?}");
        }
        let last = sized(class(u64::MAX), FileSums::default());
        assert_eq!((last.size_min, last.size_max), (1 << 62, u64::MAX));
        let (none, one) = (sized(0, FileSums::default()), sized(1, FileSums::default()));
        assert_eq!([none.size_min, none.size_max, one.size_min, one.size_max], [0, 0, 1, 3]);
    }
}
