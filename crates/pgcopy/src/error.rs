//! What can be wrong with bytes and batches, and where.
//!
//! A value's error ([`CellError`]) knows nothing of its place; the decoder and the encoder wrap it
//! with row and column.

use arrow::datatypes::DataType;
use arrow::error::ArrowError;

/// What is wrong with one value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CellError {
    /// The field is too short or too long for its type.
    #[error("the field has {found} bytes, expected {expected} for its type")]
    Length {
        /// Bytes of the type.
        expected: usize,
        /// Bytes of the field.
        found: usize,
    },
    /// NULL, in a column that says there is none.
    #[error("NULL in a column that is not nullable")]
    Null,
    /// The value is valid, but the target type cannot hold it.
    #[error("the value is out of range for {0}")]
    Range(&'static str),
    /// NaN or an infinity, where only numbers fit.
    #[error("NaN and infinities cannot be decimals; cast the column to numeric without precision")]
    NotFinite,
    /// The text is not UTF-8.
    #[error("the text is not UTF-8")]
    Utf8,
    /// The bytes or the text are no value of the type.
    #[error("malformed {0}")]
    Malformed(&'static str),
    /// An array of several dimensions, or one that does not begin at 1.
    #[error(
        "an array with {dimensions} dimensions and the lower bound {lower} cannot be a list; read a \
         view that casts the column to text, or leave it out with `columns`"
    )]
    Dimensions {
        /// How many dimensions.
        dimensions: i32,
        /// Where the first begins.
        lower: i32,
    },
    /// The elements of an array have another type than the column's.
    #[error("the array's elements have type {found}, expected {expected}")]
    ElementType {
        /// Type of the column's elements, as the server numbers it.
        expected: u32,
        /// Type of the value's elements.
        found: u32,
    },
    /// More bytes than a field, or a column of a batch, can have.
    #[error("more than {0} bytes")]
    TooLarge(usize),
}

/// What is wrong with a stream of tuples. Rows count from 1 over the whole stream.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The stream does not begin or end as binary COPY does.
    #[error("not a stream of binary COPY: {0}")]
    Header(&'static str),
    /// A tuple has more or fewer fields than there are columns.
    #[error("row {row} has {found} fields, expected {expected}")]
    Columns {
        /// The row.
        row: u64,
        /// Columns.
        expected: usize,
        /// What its count of fields says.
        found: i16,
    },
    /// A field's length is negative or beyond what PostgreSQL can have.
    #[error("row {row}, field {field}: invalid length {length}")]
    FieldLength {
        /// The row.
        row: u64,
        /// The field, from 1.
        field: usize,
        /// The length.
        length: i32,
    },
    /// A tuple is larger than PostgreSQL can have.
    #[error("row {row} is larger than {max} bytes")]
    TupleTooLarge {
        /// The row.
        row: u64,
        /// Bytes a tuple can have.
        max: usize,
    },
    /// A value is wrong.
    #[error("row {row}, column {column:?}")]
    Cell {
        /// The row.
        row: u64,
        /// Name of the column.
        column: String,
        /// What is wrong.
        #[source]
        reason: CellError,
    },
    /// Bytes follow the trailer.
    #[error("there are bytes after the trailer, which follows {rows} rows")]
    AfterTrailer {
        /// Rows before it.
        rows: u64,
    },
    /// The stream ended in the middle.
    #[error("the stream ended after {rows} rows, {}", if *.within { "inside a row" } else { "without its trailer" })]
    Unfinished {
        /// Whole rows that came.
        rows: u64,
        /// Whether a part of a row came after them.
        within: bool,
    },
    /// An earlier error ended the stream.
    #[error("the stream was abandoned after an error")]
    GivenUp,
    /// Arrow refused the columns of a batch.
    #[error("cannot create a batch of {rows} rows")]
    Batch {
        /// How many rows.
        rows: usize,
        /// Why.
        #[source]
        source: ArrowError,
    },
}

/// What is wrong with a batch that is to be encoded. Rows count from 0 within the batch.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// A value has no form on the wire.
    #[error("row {row} of the batch, column {column:?}")]
    Cell {
        /// The row.
        row: usize,
        /// Name of the column.
        column: String,
        /// What is wrong.
        #[source]
        reason: CellError,
    },
    /// A value changes when it is brought to the column's type.
    #[error(
        "row {row} of the batch, column {column:?}: converting the value from {from} to {to} would \
         change it"
    )]
    Lossy {
        /// The row.
        row: usize,
        /// Name of the column.
        column: String,
        /// Its type in the batch.
        from: DataType,
        /// Its type on the wire.
        to: DataType,
    },
    /// The batch has other columns than the encoder was made for.
    #[error(
        "the batch's column {index} is {}, expected {expected}",
        .found.as_ref().map_or("missing".to_owned(), DataType::to_string)
    )]
    Schema {
        /// The column, from 0.
        index: usize,
        /// The type the encoder was made for.
        expected: DataType,
        /// The type in the batch; none where there is no such column.
        found: Option<DataType>,
    },
    /// Arrow could not cast a column.
    #[error("cannot cast column {column:?} from {from} to {to}")]
    Cast {
        /// Name of the column.
        column: String,
        /// Its type in the batch.
        from: DataType,
        /// Its type on the wire.
        to: DataType,
        /// Why.
        #[source]
        source: ArrowError,
    },
}

impl EncodeError {
    /// The row of the batch that is at fault, where it is one row.
    #[must_use]
    pub fn row(&self) -> Option<usize> {
        match self {
            Self::Cell { row, .. } | Self::Lossy { row, .. } => Some(*row),
            Self::Schema { .. } | Self::Cast { .. } => None,
        }
    }
}
