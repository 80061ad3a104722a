//! An open index.
//!
//! Opening checks only what it reads. Everything else is checked when it is read, by its own
//! checksum, and all of it by [`Index::verify`].

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use forebay_base::waiting::Gone;

use crate::format::meta::{INDEX, META_SIZE_MAX, Meta, MetaError, Slot, file_name};
use crate::format::record::{Histograms, Numbers, Record};
use crate::format::table::{self, PARTITIONS};
use crate::map::Map;
use crate::source::Provenance;

mod children;
mod lookup;
mod measure;
mod node;
mod top;
mod verify;
mod walk;

pub use children::{Children, Page};
pub use measure::{ClassSlots, Filter, Order, SortBy, UnknownKey};
pub use node::{Class, Node, Stats, Totals};
pub use top::FoundPrefix;
pub use verify::Verified;
pub use walk::Below;

/// An index.
#[derive(Clone)]
pub struct Index {
    dir: PathBuf,
    meta: Meta,
    delimiter: u8,
    /// The slots of current versions.
    current: u64,
    nodes: Map,
    table: Map,
    order: Map,
    /// First bucket of each partition of the table.
    partitions: Box<[u64; PARTITIONS + 1]>,
    /// Whether the reader of the answer has left.
    gone: Gone,
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index").field("dir", &self.dir).field("meta", &self.meta).finish()
    }
}

/// Why an index could not be opened or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// There is no index.
    #[error("there is no index in {}", .0.display())]
    Missing(PathBuf),
    /// A file operation failed.
    #[error("{act} {}", path.display())]
    Io {
        /// What was attempted.
        act: &'static str,
        /// The path.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// `index.json` is damaged, or of another version.
    #[error("read {}", path.display())]
    Meta {
        /// The file.
        path: PathBuf,
        /// The fault.
        #[source]
        source: MetaError,
    },
    /// A file of the index is damaged.
    #[error("{} is damaged at byte {offset}: {found}; build the index again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The offset.
        offset: u64,
        /// The fault.
        found: &'static str,
    },
    /// A file of the index is damaged, anywhere in it.
    #[error("{} is damaged: its checksum does not match; build the index again", path.display())]
    Checksum {
        /// The file.
        path: PathBuf,
    },
    /// Prefixes are ranked by a cost that cannot be computed.
    #[error("cannot compute the cost of prefixes: {0}")]
    Cost(&'static str),
    /// The reader of the answer has left.
    #[error("the query was cancelled because its client disconnected")]
    Gone,
}

impl IndexError {
    /// Whether the index is damaged: building it again helps.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Meta { .. } | Self::Damaged { .. } | Self::Checksum { .. })
    }
}

impl Index {
    /// Opens the index in `dir`.
    ///
    /// # Errors
    /// There is none, or what is read on opening is damaged.
    pub fn open(dir: &Path) -> Result<Self, IndexError> {
        match Self::open_once(dir) {
            // It may have been replaced since `index.json` was read.
            Err(IndexError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Self::open_once(dir)
            }
            opened => opened,
        }
    }

    /// Returns the files of the index in `dir`, `index.json` first.
    ///
    /// # Errors
    /// [`IndexError::Missing`]: there is none. Others: it cannot be read.
    pub fn files(dir: &Path) -> Result<Vec<PathBuf>, IndexError> {
        let path = dir.join(INDEX);
        let bytes = read_bounded(&path)?.ok_or_else(|| IndexError::Missing(dir.to_owned()))?;
        let meta = Meta::from_bytes(&bytes)
            .map_err(|source| IndexError::Meta { path: path.clone(), source })?;
        let names = ["nodes", "table", "order", "provenance.json"];
        let named = names.iter().map(|name| dir.join(file_name(name, meta.generation)));
        Ok(std::iter::once(path).chain(named).collect())
    }

