//! Builders of columns: fields in, an Arrow array out.
//!
//! Invariants:
//! * NULLs cost nothing until the first: a bitmap is made when there is one.
//! * A builder makes room for as much as its last batch had, within a bound.

use std::sync::Arc;

use arrow::array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Decimal256Type, Float32Type, Float64Type,
    Int16Type, Int32Type, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType,
    Time64MicrosecondType, TimestampMicrosecondType, UInt32Type,
};
use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, BooleanBufferBuilder, FixedSizeBinaryArray, ListArray,
    PrimitiveArray, StringArray,
};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, i256};

use super::field;
use crate::column::{Column, Wire};
use crate::error::CellError;
use crate::{decimal, text, time};

/// A field that ends before its length says; the framer lets none through.
pub(super) const CUT_SHORT: CellError = CellError::Malformed("field");
/// Bytes a builder makes room for before they come.
const ROOM_SIZE_MAX: usize = 4 * 1024 * 1024;

/// Builds one column, or the elements of one.
#[derive(Debug)]
pub(super) struct Builder {
    cells: Cells,
    nulls: Nulls,
    nullable: bool,
    data_type: DataType,
}

/// The values, as the wire form says.
#[derive(Debug)]
enum Cells {
    Bool(BooleanBufferBuilder),
    Int2(Vec<i16>),
    Int4(Vec<i32>),
    /// `int8` and `money`.
    Int8(Vec<i64>),
    Oid(Vec<u32>),
    Float4(Vec<f32>),
    Float8(Vec<f64>),
    Decimal128 {
        values: Vec<i128>,
        precision: u8,
        scale: i8,
    },
    Decimal256 {
        values: Vec<i256>,
        bound: i256,
        scale: i8,
    },
    Date(Vec<i32>),
    Time(Vec<i64>),
    Timestamp(Vec<i64>),
    Interval(Vec<IntervalMonthDayNano>),
    Uuid(Vec<u8>),
    Text(Bytes),
    Bytes(Bytes),
    Jsonb(Bytes),
    /// Types whose text is made here.
    Worded(Worded, Bytes),
    Array(Box<List>),
}

/// Types that become text.
#[derive(Debug, Clone, Copy)]
enum Worded {
    Numeric,
    TimeTz,
    Network { cidr: bool },
    MacAddr { size: u8 },
    Bits,
}

/// Values of any length, one after another.
#[derive(Debug)]
struct Bytes {
    data: Vec<u8>,
    /// Where each begins, and where the last ends.
    offsets: Vec<i32>,
}

#[derive(Debug)]
struct List {
    offsets: Vec<i32>,
    elements: Builder,
    element_oid: u32,
}

#[derive(Debug, Default)]
struct Nulls {
    /// A bit a row, as far as the last NULL.
    bits: Option<BooleanBufferBuilder>,
}

impl Nulls {
    #[cold]
    fn null(&mut self, row: usize) {
        let bits = self.bits.get_or_insert_with(|| BooleanBufferBuilder::new(row + 1024));
        bits.append_n(row - bits.len(), true);
        bits.append(false);
    }

    fn take(&mut self, rows: usize) -> Option<NullBuffer> {
        let mut bits = self.bits.take()?;
        bits.append_n(rows - bits.len(), true);
        Some(NullBuffer::new(bits.finish()))
    }

    /// How many bytes it takes.
    fn size(&self, rows: usize) -> usize {
        if self.bits.is_some() { rows.div_ceil(8) } else { 0 }
    }
}

impl Bytes {
    fn new() -> Self {
        Self { data: Vec::new(), offsets: vec![0] }
    }

    #[inline]
    fn push(&mut self, value: &[u8]) -> Result<(), CellError> {
        self.data.extend_from_slice(value);
        self.end()
    }

    /// Ends a value whose bytes were put into `data`.
    #[inline]
    fn end(&mut self) -> Result<(), CellError> {
        let end = i32::try_from(self.data.len());
        self.offsets.push(end.map_err(|_| CellError::TooLarge(i32::MAX as usize))?);
        Ok(())
    }

    fn null(&mut self) {
        self.offsets.push(self.offsets.last().copied().unwrap_or(0));
    }

    fn take(&mut self) -> (OffsetBuffer<i32>, Buffer) {
        let offsets = taken(&mut self.offsets);
        self.offsets.push(0);
        (OffsetBuffer::new(ScalarBuffer::from(offsets)), Buffer::from_vec(taken(&mut self.data)))
    }

    fn size(&self) -> usize {
        self.data.len() + size_of_val(self.offsets.as_slice())
    }
}

