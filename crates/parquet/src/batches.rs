//! Rows of a file as batches, whatever is in it, in bounded memory.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ParquetRecordBatchReader, RowGroups};
use parquet::arrow::{FieldLevels, ProjectionMask, parquet_to_arrow_field_levels};
use parquet::column::page::{PageIterator, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use parquet::file::reader::ChunkReader;

use crate::error::{Exceeded, ReadError, What};
use crate::leaf::{Leaf, viewed};
use crate::meter::Meter;
use crate::pages::Pages;

/// The part of the memory that the columns of a batch may take: a fourth. The rest is for pages.
const COLUMNS_PART: u64 = 4;
/// How many times fewer rows a batch has when one did not fit.
const FEWER: usize = 8;

/// What is read, and how.
#[derive(Debug)]
pub struct Plan<R> {
    /// The file.
    pub chunks: R,
    /// Its metadata, loaded from its [`Footer`](crate::Footer).
    pub metadata: ArrowReaderMetadata,
    /// The columns.
    pub mask: ProjectionMask,
    /// The row groups, in order.
    pub groups: Vec<usize>,
    /// Rows of a batch at most; it may have fewer.
    pub rows_max: usize,
    /// Bytes of memory.
    pub limit: u64,
}

/// The batches of some row groups.
///
/// Texts and bytes are views of the pages, whatever the schema of the file says; [`view_bytes`] has what a
/// copy of them takes, which may be far more than the limit. A batch holds what it needs of the file; the
/// limit is kept where it is dropped before the next one is asked for.
///
/// [`view_bytes`]: crate::view_bytes
pub struct Batches<R> {
    chunks: Arc<R>,
    metadata: ArrowReaderMetadata,
    levels: FieldLevels,
    schema: SchemaRef,
    leaves: Arc<[Leaf]>,
    groups: Vec<usize>,
    limit: u64,
    /// Bytes of a row, but for its texts.
    row_size: u64,
    /// Rows of a batch.
    rows: usize,
    /// Rows that were given, of all.
    given: u64,
    /// Rows that were read behind those, as one batch has them.
    ahead: Option<RecordBatch>,
    meter: Arc<Meter>,
    /// Nothing at the end, and after an error.
    reader: Option<ParquetRecordBatchReader>,
}

impl<R: ChunkReader + 'static> Batches<R> {
    /// Begins to read.
    ///
    /// # Errors
    /// The metadata contradicts itself, or one row of fixed size takes more than the limit.
    pub fn new(plan: Plan<R>) -> std::result::Result<Self, ReadError> {
        let Plan { chunks, metadata, mask, groups, rows_max, limit } = plan;
        let fields = viewed(metadata.schema().fields());
        let levels =
            parquet_to_arrow_field_levels(metadata.parquet_schema(), mask.clone(), Some(&fields))?;
        let kept =
            (0..metadata.parquet_schema().num_columns()).filter(|&at| mask.leaf_included(at));
        let of_roots: Vec<usize> =
            kept.map(|at| metadata.parquet_schema().get_column_root_idx(at)).collect();
        let chosen = fields.iter().enumerate().filter(|(at, _)| of_roots.contains(at));
        let schema = arrow::datatypes::Schema::new(
            chosen.map(|(_, field)| Arc::clone(field)).collect::<Vec<_>>(),
        );
        let leaves = Leaf::all(metadata.parquet_schema(), &mask, schema.fields());
        let row_size = leaves.iter().map(Leaf::decoded).fold(0, u64::saturating_add).max(1);
        let share = limit / COLUMNS_PART;
        if let Some(widest) = leaves.iter().max_by_key(|leaf| leaf.decoded())
            && row_size > share
        {
            return Err(ReadError::Exceeded(Exceeded {
                what: What::Row,
                row_group: groups.first().copied().unwrap_or(0),
                column: widest.path.clone(),
                page: 0,
                declared: row_size,
                held: 0,
                limit: share,
            }));
        }
        let rows = usize::try_from(share / row_size).unwrap_or(usize::MAX).min(rows_max).max(1);
        let mut batches = Self {
            chunks: Arc::new(chunks),
            metadata,
            levels,
            schema: Arc::new(schema),
            leaves: leaves.into(),
            groups,
            limit,
            row_size,
            rows,
            given: 0,
            ahead: None,
            meter: Arc::new(Meter::new(limit, 0)),
            reader: None,
        };
        batches.begin()?;
        Ok(batches)
    }

    /// The columns that are read.
    #[must_use]
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Begins at the first row that was not given.
    fn begin(&mut self) -> std::result::Result<(), ReadError> {
        (self.reader, self.ahead) = (None, None);
        let columns = self.row_size.saturating_mul(self.rows as u64);
        self.meter = Arc::new(Meter::new(self.limit, columns));
        // Row groups that were read to their end are left out; of the next, rows are read again.
        let mut passed = 0_u64;
        let mut groups = Vec::new();
        for &index in &self.groups {
            let group = self.metadata.metadata().row_groups().get(index);
            let rows = group.and_then(|group| u64::try_from(group.num_rows()).ok());
            let rows = rows.ok_or_else(|| {
                ParquetError::General(format!("row group {index} has an invalid number of rows"))
            })?;
            if groups.is_empty() && passed.saturating_add(rows) <= self.given {
                passed += rows;
            } else {
                groups.push(index);
            }
        }
        let parts = Parts {
            chunks: Arc::clone(&self.chunks),
            metadata: Arc::clone(self.metadata.metadata()),
            leaves: Arc::clone(&self.leaves),
            groups: groups.into(),
            meter: Arc::clone(&self.meter),
            rows: self.rows,
        };
        let mut reader = ParquetRecordBatchReader::try_new_with_row_groups(
            &self.levels,
            &parts,
            self.rows,
            None,
        )?;
        let mut again = self.given - passed;
        while again > 0 {
            self.meter.begin();
            let Some(batch) = reader.next().transpose()? else { break };
            let rows = batch.num_rows();
            let passed = usize::try_from(again).unwrap_or(rows).min(rows);
            again -= passed as u64;
            self.ahead = (passed < rows).then(|| batch.slice(passed, rows - passed));
        }
        self.reader = Some(reader);
        Ok(())
    }

    fn read(&mut self) -> std::result::Result<Option<RecordBatch>, ReadError> {
        if let Some(batch) = self.ahead.take() {
            self.given += batch.num_rows() as u64;
            return Ok(Some(batch));
        }
        loop {
            let Some(reader) = &mut self.reader else { return Ok(None) };
            self.meter.begin();
            let error = match reader.next() {
                None => return Ok(None),
                Some(Ok(batch)) => {
                    self.given += batch.num_rows() as u64;
                    return Ok(Some(batch));
                }
                Some(Err(error)) => error,
            };
            match self.meter.fault() {
                None => return Err(error.into()),
                Some(exceeded) if self.rows == 1 => return Err(exceeded.into()),
                Some(_) => {}
            }
            self.rows = (self.rows / FEWER).max(1);
            while let Err(error) = self.begin() {
                match self.meter.fault() {
                    None => return Err(error),
                    Some(exceeded) if self.rows == 1 => return Err(exceeded.into()),
                    Some(_) => self.rows = (self.rows / FEWER).max(1),
                }
            }
            if let Some(batch) = self.ahead.take() {
                self.given += batch.num_rows() as u64;
                return Ok(Some(batch));
            }
        }
    }
}

