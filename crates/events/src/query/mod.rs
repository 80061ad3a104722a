//! Questions: which events, in which order.

mod matching;
mod scan;

use std::net::IpAddr;

pub use scan::Scan;

use crate::event::Severity;

/// In which order events are returned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Order {
    /// By time, then sequence, the earliest first.
    #[default]
    OldestFirst,
    /// The latest first.
    NewestFirst,
}

/// The place of an event in the order of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cursor {
    /// Its time, in nanoseconds since 1970-01-01 UTC.
    pub timestamp_ns: i64,
    /// Its position.
    pub seq: u64,
}

/// Which events are wanted: all conditions that are given must hold.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// Not before, in nanoseconds since 1970-01-01 UTC.
    pub from_ns: Option<i64>,
    /// Before.
    pub to_ns: Option<i64>,
    /// Of this stream.
    pub stream: Option<String>,
    /// Of this type.
    pub kind: Option<String>,
    /// Of this machine.
    pub host: Option<String>,
    /// Of this address.
    pub ip: Option<IpAddr>,
    /// At least this bad, by code; `Other` counts as the worst.
    pub severity_min: Option<Severity>,
    /// The raw bytes contain all of these.
    pub contains: Vec<Vec<u8>>,
    /// The raw bytes match.
    pub regex: Option<regex::bytes::Regex>,
    /// In which order.
    pub order: Order,
    /// Behind this place in that order: where an earlier answer ended.
    pub after: Option<Cursor>,
}
