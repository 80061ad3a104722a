//! Arrow columns, read one value at a time as [`Value`]s.
//!
//! Invariant: values are exact. Types without a counterpart become equivalent text (dates, times,
//! intervals) or JSON (lists, structs, maps), never something rounded; unsigned 64-bit numbers and
//! decimals are written in full.

use std::fmt::Write as _;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Float64Array, Int64Array, StringArray,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef};
use arrow::error::ArrowError;
use arrow::json::writer::{EncoderOptions, make_encoder};
use arrow::util::display::{ArrayFormatter, FormatOptions};

use crate::column::{ColumnType, Value};

/// The column type that holds every value of an Arrow type.
pub(crate) fn column_type(ty: &DataType) -> ColumnType {
    match ty {
        DataType::Boolean => ColumnType::Boolean,
        DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::UInt8
        | DataType::UInt16
        | DataType::UInt32 => ColumnType::Integer,
        DataType::Float16 | DataType::Float32 | DataType::Float64 => ColumnType::Real,
        DataType::UInt64
        | DataType::Decimal32(..)
        | DataType::Decimal64(..)
        | DataType::Decimal128(..)
        | DataType::Decimal256(..) => ColumnType::Decimal,
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => ColumnType::Bytes,
        DataType::List(_)
        | DataType::ListView(_)
        | DataType::LargeList(_)
        | DataType::LargeListView(_)
        | DataType::FixedSizeList(..)
        | DataType::Struct(_)
        | DataType::Union(..)
        | DataType::Map(..) => ColumnType::Json,
        DataType::Dictionary(_, values) => column_type(values),
        DataType::RunEndEncoded(_, values) => column_type(values.data_type()),
        _ => ColumnType::Text,
    }
}

/// A column being read.
pub(crate) struct Cells {
    kind: Kind,
    /// The text of the last value, if it had to be formatted.
    text: String,
}

enum Kind {
    Boolean(BooleanArray),
    Integer(Int64Array),
    Real(Float64Array),
    Text(StringArray),
    Bytes(BinaryArray),
    /// Printed value by value: exact numbers, or dates and times.
    Printed {
        array: ArrayRef,
        number: bool,
    },
    /// JSON, made for the whole column at once.
    Json(Vec<Option<String>>),
}

impl Cells {
    /// Prepares `array`, a column of the batch, to be read.
    pub(crate) fn new(field: &FieldRef, array: &ArrayRef) -> Result<Cells, ArrowError> {
        let array = plain(array)?;
        // These casts widen: they keep every value and cannot fail.
        let kind = match column_type(array.data_type()) {
            ColumnType::Boolean => Kind::Boolean(array.as_boolean().clone()),
            ColumnType::Integer => {
                Kind::Integer(cast(&array, &DataType::Int64)?.as_primitive().clone())
            }
            ColumnType::Real => {
                Kind::Real(cast(&array, &DataType::Float64)?.as_primitive().clone())
            }
            ColumnType::Bytes => Kind::Bytes(cast(&array, &DataType::Binary)?.as_binary().clone()),
            ColumnType::Decimal => Kind::Printed { array, number: true },
            ColumnType::Json => Kind::Json(json(field, &array)?),
            ColumnType::Text => match array.data_type() {
                DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
                    Kind::Text(cast(&array, &DataType::Utf8)?.as_string().clone())
                }
                _ => Kind::Printed { array, number: false },
            },
        };
        if let Kind::Printed { array, .. } = &kind {
            // Checks now, not in the middle of a batch, whether the type can be printed.
            ArrayFormatter::try_new(array, &FormatOptions::default())?;
        }
        Ok(Cells { kind, text: String::new() })
    }

    /// The value of a row that exists.
    pub(crate) fn value(&mut self, row: usize) -> Value<'_> {
        match &self.kind {
            Kind::Boolean(array) if array.is_valid(row) => Value::Boolean(array.value(row)),
            Kind::Integer(array) if array.is_valid(row) => Value::Integer(array.value(row)),
            Kind::Real(array) if array.is_valid(row) => Value::Real(array.value(row)),
            Kind::Text(array) if array.is_valid(row) => Value::Text(array.value(row)),
            Kind::Bytes(array) if array.is_valid(row) => Value::Bytes(array.value(row)),
            Kind::Json(values) => {
                values.get(row).and_then(Option::as_deref).map_or(Value::Null, Value::Json)
            }
            Kind::Printed { array, number } if array.is_valid(row) => {
                self.text.clear();
                let options = FormatOptions::default();
                let printed = ArrayFormatter::try_new(array, &options)
                    .is_ok_and(|formatter| write!(self.text, "{}", formatter.value(row)).is_ok());
                match (printed, number) {
                    (false, _) => Value::Null,
                    (true, true) => Value::Number(&self.text),
                    (true, false) => Value::Text(&self.text),
                }
            }
            _ => Value::Null,
        }
    }
}

/// The array without dictionary or run-length encoding.
fn plain(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    match array.data_type() {
        DataType::Dictionary(_, values) => cast(array, values),
        DataType::RunEndEncoded(_, values) => cast(array, values.data_type()),
        _ => Ok(Arc::clone(array)),
    }
}

fn json(field: &FieldRef, array: &ArrayRef) -> Result<Vec<Option<String>>, ArrowError> {
    let options = EncoderOptions::default().with_explicit_nulls(true);
    // The field may still name the encoding that `plain` took off.
    let field: FieldRef = Arc::new(Field::new(field.name(), array.data_type().clone(), true));
    let mut encoder = make_encoder(&field, array, &options)?;
    (0..array.len())
        .map(|row| {
            if array.is_null(row) {
                return Ok(None);
            }
            let mut bytes = Vec::new();
            encoder.encode(row, &mut bytes);
            let text = String::from_utf8(bytes);
            text.map(Some).map_err(|error| ArrowError::JsonError(error.to_string()))
        })
        .collect()
}
