//! NDJSON: a JSON object a line. Lines with nothing but spaces are passed over.

mod read;
mod write;

pub(super) use read::NdjsonFormat;
pub(super) use write::NdjsonLayout;
