//! `mask`: hides values from the destination.
//!
//! Invariants:
//! * Only the output of its mask passes for a masked column: the array is a new one, and shares no
//!   buffer with the original.
//! * NULL stays NULL, and equal values under `hash` stay equal, across units, runs and streams with
//!   the same salt.

pub(super) mod settings;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, RecordBatch, StringArray, StringBuilder, UInt32Array, new_null_array,
};
use arrow::compute::take;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use forebay_pgcopy::{Column, Wire, column};
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::transform::Applied;
use forebay_sdk::values::read::Builder;
use forebay_sdk::values::types::is_json;
use forebay_sdk::values::write::Cells;
use ring::hmac;

use self::settings::{Mask, MaskSettings, Partial};
use super::step::{BatchPosition, Step};
use super::{padding, streams};

/// The replacement of a hidden text.
const STARS: &str = "***";
/// Number of hexadecimal digits of a hash.
const HASH_SIZE: usize = 64;

/// The masks of a stream.
pub(super) struct Masks {
    stream: String,
    /// The input columns.
    below: Vec<Column>,
    columns: Vec<Column>,
    schema: SchemaRef,
    /// Each with the index of its column.
    masks: Vec<(usize, Masking)>,
}

/// How the values of a column are masked.
enum Masking {
    /// By their HMAC-SHA-256.
    Hash(hmac::Key),
    /// By one value, the only one of this array.
    Constant(ArrayRef),
    /// By NULL.
    Nullify,
    /// By stars, except at the ends.
    Partial(Partial, bool),
}

impl Masks {
    /// The masks of a stream of these columns.
    ///
    /// # Errors
    /// A column does not exist, or a mask does not fit its type.
    pub(super) fn new(stream: &str, below: &[Column], settings: &MaskSettings) -> Result<Self> {
        let step = format!("mask of {stream}");
        let mut columns = below.to_vec();
        let mut masks = Vec::with_capacity(settings.columns.len());
        for (name, mask) in &settings.columns {
            let index = streams::column(below, name, &step)?;
            if let Some(column) = columns.get_mut(index) {
                masks.push((index, masking(column, mask, settings)?));
            }
        }
        let schema = Arc::new(column::schema(&columns));
        Ok(Self { stream: stream.to_owned(), below: below.to_vec(), columns, schema, masks })
    }
}

#[async_trait]
impl Step for Masks {
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn is_stable(&self) -> bool {
        true
    }

    fn note(&self) -> String {
        let masked = self.masks.iter().filter_map(|(index, _)| self.columns.get(*index));
        let masked: Vec<&str> = masked.map(|column| column.name.as_str()).collect();
        format!("{}: masked are {}", self.stream, streams::listed(masked.into_iter()))
    }

    async fn apply(&self, _: BatchPosition<'_>, records: RecordBatch) -> Result<Applied> {
        let rows = records.num_rows();
        let mut arrays = records.columns().to_vec();
        for (index, masking) in &self.masks {
            let (Some(array), Some(column)) = (arrays.get_mut(*index), self.below.get(*index))
            else {
                continue;
            };
            *array = masking.apply(array, column)?;
        }
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(rows));
        let records = RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options);
        let records = records.map_err(|error| unfit(&self.stream, &error))?;
        Ok(Applied { records, dead: Vec::new(), skipped: 0 })
    }
}

impl Masking {
    fn apply(&self, array: &ArrayRef, column: &Column) -> Result<ArrayRef> {
        match self {
            Self::Hash(key) => Ok(Arc::new(hashed(&Cells::new(array, column)?, array, key))),
            Self::Constant(value) => {
                let rows = (0..array.len()).map(|row| (!array.is_null(row)).then_some(0));
                take(value, &UInt32Array::from_iter(rows), None)
                    .map_err(|error| unfit(&column.name, &error))
            }
            Self::Nullify => Ok(new_null_array(&column.wire.data_type(), array.len())),
            Self::Partial(partial, is_padded) => {
                let texts = array.as_any().downcast_ref::<StringArray>();
                let texts = texts.ok_or_else(|| {
                    let found = format!("is {}, not text", array.data_type());
                    ConnectorError::data(format!("column {:?}", column.name), found)
                })?;
                Ok(Arc::new(starred(texts, *partial, *is_padded)))
            }
        }
    }
}

