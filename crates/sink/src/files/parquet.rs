//! Record batches as Parquet files.
//!
//! ```text
//! <dir>/manifest.json                                  what is committed
//! <dir>/<namespace>/<position, 20 digits>-<n>.parquet  the rows of one commit and one schema
//! <dir>/pending/<position before>-<n>.parquet          rows not committed yet
//! ```
//!
//! The columns are `_id` and `_received_ms` (64-bit integers), `_document` (bytes) if there are
//! documents, and the batch's own under their own names; compressed with zstd. A batch with another
//! schema starts another file, so schemas need not match.
//!
//! Files are written and flushed under `pending`; the manifest lists them with their destinations,
//! which commits them; then they are moved. A move that a crash prevented is made on opening. No
//! name under `pending` is used by two commits, since the second's rows could be mistaken for the
//! first's.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use super::ledger::{Ledger, admit_row};
use super::manifest::Manifest;
use super::{file_name, open_io, sink_io, sync_dir};
use crate::error::{OpenError, SinkError};
use crate::name::shown;
use crate::schema::{Refusal, RefusedField};
use crate::sink::{Position, Records, Sink, TableSink, Written};

const FORMAT: &str = "forebay-parquet";
const PENDING: &str = "pending";
/// Files being written at one time; with more, those open are finished.
const WRITERS_MAX: usize = 16;
/// What one file may gather in memory before it is written out, in bytes.
const ROW_GROUP_SIZE_MAX: usize = 16 << 20;
const OWN_COLUMNS: [&str; 3] = ["_id", "_received_ms", "_document"];

/// Writes record batches as Parquet files; see the [module](super).
pub struct ParquetSink {
    dir: PathBuf,
    ledger: Ledger,
    properties: WriterProperties,
    /// By namespace; each is also the last of that namespace in `files`.
    writers: BTreeMap<String, Writer>,
    /// Namespaces of the files below `pending`, by their numbers.
    files: Vec<String>,
}

struct Writer {
    schema: SchemaRef,
    path: PathBuf,
    writer: ArrowWriter<File>,
}

