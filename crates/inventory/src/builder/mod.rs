//! Builds an index from a source, in bounded memory.
//!
//! Where the source lists its keys in order they go right into the writer. Elsewhere several readers
//! gather directories and their objects, in runs that are spilled when their room is used up; the runs
//! are merged, directory by directory, into the writer.
//!
//! Invariants:
//! - An index appears under its name when all of it is on stable storage, or not at all.
//! - The memory for what is gathered, merged and written stays within what was given.

use std::path::Path;
use std::sync::Arc;

use forebay_base::bytes::ByteSize;
use forebay_base::checksum::crc32c;
use forebay_base::fs::FileSystem;

use crate::format::VERSION;
use crate::format::meta::{FileMeta, FilesMeta, INDEX, Meta};
use crate::object::Classes;
use crate::source::{BadRow, Source};

mod collect;
mod error;
mod gather;
mod largest;
mod merge;
mod monitor;
mod out;
mod place;
mod rows;
mod run;
mod sort;
mod spool;
mod stream;
mod tally;
mod write;

pub use error::BuildError;
pub use monitor::{Monitor, Progress, Stage};
pub use rows::OnBadRow;

use place::Place;
use rows::{Shared, Verdicts};
use write::{IndexWriter, Written};

/// Told of a directory, and how many of its keys were listed before.
type OnDuplicate = dyn FnMut(&[u8], u64) -> Result<(), BuildError>;

/// How an index is built.
#[derive(Debug, Clone)]
pub struct Options {
    /// Memory for all that is gathered, merged and written.
    pub memory: ByteSize,
    /// Readers that work at the same time.
    pub threads: usize,
    /// What separates the components of a key; an ASCII character.
    pub delimiter: u8,
    /// Whether sizes and months are counted.
    pub histograms: bool,
    /// What to do about a row that cannot be read.
    pub on_bad_row: OnBadRow,
    /// What to do about a key that is listed twice: fail, or count it twice.
    pub on_duplicate: OnBadRow,
    /// How many rows there have to be.
    pub expect_rows: Option<u64>,
    /// Whether an index that is there is replaced.
    pub replace: bool,
    /// The time, for the index to say when it was built: milliseconds since 1970.
    pub now_ms: u64,
}

impl Options {
    /// Of the memory: for what one of so many readers gathers. The rest is for what it reads from, the
    /// merge, and the entries of the table.
    fn memory_of_reader(&self, readers: usize) -> usize {
        let bytes = self.memory.0 / 2 / readers.max(1) as u64;
        usize::try_from(bytes).unwrap_or(usize::MAX).max(1 << 16)
    }

    fn memory_of_table(&self) -> u64 {
        self.memory.0 / 8
    }
}

/// An index that was built.
#[derive(Debug, Clone)]
pub struct Built {
    /// Current objects.
    pub objects: u64,
    /// Prefixes, the empty one included.
    pub prefixes: u64,
    /// Bytes of the current objects.
    pub bytes: u64,
    /// Rows read, bad ones included.
    pub rows: u64,
    /// Rows left out.
    pub bad_rows: u64,
    /// The first of them.
    pub bad_rows_shown: Vec<BadRow>,
    /// Whether the source was in order.
    pub in_order: bool,
    /// How many runs were merged.
    pub runs: usize,
    /// Bytes of the index.
    pub index_size: u64,
}

/// Builds an index of `source` in the directory `to`.
///
/// * `classes`: those the source's readers know.
/// * `monitor`: counts on, and can stop it.
///
/// # Errors
/// Whatever [`BuildError`] names; nothing is left of the index then.
pub fn build(
    fs: &Arc<dyn FileSystem>,
    source: &dyn Source,
    classes: &Classes,
    to: &Path,
    options: &Options,
    monitor: &Monitor,
) -> Result<Built, BuildError> {
    let place = Place::prepare(&**fs, to, options.replace)?;
    let built = build_in(fs, source, classes, &place, options, monitor);
    let cleared = place.clear(&**fs);
    // The error that ended the build is the one to tell of.
    built.and_then(|built| cleared.map(|()| built))
}

