//! Rows as they cross between host and component: tuples, or a part of a stream of Arrow IPC.
//!
//! Invariant: the parts of one [`PartWriter`], in order, are one stream; a [`PartReader`] takes nothing else, and what
//! it takes was checked.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::buffer::Buffer;
use arrow::datatypes::{DataType, SchemaRef};
use arrow::ipc::reader::StreamDecoder;
use arrow::ipc::writer::StreamWriter;
use forebay_pgcopy::{Column, ContentHash, Decoder, column, hash_tuples};

use crate::error::ConnectorError;

fn broken(error: impl std::fmt::Display) -> ConnectorError {
    ConnectorError::data("rows between the host and a component", error.to_string())
}

/// Writes the parts of a stream.
pub struct PartWriter {
    schema: SchemaRef,
    writer: Option<StreamWriter<Vec<u8>>>,
}

impl PartWriter {
    /// A stream of these columns.
    #[must_use]
    pub fn new(columns: &[Column]) -> Self {
        Self { schema: column::schema(columns).into(), writer: None }
    }

    /// The next part.
    ///
    /// # Errors
    /// The rows have not the columns of the stream.
    pub fn part(&mut self, records: &RecordBatch) -> Result<Vec<u8>, ConnectorError> {
        if records.num_columns() != self.schema.fields().len() {
            let wanted = self.schema.fields().len();
            return Err(broken(format!("{} columns instead of {wanted}", records.num_columns())));
        }
        let mut writer = match self.writer.take() {
            Some(writer) => writer,
            None => StreamWriter::try_new(Vec::new(), &self.schema).map_err(broken)?,
        };
        writer.write(&self.plain(records)?).map_err(broken)?;
        let part = std::mem::take(writer.get_mut());
        self.writer = Some(writer);
        Ok(part)
    }
}

impl PartWriter {
    /// Rows in the plain types of the columns: a file may have others with the same values.
    fn plain(&self, records: &RecordBatch) -> Result<RecordBatch, ConnectorError> {
        let arrays = records.columns().iter().zip(self.schema.fields()).map(|(array, wanted)| {
            match array.data_type() == wanted.data_type() {
                true => Ok(Arc::clone(array)),
                false => converted(array, wanted.data_type()),
            }
        });
        let arrays = arrays.collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(records.num_rows()));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)
            .map_err(broken)
    }
}

