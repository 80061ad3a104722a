//! How columns are stored in a Delta table.
//!
//! | type in SQL | type of Delta |
//! |---|---|
//! | `boolean`, `smallint`, `integer`, `bigint`, `real`, `double precision` | `boolean`, `short`, `integer`, `long`, `float`, `double` |
//! | `money` (its smallest unit), `oid` | `long` |
//! | `numeric(p, s)` up to 38 digits | `decimal(p, s)` |
//! | `text` and its like, `json`, `jsonb`, `inet`, `bit`, any other `numeric` | `string` |
//! | `bytea` | `binary` |
//! | `date`, `timestamp`, `timestamptz` | `date`, `timestamp_ntz`, `timestamp` |
//! | `uuid`, `time`, `interval` | `string`, as text |
//! | an array of a type that has one of Delta | `array` |
//! | any other array | `string`, as JSON |

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray as _, new_null_array};
use arrow::datatypes::DataType as Arrow;
use delta_kernel::schema::{ArrayType, DataType, DecimalType, PrimitiveType, StructField};
use forebay_pgcopy::{Column, Wire};
use forebay_sdk::cast::exact;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::values::read::Builder;
use forebay_sdk::values::write::texts;

/// The type of Delta that stores a column.
pub(super) fn stored(column: &Column) -> DataType {
    plain(&column.wire).unwrap_or(DataType::STRING)
}

/// The type that has the values of a wire form as they are, if there is one.
fn plain(wire: &Wire) -> Option<DataType> {
    Some(match wire {
        Wire::Bool => DataType::BOOLEAN,
        Wire::Int2 => DataType::SHORT,
        Wire::Int4 => DataType::INTEGER,
        Wire::Int8 | Wire::Money | Wire::Oid => DataType::LONG,
        Wire::Float4 => DataType::FLOAT,
        Wire::Float8 => DataType::DOUBLE,
        Wire::Decimal { precision, scale } => {
            let scale = u8::try_from(*scale).ok()?;
            let decimal = DecimalType::try_new(*precision, scale).ok()?;
            DataType::Primitive(PrimitiveType::Decimal(decimal))
        }
        Wire::Numeric
        | Wire::Text
        | Wire::Jsonb
        | Wire::TimeTz
        | Wire::Inet
        | Wire::Cidr
        | Wire::MacAddr { .. }
        | Wire::Bits => DataType::STRING,
        Wire::Bytes | Wire::Opaque => DataType::BINARY,
        Wire::Date => DataType::DATE,
        Wire::Timestamp => DataType::TIMESTAMP_NTZ,
        Wire::TimestampTz => DataType::TIMESTAMP,
        Wire::Array { element, .. } => {
            DataType::Array(Box::new(ArrayType::new(plain(element)?, true)))
        }
        // `time`, `interval`, `uuid`, and what is new.
        _ => return None,
    })
}

/// Whether values are stored as text that is not their own form.
pub(super) fn is_text(column: &Column) -> bool {
    plain(&column.wire).is_none()
}

/// The field of a table for a new column. Added columns are always nullable: older files lack them.
pub(super) fn field(column: &Column) -> StructField {
    StructField::nullable(&column.name, stored(column))
}

/// The name of a type, as Delta writes it.
pub(super) fn named(data_type: &DataType) -> String {
    data_type.to_string()
}

/// A note for the plan, for a column whose type is another in the table.
pub(super) fn note(column: &Column) -> Option<String> {
    is_text(column).then(|| {
        let Column { name, sql_type, .. } = column;
        format!("column {name:?}: Delta has no {sql_type}; it is stored as text")
    })
}

/// Values of a column in the Arrow type of the table.
///
/// # Errors
/// They do not fit.
pub(super) fn to_stored(
    array: &ArrayRef,
    column: &Column,
    to: &Arrow,
) -> Result<ArrayRef, ConnectorError> {
    if !is_text(column) {
        return exact(array, to).map_err(|found| unfit(column, found));
    }
    Ok(Arc::new(texts(array, column)?))
}

/// Values as a table has them, in the column's own Arrow type. The inverse of [`to_stored`].
///
/// * `array`: `None` if the table has no such column.
///
/// # Errors
/// They are not values of the column: another program wrote them.
pub(super) fn from_stored(
    array: Option<&ArrayRef>,
    column: &Column,
    rows: usize,
) -> Result<ArrayRef, ConnectorError> {
    let data_type = column.wire.data_type();
    let Some(array) = array else { return Ok(new_null_array(&data_type, rows)) };
    if !is_text(column) {
        return exact(array, &data_type).map_err(|found| unfit(column, found));
    }
    let texts = exact(array, &Arrow::Utf8).map_err(|found| unfit(column, found))?;
    let Some(texts) = texts.as_string_opt::<i32>() else {
        return Err(unfit(column, format!("is {}, not text", array.data_type())));
    };
    let mut builder = Builder::new(column);
    for text in texts {
        match text {
            Some(text) => builder.text(text).map_err(|found| unfit(column, found.to_string()))?,
            None => builder.null(),
        }
    }
    Ok(builder.finish())
}

fn unfit(column: &Column, found: String) -> ConnectorError {
    ConnectorError::data(format!("column {:?}", column.name), found)
}
