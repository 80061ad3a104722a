//! Stored rows, read back: a stream of Arrow that the server sends.
//!
//! Invariant: an answer that is cut off, or ends with an error, is an error and never fewer rows.

use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, AsArray as _, FixedSizeBinaryBuilder, ListArray, RecordBatch,
    RecordBatchOptions,
};
use arrow::buffer::Buffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field};
use arrow::ipc::reader::StreamDecoder;
use forebay_pgcopy::column::schema;
use forebay_pgcopy::{Column, ContentHash, Wire};
use forebay_sdk::cast::exact;
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::hash::Hasher;
use forebay_sdk::values::read::Builder;
use uuid::Uuid;

use crate::client::Server;
use crate::encode::relabelled;
use crate::types::{is_bytes, is_text};

/// The marker with which a stream of Arrow ends.
const END: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];

/// The content hash of the rows of a query.
///
/// * `act`: what is attempted, for messages.
/// * `sql`: a query with exactly these columns, as [`crate::types::read`] reads them.
pub(crate) async fn content(
    server: &Server,
    act: &str,
    sql: String,
    columns: &[Column],
) -> Result<ContentHash> {
    let mut answer = server.stream(act, format!("{sql}\nFORMAT ArrowStream")).await?;
    let mut hasher = Hasher::new(columns)?;
    let mut decoder = StreamDecoder::new();
    let mut last = Vec::new();
    let invalid =
        |found: String| ConnectorError::Refused { act: act.to_owned(), source: found.into() };
    loop {
        let chunk = answer.chunk().await.map_err(|error| ConnectorError::Unreachable {
            what: server.name(),
            source: error.without_url().into(),
        })?;
        let Some(chunk) = chunk else { break };
        last.extend_from_slice(
            chunk.get(chunk.len().saturating_sub(END.len())..).unwrap_or(&chunk),
        );
        last.drain(..last.len().saturating_sub(END.len()));
        let mut buffer = Buffer::from(chunk);
        while !buffer.is_empty() {
            let batch = decoder.decode(&mut buffer).map_err(|error| invalid(error.to_string()))?;
            let Some(batch) = batch else { break };
            hasher.add(&rows(&batch, columns)?)?;
        }
        if !buffer.is_empty() {
            return Err(invalid("the server reported an error after the rows".into()));
        }
    }
    // Without rows some servers send nothing at all.
    if last != END && hasher.content().rows > 0 {
        return Err(invalid("the answer ends before its last row".into()));
    }
    Ok(hasher.content())
}

/// A batch with the types of columns.
fn rows(batch: &RecordBatch, columns: &[Column]) -> Result<RecordBatch> {
    let arrays = batch.columns().iter().zip(columns);
    let arrays = arrays.map(|(array, column)| {
        from_stored(array, column)
            .map_err(|found| ConnectorError::data(format!("column {:?}", column.name), found))
    });
    let arrays = arrays.collect::<Result<Vec<_>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::new(schema(columns)), arrays, &options)
        .map_err(|error| ConnectorError::data("stored rows", error.to_string()))
}

fn from_stored(array: &ArrayRef, column: &Column) -> Result<ArrayRef, String> {
    if !is_text(&column.wire) {
        return values(array, &column.wire);
    }
    let texts = utf8(array)?;
    let mut builder = Builder::new(column);
    for text in texts.as_string::<i32>() {
        match text {
            Some(text) => builder.text(text).map_err(|found| found.to_string())?,
            None => builder.null(),
        }
    }
    Ok(builder.finish())
}

fn values(array: &ArrayRef, wire: &Wire) -> Result<ArrayRef, String> {
    match wire {
        Wire::Bytes | Wire::Opaque => exact(array, &DataType::Binary),
        Wire::Uuid => {
            let mut builder = FixedSizeBinaryBuilder::new(16);
            for text in utf8(array)?.as_string::<i32>() {
                match text.map(Uuid::parse_str).transpose().map_err(|error| error.to_string())? {
                    Some(uuid) => {
                        builder.append_value(uuid.as_bytes()).map_err(|error| error.to_string())?;
                    }
                    None => builder.append_null(),
                }
            }
            Ok(Arc::new(builder.finish()))
        }
        Wire::Timestamp | Wire::TimestampTz => {
            relabelled(array, wire.data_type()).map_err(|error| error.to_string())
        }
        Wire::Array { element, .. } => {
            let lists = array.as_list_opt::<i32>();
            let lists = lists.ok_or_else(|| format!("is {}, not a list", array.data_type()))?;
            let inner = values(lists.values(), element)?;
            let field = Field::new("item", element.data_type(), true);
            let (offsets, nulls) = (lists.offsets().clone(), lists.nulls().cloned());
            let lists = ListArray::try_new(field.into(), offsets, inner, nulls);
            Ok(Arc::new(lists.map_err(|error| error.to_string())?))
        }
        wire if is_bytes(wire) => utf8(array),
        wire => exact(array, &wire.data_type()),
    }
}

/// Texts, which the server sends as bytes.
fn utf8(array: &ArrayRef) -> Result<ArrayRef, String> {
    let bytes = cast(array, &DataType::Binary).map_err(|error| error.to_string())?;
    let texts = cast(&bytes, &DataType::Utf8).map_err(|error| error.to_string())?;
    // A cast makes NULL of what is not UTF-8.
    match texts.null_count() == bytes.null_count() {
        true => Ok(texts),
        false => Err("has a text that is not UTF-8".into()),
    }
}
