//! BSON as extended JSON, and JSON as BSON.
//!
//! Extended JSON, version 2
//! (<https://www.mongodb.com/docs/manual/reference/mongodb-extended-json/>): a value that JSON
//! cannot represent is an object whose key begins with `$`. Every type can be written. Every type
//! can be read except those that are deprecated (`$symbol`, `$undefined`, `$dbPointer`) and code.
//!
//! Invariants:
//! * Relaxed or canonical, a written value is read back as an equal value; in canonical style with
//!   the same type, too.
//! * Neither nests deeper than [`DEPTH_MAX`], whatever the input.

#![deny(clippy::indexing_slicing)]

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use forebay_sdk::values::{time, write::json_text};
use mongodb::bson::oid::ObjectId;
use mongodb::bson::raw::{RawBsonRef, RawDocument};
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, DateTime, Decimal128, Document, Regex, Timestamp};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::settings::Style;

/// Maximum number of levels of documents and arrays: the server's limit.
pub(super) const DEPTH_MAX: usize = 100;

/// The format of JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) style: Style,
    /// With a space after commas and colons, as PostgreSQL writes `jsonb`.
    pub(super) spaced: bool,
}

/// Appends a value as JSON.
///
/// # Errors
/// Invalid BSON, or too many levels.
pub(super) fn write(
    value: RawBsonRef<'_>,
    layout: Layout,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    write_at(value, layout, DEPTH_MAX, out)
}

