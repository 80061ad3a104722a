//! Events as JSON, for people and programs that read them.

use base64::Engine as _;
use serde_json::{Map, Value as Json, json};

use crate::event::Value;
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

/// An event with all its fields. Raw bytes that are not UTF-8 are under `raw_base64`.
#[must_use]
pub fn event(record: &Record) -> Json {
    let event = record.event();
    let mut source = Map::new();
    for (key, text) in [
        ("host", event.tags.host),
        ("collector", event.tags.collector),
        ("format", event.tags.format),
    ] {
        if !text.is_empty() {
            source.insert(key.to_owned(), text.into());
        }
    }
    if let Some(ip) = event.tags.ip {
        source.insert("ip".to_owned(), ip.to_string().into());
    }
    let mut out = json!({
        "id": event.id.to_string(),
        "seq": record.seq(),
        "timestamp": time(event.timestamp_ns),
        "stream": event.tags.stream,
        "type": event.tags.kind,
        "severity": event.tags.severity.name(),
        "source": source,
    });
    match std::str::from_utf8(event.raw) {
        Ok(text) => out["raw"] = text.into(),
        Err(_) => out["raw_base64"] = base64(event.raw).into(),
    }
    if !event.attributes.is_empty() {
        let attributes: Map<String, Json> = event
            .attributes
            .iter()
            .map(|(key, value)| (key.to_owned(), of_value(&value)))
            .collect();
        out["attributes"] = attributes.into();
    }
    out
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