impl<R: ChunkReader + 'static> Iterator for Batches<R> {
    type Item = std::result::Result<RecordBatch, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let read = self.read();
        if !matches!(read, Ok(Some(_))) {
            self.reader = None;
        }
        read.transpose()
    }
}

/// The row groups that are read, as the decoder asks for them.
struct Parts<R> {
    chunks: Arc<R>,
    metadata: Arc<ParquetMetaData>,
    leaves: Arc<[Leaf]>,
    groups: Arc<[usize]>,
    meter: Arc<Meter>,
    rows: usize,
}

impl<R: ChunkReader + 'static> RowGroups for Parts<R> {
    fn num_rows(&self) -> usize {
        let rows = self.row_groups().map(|group| usize::try_from(group.num_rows()).unwrap_or(0));
        rows.fold(0, usize::saturating_add)
    }

    fn column_chunks(&self, column: usize) -> Result<Box<dyn PageIterator>> {
        let leaf = self.leaves.iter().find(|leaf| leaf.index == column).cloned();
        let leaf = leaf.ok_or_else(|| crate::error::damaged("a column was not selected"))?;
        Ok(Box::new(Columns {
            chunks: Arc::clone(&self.chunks),
            metadata: Arc::clone(&self.metadata),
            groups: Arc::clone(&self.groups),
            next: 0,
            leaf,
            meter: Arc::clone(&self.meter),
            rows: self.rows,
        }))
    }

    fn row_groups(&self) -> Box<dyn Iterator<Item = &RowGroupMetaData> + '_> {
        let groups = self.metadata.row_groups();
        Box::new(self.groups.iter().filter_map(|&index| groups.get(index)))
    }

    fn metadata(&self) -> &ParquetMetaData {
        &self.metadata
    }
}

/// A column in one row group after the other.
struct Columns<R> {
    chunks: Arc<R>,
    metadata: Arc<ParquetMetaData>,
    groups: Arc<[usize]>,
    next: usize,
    leaf: Leaf,
    meter: Arc<Meter>,
    rows: usize,
}

impl<R: ChunkReader + 'static> Iterator for Columns<R> {
    type Item = Result<Box<dyn PageReader>>;

    fn next(&mut self) -> Option<Self::Item> {
        let index = *self.groups.get(self.next)?;
        let group = self.metadata.row_groups().get(index)?;
        self.next += 1;
        let (chunks, meter) = (Arc::clone(&self.chunks), Arc::clone(&self.meter));
        let pages = Pages::new(chunks, meter, self.leaf.clone(), (index, group), self.rows);
        Some(pages.map(|pages| Box::new(pages) as Box<dyn PageReader>))
    }
}

impl<R: ChunkReader + 'static> PageIterator for Columns<R> {}