fn write_at(
    value: RawBsonRef<'_>,
    layout: Layout,
    depth: usize,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    let is_canonical = layout.style == Style::Canonical;
    match value {
        RawBsonRef::Null => put(out, format_args!("null")),
        RawBsonRef::Boolean(value) => put(out, format_args!("{value}")),
        RawBsonRef::String(text) => json_text(text, out),
        RawBsonRef::Int32(value) if !is_canonical => put(out, format_args!("{value}")),
        RawBsonRef::Int64(value) if !is_canonical => put(out, format_args!("{value}")),
        RawBsonRef::Int32(value) => put(out, format_args!(r#"{{"$numberInt":"{value}"}}"#)),
        RawBsonRef::Int64(value) => put(out, format_args!(r#"{{"$numberLong":"{value}"}}"#)),
        RawBsonRef::Double(value) if !is_canonical && value.is_finite() => {
            put(out, format_args!("{value:?}"));
        }
        RawBsonRef::Double(value) => {
            put(out, format_args!(r#"{{"$numberDouble":"{}"}}"#, double(value)));
        }
        RawBsonRef::Document(document) => write_document(document, layout, depth, out)?,
        RawBsonRef::Array(array) => {
            let depth = below(depth)?;
            out.push(b'[');
            for (at, element) in array.into_iter().enumerate() {
                separate(at, layout, out);
                write_at(element.map_err(broken)?, layout, depth, out)?;
            }
            out.push(b']');
        }
        other => write_extended(other, layout, depth, out)?,
    }
    Ok(())
}

fn write_document(
    document: &RawDocument,
    layout: Layout,
    depth: usize,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    let depth = below(depth)?;
    out.push(b'{');
    for (at, field) in document.into_iter().enumerate() {
        let (name, value) = field.map_err(broken)?;
        separate(at, layout, out);
        json_text(name.as_str(), out);
        out.extend_from_slice(if layout.spaced { b": " } else { b":" });
        write_at(value, layout, depth, out)?;
    }
    out.push(b'}');
    Ok(())
}

/// Writes a value that JSON cannot represent.
fn write_extended(
    value: RawBsonRef<'_>,
    layout: Layout,
    depth: usize,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    let text = |key: &str, text: &str, out: &mut Vec<u8>| {
        put(out, format_args!(r#"{{"{key}":"#));
        json_text(text, out);
        out.push(b'}');
    };
    match value {
        RawBsonRef::ObjectId(id) => put(out, format_args!(r#"{{"$oid":"{id}"}}"#)),
        RawBsonRef::Decimal128(value) => {
            put(out, format_args!(r#"{{"$numberDecimal":"{value}"}}"#));
        }
        RawBsonRef::DateTime(moment) => write_moment(moment, layout.style, out),
        RawBsonRef::Binary(binary) => {
            let (subtype, bytes) = (u8::from(binary.subtype), BASE64.encode(binary.bytes));
            let form =
                format_args!(r#"{{"$binary":{{"base64":"{bytes}","subType":"{subtype:02x}"}}}}"#);
            put(out, form);
        }
        RawBsonRef::RegularExpression(regex) => {
            out.extend_from_slice(br#"{"$regularExpression":{"pattern":"#);
            json_text(regex.pattern.as_str(), out);
            out.extend_from_slice(br#","options":"#);
            json_text(regex.options.as_str(), out);
            out.extend_from_slice(b"}}");
        }
        RawBsonRef::Timestamp(Timestamp { time, increment }) => {
            put(out, format_args!(r#"{{"$timestamp":{{"t":{time},"i":{increment}}}}}"#));
        }
        RawBsonRef::JavaScriptCode(code) => text("$code", code, out),
        RawBsonRef::JavaScriptCodeWithScope(code) => {
            out.extend_from_slice(br#"{"$code":"#);
            json_text(code.code, out);
            out.extend_from_slice(br#","$scope":"#);
            write_document(code.scope, layout, depth, out)?;
            out.push(b'}');
        }
        RawBsonRef::Symbol(symbol) => text("$symbol", symbol, out),
        RawBsonRef::Undefined => put(out, format_args!(r#"{{"$undefined":true}}"#)),
        RawBsonRef::MinKey => put(out, format_args!(r#"{{"$minKey":1}}"#)),
        RawBsonRef::MaxKey => put(out, format_args!(r#"{{"$maxKey":1}}"#)),
        // The only other type is a pointer into another collection, which the driver does not
        // expose.
        other => {
            return Err(format!(
                "a value of type {:?} cannot be represented in JSON",
                other.element_type()
            ));
        }
    }
    Ok(())
}

fn write_moment(moment: DateTime, style: Style, out: &mut Vec<u8>) {
    let ms = moment.timestamp_millis();
    // The years 1970 to 9999.
    let is_plain = (0..253_402_300_800_000).contains(&ms);
    if style == Style::Relaxed && is_plain {
        out.extend_from_slice(br#"{"$date":""#);
        time::write_timestamp(ms * 1_000, true, out);
        out.extend_from_slice(br#""}"#);
    } else {
        put(out, format_args!(r#"{{"$date":{{"$numberLong":"{ms}"}}}}"#));
    }
}

fn double(value: f64) -> String {
    match value {
        value if value.is_finite() => format!("{value:?}"),
        value if value.is_nan() => "NaN".into(),
        value if value > 0.0 => "Infinity".into(),
        _ => "-Infinity".into(),
    }
}

fn separate(at: usize, layout: Layout, out: &mut Vec<u8>) {
    match (at, layout.spaced) {
        (0, _) => {}
        (_, true) => out.extend_from_slice(b", "),
        (_, false) => out.push(b','),
    }
}

fn below(depth: usize) -> Result<usize, String> {
    depth.checked_sub(1).ok_or_else(|| format!("it has more than {DEPTH_MAX} levels"))
}

fn broken(error: impl std::fmt::Display) -> String {
    format!("its BSON is invalid: {error}")
}

fn put(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing into a `Vec` returns no error.
    out.write_fmt(text).unwrap_or_default();
}

/// Parses a JSON text as a BSON value.
///
/// # Errors
/// The fault.
pub(super) fn read(json: &str) -> Result<Bson, String> {
    let value: &RawValue =
        serde_json::from_str(json).map_err(|error| format!("it is not valid JSON: {error}"))?;
    read_at(value, DEPTH_MAX)
}

/// A JSON object whose values are not parsed.
struct Object<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Object<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Object(fields))
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

fn read_at(value: &RawValue, depth: usize) -> Result<Bson, String> {
    let json = value.get();
    let invalid = |error: serde_json::Error| format!("it is not valid JSON: {error}");
    match json.as_bytes().first() {
        Some(b'n') => Ok(Bson::Null),
        Some(b't') => Ok(Bson::Boolean(true)),
        Some(b'f') => Ok(Bson::Boolean(false)),
        Some(b'"') => serde_json::from_str(json).map(Bson::String).map_err(invalid),
        Some(b'[') => {
            let elements: Vec<&RawValue> = serde_json::from_str(json).map_err(invalid)?;
            let depth = below(depth)?;
            let elements = elements.into_iter().map(|element| read_at(element, depth));
            Ok(Bson::Array(elements.collect::<Result<_, _>>()?))
        }
        Some(b'{') => {
            let Object(fields) = serde_json::from_str(json).map_err(invalid)?;
            let depth = below(depth)?;
            if fields.first().is_some_and(|(name, _)| name.starts_with('$')) {
                return read_extended(&fields).ok_or_else(|| {
                    let shown: String = json.chars().take(60).collect();
                    format!("{shown:?} is not a valid extended JSON value")
                });
            }
            let mut document = Document::new();
            for (name, value) in fields {
                if name.contains('\0') {
                    return Err(
                        "a name in it contains a character that BSON names cannot contain".into()
                    );
                }
                document.insert(name, read_at(value, depth)?);
            }
            Ok(Bson::Document(document))
        }
        _ => number(json),
    }
}

/// A number: an integer if it is one, otherwise a double if that is exact, otherwise a decimal.
fn number(json: &str) -> Result<Bson, String> {
    let is_whole = !json.contains(['.', 'e', 'E']);
    if is_whole
        && json != "-0"
        && let Ok(value) = json.parse::<i64>()
    {
        return Ok(i32::try_from(value).map_or(Bson::Int64(value), Bson::Int32));
    }
    let Some(digits) = Digits::of(json) else { return Err(format!("{json:?} is not a number")) };
    if let Ok(value) = json.parse::<f64>()
        && value.is_finite()
        && Digits::of(&format!("{value:e}")).as_ref() == Some(&digits)
    {
        return Ok(Bson::Double(value));
    }
    decimal(json).map(Bson::Decimal128)
}

/// A decimal that represents a number exactly.
///
/// # Errors
/// A number that has none.
pub(super) fn decimal(text: &str) -> Result<Decimal128, String> {
    let does_not = || format!("{text:?} does not fit a decimal of 34 digits");
    let value: Decimal128 = text.parse().map_err(|_| does_not())?;
    let written = value.to_string();
    let is_same = match (Digits::of(text), Digits::of(&written)) {
        (Some(wanted), Some(found)) => wanted == found,
        (None, None) => text == written,
        _ => false,
    };
    is_same.then_some(value).ok_or_else(does_not)
}

/// A number's digits without zeros at either end, and its exponent. Equal numbers have equal ones.
#[derive(Debug, PartialEq, Eq)]
struct Digits {
    is_negative: bool,
    digits: String,
    exponent: i64,
}

impl Digits {
    fn of(text: &str) -> Option<Self> {
        let (number, exponent) = match text.split_once(['e', 'E']) {
            Some((number, exponent)) => (number, exponent.parse::<i64>().ok()?),
            None => (text, 0),
        };
        let unsigned = number.strip_prefix('-').unwrap_or(number);
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let all = format!("{whole}{fraction}");
        if all.is_empty() || !all.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let kept = all.trim_end_matches('0');
        let zeros = i64::try_from(all.len() - kept.len()).ok()?;
        let digits = kept.trim_start_matches('0').to_owned();
        let is_zero = digits.is_empty();
        let exponent = exponent.checked_add(zeros)?;
        let exponent = exponent.checked_sub(i64::try_from(fraction.len()).ok()?)?;
        let is_negative = number.starts_with('-') && !is_zero;
        Some(Self { is_negative, digits, exponent: if is_zero { 0 } else { exponent } })
    }
}

/// A value of extended JSON; `None` if it is not one.
fn read_extended(fields: &[(String, &RawValue)]) -> Option<Bson> {
    let text = |value: &RawValue| serde_json::from_str::<String>(value.get()).ok();
    let inner = |value: &RawValue, first: &str, second: &str| {
        let Object(fields) = serde_json::from_str::<Object<'_>>(value.get()).ok()?;
        let of = |name: &str| {
            let found = fields.iter().find(|(key, _)| key == name);
            found.map(|(_, value)| value.get().to_owned())
        };
        Some((of(first)?, of(second)?))
    };
    let unquoted = |json: &str| serde_json::from_str::<String>(json).ok();
    let [(key, value)] = fields else { return None };
    Some(match key.as_str() {
        "$oid" => Bson::ObjectId(ObjectId::parse_str(text(value)?).ok()?),
        "$numberInt" => Bson::Int32(text(value)?.parse().ok()?),
        "$numberLong" => Bson::Int64(text(value)?.parse().ok()?),
        "$numberDouble" => Bson::Double(text(value)?.parse().ok()?),
        "$numberDecimal" => Bson::Decimal128(decimal(&text(value)?).ok()?),
        "$date" => Bson::DateTime(moment(value)?),
        "$binary" => {
            let (bytes, subtype) = inner(value, "base64", "subType")?;
            let bytes = BASE64.decode(unquoted(&bytes)?).ok()?;
            let subtype = u8::from_str_radix(&unquoted(&subtype)?, 16).ok()?;
            Bson::Binary(Binary { subtype: BinarySubtype::from(subtype), bytes })
        }
        "$timestamp" => {
            let (time, increment) = inner(value, "t", "i")?;
            let (time, increment) = (time.parse().ok()?, increment.parse().ok()?);
            Bson::Timestamp(Timestamp { time, increment })
        }
        "$regularExpression" => {
            let (pattern, options) = inner(value, "pattern", "options")?;
            let pattern = unquoted(&pattern)?.try_into().ok()?;
            let options = unquoted(&options)?.try_into().ok()?;
            Bson::RegularExpression(Regex { pattern, options })
        }
        "$minKey" => Bson::MinKey,
        "$maxKey" => Bson::MaxKey,
        _ => return None,
    })
}

fn moment(value: &RawValue) -> Option<DateTime> {
    if let Ok(text) = serde_json::from_str::<String>(value.get()) {
        let us = time::read_timestamp(&text, true)?;
        return (us % 1_000 == 0).then(|| DateTime::from_millis(us / 1_000));
    }
    let Object(fields) = serde_json::from_str::<Object<'_>>(value.get()).ok()?;
    let [(key, ms)] = fields.as_slice() else { return None };
    let ms = serde_json::from_str::<String>(ms.get()).ok()?;
    (key == "$numberLong").then(|| ms.parse().ok().map(DateTime::from_millis))?
}

#[cfg(test)]
mod tests {
    use mongodb::bson::{doc, rawdoc};

    use super::*;

    fn written(value: &Bson, style: Style, spaced: bool) -> String {
        let document = rawdoc! { "v": mongodb::bson::RawBson::try_from(value.clone()).unwrap() };
        let mut out = Vec::new();
        let value = document.get("v").unwrap().unwrap();
        write(value, Layout { style, spaced }, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn values() -> Vec<Bson> {
        vec![
            Bson::Null,
            Bson::Boolean(true),
            Bson::Int32(-5),
            Bson::Int64(1 << 40),
            Bson::Double(0.1),
            Bson::Double(f64::INFINITY),
            Bson::String("a\"\n✓".into()),
            Bson::Decimal128("1.50".parse().unwrap()),
            Bson::ObjectId(ObjectId::parse_str("507f1f77bcf86cd799439011").unwrap()),
            Bson::DateTime(DateTime::from_millis(1_715_000_000_123)),
            Bson::DateTime(DateTime::from_millis(-1)),
            Bson::Binary(Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] }),
            Bson::Timestamp(Timestamp { time: 7, increment: 8 }),
            Bson::RegularExpression(Regex {
                pattern: "^a".to_owned().try_into().unwrap(),
                options: "i".to_owned().try_into().unwrap(),
            }),
            Bson::MinKey,
            Bson::MaxKey,
            Bson::Document(doc! { "b": [1, { "c": Bson::Null }], "a": {} }),
        ]
    }

    #[test]
    fn what_is_written_reads_back() {
        for value in values() {
            for style in [Style::Relaxed, Style::Canonical] {
                let json = written(&value, style, false);
                assert_eq!(read(&json).as_ref(), Ok(&value), "{json}");
            }
        }
        // Relaxed numbers have the smallest type that can hold them.
        assert_eq!(read(&written(&Bson::Int64(5), Style::Relaxed, false)), Ok(Bson::Int32(5)));
        let same = written(&Bson::Int64(5), Style::Canonical, false);
        assert_eq!((same.as_str(), read(&same)), (r#"{"$numberLong":"5"}"#, Ok(Bson::Int64(5))));
    }

    #[test]
    fn jsonb_comes_back_as_postgresql_writes_it() {
        for json in [r#"{"k": "v", "a": [1, 2.5, null]}"#, "[]", "{}", "-12345678901", "1.0"] {
            assert_eq!(written(&read(json).unwrap(), Style::Relaxed, true), json);
        }
    }

    #[test]
    fn numbers_lose_nothing_or_are_refused() {
        assert_eq!(read("1e2"), Ok(Bson::Double(100.0)));
        assert_eq!(read("2.50"), Ok(Bson::Double(2.5)));
        assert_eq!(read("-0"), Ok(Bson::Double(0.0)));
        let long = "12345678901234567890.5";
        assert_eq!(read(long), Ok(Bson::Decimal128(long.parse().unwrap())));
        assert!(read("1e400").is_ok_and(|value| matches!(value, Bson::Decimal128(_))));
        assert!(read("1e40000").is_err());
        assert!(read(&"9".repeat(35)).is_err());
        assert!(decimal("NaN").is_ok() && decimal("-Infinity").is_ok());
        assert!(decimal("1.10").is_ok_and(|value| value.to_string() == "1.10"));
    }

    #[test]
    fn hostile_json_is_refused() {
        for json in [
            "",
            "{",
            r#"{"$oid": "x"}"#,
            r#"{"$oid": "507f1f77bcf86cd799439011", "a": 1}"#,
            r#"{"$where": "1"}"#,
            r#"{"$date": "now"}"#,
            r#"{"a\u0000": 1}"#,
            &"[".repeat(100_000),
            &format!("{}1{}", "[".repeat(101), "]".repeat(101)),
        ] {
            assert!(read(json).is_err(), "{json:.60}");
        }
        assert!(read(&format!("{}1{}", "[".repeat(100), "]".repeat(100))).is_ok());
    }
}
