//! Parquet files: of S3 Inventory and others.
//!
//! Columns are chosen by name ([`Columns`]); the others are never read. A file is divided between
//! its row groups, so that several threads read one large file. The footer is checked against the
//! file before it is used, and the number of rows against the actual one; the sizes that a page
//! declares are compared with the memory before anything is allocated ([`forebay_parquet`]).
//!
//! Keys, classes and other texts are read as bytes, whatever their declared type: nothing is
//! validated that is not relied on.

use std::ops::Range;
use std::sync::Arc;
use std::thread;

use forebay_base::ByteSize;

use super::columns::Columns;
use super::input::Expected;
use super::location::FileLocation;
use super::{Part, SourceError};
use crate::object::Classes;

mod chunks;
mod decode;
mod file;
mod part;
mod text;

use file::ParquetFile;
use part::RowGroups;

/// Minimum number of rows of a part, if its file has enough.
const PART_ROWS_MIN: u64 = 200_000;
/// Number of footers read in parallel, of files in an object store.
const FOOTERS_AT_ONCE: usize = 16;

/// Parquet files and how they are divided.
pub(crate) struct ParquetFiles {
    pieces: Vec<Piece>,
    /// Columns of the first file.
    pub(crate) fields: Vec<String>,
    /// Sizes of the files, in order.
    pub(crate) sizes: Vec<u64>,
    /// Total number of rows.
    pub(crate) rows: u64,
}

/// Row groups that are read as one part.
#[derive(Clone)]
struct Piece {
    file: Arc<ParquetFile>,
    groups: Range<usize>,
    first_row: u64,
    rows: u64,
    size: u64,
}

/// Options of reading Parquet files.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) columns: Columns,
    pub(crate) classes: Arc<Classes>,
    /// Maximum number of bytes of a file that one reader holds.
    pub(crate) memory: ByteSize,
    /// Directory for copies of an object store's files.
    pub(crate) temporary: std::path::PathBuf,
}

impl ParquetFiles {
    /// Reads the footers of some files.
    pub(crate) fn open(
        files: Vec<(FileLocation, Expected)>,
        settings: &Settings,
    ) -> Result<Self, SourceError> {
        let settings = Arc::new(settings.clone());
        let files: Vec<Arc<ParquetFile>> = files
            .into_iter()
            .map(|(place, expected)| {
                Arc::new(ParquetFile::new(place, expected, Arc::clone(&settings)))
            })
            .collect();
        let mut opened =
            Self { pieces: Vec::new(), fields: Vec::new(), sizes: Vec::new(), rows: 0 };
        for file_and_footer in files.iter().zip(footers(&files)) {
            let (file, footer) = (file_and_footer.0, file_and_footer.1?);
            if opened.sizes.is_empty() {
                opened.fields.clone_from(&footer.fields);
            }
            opened.sizes.push(footer.size);
            opened.cut(file, &footer.groups);
        }
        Ok(opened)
    }

    /// Divides a file between its row groups, each given by its rows and bytes.
    fn cut(&mut self, file: &Arc<ParquetFile>, groups: &[(u64, u64)]) {
        let mut piece: Option<Piece> = None;
        let mut row = 0;
        for (at, &(rows, size)) in groups.iter().enumerate() {
            let next = piece.get_or_insert_with(|| Piece {
                file: Arc::clone(file),
                groups: at..at,
                first_row: row,
                rows: 0,
                size: 0,
            });
            next.groups.end = at + 1;
            next.rows = next.rows.saturating_add(rows);
            next.size = next.size.saturating_add(size);
            row = row.saturating_add(rows);
            if next.rows >= PART_ROWS_MIN {
                self.pieces.extend(piece.take());
            }
        }
        self.pieces.extend(piece);
        self.rows = self.rows.saturating_add(row);
    }

    /// The parts, file by file.
    pub(crate) fn parts(&self) -> Vec<Box<dyn Part>> {
        self.pieces
            .iter()
            .map(|piece| Box::new(RowGroups::new(piece.clone())) as Box<dyn Part>)
            .collect()
    }
}

/// Reads the footers of files, in parallel if each is a request.
fn footers(files: &[Arc<ParquetFile>]) -> Vec<Result<file::Footer, SourceError>> {
    let remote = files.first().is_some_and(|file| file.is_remote());
    if !remote {
        return files.iter().map(|file| file.footer()).collect();
    }
    let mut footers = Vec::with_capacity(files.len());
    for files in files.chunks(FOOTERS_AT_ONCE) {
        thread::scope(|scope| {
            let readers: Vec<_> =
                files.iter().map(|file| scope.spawn(move || file.footer())).collect();
            for (file, reader) in files.iter().zip(readers) {
                footers
                    .push(reader.join().unwrap_or_else(|_| Err(file.broken("read the footer of"))));
            }
        });
    }
    footers
}

#[cfg(test)]
mod tests;
