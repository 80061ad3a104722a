//! Queries: which events, in which order.

mod matching;
mod phrase;
mod scan;
mod when;

use forebay_base::waiting::Gone;

pub use scan::Scan;
pub use when::parse_time;

use crate::event::{Event, Severity, Tags, addresses};
pub use crate::event::{Subnet, SubnetError};
use crate::store::Record;

/// The order of the returned events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Order {
    /// By time, then sequence, the earliest first.
    #[default]
    OldestFirst,
    /// The latest first.
    NewestFirst,
}

/// The position of an event in the order of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cursor {
    /// Its time, in nanoseconds since 1970-01-01 UTC.
    pub timestamp_ns: i64,
    /// Its position.
    pub seq: u64,
}

/// The requested events: all given conditions must hold.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// Not before, in nanoseconds since 1970-01-01 UTC.
    pub from_ns: Option<i64>,
    /// Before.
    pub to_ns: Option<i64>,
    /// Only events in this stream.
    pub stream: Option<String>,
    /// Only events of this type.
    pub kind: Option<String>,
    /// Only events about this machine.
    pub host: Option<String>,
    /// Only events that name an address in each of these, wherever they name it.
    pub ips: Vec<Subnet>,
    /// Only events of at least this severity. `Other` is none of the scale: only `Other` asks for it.
    pub severity_min: Option<Severity>,
    /// The raw bytes contain all of these.
    pub contains: Vec<Vec<u8>>,
    /// The raw bytes contain all of these as whole words: no letter, digit or byte beyond ASCII
    /// continues them. Each may be a phrase of several words, with what is between them.
    pub words: Vec<Vec<u8>>,
    /// The raw bytes match.
    pub regex: Option<regex::bytes::Regex>,
    /// The order.
    pub order: Order,
    /// Only events after this position in that order: where an earlier result ended.
    pub after: Option<Cursor>,
    /// Whether the caller has left; a scan then ends with [`ReadError::Gone`].
    ///
    /// [`ReadError::Gone`]: crate::ReadError::Gone
    pub gone: Gone,
}

impl Query {
    /// Whether an event matches; order and [`after`](Self::after) are ignored.
    #[must_use]
    pub fn matches(&self, record: &Record) -> bool {
        let event = record.event();
        let time = event.timestamp_ns;
        self.overlaps(time, time)
            && self.has_tags(&event.tags)
            && self.has_addresses(&event)
            && self.contains.iter().all(|needle| memchr::memmem::find(event.raw, needle).is_some())
            && self.words.iter().all(|phrase| phrase::Phrase::new(phrase).is_in(event.raw))
            && self.regex.as_ref().is_none_or(|regex| regex.is_match(event.raw))
    }

    /// Whether times from `min` to `max` overlap the requested ones.
    pub(crate) fn overlaps(&self, min_ns: i64, max_ns: i64) -> bool {
        self.from_ns.is_none_or(|from| max_ns >= from) && self.to_ns.is_none_or(|to| min_ns < to)
    }

    /// Whether an event's tags match.
    pub(crate) fn has_tags(&self, tags: &Tags<'_>) -> bool {
        let same = |wanted: &Option<String>, found: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted == found)
        };
        same(&self.stream, tags.stream)
            && same(&self.kind, tags.kind)
            && same(&self.host, tags.host)
            && self.severity_min.is_none_or(|least| {
                tags.severity == least || tags.severity > least && tags.severity != Severity::Other
            })
    }

    /// Whether the addresses that an event names match.
    pub(crate) fn has_addresses(&self, event: &Event<'_>) -> bool {
        let named =
            |subnet: &Subnet| addresses::any_of(event, &mut |address| subnet.contains(address));
        self.ips.iter().all(named)
    }
}
