//! NDJSON: one JSON object per line. Lines of only white space are skipped.

mod read;
mod write;

pub(super) use read::NdjsonFormat;
pub(super) use write::NdjsonLayout;
