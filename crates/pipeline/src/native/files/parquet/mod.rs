//! Parquet: read by row groups, written with the schema of Arrow in its footer.
//!
//! The Arrow schema carries what Parquet does not say of a column (its type in SQL), so what was written
//! here is read back as it was. Intervals, which Parquet has no form for in full, are kept as ISO 8601
//! text and are intervals again when they are read.

mod read;
mod write;

use forebay_pgcopy::{Column, Wire};

pub(super) use read::ParquetFormat;
pub(super) use write::ParquetLayout;

/// Whether values are kept as text.
fn is_kept_as_text(wire: &Wire) -> bool {
    match wire {
        Wire::Interval => true,
        Wire::Array { element, .. } => is_kept_as_text(element),
        _ => false,
    }
}

/// The field of a file that keeps a column.
fn stored_field(column: &Column) -> arrow::datatypes::Field {
    let field = column.field();
    match is_kept_as_text(&column.wire) {
        true => field.with_data_type(arrow::datatypes::DataType::Utf8),
        false => field,
    }
}
