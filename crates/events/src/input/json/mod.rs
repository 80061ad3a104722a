//! Records that are JSON objects: NDJSON, OCSF, Zeek and Suricata.
//!
//! A record is read once, and all of it is checked, but only the values of [`keys`] are kept, as
//! the text in the record. Invariants: of a repeated key the first value counts; the nesting depth
//! of an ignored value makes no difference, because it is not read by recursion; numbers are kept
//! as their digits. Only a record without a known time is read a second time, by [`guess`].

mod guess;
mod keys;
mod map;
mod wrapped;

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use self::keys::{Group, SLOTS, Slot, Want, want};
pub(super) use self::wrapped::{Element, Wrapped};
use super::time::{self, When};
use super::{Format, Reject};
use crate::event::Draft;

/// Maximum number of values that are kept of a record.
const KEPT_MAX: usize = 64;

/// What a JSON record is.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are events, and a box would be an allocation for each"
)]
pub(super) enum Read<'a> {
    /// One event.
    One(Draft<'a>),
    /// Several: a list in an envelope, such as CloudTrail's `Records`.
    Several(Wrapped<'a>),
}

/// Reads a record of a JSON format; for [`Format::Auto`] the format is detected.
///
/// * `embedded`: reads the line in a record's message.
pub(super) fn parse<'a>(
    line: &'a [u8],
    format: Format,
    now_ms: i64,
    embedded: &mut dyn FnMut(&str) -> Option<Draft<'static>>,
) -> Result<Read<'a>, Reject> {
    // Built in place: it is large, and otherwise each record would move it.
    let mut fields = Fields::new(now_ms, false);
    let text = fields.read(line)?;
    let general = matches!(format, Format::Auto | Format::Ndjson);
    if general && let Some(wrapped) = fields.wrapped()? {
        return Ok(Read::Several(wrapped));
    }
    let format = match format {
        Format::Auto => fields.looks_like(),
        format => format,
    };
    let mut draft = match format {
        Format::Ocsf => map::ocsf(&fields),
        Format::Zeek => map::zeek(&fields),
        Format::Suricata => map::suricata(&fields),
        _ => map::ndjson(&fields),
    };
    if general && let Some(when) = fields.splunk_time(line) {
        map::stamp(&mut draft, Some(when));
    }
    // A time in a zone that is not known is not searched for again.
    let zone_unknown = || fields.has(Slot::Zone) && fields.written_time().is_some();
    if draft.timestamp_ns.is_none() && general && !zone_unknown() {
        if let Some(inner) = fields.text(Slot::Message).and_then(|text| embedded(&text)) {
            map::merge(&mut draft, inner);
        }
        if draft.timestamp_ns.is_none() {
            map::stamp(&mut draft, guess::time(text, now_ms));
        }
    }
    // Azure's agent has the machine only in the event that it forwards.
    if draft.host.is_empty()
        && general
        && let Some(inner) = fields.text(Slot::RawXml).and_then(|text| embedded(&text))
    {
        map::merge(&mut draft, inner);
    }
    draft.format = Cow::Borrowed(format.name());
    draft.raw = Cow::Borrowed(line);
    Ok(Read::One(draft))
}

/// Returns the value at a path of keys, `a.b.c` nested or dotted, as the text in the record.
pub(super) fn value_at<'a>(line: &'a [u8], path: &str) -> Option<&'a str> {
    let text = std::str::from_utf8(line).ok()?;
    let mut json = serde_json::Deserializer::from_str(text);
    let mut found = None;
    At { path, found: &mut found }.deserialize(&mut json).ok()?;
    found
}

/// Decodes the text of a JSON string; a number is its digits.
pub(super) fn plain(value: &str) -> Option<Cow<'_, str>> {
    match value.as_bytes() {
        [b'"', ..] => {
            let bare = value.strip_prefix('"')?.strip_suffix('"')?;
            if memchr::memchr(b'\\', bare.as_bytes()).is_none() {
                return Some(Cow::Borrowed(bare));
            }
            serde_json::from_str(value).ok().map(Cow::Owned)
        }
        [b'-' | b'0'..=b'9', ..] => Some(Cow::Borrowed(value)),
        _ => None,
    }
}

/// An event in the envelope of Splunk's HTTP event collector, which has no other members.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Collected<'a> {
    #[serde(borrow)]
    time: &'a RawValue,
    #[serde(borrow)]
    event: &'a RawValue,
    #[serde(rename = "host")]
    _host: Option<IgnoredAny>,
    #[serde(rename = "source")]
    _source: Option<IgnoredAny>,
    #[serde(rename = "sourcetype")]
    _sourcetype: Option<IgnoredAny>,
    #[serde(rename = "index")]
    _index: Option<IgnoredAny>,
    #[serde(rename = "fields")]
    _fields: Option<IgnoredAny>,
}

/// The values of a record that are used, as JSON.
struct Fields<'a> {
    /// For each slot the index in `kept` plus 1; 0: there is none.
    places: [u8; SLOTS],
    kept: [&'a str; KEPT_MAX],
    count: usize,
    now_ms: i64,
    /// The values are texts, not JSON.
    bare: bool,
}

