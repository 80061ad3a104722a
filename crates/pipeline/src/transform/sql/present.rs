//! Conversion of columns for a query, and back.
//!
//! A query sees Arrow columns without their SQL types, since it would treat different metadata as a
//! conflict. Three types are converted, so that a query is correct:
//!
//! * A `uuid` to its text: it is compared with texts, and 16 bytes would never equal one.
//! * An unconstrained `numeric` to a decimal with 56 digits before the point and 20 after it: as
//!   texts, 9 would be greater than 10. A computed one becomes `numeric` again, without trailing
//!   zeros.
//! * A `character(n)` to its text without trailing spaces, as PostgreSQL compares and casts it. It is
//!   padded again where it is passed through.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, StringBuilder};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use forebay_pgcopy::column::UnfitType;
use forebay_pgcopy::{Column, Wire, column};
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::values::read::Builder;
use forebay_sdk::values::write::Cells;

use crate::transform::padding::{is_padded, padded_to, trimmed};
use crate::transform::validate::numeric;

/// Length of a `uuid` as text.
const UUID_SIZE: usize = 36;

/// Maximum number of bytes that are reserved for padded texts before they are made.
const PADDED_SIZE_MAX: usize = 1 << 20;

/// Number of digits of an unconstrained `numeric`.
pub(super) const NUMERIC_PRECISION: u8 = 76;
/// Number of digits after the point.
pub(super) const NUMERIC_SCALE: i8 = 20;

/// The type a query sees.
pub(super) fn data_type(wire: &Wire) -> DataType {
    match wire {
        Wire::Uuid => DataType::Utf8,
        Wire::Numeric => DataType::Decimal256(NUMERIC_PRECISION, NUMERIC_SCALE),
        wire => wire.data_type(),
    }
}

/// The schema a query sees.
pub(super) fn schema(columns: &[Column]) -> Schema {
    let fields = columns
        .iter()
        .map(|column| Field::new(&column.name, data_type(&column.wire), column.nullable));
    Schema::new(fields.collect::<Vec<_>>())
}

/// The column for a result of a query.
///
/// # Errors
/// PostgreSQL has no such type.
pub(super) fn computed(field: &Field) -> Result<Column, UnfitType> {
    // A plan's claim that its result is never NULL is not worth a failed run.
    // Counts and positions of the engine have no sign; PostgreSQL's are a `bigint`.
    let of = match field.data_type() {
        DataType::UInt64 => DataType::Int64,
        of => of.clone(),
    };
    let field = field.clone().with_nullable(true).with_data_type(of);
    let mut column = Column::from_field(&field)?;
    if matches!(field.data_type(), DataType::Decimal256(..)) {
        column.wire = Wire::Numeric;
        column.sql_type = "numeric".into();
    }
    Ok(column)
}

/// Converts a batch of these columns for a query.
///
/// # Errors
/// It does not match the columns, or a number has more digits than a query supports.
pub(super) fn present(
    records: &RecordBatch,
    columns: &[Column],
    schema: &SchemaRef,
) -> Result<RecordBatch> {
    let arrays = records.columns().iter().zip(columns).map(|(array, column)| match &column.wire {
        Wire::Uuid => texts_of(array, column),
        Wire::Numeric => decimals_of(array, column),
        Wire::Text if is_padded(column) => trimmed(array, column),
        _ => Ok(Arc::clone(array)),
    });
    let arrays = arrays.collect::<Result<Vec<_>>>()?;
    let rows = RecordBatchOptions::new().with_row_count(Some(records.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), arrays, &rows)
        .map_err(|error| ConnectorError::data("a batch for a query", error.to_string()))
}

/// Converts batches of a result to the types of its columns.
pub(super) struct Shape {
    columns: Vec<Column>,
    schema: SchemaRef,
}

impl Shape {
    /// Creates a converter for these columns.
    pub(super) fn new(columns: &[Column]) -> Self {
        Self { columns: columns.to_vec(), schema: Arc::new(column::schema(columns)) }
    }

    /// A batch without rows.
    pub(super) fn empty(&self) -> RecordBatch {
        RecordBatch::new_empty(Arc::clone(&self.schema))
    }

    /// The batch, with every column converted.
    ///
    /// # Errors
    /// A value does not fit, or a column that is not nullable has a NULL.
    pub(super) fn fit(&self, records: &RecordBatch) -> Result<RecordBatch> {
        // A value that does not fit is an error, not NULL.
        let options = CastOptions { safe: false, ..CastOptions::default() };
        let arrays = records.columns().iter().zip(&self.columns);
        let arrays = arrays.map(|(array, column)| match (array.data_type(), &column.wire) {
            (DataType::Utf8, Wire::Uuid) => uuids_of(array, column),
            (DataType::Decimal256(..), Wire::Numeric) => numerics_of(array, column),
            (DataType::Utf8, Wire::Text) if padded_to(column).is_some() => padded(array, column),
            (from, wire) if *from == wire.data_type() => Ok(Arc::clone(array)),
            (from, wire) if is_lossless(from, &wire.data_type()) => {
                cast_with_options(array, &wire.data_type(), &options)
                    .map_err(|error| unfit(column, error))
            }
            (from, wire) => Err(unfit(
                column,
                format!("is {from} where {} was planned; cast it in the query", wire.data_type()),
            )),
        });
        let arrays = arrays.collect::<Result<Vec<_>>>()?;
        let rows = RecordBatchOptions::new().with_row_count(Some(records.num_rows()));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &rows)
            .map_err(|error| ConnectorError::data("the result of the query", error.to_string()))
    }
}

