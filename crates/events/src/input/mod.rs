//! From log files to drafts of events: NDJSON, OCSF, Zeek, Suricata, CEF, LEEF, syslog, access logs,
//! pairs, W3C extended logs, Windows events and plain lines, and lists of events in an envelope.
//!
//! A [`Splitter`] splits a stream into records, a [`Parser`] turns each into a
//! [`Draft`](crate::Draft), a [`RejectWriter`] stores those that are not events. Invariants:
//! - A draft's `raw` is the record, or the element of an envelope, byte for byte; the values read
//!   from it only fill the fields of an event. Attributes are what an envelope or a header says.
//! - A time is never guessed: a draft has the one that a known field or form has, with its source,
//!   or none.
//! - No input makes a parser panic, recurse without limit or hold more than a record.

mod bulk;
mod cef;
mod elements;
mod encoding;
mod format;
mod json;
mod leef;
mod line;
mod mapping;
mod pairs;
mod parser;
mod reject;
pub mod sample;
mod severity;
mod split;
mod syslog;
mod text;
mod time;
mod w3c;
mod zeek;

pub use elements::{ElementSplitter, Elements};
pub use encoding::{Encoding, EncodingError, Inflater};
pub use format::{Format, FormatError};
pub use mapping::{Mapping, Mappings, ZoneError};
pub use parser::Parser;
pub use reject::{REJECT_RAW_MAX, Reject, RejectWriter};
pub use split::{ENVELOPE_SIZE_MAX, RECORD_SIZE_MAX, Record, Records, Splitter};
