//! CSV files, compressed with gzip, Zstandard or uncompressed: those of S3 Inventory, whose columns
//! are in the manifest, and others, whose first row names them.
//!
//! A file is one part: a compressed stream can only be read from its beginning, and the start of a
//! row is only known after all previous rows were read.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::columns::{Columns, Places};
use super::input::{Counted, Expanded, Expected};
use super::location::FileLocation;
use super::values::{self, ClassNames};
use super::{BadRow, Part, RowSink, SourceError};
use crate::object::{Batch, Classes, Kind, Object};

mod key;
mod records;

pub(crate) use key::decode as decode_key;
pub(crate) use records::RECORD_SIZE_MAX;
use records::{NoRecord, Records};

/// Objects passed on at once.
const BATCH_ROWS: usize = 8192;
/// Size of the keys passed on at once.
const BATCH_KEYS_SIZE: usize = 4 << 20;
/// The UTF-8 byte order mark.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Options of reading CSV files.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) columns: Columns,
    /// The names of the columns if the files do not have them.
    pub(crate) names: Option<Vec<String>>,
    /// The encoding of keys.
    pub(crate) encoded: bool,
    pub(crate) classes: Arc<Classes>,
}

/// One file.
pub(crate) struct CsvFile {
    place: FileLocation,
    name: String,
    size: Option<u64>,
    expected: Expected,
    settings: Arc<Settings>,
}

impl CsvFile {
    pub(crate) fn new(
        place: FileLocation,
        size: Option<u64>,
        expected: Expected,
        settings: Arc<Settings>,
    ) -> Self {
        Self { name: place.name(), place, size, expected, settings }
    }

    /// The names of the columns, from the first row of a file with a header.
    pub(crate) fn header(place: &FileLocation) -> Result<Vec<String>, SourceError> {
        let name = place.name();
        let source = Counted::new(place.reader()?, &Expected::default());
        let mut reader = Reader::new(&name, source, 1)?;
        if !reader.next()? {
            return Err(headless(&name));
        }
        Ok(header(&reader.records))
    }
}

/// A file that is being read.
struct Reader<R: io::Read> {
    file: String,
    records: Records<Expanded<Counted<R>>>,
    read: Arc<std::sync::atomic::AtomicU64>,
    /// Number of records before the first row.
    before: u64,
}

impl<R: io::Read> Reader<R> {
    fn new(file: &str, source: Counted<R>, before: u64) -> Result<Self, SourceError> {
        let read = source.read_so_far();
        let expanded = Expanded::new(source).map_err(|source| SourceError::Io {
            act: "read",
            path: file.into(),
            source,
        })?;
        Ok(Self { file: file.to_owned(), records: Records::new(expanded), read, before })
    }

    /// Reads a record; returns whether there is one.
    fn next(&mut self) -> Result<bool, SourceError> {
        let rows = self.records.count.saturating_sub(self.before);
        match self.records.next() {
            Ok(()) => Ok(true),
            Err(NoRecord::End) => Ok(false),
            Err(NoRecord::TooLong) => Err(SourceError::RowTooLong {
                file: self.file.clone(),
                row: rows.saturating_add(1),
                limit: RECORD_SIZE_MAX,
            }),
            Err(NoRecord::Io(source)) => Err(SourceError::Expand {
                file: self.file.clone(),
                read: self.read.load(Ordering::Relaxed),
                rows,
                source,
            }),
        }
    }

    /// The number of the last row, from 1.
    fn row(&self) -> u64 {
        self.records.count.saturating_sub(self.before)
    }
}

impl Part for CsvFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> Option<u64> {
        self.size
    }

    fn read(self: Box<Self>, sink: &mut dyn RowSink) -> Result<(), SourceError> {
        let source = Counted::new(self.place.reader()?, &self.expected);
        read(&self.name, source, &self.expected, &self.settings, sink)
    }
}

