//! Values of one column, written as fields: length (4 bytes), -1 for NULL, then the bytes.

use arrow::array::types::{
    Date32Type, Decimal128Type, Decimal256Type, Float32Type, Float64Type, Int16Type, Int32Type,
    Int64Type, IntervalMonthDayNanoType, Time64MicrosecondType, TimestampMicrosecondType,
    UInt32Type,
};
use arrow::array::{
    Array, AsArray as _, BinaryArray, BooleanArray, FixedSizeBinaryArray, StringArray,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{IntervalMonthDayNano, i256};

use crate::column::Wire;
use crate::error::CellError;
use crate::frame::TUPLE_SIZE_MAX;
use crate::{decimal, text, time};

/// A column, downcast.
pub(super) struct View<'a> {
    nulls: Option<&'a NullBuffer>,
    cells: Cells<'a>,
}

enum Cells<'a> {
    Bool(&'a BooleanArray),
    Int2(&'a [i16]),
    Int4(&'a [i32]),
    Int8(&'a [i64]),
    Oid(&'a [u32]),
    Float4(&'a [f32]),
    Float8(&'a [f64]),
    Decimal128(&'a [i128], i8),
    Decimal256(&'a [i256], i8),
    Date(&'a [i32]),
    Time(&'a [i64]),
    Timestamp(&'a [i64]),
    Interval(&'a [IntervalMonthDayNano]),
    Uuid(&'a FixedSizeBinaryArray),
    Text(&'a StringArray),
    Bytes(&'a BinaryArray),
    Jsonb(&'a StringArray),
    /// A type whose text is read by the function.
    Worded(&'a StringArray, fn(&str, &mut Vec<u8>) -> Result<(), CellError>),
    Array {
        offsets: &'a [i32],
        elements: Box<View<'a>>,
        element_oid: u32,
    },
}

impl<'a> View<'a> {
    /// A view of an array of the wire form's own type (see `conform`).
    pub(super) fn new(array: &'a dyn Array, wire: &Wire) -> Self {
        let cells = match wire {
            Wire::Bool => Cells::Bool(array.as_boolean()),
            Wire::Int2 => Cells::Int2(array.as_primitive::<Int16Type>().values()),
            Wire::Int4 => Cells::Int4(array.as_primitive::<Int32Type>().values()),
            Wire::Int8 | Wire::Money => Cells::Int8(array.as_primitive::<Int64Type>().values()),
            Wire::Oid => Cells::Oid(array.as_primitive::<UInt32Type>().values()),
            Wire::Float4 => Cells::Float4(array.as_primitive::<Float32Type>().values()),
            Wire::Float8 => Cells::Float8(array.as_primitive::<Float64Type>().values()),
            Wire::Decimal { precision, scale } if *precision <= 38 => {
                Cells::Decimal128(array.as_primitive::<Decimal128Type>().values(), *scale)
            }
            Wire::Decimal { scale, .. } => {
                Cells::Decimal256(array.as_primitive::<Decimal256Type>().values(), *scale)
            }
            Wire::Date => Cells::Date(array.as_primitive::<Date32Type>().values()),
            Wire::Time => Cells::Time(array.as_primitive::<Time64MicrosecondType>().values()),
            Wire::Timestamp | Wire::TimestampTz => {
                Cells::Timestamp(array.as_primitive::<TimestampMicrosecondType>().values())
            }
            Wire::Interval => {
                Cells::Interval(array.as_primitive::<IntervalMonthDayNanoType>().values())
            }
            Wire::Uuid => Cells::Uuid(array.as_fixed_size_binary()),
            Wire::Text => Cells::Text(array.as_string()),
            Wire::Jsonb => Cells::Jsonb(array.as_string()),
            Wire::Bytes | Wire::Opaque => Cells::Bytes(array.as_binary()),
            Wire::Numeric => Cells::Worded(array.as_string(), text::numeric::from_text),
            Wire::TimeTz => Cells::Worded(array.as_string(), text::timetz::from_text),
            Wire::Inet => Cells::Worded(array.as_string(), |text, out| {
                text::network::from_text(text, false, out)
            }),
            Wire::Cidr => Cells::Worded(array.as_string(), |text, out| {
                text::network::from_text(text, true, out)
            }),
            Wire::MacAddr { bytes: 8 } => {
                Cells::Worded(array.as_string(), |text, out| text::macaddr::from_text(text, 8, out))
            }
            Wire::MacAddr { .. } => {
                Cells::Worded(array.as_string(), |text, out| text::macaddr::from_text(text, 6, out))
            }
            Wire::Bits => Cells::Worded(array.as_string(), text::bits::from_text),
            Wire::Array { element, element_oid } => {
                let list = array.as_list::<i32>();
                let elements = Box::new(View::new(list.values().as_ref(), element));
                Cells::Array { offsets: list.offsets(), elements, element_oid: *element_oid }
            }
        };
        View { nulls: array.nulls(), cells }
    }

    /// Writes value number `row` as a field.
    #[inline]
    pub(super) fn put(&self, row: usize, out: &mut Vec<u8>) -> Result<(), CellError> {
        if self.nulls.is_some_and(|nulls| nulls.is_null(row)) {
            out.extend_from_slice(&(-1_i32).to_be_bytes());
            return Ok(());
        }
        match &self.cells {
            Cells::Int2(values) => fixed(values[row].to_be_bytes(), out),
            Cells::Int4(values) => fixed(values[row].to_be_bytes(), out),
            Cells::Int8(values) => fixed(values[row].to_be_bytes(), out),
            Cells::Oid(values) => fixed(values[row].to_be_bytes(), out),
            Cells::Float4(values) => fixed(values[row].to_be_bytes(), out),
            Cells::Float8(values) => fixed(values[row].to_be_bytes(), out),
            Cells::Bool(values) => fixed([u8::from(values.value(row))], out),
            Cells::Date(values) => fixed(time::date_to_wire(values[row])?, out),
            Cells::Timestamp(values) => fixed(time::timestamp_to_wire(values[row])?, out),
            Cells::Time(values) => fixed(time::time(values[row])?.to_be_bytes(), out),
            Cells::Interval(values) => fixed(time::interval_to_wire(values[row])?, out),
            Cells::Text(values) => return bytes(&[], values.value(row).as_bytes(), out),
            Cells::Bytes(values) => return bytes(&[], values.value(row), out),
            Cells::Jsonb(values) => return bytes(&[1], values.value(row).as_bytes(), out),
            Cells::Uuid(values) => return bytes(&[], values.value(row), out),
            Cells::Decimal128(values, scale) => {
                return made(out, |out| decimal::from_i128(values[row], *scale, out));
            }
            Cells::Decimal256(values, scale) => {
                return made(out, |out| decimal::from_i256(values[row], *scale, out));
            }
            Cells::Worded(values, from_text) => {
                return made(out, |out| from_text(values.value(row), out));
            }
            Cells::Array { offsets, elements, element_oid } => {
                let bound = |at: usize| usize::try_from(offsets[at]).unwrap_or(0);
                let items = bound(row)..bound(row + 1);
                return made(out, |out| elements.put_array(items, *element_oid, out));
            }
        }
        Ok(())
    }

    /// Writes some values as an array: what precedes the elements is described at the decoder.
    fn put_array(
        &self,
        items: std::ops::Range<usize>,
        element_oid: u32,
        out: &mut Vec<u8>,
    ) -> Result<(), CellError> {
        let has_nulls =
            self.nulls.is_some_and(|nulls| items.clone().any(|item| nulls.is_null(item)));
        let dimensions = u32::from(!items.is_empty());
        for word in [dimensions, u32::from(has_nulls), element_oid] {
            out.extend_from_slice(&word.to_be_bytes());
        }
        if !items.is_empty() {
            let count = u32::try_from(items.len());
            let count = count.map_err(|_| CellError::TooLarge(TUPLE_SIZE_MAX))?;
            for word in [count, 1] {
                out.extend_from_slice(&word.to_be_bytes());
            }
        }
        for item in items {
            self.put(item, out)?;
        }
        Ok(())
    }
}

/// Writes a field of a length that the type has.
#[inline]
fn fixed<const N: usize>(value: [u8; N], out: &mut Vec<u8>) {
    const { assert!(N <= 16, "values of a fixed length are short") };
    let mut field = [0; 20];
    // A length of at most 16 is its own last byte.
    #[expect(clippy::cast_possible_truncation, reason = "at most 16")]
    let length = N as u8;
    field[3] = length;
    field[4..4 + N].copy_from_slice(&value);
    out.extend_from_slice(&field[..4 + N]);
}

/// Writes a field of any length, in two parts.
#[inline]
fn bytes(first: &[u8], rest: &[u8], out: &mut Vec<u8>) -> Result<(), CellError> {
    let size = first.len() + rest.len();
    out.extend_from_slice(&length(size)?);
    out.extend_from_slice(first);
    out.extend_from_slice(rest);
    Ok(())
}

/// Writes a field that `make` appends.
#[inline]
fn made(
    out: &mut Vec<u8>,
    make: impl FnOnce(&mut Vec<u8>) -> Result<(), CellError>,
) -> Result<(), CellError> {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    make(out)?;
    let size = length(out.len() - start - 4)?;
    out[start..start + 4].copy_from_slice(&size);
    Ok(())
}

#[inline]
fn length(size: usize) -> Result<[u8; 4], CellError> {
    match i32::try_from(size) {
        Ok(length) if size <= TUPLE_SIZE_MAX => Ok(length.to_be_bytes()),
        _ => Err(CellError::TooLarge(TUPLE_SIZE_MAX)),
    }
}
