//! One Parquet file: its footer, which of its columns are read and as what, and a local copy if it
//! is in an object store.

use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use forebay_parquet::{Batches, Footer as Checked, Plan, ReadError};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::basic::{ConvertedType, LogicalType, Repetition, Type as Physical};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, ParquetStatisticsPolicy, RowGroupMetaData};
use parquet::schema::types::{SchemaDescriptor, Type};
use tempfile::TempPath;

use super::Settings;
use super::chunks::Chunks;
use crate::source::columns::Places;
use crate::source::input::{Expected, verify};
use crate::source::location::{FileLocation, io_error};
use crate::source::{SourceError, Within};

/// Rows read at once.
pub(super) const BATCH_ROWS: usize = 8192;

/// A Parquet file.
pub(super) struct ParquetFile {
    pub(super) name: String,
    place: FileLocation,
    expected: Expected,
    pub(super) settings: Arc<Settings>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The file has been verified.
    verified: bool,
    /// The copy of a remote file, shared by its readers.
    copy: Weak<TempPath>,
    /// The footer, shared by its readers.
    layout: Weak<Layout>,
}

/// The information from a footer.
pub(super) struct Footer {
    pub(super) fields: Vec<String>,
    pub(super) size: u64,
    /// Rows and bytes of each row group.
    pub(super) groups: Vec<(u64, u64)>,
}

/// How a file is read.
pub(super) struct Layout {
    metadata: ArrowReaderMetadata,
    mask: ProjectionMask,
    /// The columns of the fields in the batches.
    pub(super) places: Places,
    /// The columns of those batches.
    pub(super) names: Vec<String>,
}

/// The row groups being read, and what has to live as long.
pub(super) struct Reading {
    pub(super) batches: Batches<Chunks>,
    pub(super) layout: Arc<Layout>,
    _copy: Option<Arc<TempPath>>,
}

impl ParquetFile {
    pub(super) fn new(place: FileLocation, expected: Expected, settings: Arc<Settings>) -> Self {
        Self { name: place.name(), place, expected, settings, state: Mutex::default() }
    }

    pub(super) fn is_remote(&self) -> bool {
        matches!(self.place, FileLocation::Remote(..))
    }

    /// Reads the footer.
    pub(super) fn footer(&self) -> Result<Footer, SourceError> {
        let size = self.place.size()?.ok_or_else(|| SourceError::Spec {
            given: self.name.clone(),
            reason: "there is no such file".to_owned(),
        })?;
        if let Some(expected) = self.expected.size.filter(|&expected| expected != size) {
            return Err(SourceError::Differs {
                file: self.name.clone(),
                what: "size",
                expected: expected.to_string(),
                found: size.to_string(),
            });
        }
        let chunks = match &self.place {
            FileLocation::Local(path, within) => local(path, within)?,
            FileLocation::Remote(remote, key) => Chunks::Remote(remote.clone(), key.clone(), size),
        };
        let (layout, metadata) = self.layout(&chunks, size)?;
        let groups = metadata.row_groups().iter().map(|group| counts(group, size));
        let groups =
            groups.collect::<Result<_, _>>().map_err(|e| self.error("read the footer of", e))?;
        drop(layout);
        let fields = metadata.file_metadata().schema_descr().root_schema().get_fields();
        let fields = fields.iter().map(|field| field.name().to_owned()).collect();
        Ok(Footer { fields, size, groups })
    }

