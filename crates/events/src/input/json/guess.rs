//! The time of a JSON record that has none under a known key: the only value that can be one.
//!
//! A value counts if its key sounds like a time (`time`, `date`, `stamp`, `...At`) and not like
//! another one (`expiry`, `lastLogin`), and if it is written with date and time of day, or is a
//! number in the range of times. Two different times are none: which one is meant is not known.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::plain;
use crate::input::time::{self, When};

/// Maximum depth of the objects that are searched.
const DEPTH_MAX: u8 = 5;
/// Parts of a key, in lower case, that make it the key of a time.
const LIKE: [&str; 5] = ["time", "date", "stamp", "when", "clock"];
/// Parts of a key of a time that is not that of the event.
const UNLIKE: [&str; 45] = [
    "expir",
    "valid",
    "birth",
    "before",
    "after",
    "last",
    "modif",
    "update",
    "next",
    "prev",
    "install",
    "build",
    "release",
    "compil",
    "regist",
    "deadline",
    "due",
    "until",
    "end",
    "stop",
    "finish",
    "complet",
    "retention",
    "receiv",
    "recv",
    "receipt",
    "ingest",
    "process",
    "uptime",
    "boot",
    "duration",
    "timeout",
    "timezone",
    "cert",
    "password",
    "pwd",
    "licen",
    "signature",
    "version",
    "close",
    "resolv",
    "index",
    "insert",
    "run",
    "age",
];
/// The time may lie this far ahead of the clock, in nanoseconds: a day.
const AHEAD_NS: i64 = 86_400_000_000_000;

/// Returns the only time in a record, an object that was read before.
pub(super) fn time(record: &str, now_ms: i64) -> Option<When> {
    let latest = now_ms.saturating_mul(1_000_000).saturating_add(AHEAD_NS);
    let mut search = Search { found: None, several: false, latest };
    let mut json = serde_json::Deserializer::from_str(record);
    Object { depth: 0, search: &mut search }.deserialize(&mut json).ok()?;
    search.found.filter(|_| !search.several)
}

struct Search {
    found: Option<When>,
    several: bool,
    latest: i64,
}

impl Search {
    fn take(&mut self, value: &str) {
        let Some(when) = plain(value).and_then(|text| time::text(&text, None)) else { return };
        if when.ns > self.latest {
            return;
        }
        match self.found {
            None => self.found = Some(when),
            // Two forms of one time may differ in precision.
            Some(known) if known.ns / 1_000_000_000 == when.ns / 1_000_000_000 => {
                if when.zoned && (!known.zoned || when.ns > known.ns) {
                    self.found = Some(when);
                }
            }
            Some(_) => self.several = true,
        }
    }
}

/// Whether a key sounds like that of the event's time.
fn is_time(key: &str) -> bool {
    if key.len() > 64 {
        return false;
    }
    let lower = key.to_ascii_lowercase();
    let at =
        key.ends_with("At") || lower.ends_with("_at") || lower == "ts" || lower.ends_with("_ts");
    (at || LIKE.iter().any(|part| lower.contains(part)))
        && !UNLIKE.iter().any(|part| lower.contains(part))
}

struct Object<'s> {
    depth: u8,
    search: &'s mut Search,
}

impl<'a> DeserializeSeed<'a> for Object<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'a> Visitor<'a> for Object<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Cow<'a, str>>()? {
            let timely = is_time(&key);
            if !timely && self.depth >= DEPTH_MAX {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let value = map.next_value::<&'a RawValue>()?.get();
            let mut enter = |value: &'a str| {
                let mut json = serde_json::Deserializer::from_str(value);
                Object { depth: self.depth + 1, search: &mut *self.search }
                    .deserialize(&mut json)
                    .map_err(A::Error::custom)
            };
            if self.depth < DEPTH_MAX && value.starts_with('{') {
                enter(value)?;
            } else if self.depth < DEPTH_MAX && value.starts_with("[{") {
                let list: Vec<&'a RawValue> =
                    serde_json::from_str(value).map_err(A::Error::custom)?;
                for element in list.iter().map(|element| element.get()) {
                    if element.starts_with('{') {
                        enter(element)?;
                    }
                }
            } else if timely {
                self.search.take(value);
            }
        }
        Ok(())
    }
}