/// Reads a file called `file` to its end.
pub(crate) fn read<R: io::Read>(
    file: &str,
    source: Counted<R>,
    expected: &Expected,
    settings: &Settings,
    sink: &mut dyn RowSink,
) -> Result<(), SourceError> {
    let Settings { columns, names, encoded, classes } = settings;
    let mut reader = Reader::new(file, source, u64::from(names.is_none()))?;
    let names = match names {
        Some(names) => names.clone(),
        None if reader.next()? => header(&reader.records),
        None => return Err(headless(file)),
    };
    let mut rows = Rows {
        places: columns.places(file, &names)?,
        file,
        names,
        encoded: *encoded,
        classes: ClassNames::new(Arc::clone(classes)),
        key: Vec::new(),
        objects: Batch::default(),
    };
    let mut reported = 0;
    while reader.next()? {
        let row = reader.row();
        rows.push(&reader.records, row, sink)?;
        if rows.objects.len() >= BATCH_ROWS || rows.objects.keys_size() >= BATCH_KEYS_SIZE {
            sink.rows(&mut rows.objects)?;
            let read = reader.read.load(Ordering::Relaxed);
            sink.bytes(read.saturating_sub(reported));
            reported = read;
        }
    }
    if !rows.objects.is_empty() {
        sink.rows(&mut rows.objects)?;
    }
    let (read, row) = (Arc::clone(&reader.read), reader.row());
    let source = reader.records.into_input().finish().map_err(|source| SourceError::Expand {
        file: file.to_owned(),
        read: read.load(Ordering::Relaxed),
        rows: row,
        source,
    })?;
    sink.bytes(read.load(Ordering::Relaxed).saturating_sub(reported));
    source.verify(file, expected)
}

/// An error for an empty file that should have a header.
fn headless(file: &str) -> SourceError {
    let reason = "it is empty, but its first row has to name its columns".to_owned();
    SourceError::Column { file: file.to_owned(), reason }
}

fn header<R: io::Read>(records: &Records<R>) -> Vec<String> {
    let fields = (0..records.fields()).map(|at| records.field(at).unwrap_or_default());
    let names = fields.map(|field| field.strip_prefix(BYTE_ORDER_MARK).unwrap_or(field));
    names.map(|name| String::from_utf8_lossy(name).trim().to_owned()).collect()
}

/// Converts records to objects.
struct Rows<'a> {
    file: &'a str,
    names: Vec<String>,
    places: Places,
    encoded: bool,
    classes: ClassNames,
    /// A key that had to be decoded.
    key: Vec<u8>,
    objects: Batch,
}

impl Rows<'_> {
    /// Adds the object of a record; the error is the fault.
    fn push<R: io::Read>(
        &mut self,
        record: &Records<R>,
        row: u64,
        sink: &mut dyn RowSink,
    ) -> Result<(), SourceError> {
        let (place, reason) = match self.object(record) {
            Ok((object, decoded)) => {
                let key = if decoded {
                    self.key.as_slice()
                } else {
                    record.field(self.places.key).unwrap_or_default()
                };
                match self.objects.push(key, object) {
                    Ok(()) => return Ok(()),
                    Err(full) => (Some(self.places.key), full.to_string()),
                }
            }
            Err(fault) => fault,
        };
        let name = place.and_then(|place| self.names.get(place)).cloned();
        let (part, field) = (self.file.to_owned(), name.unwrap_or_default());
        sink.bad_row(BadRow { part, row, field, reason })?;
        Ok(())
    }

    /// The object of a record, and whether its key was encoded; or the faulty column and the
    /// reason.
    fn object<R: io::Read>(
        &mut self,
        record: &Records<R>,
    ) -> Result<(Object, bool), (Option<usize>, String)> {
        let places = self.places;
        let (fields, columns) = (record.fields(), self.names.len());
        if fields != columns {
            return Err((None, format!("it has {fields} fields, expected {columns}")));
        }
        let at = |place: usize| record.field(place).unwrap_or_default();
        let boolean = |place: Option<usize>| match place {
            Some(place) if !at(place).is_empty() => {
                values::boolean(at(place)).map(Some).map_err(|reason| (Some(place), reason))
            }
            _ => Ok(None),
        };
        let decoded = self.encoded
            && key::decode(at(places.key), &mut self.key)
                .map_err(|reason| (Some(places.key), reason))?;
        let kind = values::kind(boolean(places.is_latest)?, boolean(places.is_delete_marker)?);
        let size = match at(places.size) {
            // Only a delete marker may lack a size.
            b"" if kind == Kind::DeleteMarker => 0,
            size => values::size(size).map_err(|reason| (Some(places.size), reason))?,
        };
        let modified = places.last_modified.map_or(Ok(Default::default()), |place| {
            values::month(at(place)).map_err(|reason| (Some(place), reason))
        })?;
        let tier = places.tier.map(at).unwrap_or_default();
        let class = self.classes.id(places.class.map(at), tier);
        let class = class.map_err(|reason| (places.class.or(places.tier), reason))?;
        let version = places.version_id.map_or(0, |place| values::version(at(place)));
        Ok((Object { size, version, modified, class, kind }, decoded))
    }
}

#[cfg(test)]
mod tests;