    /// Starts to read some row groups, after the file as a whole was verified.
    pub(super) fn read(&self, groups: Vec<usize>) -> Result<Reading, SourceError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let copy = self.copy(&mut state)?;
        let chunks = match (&copy, &self.place) {
            (Some(copy), _) => local(copy.as_ref(), &Within::default())?,
            (None, FileLocation::Local(path, within)) => local(path, within)?,
            (None, FileLocation::Remote(..)) => return Err(self.broken("copy")),
        };
        let layout = match state.layout.upgrade() {
            Some(layout) => layout,
            None => {
                let size = parquet::file::reader::Length::len(&chunks);
                let layout = Arc::new(self.layout(&chunks, size)?.0);
                state.layout = Arc::downgrade(&layout);
                layout
            }
        };
        drop(state);
        let plan = Plan {
            chunks,
            metadata: layout.metadata.clone(),
            mask: layout.mask.clone(),
            groups,
            rows_max: BATCH_ROWS,
            limit: self.settings.memory.0,
        };
        let batches = self.guarded("read", || Batches::new(plan))?;
        Ok(Reading { batches, layout, _copy: copy })
    }

    /// Verifies a local file, or copies a remote one while verifying it.
    fn copy(&self, state: &mut State) -> Result<Option<Arc<TempPath>>, SourceError> {
        if matches!(self.place, FileLocation::Local(..)) {
            if !state.verified && self.expected.md5.is_some() {
                verify(&self.place, &self.expected, &mut |_| Ok(()))?;
            }
            state.verified = true;
            return Ok(None);
        }
        if let Some(copy) = state.copy.upgrade() {
            return Ok(Some(copy));
        }
        let dir = &self.settings.temporary;
        let failed = |source| io_error("write a temporary file in", dir, source);
        let mut copy = tempfile::NamedTempFile::new_in(dir).map_err(failed)?;
        verify(&self.place, &self.expected, &mut |bytes| copy.write_all(bytes).map_err(failed))?;
        let copy = Arc::new(copy.into_temp_path());
        state.copy = Arc::downgrade(&copy);
        Ok(Some(copy))
    }

    fn layout(
        &self,
        chunks: &Chunks,
        size: u64,
    ) -> Result<(Layout, Arc<ParquetMetaData>), SourceError> {
        const ACT: &str = "read the footer of";
        let options = || {
            ArrowReaderOptions::new()
                .with_skip_arrow_metadata(true)
                .with_column_stats_policy(ParquetStatisticsPolicy::SkipAll)
                .with_size_stats_policy(ParquetStatisticsPolicy::SkipAll)
                .with_encoding_stats_as_mask(true)
        };
        let footer = self.guarded(ACT, || Checked::read(chunks, self.settings.memory.0))?;
        let load = |options| self.guarded(ACT, || Ok(ArrowReaderMetadata::load(&footer, options)?));
        let found = load(options())?;
        let schema = found.parquet_schema();
        let fields = schema.root_schema().get_fields();
        let names: Vec<&str> = fields.iter().map(|field| field.name()).collect();
        let places = self.settings.columns.places(&self.name, &names)?;
        let mut read = [
            Some(places.key),
            Some(places.size),
            places.class,
            places.last_modified,
            places.is_latest,
            places.is_delete_marker,
            places.version_id,
            places.tier,
        ]
        .into_iter()
        .flatten()
        .collect::<Vec<usize>>();
        read.sort_unstable();
        read.dedup();
        for &at in &read {
            if fields.get(at).is_none_or(|field| !is_plain(field)) {
                let name = names.get(at).copied().unwrap_or_default();
                let reason = format!("its column {name:?} has more than one value in a row");
                return Err(SourceError::Column { file: self.name.clone(), reason });
            }
        }
        let plain = without_text(schema, &read).map_err(|e| self.error(ACT, e))?;
        let metadata = load(options().with_parquet_schema(Arc::clone(&plain)))?;
        check(metadata.metadata(), size).map_err(|e| self.error(ACT, e))?;
        let mask = ProjectionMask::roots(metadata.parquet_schema(), read.iter().copied());
        let names =
            read.iter().filter_map(|&at| names.get(at)).map(|&name| name.to_owned()).collect();
        let layout = Layout { mask, places: projected(places, &read), names, metadata };
        let metadata = Arc::clone(layout.metadata.metadata());
        Ok((layout, metadata))
    }

    /// Runs the Parquet reader, which panics on some invalid files: arithmetic on lengths and
    /// positions from the file is not checked everywhere.
    pub(super) fn guarded<T>(
        &self,
        act: &'static str,
        read: impl FnOnce() -> Result<T, ReadError>,
    ) -> Result<T, SourceError> {
        match catch_unwind(AssertUnwindSafe(read)) {
            Ok(result) => result.map_err(|error| match error {
                ReadError::Exceeded(source) => {
                    SourceError::Memory { act, file: self.name.clone(), source }
                }
                ReadError::Parquet(error) => self.error(act, error),
                other => self.error(act, ParquetError::External(Box::new(other))),
            }),
            Err(_) => Err(self.broken(act)),
        }
    }

    pub(super) fn broken(&self, act: &'static str) -> SourceError {
        self.error(act, ParquetError::General("it is damaged".to_owned()))
    }

    fn error(&self, act: &'static str, source: ParquetError) -> SourceError {
        SourceError::Parquet { act, file: self.name.clone(), source }
    }
}