/// Takes the values, and leaves room for as many: but not for those of an uncommonly large batch, and not
/// in the array itself, which is counted by the room it takes.
fn taken<T>(values: &mut Vec<T>) -> Vec<T> {
    let room = values.len().min(ROOM_SIZE_MAX / size_of::<T>());
    let mut taken = std::mem::replace(values, Vec::with_capacity(room));
    if taken.capacity() / 2 > taken.len() {
        taken.shrink_to_fit();
    }
    taken
}

impl Builder {
    pub(super) fn new(column: &Column) -> Self {
        Self::of(&column.wire, column.nullable)
    }

    fn of(wire: &Wire, nullable: bool) -> Self {
        let cells = Cells::new(wire);
        Self { cells, nulls: Nulls::default(), nullable, data_type: wire.data_type() }
    }

    /// Adds a value.
    #[inline]
    pub(super) fn value(&mut self, field: &[u8]) -> Result<(), CellError> {
        match &mut self.cells {
            Cells::Bool(values) => values.append(boolean(field)?),
            Cells::Int2(values) => values.push(i16::from_be_bytes(fixed(field)?)),
            Cells::Int4(values) => values.push(i32::from_be_bytes(fixed(field)?)),
            Cells::Int8(values) => values.push(i64::from_be_bytes(fixed(field)?)),
            Cells::Oid(values) => values.push(u32::from_be_bytes(fixed(field)?)),
            Cells::Float4(values) => values.push(f32::from_be_bytes(fixed(field)?)),
            Cells::Float8(values) => values.push(f64::from_be_bytes(fixed(field)?)),
            Cells::Date(values) => values.push(time::date_from_wire(fixed(field)?)?),
            Cells::Time(values) => values.push(time::time(i64::from_be_bytes(fixed(field)?))?),
            Cells::Timestamp(values) => values.push(time::timestamp_from_wire(fixed(field)?)?),
            Cells::Interval(values) => values.push(time::interval_from_wire(&fixed(field)?)?),
            Cells::Uuid(values) => values.extend_from_slice(&fixed::<16>(field)?),
            Cells::Text(values) | Cells::Bytes(values) => values.push(field)?,
            Cells::Jsonb(values) => match field {
                [1, json @ ..] => values.push(json)?,
                _ => return Err(CellError::Malformed("jsonb")),
            },
            Cells::Decimal128 { values, precision, scale } => {
                values.push(decimal::to_i128(field, *precision, *scale)?);
            }
            Cells::Decimal256 { values, bound, scale } => {
                values.push(decimal::to_i256(field, *bound, *scale)?);
            }
            Cells::Worded(kind, values) => {
                kind.to_text(field, &mut values.data)?;
                values.end()?;
            }
            Cells::Array(list) => list.value(field)?,
        }
        Ok(())
    }

    /// Adds a NULL, as value number `row`.
    pub(super) fn null(&mut self, row: usize) -> Result<(), CellError> {
        if !self.nullable {
            return Err(CellError::Null);
        }
        self.nulls.null(row);
        match &mut self.cells {
            Cells::Bool(values) => values.append(false),
            Cells::Int2(values) => values.push(0),
            Cells::Int4(values) | Cells::Date(values) => values.push(0),
            Cells::Int8(values) | Cells::Time(values) | Cells::Timestamp(values) => values.push(0),
            Cells::Oid(values) => values.push(0),
            Cells::Float4(values) => values.push(0.0),
            Cells::Float8(values) => values.push(0.0),
            Cells::Decimal128 { values, .. } => values.push(0),
            Cells::Decimal256 { values, .. } => values.push(i256::ZERO),
            Cells::Interval(values) => values.push(IntervalMonthDayNano::ZERO),
            Cells::Uuid(values) => values.extend_from_slice(&[0; 16]),
            Cells::Text(values)
            | Cells::Bytes(values)
            | Cells::Jsonb(values)
            | Cells::Worded(_, values) => values.null(),
            Cells::Array(list) => list.offsets.push(list.offsets.last().copied().unwrap_or(0)),
        }
        Ok(())
    }

    /// Bytes of its `rows` values.
    pub(super) fn size(&self, rows: usize) -> usize {
        let values = match &self.cells {
            Cells::Bool(_) => rows.div_ceil(8),
            Cells::Int2(_) => rows * 2,
            Cells::Int4(_) | Cells::Oid(_) | Cells::Float4(_) | Cells::Date(_) => rows * 4,
            Cells::Int8(_) | Cells::Float8(_) | Cells::Time(_) | Cells::Timestamp(_) => rows * 8,
            Cells::Decimal128 { .. } | Cells::Interval(_) | Cells::Uuid(_) => rows * 16,
            Cells::Decimal256 { .. } => rows * 32,
            Cells::Text(values)
            | Cells::Bytes(values)
            | Cells::Jsonb(values)
            | Cells::Worded(_, values) => values.size(),
            Cells::Array(list) => rows * 4 + list.elements.size(list.len()),
        };
        values + self.nulls.size(rows)
    }

