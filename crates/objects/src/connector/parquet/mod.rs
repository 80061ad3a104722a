//! Parquet: read by row groups, written with the Arrow schema in its footer.
//!
//! The Arrow schema carries what Parquet does not record of a column (its SQL type), so what was
//! written here is read back unchanged. Intervals, which Parquet cannot represent in full, are
//! stored as ISO 8601 text and become intervals again when they are read.

mod read;
mod write;

use forebay_pgcopy::{Column, Wire};

pub(super) use read::ParquetFormat;
pub(super) use write::ParquetLayout;
#[cfg(feature = "delta")]
pub(super) use write::{failed, properties};

/// Whether values are stored as text.
fn is_kept_as_text(wire: &Wire) -> bool {
    match wire {
        Wire::Interval => true,
        Wire::Array { element, .. } => is_kept_as_text(element),
        _ => false,
    }
}

/// The field of a file that stores a column.
fn stored_field(column: &Column) -> arrow::datatypes::Field {
    let field = column.field();
    match is_kept_as_text(&column.wire) {
        true => field.with_data_type(arrow::datatypes::DataType::Utf8),
        false => field,
    }
}
