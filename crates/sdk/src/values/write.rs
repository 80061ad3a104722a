//! Cells of a batch as text and as JSON.
//!
//! A column is examined once per batch ([`Cells::new`]); a cell then costs one match and no
//! allocation.

use std::io::Write as _;

use arrow::array::{
    Array, AsArray, BinaryArray, BooleanArray, FixedSizeBinaryArray, ListArray, PrimitiveArray,
    RecordBatch, StringArray, StringBuilder,
};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Decimal256Type, Float32Type, Float64Type, Int16Type,
    Int32Type, Int64Type, IntervalMonthDayNanoType, IntervalUnit, Time64MicrosecondType, TimeUnit,
    TimestampMicrosecondType, UInt32Type,
};
use base64::engine::general_purpose::STANDARD as BASE64;
use forebay_pgcopy::{Column, Wire};

use super::{time, types};
use crate::error::ConnectorError;

/// The values of one column of a batch.
pub struct Cells<'a> {
    array: &'a dyn Array,
    kind: Kind<'a>,
}

enum Kind<'a> {
    Bool(&'a BooleanArray),
    Int2(&'a PrimitiveArray<Int16Type>),
    Int4(&'a PrimitiveArray<Int32Type>),
    Int8(&'a PrimitiveArray<Int64Type>),
    Oid(&'a PrimitiveArray<UInt32Type>),
    Float4(&'a PrimitiveArray<Float32Type>),
    Float8(&'a PrimitiveArray<Float64Type>),
    Decimal128(&'a PrimitiveArray<Decimal128Type>, i8),
    Decimal256(&'a PrimitiveArray<Decimal256Type>, i8),
    Numeric(&'a StringArray),
    Text(&'a StringArray),
    Json(&'a StringArray),
    Bytes(&'a BinaryArray),
    Uuid(&'a FixedSizeBinaryArray),
    Date(&'a PrimitiveArray<Date32Type>),
    Time(&'a PrimitiveArray<Time64MicrosecondType>),
    Timestamp(&'a PrimitiveArray<TimestampMicrosecondType>, bool),
    Interval(&'a PrimitiveArray<IntervalMonthDayNanoType>),
    List(&'a ListArray, Box<Cells<'a>>),
}

/// A value in one of the forms of databases without types.
pub enum Native<'a> {
    /// NULL.
    Null,
    /// A whole number or a boolean.
    Integer(i64),
    /// A floating-point number.
    Real(f64),
    /// A text.
    Text(&'a str),
    /// Bytes.
    Bytes(&'a [u8]),
    /// None of these: use its text.
    Other,
}

/// A column's values as text.
///
/// # Errors
/// The array is not of the column's own Arrow type.
pub fn texts(array: &dyn Array, column: &Column) -> Result<StringArray, ConnectorError> {
    let cells = Cells::new(array, column)?;
    let mut builder = StringBuilder::new();
    let mut text = Vec::new();
    for row in 0..array.len() {
        if cells.is_null(row) {
            builder.append_null();
            continue;
        }
        text.clear();
        cells.text(row, &mut text);
        let text = std::str::from_utf8(&text).map_err(|error| {
            ConnectorError::data(format!("column {:?}", column.name), error.to_string())
        })?;
        builder.append_value(text);
    }
    Ok(builder.finish())
}

impl<'a> Cells<'a> {
    /// The cells of an array of a column's own Arrow type.
    ///
    /// # Errors
    /// It is of another type.
    pub fn new(array: &'a dyn Array, column: &Column) -> Result<Self, ConnectorError> {
        let is_json = types::is_json(column);
        Self::of(array, &column.wire, is_json).ok_or_else(|| {
            let found = format!("is {}, not {}", array.data_type(), column.wire.data_type());
            ConnectorError::data(format!("column {:?}", column.name), found)
        })
    }

    fn of(array: &'a dyn Array, wire: &Wire, is_json: bool) -> Option<Self> {
        let kind = match array.data_type() {
            DataType::Boolean => Kind::Bool(array.as_boolean_opt()?),
            DataType::Int16 => Kind::Int2(array.as_primitive_opt()?),
            DataType::Int32 => Kind::Int4(array.as_primitive_opt()?),
            DataType::Int64 => Kind::Int8(array.as_primitive_opt()?),
            DataType::UInt32 => Kind::Oid(array.as_primitive_opt()?),
            DataType::Float32 => Kind::Float4(array.as_primitive_opt()?),
            DataType::Float64 => Kind::Float8(array.as_primitive_opt()?),
            DataType::Decimal128(_, scale) => Kind::Decimal128(array.as_primitive_opt()?, *scale),
            DataType::Decimal256(_, scale) => Kind::Decimal256(array.as_primitive_opt()?, *scale),
            DataType::Utf8 if is_json => Kind::Json(array.as_string_opt()?),
            DataType::Utf8 if *wire == Wire::Numeric => Kind::Numeric(array.as_string_opt()?),
            DataType::Utf8 => Kind::Text(array.as_string_opt()?),
            DataType::Binary => Kind::Bytes(array.as_binary_opt()?),
            DataType::FixedSizeBinary(16) => Kind::Uuid(array.as_fixed_size_binary_opt()?),
            DataType::Date32 => Kind::Date(array.as_primitive_opt()?),
            DataType::Time64(TimeUnit::Microsecond) => Kind::Time(array.as_primitive_opt()?),
            DataType::Timestamp(TimeUnit::Microsecond, zone) => {
                Kind::Timestamp(array.as_primitive_opt()?, zone.is_some())
            }
            DataType::Interval(IntervalUnit::MonthDayNano) => {
                Kind::Interval(array.as_primitive_opt()?)
            }
            DataType::List(_) => {
                let Wire::Array { element, .. } = wire else { return None };
                let list = array.as_list_opt::<i32>()?;
                let is_json = **element == Wire::Jsonb;
                Kind::List(list, Box::new(Self::of(list.values().as_ref(), element, is_json)?))
            }
            _ => return None,
        };
        Some(Self { array, kind })
    }

    /// Whether a cell is NULL.
    #[inline]
    pub fn is_null(&self, row: usize) -> bool {
        self.array.is_null(row)
    }

    /// Whether the values are JSON already.
    pub fn is_json(&self) -> bool {
        matches!(self.kind, Kind::Json(_))
    }

    /// A value, if it has one of the plain forms.
    pub fn native(&self, row: usize) -> Native<'a> {
        if self.is_null(row) {
            return Native::Null;
        }
        match &self.kind {
            Kind::Bool(array) => Native::Integer(array.value(row).into()),
            Kind::Int2(array) => Native::Integer(array.value(row).into()),
            Kind::Int4(array) => Native::Integer(array.value(row).into()),
            Kind::Int8(array) => Native::Integer(array.value(row)),
            Kind::Oid(array) => Native::Integer(array.value(row).into()),
            Kind::Float4(array) => Native::Real(array.value(row).into()),
            Kind::Float8(array) => Native::Real(array.value(row)),
            Kind::Numeric(array) | Kind::Text(array) | Kind::Json(array) => {
                Native::Text(array.value(row))
            }
            Kind::Bytes(array) => Native::Bytes(array.value(row)),
            _ => Native::Other,
        }
    }

    /// Appends a value as text. NULL appends nothing.
    pub fn text(&self, row: usize, out: &mut Vec<u8>) {
        if self.is_null(row) {
            return;
        }
        match &self.kind {
            Kind::Bool(array) => {
                out.extend_from_slice(if array.value(row) { b"true" } else { b"false" });
            }
            Kind::Int2(array) => put(out, array.value(row)),
            Kind::Int4(array) => put(out, array.value(row)),
            Kind::Int8(array) => put(out, array.value(row)),
            Kind::Oid(array) => put(out, array.value(row)),
            Kind::Float4(array) => match array.value(row) {
                value if value.is_finite() => put_float(out, value),
                value => out.extend_from_slice(special(value.is_nan(), value > 0.0)),
            },
            Kind::Float8(array) => match array.value(row) {
                value if value.is_finite() => put_float(out, value),
                value => out.extend_from_slice(special(value.is_nan(), value > 0.0)),
            },
            Kind::Decimal128(array, scale) => {
                decimal(&array.value(row).to_string(), *scale, out);
            }
            Kind::Decimal256(array, scale) => {
                decimal(&array.value(row).to_string(), *scale, out);
            }
            Kind::Numeric(array) | Kind::Text(array) | Kind::Json(array) => {
                out.extend_from_slice(array.value(row).as_bytes());
            }
            Kind::Bytes(array) => {
                put(out, base64::display::Base64Display::new(array.value(row), &BASE64))
            }
            Kind::Uuid(array) => match uuid::Uuid::from_slice(array.value(row)) {
                Ok(uuid) => put(out, uuid),
                Err(_) => unreachable!("the array's values have 16 bytes by its type"),
            },
            Kind::Date(array) => time::write_date(array.value(row), out),
            Kind::Time(array) => time::write_time(array.value(row), out),
            Kind::Timestamp(array, is_utc) => time::write_timestamp(array.value(row), *is_utc, out),
            Kind::Interval(array) => time::write_interval(array.value(row), out),
            Kind::List(..) => self.json(row, out),
        }
    }

    /// Appends a value as JSON, on one line.
    pub fn json(&self, row: usize, out: &mut Vec<u8>) {
        if self.is_null(row) {
            out.extend_from_slice(b"null");
            return;
        }
        match &self.kind {
            Kind::Bool(_)
            | Kind::Int2(_)
            | Kind::Int4(_)
            | Kind::Int8(_)
            | Kind::Oid(_)
            | Kind::Decimal128(..)
            | Kind::Decimal256(..) => self.text(row, out),
            Kind::Float4(array) if array.value(row).is_finite() => self.text(row, out),
            Kind::Float8(array) if array.value(row).is_finite() => self.text(row, out),
            Kind::Numeric(array) if is_json_number(array.value(row)) => self.text(row, out),
            Kind::Numeric(array) | Kind::Text(array) => json_text(array.value(row), out),
            Kind::Json(array) => {
                let text = array.value(row).bytes();
                // Outside of JSON strings, which contain none, a line end is a space.
                out.extend(
                    text.map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }),
                );
            }
            Kind::List(list, values) => {
                let offsets = list.value_offsets();
                let at = |index: usize| offsets.get(index).and_then(|&at| usize::try_from(at).ok());
                let (from, to) = (at(row).unwrap_or(0), at(row + 1).unwrap_or(0));
                out.push(b'[');
                for index in from..to {
                    if index > from {
                        out.push(b',');
                    }
                    values.json(index, out);
                }
                out.push(b']');
            }
            _ => {
                // The remaining forms contain neither quotes nor backslashes.
                out.push(b'"');
                self.text(row, out);
                out.push(b'"');
            }
        }
    }
}

/// Each row of a batch as a JSON object.
///
/// # Errors
/// An array is not of its column's type.
pub fn json_rows(batch: &RecordBatch, columns: &[Column]) -> Result<Vec<String>, ConnectorError> {
    let cells = batch.columns().iter().zip(columns);
    let cells = cells.map(|(array, column)| Cells::new(array.as_ref(), column));
    let cells: Vec<Cells<'_>> = cells.collect::<Result<_, _>>()?;
    let row = |row: usize| {
        let mut out = Vec::new();
        let mut mark = b'{';
        for (cells, column) in cells.iter().zip(columns) {
            out.push(mark);
            mark = b',';
            json_text(&column.name, &mut out);
            out.push(b':');
            cells.json(row, &mut out);
        }
        out.push(b'}');
        String::from_utf8_lossy(&out).into_owned()
    };
    Ok((0..batch.num_rows()).map(row).collect())
}

/// Appends a text as a JSON string.
pub fn json_text(text: &str, out: &mut Vec<u8>) {
    // A text can always be encoded as JSON, and a `Vec` accepts it.
    if serde_json::to_writer(&mut *out, text).is_err() {
        unreachable!("a text is written into memory");
    }
}

fn put(out: &mut Vec<u8>, value: impl std::fmt::Display) {
    // Writing into a `Vec` returns no error.
    drop(write!(out, "{value}"));
}

/// The shortest digits that parse as the same number, with an exponent if they would be many.
fn put_float(out: &mut Vec<u8>, value: impl std::fmt::Debug) {
    drop(write!(out, "{value:?}"));
}

fn special(is_nan: bool, is_positive: bool) -> &'static [u8] {
    match (is_nan, is_positive) {
        (true, _) => b"NaN",
        (_, true) => b"Infinity",
        _ => b"-Infinity",
    }
}

/// A decimal of these digits, `scale` of them after the point.
fn decimal(digits: &str, scale: i8, out: &mut Vec<u8>) {
    let digits = match digits.strip_prefix('-') {
        Some(digits) => {
            out.push(b'-');
            digits
        }
        None => digits,
    };
    let places = usize::from(scale.unsigned_abs());
    if scale <= 0 {
        out.extend_from_slice(digits.as_bytes());
        if digits != "0" {
            out.extend(std::iter::repeat_n(b'0', places));
        }
        return;
    }
    match digits.len().checked_sub(places).filter(|whole| *whole > 0) {
        Some(whole) => {
            let (whole, fraction) = digits.split_at(whole);
            out.extend_from_slice(whole.as_bytes());
            out.push(b'.');
            out.extend_from_slice(fraction.as_bytes());
        }
        None => {
            out.extend_from_slice(b"0.");
            out.extend(std::iter::repeat_n(b'0', places - digits.len()));
            out.extend_from_slice(digits.as_bytes());
        }
    }
}

/// Whether a numeric's text is a number in JSON (`NaN` and `Infinity` are not).
fn is_json_number(text: &str) -> bool {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, "0"));
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    is_digits(whole) && is_digits(fraction) && (whole == "0" || !whole.starts_with('0'))
}