    /// The `rows` values as an array; an error says which of them it is about, from 0.
    pub(super) fn take(&mut self, rows: usize) -> Result<ArrayRef, (usize, CellError)> {
        let nulls = self.nulls.take(rows);
        let data_type = &self.data_type;
        Ok(match &mut self.cells {
            Cells::Bool(values) => Arc::new(BooleanArray::new(taken_bits(values), nulls)),
            Cells::Int2(values) => primitive::<Int16Type>(values, nulls, data_type),
            Cells::Int4(values) => primitive::<Int32Type>(values, nulls, data_type),
            Cells::Int8(values) => primitive::<Int64Type>(values, nulls, data_type),
            Cells::Oid(values) => primitive::<UInt32Type>(values, nulls, data_type),
            Cells::Float4(values) => primitive::<Float32Type>(values, nulls, data_type),
            Cells::Float8(values) => primitive::<Float64Type>(values, nulls, data_type),
            Cells::Date(values) => primitive::<Date32Type>(values, nulls, data_type),
            Cells::Time(values) => primitive::<Time64MicrosecondType>(values, nulls, data_type),
            Cells::Timestamp(values) => {
                primitive::<TimestampMicrosecondType>(values, nulls, data_type)
            }
            Cells::Interval(values) => {
                primitive::<IntervalMonthDayNanoType>(values, nulls, data_type)
            }
            Cells::Decimal128 { values, .. } => {
                primitive::<Decimal128Type>(values, nulls, data_type)
            }
            Cells::Decimal256 { values, .. } => {
                primitive::<Decimal256Type>(values, nulls, data_type)
            }
            Cells::Uuid(values) => {
                Arc::new(FixedSizeBinaryArray::new(16, Buffer::from_vec(taken(values)), nulls))
            }
            Cells::Bytes(values) => {
                let (offsets, data) = values.take();
                Arc::new(BinaryArray::new(offsets, data, nulls))
            }
            Cells::Text(values) | Cells::Jsonb(values) | Cells::Worded(_, values) => {
                let (offsets, data) = values.take();
                texts(offsets, data, nulls)?
            }
            Cells::Array(list) => list.take(nulls)?,
        })
    }
}

impl Cells {
    fn new(wire: &Wire) -> Self {
        match wire {
            Wire::Bool => Self::Bool(BooleanBufferBuilder::new(0)),
            Wire::Int2 => Self::Int2(Vec::new()),
            Wire::Int4 => Self::Int4(Vec::new()),
            Wire::Int8 | Wire::Money => Self::Int8(Vec::new()),
            Wire::Oid => Self::Oid(Vec::new()),
            Wire::Float4 => Self::Float4(Vec::new()),
            Wire::Float8 => Self::Float8(Vec::new()),
            Wire::Decimal { precision, scale } if *precision <= 38 => {
                Self::Decimal128 { values: Vec::new(), precision: *precision, scale: *scale }
            }
            Wire::Decimal { precision, scale } => Self::Decimal256 {
                values: Vec::new(),
                bound: decimal::bound(*precision),
                scale: *scale,
            },
            Wire::Text => Self::Text(Bytes::new()),
            Wire::Bytes | Wire::Opaque => Self::Bytes(Bytes::new()),
            Wire::Jsonb => Self::Jsonb(Bytes::new()),
            Wire::Date => Self::Date(Vec::new()),
            Wire::Time => Self::Time(Vec::new()),
            Wire::Timestamp | Wire::TimestampTz => Self::Timestamp(Vec::new()),
            Wire::Interval => Self::Interval(Vec::new()),
            Wire::Uuid => Self::Uuid(Vec::new()),
            Wire::Numeric => Self::Worded(Worded::Numeric, Bytes::new()),
            Wire::TimeTz => Self::Worded(Worded::TimeTz, Bytes::new()),
            Wire::Inet => Self::Worded(Worded::Network { cidr: false }, Bytes::new()),
            Wire::Cidr => Self::Worded(Worded::Network { cidr: true }, Bytes::new()),
            Wire::MacAddr { bytes } => Self::Worded(Worded::MacAddr { size: *bytes }, Bytes::new()),
            Wire::Bits => Self::Worded(Worded::Bits, Bytes::new()),
            Wire::Array { element, element_oid } => Self::Array(Box::new(List {
                offsets: vec![0],
                elements: Builder::of(element, true),
                element_oid: *element_oid,
            })),
        }
    }
}

