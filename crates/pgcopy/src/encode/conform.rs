//! Other Arrow forms of a column, brought to the one its wire form has.
//!
//! Casts are those that PostgreSQL makes implicitly on assignment: narrow to wide, numbers to
//! numbers, integers to `numeric`, large and view and dictionary forms to the plain one, anything of one value to text. A text
//! is never read as something else, but for `uuid`.
//!
//! Invariant: a value that the cast would change is an error that names its row. Where a cast can change
//! values, it is undone and compared.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray as _, FixedSizeBinaryBuilder};
use arrow::compute::{CastOptions, can_cast_types, cast_with_options};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;

use crate::column::Wire;
use crate::error::{CellError, EncodeError};
use crate::text;

/// Why a column could not be brought to its type. Rows count from the beginning of the array.
pub(super) enum Failure {
    Lossy(usize),
    Cell(usize, CellError),
    Cast(ArrowError),
}

impl Failure {
    pub(super) fn of(
        self,
        start: usize,
        column: String,
        from: DataType,
        to: DataType,
    ) -> EncodeError {
        match self {
            Self::Lossy(row) => EncodeError::Lossy { row: start + row, column, from, to },
            Self::Cell(row, reason) => EncodeError::Cell { row: start + row, column, reason },
            Self::Cast(source) => EncodeError::Cast { column, from, to, source },
        }
    }
}

/// Whether columns of a type can be brought to a wire form.
pub(super) fn fits(from: &DataType, wire: &Wire) -> bool {
    let to = wire.data_type();
    let elements = |element: &DataType| match wire {
        // Texts are read as UUIDs one by one, which a list's are not.
        Wire::Array { element: to, .. } => {
            fits(element, to) && !(is_text(element) && **to == Wire::Uuid)
        }
        _ => false,
    };
    match from {
        from if same(from, &to) => true,
        DataType::Null => true,
        DataType::Dictionary(_, value) => fits(value, wire),
        DataType::RunEndEncoded(_, value) => fits(value.data_type(), wire),
        DataType::List(element)
        | DataType::LargeList(element)
        | DataType::ListView(element)
        | DataType::LargeListView(element)
        | DataType::FixedSizeList(element, _) => {
            elements(element.data_type()) && can_cast_types(from, &to)
        }
        from if is_text(from) && *wire == Wire::Uuid => true,
        from => can_assign(from, &to, wire) && can_cast_types(from, &to),
    }
}

/// Whether PostgreSQL would assign values of one type to the other.
fn can_assign(from: &DataType, to: &DataType, wire: &Wire) -> bool {
    use DataType::{Date32, Date64, Duration, Interval, Timestamp};
    let number = |of: &DataType| of.is_integer() || of.is_floating() || of.is_decimal();
    match (from, to) {
        (from, to) if number(from) && number(to) => *wire != Wire::Money,
        (from, to) if is_text(from) && is_text(to) => true,
        (from, to) if is_bytes(from) && is_bytes(to) => true,
        (Date32 | Date64, Date32 | Timestamp(_, None)) => true,
        (from, to) if is_time(from) && is_time(to) => true,
        (Timestamp(_, from), Timestamp(_, to)) => from.is_some() == to.is_some(),
        (Interval(_) | Duration(_), Interval(_)) => true,
        (from, _) if *wire == Wire::Numeric => from.is_integer() || from.is_decimal(),
        (from, _) if *wire == Wire::Text => {
            number(from) || from.is_temporal() || *from == DataType::Boolean
        }
        _ => false,
    }
}

/// Whether a cast keeps every value it does not refuse.
fn is_exact(from: &DataType, to: &DataType) -> bool {
    use DataType::{Date32, Interval, Timestamp};
    use arrow::datatypes::TimeUnit::{Microsecond, Millisecond, Second};
    match (from, to) {
        (DataType::Null, _) | (Date32, Date32 | Timestamp(_, _)) => true,
        (_, to) if is_text(to) => true,
        (from, to) if is_bytes(from) && is_bytes(to) => true,
        (from, to) if from.is_integer() && to.is_integer() => true,
        (from, to) if from.is_integer() && to.is_decimal() => true,
        (Timestamp(Second | Millisecond | Microsecond, _), _) => true,
        (Interval(_), _) => true,
        _ => false,
    }
}