fn local(path: &Path, within: &Within) -> Result<Chunks, SourceError> {
    let file = within.open(path).map_err(|source| io_error("open", path, source))?;
    let size = file.metadata().map_err(|source| io_error("inspect", path, source))?.len();
    Ok(Chunks::Local(file, size))
}

/// Whether a row has at most one value in a column, and not a structure.
fn is_plain(field: &Type) -> bool {
    let info = field.get_basic_info();
    let repeated = info.has_repetition() && info.repetition() == Repetition::REPEATED;
    field.is_primitive() && !repeated
}

/// The schema with texts among `read` as plain bytes, so that they are not validated.
fn without_text(
    schema: &SchemaDescriptor,
    read: &[usize],
) -> Result<Arc<SchemaDescriptor>, ParquetError> {
    let mut fields = schema.root_schema().get_fields().to_vec();
    for &at in read {
        let Some(field) = fields.get_mut(at) else { continue };
        let info = field.get_basic_info();
        let decimal = info.converted_type() == ConvertedType::DECIMAL
            || matches!(info.logical_type_ref(), Some(LogicalType::Decimal { .. }));
        let text = field.get_physical_type() == Physical::BYTE_ARRAY && !decimal;
        if text {
            *field = Type::primitive_type_builder(field.name(), Physical::BYTE_ARRAY)
                .with_repetition(info.repetition())
                .build()?
                .into();
        }
    }
    let root = Type::group_type_builder(schema.root_schema().name()).with_fields(fields).build()?;
    Ok(Arc::new(SchemaDescriptor::new(Arc::new(root))))
}

/// Indexes among the columns that are read, by their index in the file.
fn projected(places: Places, read: &[usize]) -> Places {
    let at = |place: usize| read.iter().position(|&read| read == place);
    Places {
        key: at(places.key).unwrap_or_default(),
        size: at(places.size).unwrap_or_default(),
        class: places.class.and_then(at),
        last_modified: places.last_modified.and_then(at),
        is_latest: places.is_latest.and_then(at),
        is_delete_marker: places.is_delete_marker.and_then(at),
        version_id: places.version_id.and_then(at),
        tier: places.tier.and_then(at),
    }
}

/// Checks that the positions in a footer are within the file.
fn check(metadata: &ParquetMetaData, size: u64) -> Result<(), ParquetError> {
    for group in metadata.row_groups() {
        counts(group, size)?;
        for column in group.columns() {
            let start =
                column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset());
            let start = u64::try_from(start).ok();
            let length = u64::try_from(column.compressed_size()).ok();
            let end = start.zip(length).and_then(|(start, length)| start.checked_add(length));
            if end.is_none_or(|end| end > size) {
                let column = column.column_path();
                return Err(ParquetError::General(format!("column {column} exceeds the file")));
            }
        }
    }
    Ok(())
}

/// Rows and compressed bytes of a row group.
fn counts(group: &RowGroupMetaData, size: u64) -> Result<(u64, u64), ParquetError> {
    let bytes = group.columns().iter().try_fold(0_u64, |bytes, column| {
        bytes.checked_add(u64::try_from(column.compressed_size()).ok()?)
    });
    let bytes = bytes.filter(|&bytes| bytes <= size);
    let rows = u64::try_from(group.num_rows()).ok();
    rows.zip(bytes).ok_or_else(|| {
        ParquetError::General("a row group has an impossible size or number of rows".to_owned())
    })
}
