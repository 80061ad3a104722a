//! Builds an index from a source, in limited memory.
//!
//! If the source lists its keys in order they are passed directly to the writer. Otherwise several
//! readers gather directories and their objects, in runs that are spilled when their memory is used
//! up; the runs are merged, directory by directory, into the writer, in several passes if there are
//! more of them than have a buffer each in the memory.
//!
//! Invariants:
//! - An index appears under its name when all of it is on stable storage, or not at all.
//! - The memory for what is gathered, merged and written stays within what was given, and so does the
//!   number of open files, whatever the number of runs.
//! - Every sum is exact: one that does not fit 64 bits is an error.

use std::path::Path;
use std::sync::Arc;

use forebay_base::bytes::ByteSize;
use forebay_base::checksum::crc32c;
use forebay_base::fs::FileSystem;

use crate::format::VERSION;
use crate::format::meta::{FileMeta, FilesMeta, INDEX, Meta};
use crate::object::Classes;
use crate::source::{BadRow, Source};

mod build_dir;
mod collect;
mod error;
mod fan_in;
mod gather;
mod heads;
mod largest;
mod merge;
mod monitor;
mod out;
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

use build_dir::BuildDir;
use rows::{Shared, Verdicts};
use write::{IndexWriter, Written};

/// Called with a directory, and how many of its keys were listed before.
type OnDuplicate = dyn FnMut(&[u8], u64) -> Result<(), BuildError>;

/// Options of a build.
#[derive(Debug, Clone)]
pub struct Options {
    /// Memory for everything that is gathered, merged and written, in bytes.
    pub memory: ByteSize,
    /// Number of concurrent readers.
    pub threads: usize,
    /// What separates the components of a key; an ASCII character.
    pub delimiter: u8,
    /// Whether the histograms of sizes and months are built.
    pub histograms: bool,
    /// How invalid rows are handled.
    pub on_bad_row: OnBadRow,
    /// How a key listed twice is handled: fail, or count it twice.
    pub on_duplicate: OnBadRow,
    /// Required number of rows.
    pub expect_rows: Option<u64>,
    /// Whether an existing index is replaced.
    pub replace: bool,
    /// The time of the build, stored in the index: milliseconds since 1970.
    pub now_ms: u64,
}

/// Minimum input memory of a reader: some columns of an inventory, one page of each, compressed and
/// decompressed.
const READING_MIN: u64 = 16 << 20;

impl Default for Options {
    /// 256 MiB, a reader for each processor, `/`, histograms, and nothing skipped or replaced.
    fn default() -> Self {
        Self {
            memory: ByteSize(256 << 20),
            threads: std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get),
            delimiter: b'/',
            histograms: true,
            on_bad_row: OnBadRow::Fail,
            on_duplicate: OnBadRow::Fail,
            expect_rows: None,
            replace: false,
            now_ms: 0,
        }
    }
}

impl Options {
    /// Number of concurrent readers: the requested number, or fewer if the memory does not suffice
    /// for it.
    #[must_use]
    pub fn readers(&self) -> usize {
        let enough = usize::try_from(self.memory.0 / 2 / READING_MIN).unwrap_or(usize::MAX);
        self.threads.min(enough).max(1)
    }

    /// The part of the memory for the input of one reader. Set it as
    /// [`Settings::memory`](crate::source::Settings).
    #[must_use]
    pub fn memory_of_reading(&self) -> ByteSize {
        ByteSize(self.memory.0 / 2 / self.readers() as u64)
    }

    /// The part of the memory for what one of several readers gathers. The rest is for input, the
    /// merge, and the entries of the table.
    fn memory_of_reader(&self, readers: usize) -> usize {
        let bytes = self.memory.0 / 2 / readers.max(1) as u64;
        usize::try_from(bytes).unwrap_or(usize::MAX).max(1 << 16)
    }

    fn memory_of_table(&self) -> u64 {
        self.memory.0 / 8
    }

    /// The part of the memory for the runs that are open in a merge. Runs that stayed in memory take
    /// at most three sixteenths of it beside.
    fn memory_of_merge(&self) -> u64 {
        self.memory.0 / 4
    }

    /// Maximum number of versions of one key that are held while keys arrive in order.
    fn versions_max(&self) -> usize {
        // A set has at most 16/7 slots for each version, of 9 bytes, and a larger one beside it
        // while it grows.
        usize::try_from(self.memory.0 / 8 / 64).unwrap_or(usize::MAX)
    }
}

/// The result of a build.
#[derive(Debug, Clone)]
pub struct Built {
    /// Current objects.
    pub objects: u64,
    /// Prefixes, the empty one included.
    pub prefixes: u64,
    /// Bytes of the current objects.
    pub bytes: u64,
    /// Bytes of all versions.
    pub billed_bytes: u64,
    /// Rows read, including invalid ones.
    pub rows: u64,
    /// Invalid rows.
    pub bad_rows: u64,
    /// The first invalid rows.
    pub bad_rows_shown: Vec<BadRow>,
    /// Whether the source was in order.
    pub in_order: bool,
    /// Number of merged runs.
    pub runs: usize,
    /// Size of the index in bytes.
    pub index_size: u64,
}

/// Builds an index of `source` in the directory `to`.
///
/// * `classes`: those known to the source's readers.
/// * `monitor`: reports progress, and can stop the build.
///
/// # Errors
/// [`BuildError`]; nothing of the index remains then.
pub fn build(
    fs: &Arc<dyn FileSystem>,
    source: &dyn Source,
    classes: &Classes,
    to: &Path,
    options: &Options,
    monitor: &Monitor,
) -> Result<Built, BuildError> {
    let place = BuildDir::prepare(&**fs, to, options.replace)?;
    let built = build_in(fs, source, classes, &place, options, monitor);
    let cleared = place.clear(&**fs);
    // The error that ended the build is the one to report.
    built.and_then(|built| cleared.map(|()| built))
}

/// Removes the remains of killed builds from the directory `dir`, and nothing else.
///
/// # Errors
/// It contains files of other programs, another process is building in it, or a file operation
/// failed.
pub fn clear(fs: &dyn FileSystem, dir: &Path) -> Result<(), BuildError> {
    BuildDir::prepare(fs, dir, true)?.clear(fs)
}

fn build_in(
    fs: &Arc<dyn FileSystem>,
    source: &dyn Source,
    classes: &Classes,
    place: &BuildDir,
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
    // The requested number, and the source's own.
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
        billed_bytes: written.billed_bytes,
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
    place: &BuildDir,
    written: &Written,
    provenance: FileMeta,
    bad_rows: u64,
    options: &Options,
) -> Result<u64, BuildError> {
    let Written { nodes, table, order, ref slots, total, prefixes, .. } = *written;
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