impl Worded {
    fn to_text(self, field: &[u8], out: &mut Vec<u8>) -> Result<(), CellError> {
        match self {
            Self::Numeric => text::numeric::to_text(field, out),
            Self::TimeTz => text::timetz::to_text(field, out),
            Self::Network { cidr } => text::network::to_text(field, cidr, out),
            Self::MacAddr { size } => text::macaddr::to_text(field, size, out),
            Self::Bits => text::bits::to_text(field, out),
        }
    }
}

impl List {
    /// Elements of all lists.
    fn len(&self) -> usize {
        self.offsets.last().and_then(|end| usize::try_from(*end).ok()).unwrap_or(0)
    }

    /// Adds an array: dimensions, whether there are NULLs, type of the elements (4 bytes each), then size
    /// and first index of each dimension (4 bytes each), then the elements, each with its length.
    fn value(&mut self, array: &[u8]) -> Result<(), CellError> {
        const MALFORMED: CellError = CellError::Malformed("array");
        let mut rest = array;
        let mut word = || -> Result<i32, CellError> {
            let (word, after) = rest.split_first_chunk::<4>().ok_or(MALFORMED)?;
            rest = after;
            Ok(i32::from_be_bytes(*word))
        };
        let (dimensions, flags, element) = (word()?, word()?, word()?.cast_unsigned());
        if element != self.element_oid {
            return Err(CellError::ElementType { expected: self.element_oid, found: element });
        }
        if !matches!(flags, 0 | 1) {
            return Err(MALFORMED);
        }
        let count = match dimensions {
            0 => 0,
            1 => {
                let (count, lower) = (word()?, word()?);
                if lower != 1 {
                    return Err(CellError::Dimensions { dimensions, lower });
                }
                count
            }
            2.. => return Err(CellError::Dimensions { dimensions, lower: word().and(word())? }),
            _ => return Err(MALFORMED),
        };
        let start = self.len();
        let count = usize::try_from(count).map_err(|_| MALFORMED)?;
        for index in start..start + count {
            match field(&mut rest).map_err(|_| MALFORMED)? {
                Some(value) => self.elements.value(value)?,
                None => self.elements.null(index)?,
            }
        }
        if !rest.is_empty() {
            return Err(MALFORMED);
        }
        let end = i32::try_from(start + count);
        self.offsets.push(end.map_err(|_| CellError::TooLarge(i32::MAX as usize))?);
        Ok(())
    }

    fn take(&mut self, nulls: Option<NullBuffer>) -> Result<ArrayRef, (usize, CellError)> {
        let elements = self.len();
        let offsets = taken(&mut self.offsets);
        self.offsets.push(0);
        let values = self.elements.take(elements).map_err(|(element, reason)| {
            let after = |end: &i32| usize::try_from(*end).is_ok_and(|end| end <= element);
            (offsets.partition_point(after).saturating_sub(1), reason)
        })?;
        let item = Arc::new(Field::new_list_field(self.elements.data_type.clone(), true));
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        Ok(Arc::new(ListArray::new(item, offsets, values, nulls)))
    }
}

/// The bytes of a field that must have exactly this many.
#[inline]
fn fixed<const N: usize>(field: &[u8]) -> Result<[u8; N], CellError> {
    match field.try_into() {
        Ok(bytes) => Ok(bytes),
        Err(_) => Err(CellError::Length { expected: N, found: field.len() }),
    }
}

#[inline]
fn boolean(field: &[u8]) -> Result<bool, CellError> {
    match field {
        [0] => Ok(false),
        [1] => Ok(true),
        _ => Err(CellError::Malformed("boolean")),
    }
}

fn primitive<T: ArrowPrimitiveType>(
    values: &mut Vec<T::Native>,
    nulls: Option<NullBuffer>,
    data_type: &DataType,
) -> ArrayRef {
    let values = ScalarBuffer::from(taken(values));
    Arc::new(PrimitiveArray::<T>::new(values, nulls).with_data_type(data_type.clone()))
}

fn taken_bits(values: &mut BooleanBufferBuilder) -> BooleanBuffer {
    let room = BooleanBufferBuilder::new(values.len());
    std::mem::replace(values, room).build()
}

/// Texts as an array. All bytes are looked at in one go; only where that fails, value by value.
fn texts(
    offsets: OffsetBuffer<i32>,
    data: Buffer,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, (usize, CellError)> {
    match StringArray::try_new(offsets.clone(), data.clone(), nulls) {
        Ok(array) => Ok(Arc::new(array)),
        Err(_) => {
            let bad = offsets.windows(2).position(|pair| {
                let bounds: Vec<_> = pair.iter().map(|at| usize::try_from(*at).ok()).collect();
                let text = match bounds.as_slice() {
                    [Some(start), Some(end)] => data.get(*start..*end),
                    _ => None,
                };
                text.is_none_or(|text| str::from_utf8(text).is_err())
            });
            Err((bad.unwrap_or(0), CellError::Utf8))
        }
    }
}
