//! CSV (RFC 4180): fields in quotes may have anything in them, quotes twice; what is not quoted and the
//! same as the text for NULL is NULL. An empty field in quotes is an empty text, and NULL where its column
//! has no such value.

mod parse;
mod read;
mod write;

pub(super) use read::CsvFormat;
pub(super) use write::CsvLayout;
