//! From log files to drafts of events: NDJSON, OCSF, Zeek, Suricata, CEF, LEEF, syslog and plain
//! lines.
//!
//! A [`Splitter`] splits a stream into records, a [`Parser`] turns each into a
//! [`Draft`](crate::Draft), a [`RejectWriter`] stores those that are not events. Invariants:
//! - A draft's `raw` is the record byte for byte; the values read from it only fill the fields of
//!   an event, and no attributes.
//! - No input makes a parser panic, recurse without limit or hold more than a record.

mod cef;
mod elements;
mod format;
mod json;
mod leef;
mod parser;
mod reject;
pub mod sample;
mod severity;
mod split;
mod syslog;
mod text;
mod time;
mod zeek;

pub use elements::{ElementSplitter, Elements};
pub use format::{Format, FormatError};
pub use parser::Parser;
pub use reject::{REJECT_RAW_MAX, Reject, RejectWriter};
pub use split::{RECORD_SIZE_MAX, Record, Records, Splitter};
