//! An event as it is appended ([`Draft`]) and as it is read back ([`Event`]).
//!
//! Invariant: [`Event`] borrows from canonical leaf bytes that were fully checked, so its accessors
//! cannot fail.

pub(crate) mod addresses;
mod id;
mod severity;
mod subnet;
mod time_source;
mod value;

use std::borrow::Cow;
use std::net::IpAddr;

pub use id::{EventId, IdError, IdSequence};
pub use severity::Severity;
pub use subnet::{Subnet, SubnetError};
pub use time_source::TimeSource;
pub use value::{Attributes, Value};

/// An event to be appended, as far as the producer specifies it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Draft<'a> {
    /// The producer's id. `None`: an id is generated.
    pub id: Option<EventId>,
    /// When it happened, in nanoseconds since 1970-01-01 UTC. `None`: the time of appending.
    pub timestamp_ns: Option<i64>,
    /// Where `timestamp_ns` is from; ignored if there is none.
    pub time_source: TimeSource,
    /// Its stream, 1 to 255 bytes. Empty: the batch's stream.
    pub stream: Cow<'a, str>,
    /// Its type, as its source names it; at most 255 bytes, as the next three.
    pub kind: Cow<'a, str>,
    /// The machine it concerns.
    pub host: Cow<'a, str>,
    /// The address it concerns.
    pub ip: Option<IpAddr>,
    /// What collected it.
    pub collector: Cow<'a, str>,
    /// The format of `raw`, such as `ocsf` or `zeek`.
    pub format: Cow<'a, str>,
    /// Its severity.
    pub severity: Severity,
    /// The event as its source wrote it, byte for byte.
    pub raw: Cow<'a, [u8]>,
    /// What the producer added to `raw`: keys of 1 to 255 bytes, in this order.
    pub attributes: Vec<(Cow<'a, str>, Value<'a>)>,
}

/// The short fields of an event; many events share the same values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tags<'a> {
    /// The severity.
    pub severity: Severity,
    /// The stream.
    pub stream: &'a str,
    /// The kind of event.
    pub kind: &'a str,
    /// The machine it concerns; empty if unknown, like the others.
    pub host: &'a str,
    /// The address it concerns.
    pub ip: Option<IpAddr>,
    /// What collected it.
    pub collector: &'a str,
    /// The format of the raw bytes.
    pub format: &'a str,
    /// Where the event's time is from.
    pub time_source: TimeSource,
    /// Whether the tree has a digest of the event instead of the event itself, because of its size
    /// ([`tree::entry`](crate::format::tree::entry)). Large events of earlier versions have none.
    pub digested: bool,
}

/// A stored event, read from its canonical leaf bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Event<'a> {
    /// Its id.
    pub id: EventId,
    /// When it happened, in nanoseconds since 1970-01-01 UTC.
    pub timestamp_ns: i64,
    /// Stream, kind, host, address, collector, format and severity.
    pub tags: Tags<'a>,
    /// The event as its source wrote it.
    pub raw: &'a [u8],
    /// What the producer added.
    pub attributes: Attributes<'a>,
}
