//! Records that are JSON objects: NDJSON, OCSF, Zeek and Suricata.
//!
//! A record is read once, and all of it is checked, but only the values of [`keys`] are kept, as
//! the text in the record. Invariants: of a repeated key the first value counts; the nesting depth
//! of an ignored value makes no difference, because it is not read by recursion; numbers are kept
//! as their digits.

mod keys;
mod map;

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use self::keys::{Group, SLOTS, Slot, Want, want};
use super::{Format, Reject};
use crate::event::Draft;

/// Returns the draft of a record of a JSON format; for [`Format::Auto`] the format is detected.
pub(super) fn parse(line: &[u8], format: Format) -> Result<Draft<'_>, Reject> {
    // Built in place: it is large, and otherwise each record would move it.
    let mut fields = Fields { values: [None; SLOTS] };
    fields.read(line)?;
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
    draft.format = Cow::Borrowed(format.name());
    draft.raw = Cow::Borrowed(line);
    Ok(draft)
}

/// The values of a record that are used, as JSON.
struct Fields<'a> {
    values: [Option<&'a str>; SLOTS],
}

impl<'a> Fields<'a> {
    fn read(&mut self, line: &'a [u8]) -> Result<(), Reject> {
        let text = std::str::from_utf8(line).map_err(|error| {
            Reject::new(format!("invalid UTF-8 at byte {}", error.valid_up_to() + 1))
        })?;
        let mut json = serde_json::Deserializer::from_str(text);
        Object { group: Group::Record, fields: self }
            .deserialize(&mut json)
            .and_then(|()| json.end())
            .map_err(|error| not_json(&error))
    }

    fn has(&self, slot: Slot) -> bool {
        self.values[slot as usize].is_some()
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

    /// The digits of a number, or a text decoded.
    fn value(&self, slot: Slot) -> Option<Value<'a>> {
        let value = self.values[slot as usize]?;
        match value.as_bytes() {
            [b'"', ..] => {
                let bare = value.strip_prefix('"')?.strip_suffix('"')?;
                if memchr::memchr(b'\\', bare.as_bytes()).is_none() {
                    return Some(Value::Text(Cow::Borrowed(bare)));
                }
                serde_json::from_str(value).ok().map(|text| Value::Text(Cow::Owned(text)))
            }
            [b'-' | b'0'..=b'9', ..] => Some(Value::Number(value)),
            _ => None,
        }
    }

    /// A text, or a number's digits.
    fn text(&self, slot: Slot) -> Option<Cow<'a, str>> {
        self.value(slot).map(|value| match value {
            Value::Text(text) => text,
            Value::Number(digits) => Cow::Borrowed(digits),
        })
    }
}

enum Value<'a> {
    Text(Cow<'a, str>),
    Number(&'a str),
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
            let (slot, group) = match want {
                Want::Skip => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
                Want::Keep(slot) => (Some(slot), None),
                Want::Enter(group) => (None, Some(group)),
                Want::Either(slot, group) => (Some(slot), Some(group)),
            };
            let value = map.next_value::<&'a RawValue>()?.get();
            match (slot, group) {
                (_, Some(group)) if value.starts_with('{') => {
                    let mut json = serde_json::Deserializer::from_str(value);
                    Object { group, fields: &mut *self.fields }
                        .deserialize(&mut json)
                        .map_err(A::Error::custom)?;
                }
                (Some(slot), _) if value != "null" => {
                    self.fields.values[slot as usize].get_or_insert(value);
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