/// Values in another type that has them.
#[cfg(not(target_family = "wasm"))]
fn converted(array: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, ConnectorError> {
    arrow::compute::cast(array, wanted).map_err(broken)
}

/// A component is small without the code of all conversions: it sends the types it has named.
#[cfg(target_family = "wasm")]
fn converted(array: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, ConnectorError> {
    Err(broken(format!("a column is {}, expected {wanted}", array.data_type())))
}

/// Reads the parts of a stream.
pub struct PartReader {
    schema: SchemaRef,
    decoder: StreamDecoder,
}

impl PartReader {
    /// A stream of these columns.
    #[must_use]
    pub fn new(columns: &[Column]) -> Self {
        // Buffers that are not aligned are copied.
        let decoder = StreamDecoder::new();
        Self { schema: column::schema(columns).into(), decoder }
    }

    /// The rows of a part; `None` if it has none.
    ///
    /// # Errors
    /// The part is not one of the stream, or its columns are others.
    pub fn records(&mut self, part: Vec<u8>) -> Result<Option<RecordBatch>, ConnectorError> {
        // The decoder checks what it is given, and panics where it finds a buffer too short.
        let decoded = catch_unwind(AssertUnwindSafe(|| self.decoded(part)));
        decoded.unwrap_or_else(|_| Err(broken("the part is damaged")))
    }

    fn decoded(&mut self, part: Vec<u8>) -> Result<Option<RecordBatch>, ConnectorError> {
        let mut part = Buffer::from(part);
        let mut found: Option<RecordBatch> = None;
        while !part.is_empty() {
            match self.decoder.decode(&mut part).map_err(broken)? {
                Some(_) if found.is_some() => return Err(broken("a part has more than one batch")),
                Some(records) => found = Some(records),
                None => {}
            }
        }
        found.map(|records| self.checked(records)).transpose()
    }

    /// The rows, with the fields of the stream's columns.
    fn checked(&self, records: RecordBatch) -> Result<RecordBatch, ConnectorError> {
        let (wanted, found) = (self.schema.fields(), records.schema());
        if wanted.len() != found.fields().len() {
            return Err(broken(format!(
                "{} columns instead of {}",
                found.fields().len(),
                wanted.len()
            )));
        }
        for (wanted, found) in wanted.iter().zip(found.fields()) {
            if wanted.name() != found.name() || wanted.data_type() != found.data_type() {
                return Err(broken(format!(
                    "the column {:?} is {:?} of {}, expected {:?} of {}",
                    found.name(),
                    found.name(),
                    found.data_type(),
                    wanted.name(),
                    wanted.data_type()
                )));
            }
        }
        RecordBatch::try_new(self.schema.clone(), records.columns().to_vec()).map_err(broken)
    }
}

/// Tuples as Arrow, and their content hash; `None` if there are none.
///
/// # Errors
/// They are not whole tuples of these columns.
pub fn tuples_records(
    tuples: &[u8],
    columns: &[Column],
) -> Result<Option<(RecordBatch, ContentHash)>, ConnectorError> {
    let mut decoder = Decoder::without_header(columns);
    decoder.push(tuples).map_err(broken)?;
    let made = decoder.finish().map_err(broken)?;
    Ok(made.filter(|(records, _)| records.num_rows() > 0))
}

/// The content hash of tuples.
///
/// * `columns`: number of fields of each.
///
/// # Errors
/// They are not whole tuples with this number of fields.
pub fn tuples_hash(tuples: &[u8], columns: usize) -> Result<ContentHash, ConnectorError> {
    let columns = u16::try_from(columns).map_err(broken)?;
    hash_tuples(tuples, columns).map_err(broken)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int32Array, StringArray};
    use forebay_pgcopy::Wire;

    use super::*;

    fn columns() -> Vec<Column> {
        let column = |name: &str, sql_type: &str, wire| Column {
            name: name.to_owned(),
            sql_type: sql_type.to_owned(),
            wire,
            nullable: true,
        };
        vec![column("id", "integer", Wire::Int4), column("name", "text", Wire::Text)]
    }

    fn batch(from: i32) -> RecordBatch {
        let ids: ArrayRef = Arc::new(Int32Array::from_iter_values(from..from + 3));
        let names: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None, Some("c")]));
        RecordBatch::try_new(column::schema(&columns()).into(), vec![ids, names]).unwrap()
    }

    #[test]
    fn parts_in_order_are_the_batches_that_were_written() {
        let (mut writer, mut reader) = (PartWriter::new(&columns()), PartReader::new(&columns()));
        for from in [0, 3, 6] {
            let part = writer.part(&batch(from)).unwrap();
            assert_eq!(reader.records(part).unwrap(), Some(batch(from)));
        }
        assert_eq!(reader.records(Vec::new()).unwrap(), None);
    }

    #[test]
    fn other_forms_of_the_same_values_cross_as_the_plain_ones() {
        let large: ArrayRef = Arc::new(arrow::array::LargeStringArray::from(vec!["a", "b"]));
        let ids: ArrayRef = Arc::new(arrow::array::Int16Array::from(vec![1, 2]));
        let found = RecordBatch::try_from_iter([("id", ids), ("name", large)]).unwrap();
        let part = PartWriter::new(&columns()).part(&found).unwrap();
        let read = PartReader::new(&columns()).records(part).unwrap().unwrap();
        assert_eq!(read.schema(), column::schema(&columns()).into());
        assert_eq!(read.num_rows(), 2);
    }

    #[test]
    fn tuples_become_the_records_that_they_are() {
        let tuples = [0, 2, 0, 0, 0, 4, 0, 0, 0, 7, 0, 0, 0, 2, b'h', b'i'];
        let (records, hash) = tuples_records(&tuples, &columns()).unwrap().unwrap();
        assert_eq!((records.num_rows(), hash), (1, tuples_hash(&tuples, 2).unwrap()));
        assert_eq!(tuples_records(&[], &columns()).unwrap(), None);
        for end in 1..tuples.len() {
            assert!(tuples_records(&tuples[..end], &columns()).is_err(), "{end}");
            assert!(tuples_hash(&tuples[..end], 2).is_err(), "{end}");
        }
    }

    #[test]
    fn a_part_of_another_stream_or_cut_is_an_error() {
        let part = PartWriter::new(&columns()).part(&batch(0)).unwrap();
        let mut others = columns();
        others.swap(0, 1);
        assert!(PartReader::new(&others).records(part.clone()).is_err());
        assert!(PartReader::new(&columns()[..1]).records(part.clone()).is_err());
        let mut twice = part.clone();
        twice.extend_from_slice(&part);
        assert!(PartReader::new(&columns()).records(twice).is_err());
        for at in (0..part.len()).step_by(7) {
            let mut damaged = part.clone();
            damaged[at] ^= 0x55;
            // No panic; rows may differ where only their values do.
            let read = PartReader::new(&columns()).records(damaged);
            assert!(
                read.is_err()
                    || read.is_ok_and(|rows| rows.is_none_or(|rows| rows.num_columns() == 2))
            );
        }
    }
}
