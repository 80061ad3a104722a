//! CSV (RFC 4180): a quoted field may contain anything, with quotes doubled. An unquoted field
//! equal to the text for NULL is NULL. An empty quoted field is an empty text, or NULL if its
//! column has no such value.

mod parse;
mod read;
mod write;

pub(super) use read::CsvFormat;
pub(super) use write::CsvLayout;
