//! From log files to drafts of events: NDJSON, OCSF, Zeek, Suricata, CEF, LEEF, syslog and plain lines.
//!
//! A [`Splitter`] cuts a stream into records, a [`Parser`] makes a [`Draft`](crate::Draft) of each, a
//! [`RejectWriter`] keeps those that are none. Invariants:
//! - A draft's `raw` is the record byte for byte; what is read from it only fills the fields an event
//!   has beside it, and no attributes.
//! - No bytes make a parser panic, recurse without bound or hold more than a record.

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

pub use elements::Elements;
pub use format::{Format, FormatError};
pub use parser::Parser;
pub use reject::{REJECT_RAW_MAX, Reject, RejectWriter};
pub use split::{RECORD_SIZE_MAX, Record, Records, Splitter};