/// Removes from the directory `dir` what builds that were killed left there, and nothing else.
///
/// # Errors
/// When it has something that is of no index, another process builds in it, or the disk fails.
pub fn clear(fs: &dyn FileSystem, dir: &Path) -> Result<(), BuildError> {
    Place::prepare(fs, dir, true)?.clear(fs)
}

fn build_in(
    fs: &Arc<dyn FileSystem>,
    source: &dyn Source,
    classes: &Classes,
    place: &Place,
    options: &Options,
    monitor: &Monitor,
) -> Result<Built, BuildError> {
    let mut verdicts = Verdicts::default();
    let again = Verdicts::default();
    let mut in_order = true;
    let mut runs = 0;
    let begin = || {
        let parts = source.parts().map_err(|error| BuildError::Parts(Box::new(error)))?;
        let sizes: Option<u64> = parts.iter().map(|part| part.size()).sum();
        monitor.begin(sizes.unwrap_or(0));
        let memory = options.memory_of_table();
        let writer = IndexWriter::create(fs, place, options.delimiter, options.histograms, memory)?;
        Ok::<_, BuildError>((parts, writer))
    };
    let (parts, mut writer) = begin()?;
    let shared = |verdicts| Shared {
        fs: &**fs,
        monitor,
        verdicts,
        delimiter: options.delimiter,
        on_bad_row: options.on_bad_row,
    };
    if !stream::stream(parts, &shared(&verdicts), options, &mut writer)? {
        drop(writer);
        place.clear(&**fs)?;
        in_order = false;
        let parts;
        (parts, writer) = begin()?;
        runs = gather::gather(parts, place, &shared(&again), options, &mut writer)?;
        verdicts = again;
    }
    let (bad_rows, bad_rows_shown) = verdicts.into_result()?;
    monitor.check()?;
    let rows = monitor.progress().rows;
    let provenance = source.provenance();
    // What was asked for, and what the source itself says it has.
    let mut expected = options.expect_rows.into_iter().chain(provenance.rows);
    if let Some(expected) = expected.find(|&expected| expected != rows) {
        return Err(BuildError::Rows { expected, found: rows });
    }
    monitor.stage(Stage::Finishing);
    let written = writer.finish(place, &classes.names())?;
    let provenance = serde_json::to_vec_pretty(&provenance);
    let provenance = provenance
        .map_err(|error| BuildError::Meta(crate::format::meta::MetaError::Json(error)))?;
    let provenance = write_file(&**fs, &place.file("provenance.json"), &provenance)?;
    let index_size = write_meta(&**fs, place, &written, provenance, bad_rows, options)?;
    Ok(Built {
        objects: written.total.objects,
        prefixes: written.prefixes,
        bytes: written.total.bytes,
        rows,
        bad_rows,
        bad_rows_shown,
        in_order,
        runs,
        index_size,
    })
}

/// Writes `index.json`; returns the size of the whole index.
fn write_meta(
    fs: &dyn FileSystem,
    place: &Place,
    written: &Written,
    provenance: FileMeta,
    bad_rows: u64,
    options: &Options,
) -> Result<u64, BuildError> {
    let Written { nodes, table, order, ref slots, total, prefixes } = *written;
    let meta = Meta {
        version: VERSION,
        generation: place.generation(),
        delimiter: char::from(options.delimiter),
        histograms: options.histograms,
        slots: slots.clone(),
        objects: total.objects,
        bytes: total.bytes,
        prefixes,
        bad_rows,
        built_at_ms: options.now_ms,
        files: FilesMeta { nodes, table, order, provenance },
    };
    let bytes = meta.to_bytes().map_err(BuildError::Meta)?;
    let meta = write_file(fs, &place.file(INDEX), &bytes)?;
    place.publish(fs)?;
    Ok([nodes, table, order, provenance, meta].iter().map(|file| file.size).sum())
}

fn write_file(fs: &dyn FileSystem, path: &Path, bytes: &[u8]) -> Result<FileMeta, BuildError> {
    let file = fs.create_new(path).map_err(BuildError::io("create", path))?;
    file.write_all_at(bytes, 0).map_err(BuildError::io("write to", path))?;
    file.sync_all().map_err(BuildError::io("sync", path))?;
    Ok(FileMeta { size: bytes.len() as u64, crc32c: crc32c(bytes) })
}
