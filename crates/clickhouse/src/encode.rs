//! Rows as they are sent: a stream of Arrow, compressed.
//!
//! The columns of a stream are named `c0`, `c1` and so on, so that no name from outside is in the structure of `input`.

use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, AsArray as _, ListArray, RecordBatch, RecordBatchOptions, StringBuilder,
    UInt64Array, make_array,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::error::ArrowError;
use arrow::ipc::writer::StreamWriter;
use forebay_pgcopy::{Column, Wire};
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::values::write::texts;
use uuid::Uuid;

use crate::client::Body;
use crate::settings::Compression;
use crate::types::is_text;

/// Level of Zstandard: more would take longer than a fast network.
const ZSTD_LEVEL: i32 = 1;

/// What encoded bytes are written to.
enum Sink {
    Plain(Vec<u8>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
}

impl std::io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Plain(out) => out.write(bytes),
            Self::Zstd(out) => out.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Encodes the rows of one block.
pub(crate) struct Block {
    writer: StreamWriter<Sink>,
    schema: SchemaRef,
    /// Number of rows.
    pub(crate) rows: u64,
    /// Their size as batches, in bytes.
    pub(crate) size: u64,
}

impl Block {
    /// Creates a block without rows.
    ///
    /// * `has_versions`: whether a column with the version of each row follows the others.
    pub(crate) fn new(
        columns: &[Column],
        has_versions: bool,
        compression: Compression,
    ) -> Result<Self> {
        let sink = match compression {
            Compression::None => Sink::Plain(Vec::new()),
            Compression::Zstd => {
                let encoder = zstd::stream::write::Encoder::new(Vec::new(), ZSTD_LEVEL);
                Sink::Zstd(encoder.map_err(|error| refused(error.into()))?)
            }
        };
        let mut fields: Vec<Field> = columns
            .iter()
            .enumerate()
            .map(|(at, column)| Field::new(format!("c{at}"), sent_type(&column.wire), true))
            .collect();
        if has_versions {
            fields.push(Field::new("version", DataType::UInt64, false));
        }
        let schema = Arc::new(Schema::new(fields));
        let writer = StreamWriter::try_new(sink, &schema).map_err(|error| refused(error.into()))?;
        Ok(Self { writer, schema, rows: 0, size: 0 })
    }

    /// Adds rows, all of whose values can be stored.
    ///
    /// * `versions`: those of the rows, if it has them.
    pub(crate) fn add(
        &mut self,
        batch: &RecordBatch,
        columns: &[Column],
        versions: Option<UInt64Array>,
    ) -> Result<()> {
        let mut arrays = Vec::with_capacity(batch.num_columns() + 1);
        for (array, column) in batch.columns().iter().zip(columns) {
            arrays.push(to_sent(array, column)?);
        }
        if let Some(versions) = versions {
            arrays.push(Arc::new(versions));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let sent = RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)
            .map_err(|error| refused(error.into()))?;
        self.writer.write(&sent).map_err(|error| refused(error.into()))?;
        self.rows += batch.num_rows() as u64;
        self.size += sent.get_array_memory_size() as u64;
        Ok(())
    }

    /// Number of bytes that wait.
    pub(crate) fn held(&self) -> u64 {
        match self.writer.get_ref() {
            Sink::Plain(out) => out.len() as u64,
            Sink::Zstd(out) => out.get_ref().len() as u64,
        }
    }

    /// Ends the block.
    pub(crate) fn finish(self) -> Result<Body> {
        let sink = self.writer.into_inner().map_err(|error| refused(error.into()))?;
        let (bytes, encoding) = match sink {
            Sink::Plain(out) => (out, None),
            Sink::Zstd(out) => (out.finish().map_err(|error| refused(error.into()))?, Some("zstd")),
        };
        Ok(Body { bytes: bytes.into(), encoding })
    }
}

fn refused(source: Box<dyn std::error::Error + Send + Sync>) -> ConnectorError {
    ConnectorError::Refused { act: "encode rows".into(), source }
}

/// The type of Arrow that a wire form is sent as.
fn sent_type(wire: &Wire) -> DataType {
    match wire {
        wire if is_text(wire) => DataType::Utf8,
        Wire::Uuid => DataType::Utf8,
        Wire::Timestamp => Wire::TimestampTz.data_type(),
        Wire::Array { element, .. } => DataType::new_list(sent_type(element), true),
        wire => wire.data_type(),
    }
}

/// Values of a column as they are sent.
fn to_sent(array: &ArrayRef, column: &Column) -> Result<ArrayRef> {
    if !is_text(&column.wire) {
        return values(array, &column.wire).map_err(|error| refused(error.into()));
    }
    Ok(Arc::new(texts(array, column)?))
}

fn values(array: &ArrayRef, wire: &Wire) -> Result<ArrayRef, ArrowError> {
    match wire {
        Wire::Uuid => {
            let mut builder = StringBuilder::new();
            let bytes = array.as_fixed_size_binary_opt();
            let bytes = bytes.ok_or_else(|| ArrowError::CastError("a UUID has 16 bytes".into()))?;
            for value in bytes {
                match value.map(Uuid::from_slice).transpose() {
                    Ok(value) => builder.append_option(value.map(|uuid| uuid.to_string())),
                    Err(error) => return Err(ArrowError::ExternalError(error.into())),
                }
            }
            Ok(Arc::new(builder.finish()))
        }
        Wire::Timestamp => {
            relabelled(array, DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())))
        }
        Wire::Array { element, .. } => {
            let lists = array.as_list_opt::<i32>();
            let lists = lists.ok_or_else(|| ArrowError::CastError("an array is a list".into()))?;
            let inner = values(lists.values(), element)?;
            let field = Field::new("item", inner.data_type().clone(), true);
            let nulls = lists.nulls().cloned();
            let lists = ListArray::try_new(field.into(), lists.offsets().clone(), inner, nulls)?;
            Ok(Arc::new(lists))
        }
        _ => Ok(Arc::clone(array)),
    }
}

/// The same values with another type of the same layout.
pub(crate) fn relabelled(array: &ArrayRef, to: DataType) -> Result<ArrayRef, ArrowError> {
    array.to_data().into_builder().data_type(to).build().map(make_array)
}
