//! Lossless casts.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::DataType;

/// Casts values to another type without loss; returns them unchanged if the type is the same.
///
/// # Errors
/// The values that cannot be cast without loss.
pub fn exact(array: &ArrayRef, to: &DataType) -> Result<ArrayRef, String> {
    if array.data_type() == to {
        return Ok(Arc::clone(array));
    }
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let cast = |array: &dyn Array, to| {
        cast_with_options(array, to, &options).map_err(|error| error.to_string())
    };
    let made = cast(array, to)?;
    // Casting to a coarser type truncates values silently.
    if is_cut(array.data_type()) && cast(&made, array.data_type())?.as_ref() != array.as_ref() {
        return Err(format!("is {}, and has values that do not fit {to}", array.data_type()));
    }
    Ok(made)
}

/// Whether casts from a type may truncate.
fn is_cut(from: &DataType) -> bool {
    match from {
        DataType::Timestamp(..)
        | DataType::Time32(_)
        | DataType::Time64(_)
        | DataType::Date64
        | DataType::Decimal32(..)
        | DataType::Decimal64(..)
        | DataType::Decimal128(..)
        | DataType::Decimal256(..)
        | DataType::Float16
        | DataType::Float32
        | DataType::Float64 => true,
        DataType::List(element)
        | DataType::LargeList(element)
        | DataType::FixedSizeList(element, _) => is_cut(element.data_type()),
        DataType::Dictionary(_, values) => is_cut(values),
        _ => false,
    }
}