/// The mask of a column, which is changed to the column of the result.
fn masking(column: &mut Column, mask: &Mask, settings: &MaskSettings) -> Result<Masking> {
    let becomes_text = |column: &mut Column| {
        column.wire = Wire::Text;
        column.sql_type = "text".into();
    };
    Ok(match mask {
        Mask::Hash => {
            let salt = settings.salt.as_ref().map_or("", |salt| salt.expose());
            becomes_text(column);
            Masking::Hash(hmac::Key::new(hmac::HMAC_SHA256, salt.as_bytes()))
        }
        Mask::Text(text) => {
            becomes_text(column);
            Masking::Constant(Arc::new(StringArray::from(vec![text.0.as_str()])))
        }
        Mask::Redact => match nothing(column) {
            Some(text) => Masking::Constant(constant(column, text)?),
            None => {
                becomes_text(column);
                Masking::Constant(Arc::new(StringArray::from(vec![STARS])))
            }
        },
        Mask::Nullify => {
            column.nullable = true;
            Masking::Nullify
        }
        Mask::Partial(partial) => {
            if column.wire != Wire::Text || is_json(column) {
                return Err(ConnectorError::unsupported(
                    format!("`partial` is for texts; {:?} is {}", column.name, column.sql_type),
                    "mask it with hash, redact, nullify or a text",
                ));
            }
            let is_padded = padding::is_padded(column);
            if !column.sql_type.starts_with("character") {
                becomes_text(column);
            }
            Masking::Partial(*partial, is_padded)
        }
    })
}

/// The neutral value of a column's own type, as JSON; `None` if there is none.
fn nothing(column: &Column) -> Option<&'static str> {
    Some(match &column.wire {
        Wire::Bool => "false",
        Wire::Int2
        | Wire::Int4
        | Wire::Int8
        | Wire::Oid
        | Wire::Float4
        | Wire::Float8
        | Wire::Money
        | Wire::Decimal { .. }
        | Wire::Numeric => "0",
        Wire::Date => "1970-01-01",
        Wire::Time => "00:00:00",
        Wire::Timestamp => "1970-01-01T00:00:00",
        Wire::TimestampTz => "1970-01-01T00:00:00Z",
        Wire::Interval => "PT0S",
        Wire::Uuid => "00000000-0000-0000-0000-000000000000",
        Wire::Bytes => "",
        Wire::Array { .. } => "[]",
        _ if is_json(column) => "\"***\"",
        _ => return None,
    })
}

/// An array of one value of a column.
fn constant(column: &Column, text: &str) -> Result<ArrayRef> {
    let mut builder = Builder::new(column);
    builder
        .text(text)
        .map_err(|found| ConnectorError::data(format!("{:?}", column.name), found))?;
    Ok(builder.finish())
}

/// The HMAC of each value's text.
fn hashed(cells: &Cells<'_>, array: &ArrayRef, key: &hmac::Key) -> StringArray {
    let rows = array.len();
    let mut hashes = StringBuilder::with_capacity(rows, (rows - array.null_count()) * HASH_SIZE);
    let mut text = Vec::new();
    let mut digits = String::with_capacity(HASH_SIZE);
    for row in 0..rows {
        if cells.is_null(row) {
            hashes.append_null();
            continue;
        }
        text.clear();
        cells.text(row, &mut text);
        digits.clear();
        for byte in hmac::sign(key, &text).as_ref() {
            for digit in [byte >> 4, byte & 15] {
                digits.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
            }
        }
        hashes.append_value(&digits);
    }
    hashes.finish()
}

/// Texts with stars, except at their ends.
///
/// * `is_padded`: whether spaces at the end are no part of the text.
fn starred(texts: &StringArray, partial: Partial, is_padded: bool) -> StringArray {
    let (first, last) = (usize::from(partial.first), usize::from(partial.last));
    let mut masked = StringBuilder::with_capacity(texts.len(), texts.values().len());
    let mut starred = String::new();
    for text in texts {
        let Some(text) = text else {
            masked.append_null();
            continue;
        };
        let text = if is_padded { text.trim_end_matches(' ') } else { text };
        let count = text.chars().count();
        // A text as short as its visible ends would be shown completely.
        let (first, last) = if count > first + last { (first, last) } else { (0, 0) };
        starred.clear();
        for (index, character) in text.chars().enumerate() {
            let stays = index < first || index >= count - last;
            starred.push(if stays { character } else { '*' });
        }
        masked.append_value(&starred);
    }
    masked.finish()
}

fn unfit(place: &str, error: &arrow::error::ArrowError) -> ConnectorError {
    ConnectorError::data(place, error.to_string())
}