/// Brings an array to the type `to` of a wire form.
pub(super) fn conform(array: &ArrayRef, to: &DataType, wire: &Wire) -> Result<ArrayRef, Failure> {
    let from = array.data_type();
    if same(from, to) {
        return Ok(array.clone());
    }
    match from {
        DataType::Dictionary(_, value) => {
            let plain = cast(array, value)?;
            conform(&plain, to, wire)
        }
        DataType::RunEndEncoded(_, value) => {
            let plain = cast(array, value.data_type())?;
            conform(&plain, to, wire)
        }
        from if is_text(from) && *wire == Wire::Uuid => uuids(&cast(array, &DataType::Utf8)?),
        // Arrow knows no zones by name, but writes what it has in UTC.
        DataType::Timestamp(unit, Some(zone)) if is_text(to) && zone.as_ref() != "+00:00" => {
            let utc = DataType::Timestamp(*unit, Some("+00:00".into()));
            conform(&cast(array, &utc)?, to, wire)
        }
        from => {
            let made = cast(array, to)?;
            if !is_exact(from, to) {
                let back = cast(&made, from)?;
                if back.as_ref() != array.as_ref() {
                    return Err(Failure::Lossy(first_difference(&back, array)));
                }
            }
            Ok(made)
        }
    }
}

/// Casts, and refuses values that become NULL by it.
fn cast(array: &ArrayRef, to: &DataType) -> Result<ArrayRef, Failure> {
    let options = CastOptions { safe: true, ..CastOptions::default() };
    let made = cast_with_options(array, to, &options).map_err(Failure::Cast)?;
    let (before, after) = (array.logical_nulls(), made.logical_nulls());
    let count = |nulls: &Option<arrow::buffer::NullBuffer>| {
        nulls.as_ref().map_or(0, arrow::buffer::NullBuffer::null_count)
    };
    if count(&before) == count(&after) {
        return Ok(made);
    }
    let was_null = |row| before.as_ref().is_some_and(|nulls| nulls.is_null(row));
    let is_null = |row| after.as_ref().is_some_and(|nulls| nulls.is_null(row));
    let lost = (0..array.len()).find(|row| is_null(*row) && !was_null(*row));
    Err(Failure::Lossy(lost.unwrap_or(0)))
}

fn first_difference(left: &ArrayRef, right: &ArrayRef) -> usize {
    let differs = |row: &usize| left.slice(*row, 1).as_ref() != right.slice(*row, 1).as_ref();
    (0..right.len()).find(differs).unwrap_or(0)
}

fn uuids(texts: &ArrayRef) -> Result<ArrayRef, Failure> {
    let mut values = FixedSizeBinaryBuilder::with_capacity(texts.len(), 16);
    for (row, text) in texts.as_string::<i32>().iter().enumerate() {
        match text.map(text::uuid::from_text) {
            Some(Ok(value)) => values.append_value(value).map_err(Failure::Cast)?,
            Some(Err(reason)) => return Err(Failure::Cell(row, reason)),
            None => values.append_null(),
        }
    }
    Ok(Arc::new(values.finish()))
}

/// Whether two types are the same but for the names of lists' fields.
fn same(left: &DataType, right: &DataType) -> bool {
    match (left, right) {
        (DataType::List(left), DataType::List(right)) => same(left.data_type(), right.data_type()),
        (left, right) => left == right,
    }
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

fn is_bytes(data_type: &DataType) -> bool {
    use DataType::{Binary, BinaryView, FixedSizeBinary, LargeBinary};
    matches!(data_type, Binary | LargeBinary | BinaryView | FixedSizeBinary(_))
}

fn is_time(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Time32(_) | DataType::Time64(_))
}
