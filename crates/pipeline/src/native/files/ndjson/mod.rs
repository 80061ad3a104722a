//! NDJSON: a JSON object a line. Lines with nothing but spaces are passed over.

mod read;

pub(super) use read::NdjsonFormat;