impl std::fmt::Debug for ParquetSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ParquetSink").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl ParquetSink {
    /// Opens the directory `dir`, and creates it if it does not exist.
    ///
    /// # Errors
    /// [`OpenError::Corrupt`] when the manifest is damaged, or missing beside files, or names a
    /// file that is nowhere; [`OpenError::Io`].
    pub fn open(dir: &Path) -> Result<ParquetSink, OpenError> {
        let pending = dir.join(PENDING);
        let manifest = match Manifest::read(dir, FORMAT)? {
            Some(manifest) => manifest,
            None => {
                fs::create_dir_all(dir).map_err(open_io("create", dir))?;
                let strange = fs::read_dir(dir)
                    .map_err(open_io("list", dir))?
                    .filter_map(Result::ok)
                    .find(|entry| entry.path().is_dir() && entry.file_name() != PENDING);
                if let Some(entry) = strange {
                    let found = format!("no manifest, but {}", entry.path().display());
                    return Err(OpenError::Corrupt { path: dir.to_owned(), found });
                }
                let manifest = Manifest::default();
                manifest.write(dir, FORMAT).map_err(open_io("write the manifest in", dir))?;
                manifest
            }
        };
        fs::create_dir_all(&pending).map_err(open_io("create", &pending))?;
        if let Some(missing) =
            place(dir, &manifest.renames).map_err(open_io("put committed files into", dir))?
        {
            let found = format!("the committed file {missing} does not exist");
            return Err(OpenError::Corrupt { path: dir.to_owned(), found });
        }
        clear(&pending).map_err(open_io("clear", &pending))?;
        let level = ZstdLevel::try_new(3).unwrap_or_default();
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(level))
            .set_max_row_group_bytes(Some(ROW_GROUP_SIZE_MAX))
            .set_created_by(concat!("forebay-sink ", env!("CARGO_PKG_VERSION")).to_owned())
            .build();
        Ok(ParquetSink {
            ledger: Ledger::new(dir.to_owned(), FORMAT, manifest),
            dir: dir.to_owned(),
            properties,
            writers: BTreeMap::new(),
            files: Vec::new(),
        })
    }

    /// The committed files of `namespace`, oldest first.
    ///
    /// # Errors
    /// The system's, when the directory cannot be listed.
    pub fn files(&self, namespace: &str) -> io::Result<Vec<PathBuf>> {
        if !self.ledger.committed().namespaces.contains_key(namespace) {
            return Ok(Vec::new());
        }
        let dir = self.dir.join(directory_name(namespace));
        let entries = match fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut files =
            entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<PathBuf>>>()?;
        files.sort();
        Ok(files)
    }

    fn append(
        &mut self,
        at: Position,
        namespace: &str,
        records: &Records<'_>,
    ) -> Result<Written, SinkError> {
        if !self.ledger.admit(at, namespace)? {
            return Ok(Written::replay());
        }
        let rows = records.batch.num_rows();
        if let Some(documents) = records.documents.filter(|it| it.len() != rows) {
            let namespace = namespace.to_owned();
            let found = documents.len();
            return Err(SinkError::ValueCount { namespace, found, expected: rows });
        }
        let entry = self.ledger.entry(namespace);
        for id in (records.first_id..).take(rows) {
            admit_row(entry, namespace, id, records.received_ms)?;
        }
        let mut refused = Vec::new();
        let batch = with_own_columns(records, &mut refused).map_err(|source| SinkError::Arrow {
            act: "add columns",
            namespace: namespace.to_owned(),
            source,
        })?;
        if rows > 0 {
            let writer = self.writer(namespace, batch.schema())?;
            let written = writer.writer.write(&batch);
            written.map_err(failed("write", &writer.path))?;
        }
        Ok(Written { rows: rows as u64, refused, ..Written::default() })
    }

    /// The file that takes rows of `schema`, a new one if need be.
    fn writer(&mut self, namespace: &str, schema: SchemaRef) -> Result<&mut Writer, SinkError> {
        let fits = self.writers.get(namespace).map(|writer| writer.schema == schema);
        if fits == Some(false)
            && let Some(writer) = self.writers.remove(namespace)
        {
            finish(writer)?;
        }
        if fits != Some(true) && self.writers.len() >= WRITERS_MAX {
            self.finish_all()?;
        }
        let path = self.dir.join(self.pending_path(self.files.len()));
        match self.writers.entry(namespace.to_owned()) {
            std::collections::btree_map::Entry::Occupied(found) => Ok(found.into_mut()),
            std::collections::btree_map::Entry::Vacant(place) => {
                let file = File::create_new(&path).map_err(sink_io("create", &path))?;
                let properties = Some(self.properties.clone());
                let writer = ArrowWriter::try_new(file, Arc::clone(&schema), properties)
                    .map_err(failed("begin", &path))?;
                self.files.push(namespace.to_owned());
                Ok(place.insert(Writer { schema, path, writer }))
            }
        }
    }

    /// Where the file with `number` is written, below the directory.
    fn pending_path(&self, number: usize) -> String {
        match self.position() {
            Some(position) => format!("{PENDING}/{:020}-{number:04}.parquet", position.0),
            None => format!("{PENDING}/start-{number:04}.parquet"),
        }
    }

    fn finish_all(&mut self) -> Result<(), SinkError> {
        while let Some((_, writer)) = self.writers.pop_first() {
            finish(writer)?;
        }
        Ok(())
    }

    fn store(&mut self, position: Position) -> Result<(), SinkError> {
        self.finish_all()?;
        let pending = self.dir.join(PENDING);
        sync_dir(&pending).map_err(sink_io("sync", &pending))?;
        let renames: Vec<(String, String)> = self
            .files
            .iter()
            .enumerate()
            .map(|(number, namespace)| {
                let from = self.pending_path(number);
                let namespace = directory_name(namespace);
                (from, format!("{namespace}/{:020}-{number:04}.parquet", position.0))
            })
            .collect();
        self.ledger.commit(position, renames)?;
        self.files.clear();
        self.place()
    }

    /// Moves committed files into place.
    fn place(&self) -> Result<(), SinkError> {
        let moved = place(&self.dir, &self.ledger.committed().renames);
        match moved.map_err(sink_io("put committed files into", &self.dir))? {
            None => Ok(()),
            Some(missing) => Err(SinkError::Corrupt {
                act: "commit",
                path: self.dir.clone(),
                found: format!("the committed file {missing} does not exist"),
            }),
        }
    }
}

impl Sink for ParquetSink {
    fn position(&self) -> Option<Position> {
        self.ledger.committed().position
    }