    fn open_once(dir: &Path) -> Result<Self, IndexError> {
        let path = dir.join(INDEX);
        let bytes = read_bounded(&path)?.ok_or_else(|| IndexError::Missing(dir.to_owned()))?;
        let meta = Meta::from_bytes(&bytes)
            .map_err(|source| IndexError::Meta { path: path.clone(), source })?;
        let map = |name, size| {
            let path = dir.join(file_name(name, meta.generation));
            Map::open(&path, size).map_err(|source| IndexError::Io { act: "map", path, source })
        };
        let nodes = map("nodes", meta.files.nodes.size)?;
        let table = map("table", meta.files.table.size)?;
        let order = map("order", meta.files.order.size)?;
        let partitions = table::read_directory(&table).ok_or_else(|| IndexError::Damaged {
            path: dir.join(file_name("table", meta.generation)),
            offset: 0,
            found: "the directory is damaged",
        })?;
        let current = meta.current_slots();
        let delimiter = u8::try_from(meta.delimiter).unwrap_or(b'/');
        Ok(Self {
            dir: dir.to_owned(),
            meta,
            delimiter,
            current,
            nodes,
            table,
            order,
            partitions,
            gone: Gone::default(),
        })
    }

    /// The same index, for one query: reading it ends with [`IndexError::Gone`] once nothing waits
    /// for the answer any more.
    #[must_use]
    pub fn until(&self, gone: Gone) -> Self {
        Self { gone, ..self.clone() }
    }

    /// The description of the index.
    #[must_use]
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Its directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What separates the components of a key.
    #[must_use]
    pub fn delimiter(&self) -> u8 {
        self.delimiter
    }

    /// Whether it has no noncurrent versions.
    #[must_use]
    pub fn current_only(&self) -> bool {
        self.meta.slots.iter().all(|slot| !slot.noncurrent)
    }

    /// The classes, in the order in which nodes name them.
    #[must_use]
    pub fn slots(&self) -> &[Slot] {
        &self.meta.slots
    }

    /// What the index was built from.
    ///
    /// # Errors
    /// The file with this information is damaged.
    pub fn provenance(&self) -> Result<Provenance, IndexError> {
        let path = self.file("provenance.json");
        let read = std::fs::read(&path);
        let bytes =
            read.map_err(|source| IndexError::Io { act: "read", path: path.clone(), source })?;
        let damaged = |found| IndexError::Damaged { path: path.clone(), offset: 0, found };
        if forebay_base::checksum::crc32c(&bytes) != self.meta.files.provenance.crc32c {
            return Err(IndexError::Checksum { path });
        }
        serde_json::from_slice(&bytes)
            .map_err(|_| damaged("it is not JSON of the expected structure"))
    }

    /// The node of the empty prefix.
    ///
    /// # Errors
    /// Its record is damaged.
    pub fn root(&self) -> Result<Node<'_>, IndexError> {
        self.node(self.nodes.len() as u64)
    }

    /// The node whose record ends at `end`.
    pub(crate) fn node(&self, end: u64) -> Result<Node<'_>, IndexError> {
        if self.gone.is_gone() {
            return Err(IndexError::Gone);
        }
        let record = usize::try_from(end).ok().and_then(|end| self.nodes.get(..end));
        match record.and_then(Record::read) {
            Some(record) => Ok(Node { index: self, end, record }),
            None => Err(self.damaged_node(end)),
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.join(file_name(name, self.meta.generation))
    }

    fn damaged_node(&self, end: u64) -> IndexError {
        let found = "the record that ends here is damaged";
        IndexError::Damaged { path: self.file("nodes"), offset: end, found }
    }

    fn damaged(&self, name: &str, offset: u64, found: &'static str) -> IndexError {
        IndexError::Damaged { path: self.file(name), offset, found }
    }
}

/// A small file; `None` if it does not exist.
fn read_bounded(path: &Path) -> Result<Option<Vec<u8>>, IndexError> {
    let failed = |source| IndexError::Io { act: "read", path: path.to_owned(), source };
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(failed(error)),
    };
    let mut bytes = Vec::new();
    let mut limited = io::Read::take(file, META_SIZE_MAX);
    io::Read::read_to_end(&mut limited, &mut bytes).map_err(failed)?;
    Ok(Some(bytes))
}