/// Returns the draft of names and values that are not JSON, such as `src=10.0.0.1`.
pub(super) fn from_pairs<'a>(
    pairs: impl Iterator<Item = (&'a str, &'a str)>,
    now_ms: i64,
) -> Draft<'a> {
    let mut fields = Fields::new(now_ms, true);
    for (key, value) in pairs {
        // Of pairs, unlike of objects, this short key is a time: Grafana's.
        let key = if key == "t" { "@t" } else { key };
        if let Some(slot) = want(Group::RECORD, key).slot.filter(|_| !value.is_empty()) {
            fields.keep(slot, value);
        }
    }
    map::ndjson(&fields)
}

impl<'a> Fields<'a> {
    fn new(now_ms: i64, bare: bool) -> Self {
        Self { places: [0; SLOTS], kept: [""; KEPT_MAX], count: 0, now_ms, bare }
    }

    fn read(&mut self, line: &'a [u8]) -> Result<&'a str, Reject> {
        let text = std::str::from_utf8(line).map_err(|error| {
            Reject::new(format!("invalid UTF-8 at byte {}", error.valid_up_to() + 1))
        })?;
        let mut json = serde_json::Deserializer::from_str(text);
        Object { group: Group::RECORD, fields: self }
            .deserialize(&mut json)
            .and_then(|()| json.end())
            .map_err(|error| not_json(&error))?;
        Ok(text)
    }

    fn keep(&mut self, slot: Slot, value: &'a str) {
        let place = &mut self.places[slot as usize];
        if let Some(free) = self.kept.get_mut(self.count).filter(|_| *place == 0) {
            *free = value;
            self.count += 1;
            *place = u8::try_from(self.count).unwrap_or_default();
        }
    }

    fn has(&self, slot: Slot) -> bool {
        self.places[slot as usize] > 0
    }

    fn json(&self, slot: Slot) -> Option<&'a str> {
        let place = usize::from(self.places[slot as usize]).checked_sub(1)?;
        self.kept.get(place).copied()
    }

    /// The time in Splunk's envelope, if a time that may be from the event in it was preferred.
    fn splunk_time(&self, line: &[u8]) -> Option<When> {
        let inner = [Slot::EventTime, Slot::TimeCreated, Slot::UtcTime];
        if !self.has(Slot::Time) || !inner.into_iter().any(|slot| self.has(slot)) {
            return None;
        }
        let Collected { time, event, .. } = serde_json::from_slice(line).ok()?;
        if !event.get().starts_with('{') {
            return None;
        }
        time::text(&plain(time.get())?, None)
    }

    fn looks_like(&self) -> Format {
        let ip = self.has(Slot::FlowId) || self.has(Slot::SrcIp) || self.has(Slot::Stats);
        let conn = self.has(Slot::Ts) && self.has(Slot::Uid) && self.has(Slot::IdOrigHost);
        if self.has(Slot::ClassUid) || self.has(Slot::MetadataVersion) && self.has(Slot::SeverityId)
        {
            Format::Ocsf
        } else if self.has(Slot::EventType) && self.has(Slot::Timestamp) && ip {
            Format::Suricata
        } else if self.has(Slot::Path) || conn {
            Format::Zeek
        } else {
            Format::Ndjson
        }
    }

    /// A text decoded, or a number's digits.
    fn text(&self, slot: Slot) -> Option<Cow<'a, str>> {
        let value = self.json(slot)?;
        if self.bare { Some(Cow::Borrowed(value)) } else { plain(value) }
    }
}

fn not_json(error: &serde_json::Error) -> Reject {
    let text = error.to_string();
    // A record is one line.
    let what = text.split(" at line ").next().unwrap_or_default();
    Reject::new(format!("not a JSON object: {what} at byte {}", error.column()))
}

/// Reads an object into `fields`.
struct Object<'f, 'a> {
    group: Group,
    fields: &'f mut Fields<'a>,
}

impl<'a> DeserializeSeed<'a> for Object<'_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'a> Visitor<'a> for Object<'_, 'a> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(want) = map.next_key_seed(Key(self.group))? {
            let Want { slot, group } = want;
            if slot.is_none() && group.is_none() {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let value = map.next_value::<&'a RawValue>()?.get();
            match (slot, group) {
                (_, Some(group)) if value.starts_with('{') => {
                    let mut json = serde_json::Deserializer::from_str(value);
                    Object { group, fields: &mut *self.fields }
                        .deserialize(&mut json)
                        .map_err(A::Error::custom)?;
                }
                (Some(slot), _) if value != "null" => {
                    self.fields.keep(slot, value);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Reads a key, and returns what is done with its value.
struct Key(Group);

impl<'a> DeserializeSeed<'a> for Key {
    type Value = Want;

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<Want, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key {
    type Value = Want;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Want, E> {
        Ok(want(self.0, key))
    }
}

/// Finds the value at a path.
struct At<'p, 'f, 'a> {
    path: &'p str,
    found: &'f mut Option<&'a str>,
}

impl<'a> DeserializeSeed<'a> for At<'_, '_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'a> Visitor<'a> for At<'_, '_, 'a> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Cow<'a, str>>()? {
            let value = map.next_value::<&'a RawValue>()?.get();
            let rest = self.path.strip_prefix(&*key);
            match rest.map(|rest| (rest, rest.strip_prefix('.'))) {
                Some(("", _)) => {
                    self.found.get_or_insert(value);
                }
                Some((_, Some(path))) if value.starts_with('{') => {
                    let mut json = serde_json::Deserializer::from_str(value);
                    At { path, found: &mut *self.found }
                        .deserialize(&mut json)
                        .map_err(A::Error::custom)?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}
