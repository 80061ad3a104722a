//! Events as JSON, for people and programs that read them.

use std::collections::BTreeMap;

use base64::Engine as _;
use serde::Serialize;
use serde_json::{Value as Json, json};

use crate::event::{TimeSource, Value};
use crate::store::Record;

/// A time in RFC 3339, UTC, to the nanosecond.
#[must_use]
pub fn time(timestamp_ns: i64) -> String {
    jiff::Timestamp::from_nanosecond(i128::from(timestamp_ns))
        .map_or_else(|_| timestamp_ns.to_string(), |time| time.to_string())
}

/// Bytes in base 64, as RFC 4648 has it.
#[must_use]
pub fn base64(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// An event with all its fields.
///
/// The fields are in the order of their names, so that a line is the same bytes in every version.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "api", derive(utoipa::ToSchema), schema(as = Event))]
pub struct EventAnswer<'a> {
    /// What the producer added; absent if it added nothing.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, serde_json::Value>,
    /// Its id, a UUID in text.
    pub id: String,
    /// The proof that it is stored; only on request.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "api",
        schema(nullable = false, value_type = Option<crate::merkle::InclusionProof>)
    )]
    pub proof: Option<serde_json::Value>,
    /// The event as its source wrote it; absent if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "api", schema(nullable = false))]
    pub raw: Option<&'a str>,
    /// The event as its source wrote it, in base 64; only if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "api", schema(nullable = false))]
    pub raw_base64: Option<String>,
    /// Its position, from 0 in the order of acceptance.
    pub seq: u64,
    /// `unknown`, `informational`, `low`, `medium`, `high`, `critical` or `fatal`.
    pub severity: &'static str,
    /// Where it is from.
    pub source: SourceAnswer<'a>,
    /// Its stream.
    pub stream: &'a str,
    /// Where the timestamp is from: `event`, `assumed` (the event, whose time has no offset and was
    /// read as UTC) or `received` (the time of appending); absent if it is unknown.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub time_source: &'static str,
    /// When it happened, RFC 3339.
    pub timestamp: String,
    /// Its type.
    pub r#type: &'a str,
}

/// Where an event is from. What is unknown is absent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "api", derive(utoipa::ToSchema), schema(as = EventSource))]
pub struct SourceAnswer<'a> {
    /// What collected it.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub collector: &'a str,
    /// The format it was written in.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub format: &'a str,
    /// The machine it concerns.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub host: &'a str,
    /// The address it concerns.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "api", schema(nullable = false))]
    pub ip: Option<String>,
}

impl<'a> EventAnswer<'a> {
    /// The event of a record, without a proof.
    #[must_use]
    pub fn of(record: &'a Record) -> Self {
        let event = record.event();
        let (raw, raw_base64) = match std::str::from_utf8(event.raw) {
            Ok(text) => (Some(text), None),
            Err(_) => (None, Some(base64(event.raw))),
        };
        let attributes = event.attributes.iter();
        Self {
            attributes: attributes.map(|(key, value)| (key.to_owned(), of_value(&value))).collect(),
            id: event.id.to_string(),
            proof: None,
            raw,
            raw_base64,
            seq: record.seq(),
            severity: event.tags.severity.name(),
            source: SourceAnswer {
                collector: event.tags.collector,
                format: event.tags.format,
                host: event.tags.host,
                ip: event.tags.ip.map(|ip| ip.to_string()),
            },
            stream: event.tags.stream,
            time_source: match event.tags.time_source {
                TimeSource::Unknown => "",
                source => source.name(),
            },
            timestamp: time(event.timestamp_ns),
            r#type: event.tags.kind,
        }
    }
}

/// An event with all its fields as JSON. Raw bytes that are not UTF-8 are under `raw_base64`.
#[must_use]
pub fn event(record: &Record) -> Json {
    serde_json::to_value(EventAnswer::of(record))
        .expect("an event has only text keys and finite numbers")
}

fn of_value(value: &Value<'_>) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Boolean(flag) => (*flag).into(),
        Value::Integer(number) => (*number).into(),
        // JSON has no NaN and no infinities: they are written as text.
        Value::Real(number) => serde_json::Number::from_f64(*number)
            .map_or_else(|| number.to_string().into(), Json::Number),
        Value::Text(text) => text.as_ref().into(),
        Value::Bytes(bytes) => json!({ "base64": base64(bytes) }),
    }
}
