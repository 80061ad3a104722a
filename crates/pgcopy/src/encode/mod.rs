//! The encoder: batches of Arrow to tuples of binary COPY.
//!
//! | room | what it does |
//! |---|---|
//! | [`conform`] | brings a column to the one Arrow type its wire form has, where it has another |
//! | [`cells`] | writes the values of one column, downcast once a batch |
//!
//! Invariants:
//! * What the decoder made of a tuple is encoded to the same bytes.
//! * A value that has no exact form on the wire is an error that names its row, never another value.
//! * After an error `out` is as it was.

mod cells;
mod conform;

use std::ops::Range;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{DataType, Schema};

use self::cells::View;
use crate::column::{Column, UnfitType};
use crate::error::EncodeError;
use crate::hash::ContentHash;

/// Encodes batches of one schema as tuples of binary COPY.
///
/// Tuples only: the owner of the stream writes [`HEADER`](crate::HEADER) and
/// [`TRAILER`](crate::TRAILER).
#[derive(Debug, Clone)]
pub struct Encoder {
    columns: Vec<Column>,
    /// Type of each column in the batches.
    from: Vec<DataType>,
    /// Type of each column on the wire.
    to: Vec<DataType>,
}

impl Encoder {
    /// An encoder of batches of `schema` for a table of `columns`, in the same order.
    ///
    /// Columns whose Arrow type is not the one of the wire form are cast, batch by batch.
    ///
    /// # Errors
    /// A column cannot be cast, or there are more on one side; the error names the first.
    pub fn new(schema: &Schema, columns: &[Column]) -> Result<Self, UnfitType> {
        let from: Vec<_> = schema.fields().iter().map(|field| field.data_type().clone()).collect();
        let to: Vec<_> = columns.iter().map(|column| column.wire.data_type()).collect();
        for (index, column) in columns.iter().enumerate() {
            let data_type = from.get(index).cloned().unwrap_or(DataType::Null);
            if from.len() <= index || !conform::fits(&data_type, &column.wire) {
                let wanted = Some(column.sql_type.clone());
                return Err(UnfitType {
                    column: column.name.clone(),
                    data_type,
                    wanted,
                    named: None,
                });
            }
        }
        if let Some(field) = schema.fields().get(columns.len()) {
            let (column, data_type) = (field.name().clone(), field.data_type().clone());
            let wanted = Some("any column".to_owned());
            return Err(UnfitType { column, data_type, wanted, named: None });
        }
        Ok(Self { columns: columns.to_vec(), from, to })
    }

    /// Appends the rows of `range` as tuples, and returns their hash.
    ///
    /// # Errors
    /// A value has no exact form on the wire (the error names row and column), or the batch has not the
    /// schema the encoder was made for. Nothing is appended then.
    ///
    /// # Panics
    /// If `range` is not within the batch.
    pub fn encode(
        &self,
        batch: &RecordBatch,
        range: Range<usize>,
        out: &mut Vec<u8>,
    ) -> Result<ContentHash, EncodeError> {
        let before = out.len();
        let result = self.rows(batch, range, out, |_| {});
        if result.is_err() {
            out.truncate(before);
        }
        result
    }

    /// The hash of all rows of a batch.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    pub fn hash(&self, batch: &RecordBatch) -> Result<ContentHash, EncodeError> {
        self.rows(batch, 0..batch.num_rows(), &mut Vec::new(), Vec::clear)
    }

    /// Writes each row to `out`, hashes it, and lets `after` look at `out`.
    fn rows(
        &self,
        batch: &RecordBatch,
        range: Range<usize>,
        out: &mut Vec<u8>,
        after: impl Fn(&mut Vec<u8>),
    ) -> Result<ContentHash, EncodeError> {
        let arrays = self.conformed(batch, &range)?;
        let views: Vec<_> = arrays
            .iter()
            .zip(&self.columns)
            .map(|(array, column)| View::new(array.as_ref(), &column.wire))
            .collect();
        let count = u16::try_from(views.len()).unwrap_or(u16::MAX).to_be_bytes();
        let mut hash = ContentHash::default();
        for row in 0..range.len() {
            let start = out.len();
            out.extend_from_slice(&count);
            for (view, column) in views.iter().zip(&self.columns) {
                if let Err(reason) = view.put(row, out) {
                    let row = range.start + row;
                    return Err(EncodeError::Cell { row, column: column.name.clone(), reason });
                }
            }
            hash.add(&out[start..]);
            after(out);
        }
        Ok(hash)
    }

    /// The columns of `range`, each of the type its wire form has.
    fn conformed(
        &self,
        batch: &RecordBatch,
        range: &Range<usize>,
    ) -> Result<Vec<ArrayRef>, EncodeError> {
        let found = batch.columns();
        let types = self.from.iter().zip(&self.to).zip(&self.columns);
        let arrays = types.enumerate().map(|(index, ((from, to), column))| {
            let array = found.get(index);
            let Some(array) = array.filter(|array| array.data_type() == from) else {
                let found = array.map(|array| array.data_type().clone());
                return Err(EncodeError::Schema { index, expected: from.clone(), found });
            };
            let array = array.slice(range.start, range.len());
            conform::conform(&array, to, &column.wire).map_err(|failure| {
                failure.of(range.start, column.name.clone(), from.clone(), to.clone())
            })
        });
        arrays.collect()
    }
}
