//! CSV (RFC 4180): fields in quotes may have anything in them, quotes twice; what is not quoted and the
//! same as the text for NULL is NULL.

mod parse;
mod read;
mod write;

pub(super) use read::CsvFormat;
pub(super) use write::CsvLayout;