/// Whether a cast changes no value: it may only fail.
fn is_lossless(from: &DataType, to: &DataType) -> bool {
    use DataType::{
        Date32, Date64, Decimal32, Decimal64, Decimal128, Decimal256, Duration, FixedSizeList,
        Float16, Float32, Float64, Interval, LargeList, LargeListView, List, ListView, Null,
        Time32, Time64, Timestamp,
    };
    match (from, to) {
        (Null, _) | (Float16, Float32 | Float64) | (Float32, Float64) => true,
        (DataType::Dictionary(_, from), to) => is_lossless(from, to),
        (DataType::RunEndEncoded(_, from), to) => is_lossless(from.data_type(), to),
        (from, Decimal128(..) | Decimal256(..)) if from.is_integer() => true,
        (
            Decimal32(_, from) | Decimal64(_, from) | Decimal128(_, from) | Decimal256(_, from),
            Decimal128(_, to) | Decimal256(_, to),
        ) => from <= to,
        // The engine has nanoseconds only for its clock and for constants.
        (Timestamp(_, from), Timestamp(_, to)) => from.is_some() == to.is_some(),
        (Date32 | Date64, Date32) | (Time32(_) | Time64(_), Time64(_)) => true,
        (Interval(_) | Duration(_), Interval(_)) => true,
        (
            List(from)
            | ListView(from)
            | LargeList(from)
            | LargeListView(from)
            | FixedSizeList(from, _),
            List(to),
        ) => is_lossless(from.data_type(), to.data_type()),
        (from, to) => {
            from == to
                || (from.is_integer() && to.is_integer())
                || (from.is_string() && to.is_string())
                || (from.is_binary() && to.is_binary())
        }
    }
}

/// Texts with the trailing spaces of their column.
fn padded(array: &ArrayRef, column: &Column) -> Result<ArrayRef> {
    let length = padded_to(column).unwrap_or_default();
    let texts = array.as_string::<i32>();
    // The engine does not count these bytes against its memory.
    let size = texts.len().saturating_mul(length).min(PADDED_SIZE_MAX);
    let mut padded = StringBuilder::with_capacity(texts.len(), size);
    let mut bytes = 0_usize;
    for text in texts {
        let Some(text) = text else {
            padded.append_null();
            continue;
        };
        bytes = bytes.saturating_add(text.len().max(length));
        if bytes > i32::MAX as usize {
            return Err(unfit(column, "its padded values are too large for a batch"));
        }
        padded.append_value(format!("{text:<length$}"));
    }
    Ok(Arc::new(padded.finish()))
}

/// The texts of uuids.
fn texts_of(array: &ArrayRef, column: &Column) -> Result<ArrayRef> {
    let cells = Cells::new(array, column)?;
    let mut texts = StringBuilder::with_capacity(array.len(), array.len() * UUID_SIZE);
    let mut text = Vec::with_capacity(UUID_SIZE);
    for row in 0..array.len() {
        if cells.is_null(row) {
            texts.append_null();
            continue;
        }
        text.clear();
        cells.text(row, &mut text);
        texts.append_value(std::str::from_utf8(&text).map_err(|error| unfit(column, error))?);
    }
    Ok(Arc::new(texts.finish()))
}

/// The uuids of texts.
fn uuids_of(array: &ArrayRef, column: &Column) -> Result<ArrayRef> {
    let mut values = Builder::new(column);
    for text in array.as_string::<i32>() {
        match text {
            None => values.null(),
            Some(text) => values.text(text).map_err(|found| unfit(column, found))?,
        }
    }
    Ok(values.finish())
}

/// The decimals of numerics.
fn decimals_of(array: &ArrayRef, column: &Column) -> Result<ArrayRef> {
    let texts = array.as_string_opt::<i32>();
    let texts =
        texts.ok_or_else(|| unfit(column, format!("is {}, not text", array.data_type())))?;
    let wire = Wire::Decimal { precision: NUMERIC_PRECISION, scale: NUMERIC_SCALE };
    let mut values = Builder::new(&Column { wire, ..column.clone() });
    for text in texts {
        match text {
            None => values.null(),
            Some(text) => values.text(text).map_err(|_| {
                let digits = NUMERIC_PRECISION.saturating_sub(NUMERIC_SCALE.unsigned_abs());
                let seen = format!("{digits} digits before the point and {NUMERIC_SCALE} after it");
                unfit(
                    column,
                    format!("{text} is not a number with at most {seen}, the limit of a query"),
                )
            })?,
        }
    }
    Ok(values.finish())
}

/// The numerics of decimals.
fn numerics_of(array: &ArrayRef, column: &Column) -> Result<ArrayRef> {
    let DataType::Decimal256(precision, scale) = *array.data_type() else {
        return Err(unfit(column, format!("is {}, not a decimal", array.data_type())));
    };
    let wire = Wire::Decimal { precision, scale };
    let cells = Cells::new(array, &Column { wire, ..column.clone() })?;
    let mut texts = StringBuilder::with_capacity(array.len(), array.len() * 8);
    let (mut text, mut shortest) = (Vec::new(), Vec::new());
    for row in 0..array.len() {
        if cells.is_null(row) {
            texts.append_null();
            continue;
        }
        text.clear();
        cells.text(row, &mut text);
        let text = std::str::from_utf8(&text).map_err(|error| unfit(column, error))?;
        shortest.clear();
        numeric::write_canonical(text, &mut shortest);
        texts.append_value(std::str::from_utf8(&shortest).map_err(|error| unfit(column, error))?);
    }
    Ok(Arc::new(texts.finish()))
}

fn unfit(column: &Column, found: impl std::fmt::Display) -> ConnectorError {
    ConnectorError::data(format!("column {:?}", column.name), found.to_string())
}