    fn commit(&mut self, position: Position) -> Result<(), SinkError> {
        let check = self.ledger.check_commit(position);
        if !self.ledger.settle(check)? {
            return Ok(());
        }
        let stored = self.store(position);
        self.ledger.settle(stored)
    }

    fn roll_back(&mut self) -> Result<(), SinkError> {
        if self.ledger.is_idle() {
            return Ok(());
        }
        self.writers.clear();
        self.files.clear();
        self.ledger.reload()?;
        // A commit may have failed after its manifest was in place: then it is to be finished.
        self.place()?;
        let pending = self.dir.join(PENDING);
        clear(&pending).map_err(sink_io("clear", &pending))?;
        self.ledger.roll_back();
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<Option<Position>, SinkError> {
        Ok(self.position())
    }
}

impl TableSink for ParquetSink {
    fn write_records(
        &mut self,
        at: Position,
        namespace: &str,
        records: &Records<'_>,
    ) -> Result<Written, SinkError> {
        let appended = self.append(at, namespace, records);
        self.ledger.settle(appended)
    }
}

/// The rows with the sink's own columns in front. Columns of a name that is taken are left out.
fn with_own_columns(
    records: &Records<'_>,
    refused: &mut Vec<RefusedField>,
) -> Result<RecordBatch, arrow::error::ArrowError> {
    let batch = records.batch;
    let rows = batch.num_rows();
    // Both were checked to fit when the rows were admitted.
    let ids = (records.first_id..).take(rows).map(u64::cast_signed);
    let ids: ArrayRef = Arc::new(ids.collect::<Int64Array>());
    let received = Int64Array::from(vec![records.received_ms.cast_signed(); rows]);
    let mut fields = vec![
        Arc::new(Field::new(OWN_COLUMNS[0], DataType::Int64, false)),
        Arc::new(Field::new(OWN_COLUMNS[1], DataType::Int64, false)),
    ];
    let mut columns: Vec<ArrayRef> = vec![ids, Arc::new(received)];
    if let Some(documents) = records.documents {
        fields.push(Arc::new(Field::new(OWN_COLUMNS[2], DataType::Binary, true)));
        columns.push(Arc::new(documents.clone()));
    }
    let mut names = HashSet::new();
    for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
        let reason = if OWN_COLUMNS.contains(&field.name().as_str()) {
            Refusal::Reserved
        } else if !names.insert(field.name()) {
            Refusal::Repeated
        } else {
            fields.push(Arc::clone(field));
            columns.push(Arc::clone(column));
            continue;
        };
        refused.push(RefusedField { path: shown(field.name()), reason });
    }
    RecordBatch::try_new(Arc::new(arrow::datatypes::Schema::new(fields)), columns)
}

/// Completes a file and puts it onto stable storage.
fn finish(writer: Writer) -> Result<(), SinkError> {
    let Writer { path, writer, .. } = writer;
    let file = writer.into_inner().map_err(failed("complete", &path))?;
    file.sync_all().map_err(sink_io("sync", &path))
}

/// Moves files from `pending` to where they belong; those moved before are let be. Returns the
/// first that is in neither place.
fn place(dir: &Path, renames: &[(String, String)]) -> io::Result<Option<String>> {
    let mut changed = HashSet::new();
    for (from, to) in renames {
        let (from, target) = (dir.join(from), dir.join(to));
        let Some(parent) = target.parent() else { continue };
        if target.exists() {
            continue;
        }
        if !from.exists() {
            return Ok(Some(to.clone()));
        }
        if !parent.exists() {
            fs::create_dir(parent)?;
            changed.insert(dir.to_owned());
        }
        fs::rename(&from, &target)?;
        changed.insert(parent.to_owned());
        changed.insert(dir.join(PENDING));
    }
    changed.iter().try_for_each(|dir| sync_dir(dir))?;
    Ok(None)
}

fn clear(pending: &Path) -> io::Result<()> {
    for entry in fs::read_dir(pending)? {
        fs::remove_file(entry?.path())?;
    }
    Ok(())
}

/// A namespace's directory: never `pending`, never hidden.
fn directory_name(namespace: &str) -> String {
    if namespace == PENDING { format!("%{namespace}") } else { file_name(namespace) }
}

fn failed(act: &'static str, path: &Path) -> impl FnOnce(ParquetError) -> SinkError + use<> {
    let path = path.to_owned();
    move |source| SinkError::Parquet { act, path, source }
}
