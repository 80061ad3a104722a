//! The canonical bytes of an event, over which its leaf hash is taken
//! (`docs/formats/event-leaf.md`).
//!
//! ```text
//! version  u8 = 1
//! id       16 bytes, big-endian
//! time     i64 little-endian, nanoseconds since 1970-01-01 UTC
//! tags     varint length, then: severity u8, and stream, kind, host, ip, collector, format,
//!          each u8 length and bytes (ip: 0, 4 or 16 bytes), and the source of the time, u8 1 to 3;
//!          absent if unknown, as in every leaf of earlier versions; then, of leaves of more than
//!          65,535 bytes, u8 1: the tree has a digest of the event, see `tree`
//! raw      varint length, then the bytes
//! attributes, to the end: key u8 length and bytes, type u8, value
//! ```
//!
//! Invariant: one event has one encoding. [`decode`] accepts only what [`encode`] writes, so the
//! hashes of decoded leaves can be compared.

#![expect(
    clippy::cast_possible_truncation,
    reason = "every length is checked against the limits of a leaf before it is written"
)]

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::tree::{self, ENTRY_SIZE_MAX};
use super::{put_varint, take_varint};
use crate::event::{Attributes, Draft, Event, EventId, Severity, Tags, TimeSource, Value};

/// The first byte of every leaf.
pub const VERSION: u8 = 1;
/// Bytes before the tags' length.
pub const FIXED_SIZE: usize = 25;
/// Maximum size of a text among the tags, and of an attribute key, in bytes.
pub const TEXT_SIZE_MAX: usize = 255;
/// Maximum number of attributes of an event.
pub const ATTRIBUTES_MAX: usize = 256;
/// Maximum size of a leaf, in bytes.
pub const LEAF_SIZE_MAX: usize = 2 * 1024 * 1024;
/// The mark of a leaf whose entry in the tree is a digest.
const DIGESTED: u8 = 1;

/// Why a draft cannot become an event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeafError {
    /// A text is too long.
    #[error("{field} has {size} bytes; the maximum is {TEXT_SIZE_MAX}")]
    TextTooLong {
        /// The field.
        field: &'static str,
        /// Its bytes.
        size: usize,
    },
    /// No stream is given.
    #[error("the event has no stream name")]
    NoStream,
    /// Only the store itself appends to this stream.
    #[error("streams whose names begin with _forebay are reserved for the store itself")]
    ReservedStream,
    /// A text has a control character.
    #[error("{field} contains a control character")]
    Control {
        /// The field.
        field: &'static str,
    },
    /// Too many attributes.
    #[error("the event has {count} attributes; the maximum is {ATTRIBUTES_MAX}")]
    TooManyAttributes {
        /// How many.
        count: usize,
    },
    /// An attribute has an empty key, or one that is too long.
    #[error("an attribute's key has {size} bytes; it must have 1 to {TEXT_SIZE_MAX}")]
    Key {
        /// Its bytes.
        size: usize,
    },
    /// The event is too large.
    #[error("the event has {size} bytes; the maximum is {LEAF_SIZE_MAX}")]
    TooLarge {
        /// Its approximate size in bytes.
        size: usize,
    },
}

/// Bytes that are not a canonical leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a canonical event: {reason}")]
pub struct DecodeError {
    /// What is wrong.
    pub reason: &'static str,
}

const fn bad(reason: &'static str) -> DecodeError {
    DecodeError { reason }
}

/// Appends the canonical bytes of `draft` to `out`; on an error `out` is unchanged.
///
/// `id` and `timestamp_ns` are those of the event, whatever the draft has; `stream` is used if the
/// draft has none.
///
/// # Errors
/// [`LeafError`] names the part of the draft that is not valid.
pub fn encode(
    draft: &Draft<'_>,
    id: EventId,
    timestamp_ns: i64,
    stream: &str,
    out: &mut Vec<u8>,
) -> Result<(), LeafError> {
    encode_as(draft, id, timestamp_ns, draft.time_source, stream, out)
}

/// As [`encode`], with another source of the time than the draft's.
pub(crate) fn encode_as(
    draft: &Draft<'_>,
    id: EventId,
    timestamp_ns: i64,
    time_source: TimeSource,
    stream: &str,
    out: &mut Vec<u8>,
) -> Result<(), LeafError> {
    let start = out.len();
    let mut put = |digested| {
        out.truncate(start);
        let result = put(draft, id, timestamp_ns, (time_source, digested), stream, out);
        (result, out.len() - start)
    };
    let (result, size) = match put(false) {
        (Ok(()), size) if size > ENTRY_SIZE_MAX => put(true),
        other => other,
    };
    let result = match result {
        Ok(()) if size > LEAF_SIZE_MAX => Err(LeafError::TooLarge { size }),
        other => other,
    };
    if result.is_err() {
        out.truncate(start);
    }
    result
}

fn put(
    draft: &Draft<'_>,
    id: EventId,
    timestamp_ns: i64,
    (time_source, digested): (TimeSource, bool),
    stream: &str,
    out: &mut Vec<u8>,
) -> Result<(), LeafError> {
    if draft.raw.len() > LEAF_SIZE_MAX {
        return Err(LeafError::TooLarge { size: draft.raw.len() });
    }
    let stream = if draft.stream.is_empty() { stream } else { draft.stream.as_ref() };
    if stream.is_empty() {
        return Err(LeafError::NoStream);
    }
    let v4;
    let v6;
    let ip: &[u8] = match draft.ip {
        None => &[],
        Some(IpAddr::V4(address)) => {
            v4 = address.octets();
            &v4
        }
        Some(IpAddr::V6(address)) => {
            v6 = address.octets();
            &v6
        }
    };
    let texts = [
        ("stream", stream.as_bytes()),
        ("type", draft.kind.as_bytes()),
        ("host", draft.host.as_bytes()),
        ("ip", ip),
        ("collector", draft.collector.as_bytes()),
        ("format", draft.format.as_bytes()),
    ];
    let mut size = 1;
    for (field, text) in texts {
        if text.len() > TEXT_SIZE_MAX {
            return Err(LeafError::TextTooLong { field, size: text.len() });
        }
        if field != "ip" && text.iter().any(|&byte| byte < 0x20 || byte == 0x7f) {
            return Err(LeafError::Control { field });
        }
        size += 1 + text.len();
    }
    let sourced = digested || time_source != TimeSource::Unknown;
    size += usize::from(sourced) + usize::from(digested);
    out.reserve(FIXED_SIZE + size + draft.raw.len() + 16);
    out.push(VERSION);
    out.extend_from_slice(&id.0.to_be_bytes());
    out.extend_from_slice(&timestamp_ns.to_le_bytes());
    put_varint(out, size as u64);
    out.push(draft.severity.code());
    for (_, text) in texts {
        out.push(text.len() as u8);
        out.extend_from_slice(text);
    }
    if sourced {
        out.push(time_source.code());
    }
    if digested {
        out.push(DIGESTED);
    }
    put_varint(out, draft.raw.len() as u64);
    out.extend_from_slice(&draft.raw);
    let size_max = out.len() + LEAF_SIZE_MAX;
    put_attributes(&draft.attributes, size_max, out)
}

/// Appends the leaf of an event whose fields and attributes are known by themselves, such as those
/// of an export. Whether its entry is a digest is as its tags say.
///
/// # Errors
/// [`LeafError`] names the part that is not valid.
pub fn rebuild(event: &Event<'_>, attributes: &[u8], out: &mut Vec<u8>) -> Result<(), LeafError> {
    let tags = &event.tags;
    let draft = Draft {
        host: tags.host.into(),
        kind: tags.kind.into(),
        ip: tags.ip,
        collector: tags.collector.into(),
        format: tags.format.into(),
        severity: tags.severity,
        raw: event.raw.into(),
        ..Draft::default()
    };
    let form = (tags.time_source, tags.digested);
    let start = out.len();
    let result = put(&draft, event.id, event.timestamp_ns, form, tags.stream, out);
    if result.is_err() {
        out.truncate(start);
    }
    result.map(|()| out.extend_from_slice(attributes))
}

fn put_attributes(
    attributes: &[(Cow<'_, str>, Value<'_>)],
    size_max: usize,
    out: &mut Vec<u8>,
) -> Result<(), LeafError> {
    if attributes.len() > ATTRIBUTES_MAX {
        return Err(LeafError::TooManyAttributes { count: attributes.len() });
    }
    for (key, value) in attributes {
        if key.is_empty() || key.len() > TEXT_SIZE_MAX {
            return Err(LeafError::Key { size: key.len() });
        }
        // A borrowed value may be many times larger than a leaf: check it before copying.
        let size = match value {
            Value::Text(text) => text.len(),
            Value::Bytes(bytes) => bytes.len(),
            _ => 0,
        };
        if out.len().saturating_add(size) > size_max {
            return Err(LeafError::TooLarge { size });
        }
        out.push(key.len() as u8);
        out.extend_from_slice(key.as_bytes());
        match value {
            Value::Null => out.push(0),
            Value::Boolean(false) => out.push(1),
            Value::Boolean(true) => out.push(2),
            Value::Integer(number) => {
                out.push(3);
                out.extend_from_slice(&number.to_le_bytes());
            }
            Value::Real(number) => {
                out.push(4);
                out.extend_from_slice(&number.to_bits().to_le_bytes());
            }
            Value::Text(text) => put_counted(5, text.as_bytes(), out),
            Value::Bytes(bytes) => put_counted(6, bytes, out),
        }
    }
    Ok(())
}

fn put_counted(kind: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(kind);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// The parts of a leaf, all checked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parts<'a> {
    pub(crate) id: EventId,
    pub(crate) timestamp_ns: i64,
    /// Severity and texts, without the length before them.
    pub(crate) tags: &'a [u8],
    /// From the raw length to the leaf's end.
    pub(crate) body: &'a [u8],
}

/// Splits a leaf into its parts without decoding tags and body.
pub(crate) fn split(leaf: &[u8]) -> Result<Parts<'_>, DecodeError> {
    let (fixed, mut rest) =
        leaf.split_at_checked(FIXED_SIZE).ok_or(bad("it is shorter than its fixed part"))?;
    if fixed.first() != Some(&VERSION) {
        return Err(bad("its version is not 1"));
    }
    let (id, timestamp) = fixed[1..].split_first_chunk::<16>().ok_or(bad("its id is truncated"))?;
    let timestamp = timestamp.first_chunk::<8>().ok_or(bad("its time is truncated"))?;
    let size = take_varint(&mut rest).ok_or(bad("the length of its tags is not a valid number"))?;
    let size = usize::try_from(size).map_err(|_| bad("its tags are too long"))?;
    let (tags, body) = rest.split_at_checked(size).ok_or(bad("its tags are truncated"))?;
    Ok(Parts {
        id: EventId(u128::from_be_bytes(*id)),
        timestamp_ns: i64::from_le_bytes(*timestamp),
        tags,
        body,
    })
}

/// Assembles a leaf from its parts, appending to `out`: the inverse of [`split`].
pub(crate) fn join(parts: &Parts<'_>, out: &mut Vec<u8>) {
    out.push(VERSION);
    out.extend_from_slice(&parts.id.0.to_be_bytes());
    out.extend_from_slice(&parts.timestamp_ns.to_le_bytes());
    put_varint(out, parts.tags.len() as u64);
    out.extend_from_slice(parts.tags);
    out.extend_from_slice(parts.body);
}

/// Reads a leaf.
///
/// # Errors
/// [`DecodeError`] if the bytes are not what [`encode`] writes.
pub fn decode(leaf: &[u8]) -> Result<Event<'_>, DecodeError> {
    let parts = split(leaf)?;
    let tags = tags(parts.tags)?;
    let (raw, attributes) = body(&parts, &tags, leaf.len())?;
    Ok(Event { id: parts.id, timestamp_ns: parts.timestamp_ns, tags, raw, attributes })
}

/// Reads raw bytes and attributes of a leaf whose tags are decoded.
///
/// * `size`: of the leaf.
///
/// # Errors
/// As [`decode`].
pub(crate) fn body<'a>(
    parts: &Parts<'a>,
    tags: &Tags<'_>,
    size: usize,
) -> Result<(&'a [u8], Attributes<'a>), DecodeError> {
    if size > LEAF_SIZE_MAX {
        return Err(bad("it is too large"));
    }
    let mark_size = if tags.time_source == TimeSource::Unknown { 2 } else { 1 };
    if tags.digested && !tree::is_large(size, parts.tags.len(), mark_size) {
        return Err(bad("it is too small for a digest"));
    }
    let mut rest = parts.body;
    let raw = take_counted(&mut rest)?;
    let attributes = Attributes { bytes: rest };
    let mut count = 0;
    while !rest.is_empty() {
        take_attribute(&mut rest)?;
        count += 1;
    }
    if count > ATTRIBUTES_MAX {
        return Err(bad("it has too many attributes"));
    }
    Ok((raw, attributes))
}

/// Reads the tags of a leaf.
pub(crate) fn tags(bytes: &[u8]) -> Result<Tags<'_>, DecodeError> {
    let (&severity, mut rest) = bytes.split_first().ok_or(bad("it has no tags"))?;
    let severity = Severity::from_code(severity).ok_or(bad("its severity is unknown"))?;
    let stream = take_tag(&mut rest)?;
    if stream.is_empty() {
        return Err(bad("it has no stream"));
    }
    let kind = take_tag(&mut rest)?;
    let host = take_tag(&mut rest)?;
    let ip = match *take_short(&mut rest)? {
        [] => None,
        [a, b, c, d] => Some(IpAddr::V4(Ipv4Addr::new(a, b, c, d))),
        ref other => match <[u8; 16]>::try_from(other) {
            Ok(octets) => Some(IpAddr::V6(Ipv6Addr::from(octets))),
            Err(_) => return Err(bad("its address has neither 4 nor 16 bytes")),
        },
    };
    let collector = take_tag(&mut rest)?;
    let format = take_tag(&mut rest)?;
    let (code, digested) = match *rest {
        [] => (None, false),
        [code] => (Some(code), false),
        [0, DIGESTED] => (None, true),
        [code, DIGESTED] => (Some(code), true),
        _ => return Err(bad("its tags are longer than their length")),
    };
    let time_source = match code {
        None => TimeSource::Unknown,
        Some(code) => {
            TimeSource::from_code(code).ok_or(bad("the source of its time is unknown"))?
        }
    };
    Ok(Tags { severity, stream, kind, host, ip, collector, format, time_source, digested })
}

fn take_short<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], DecodeError> {
    let (&size, rest) = bytes.split_first().ok_or(bad("a text is truncated"))?;
    let (text, rest) = rest.split_at_checked(size.into()).ok_or(bad("a text is truncated"))?;
    *bytes = rest;
    Ok(text)
}

fn take_tag<'a>(bytes: &mut &'a [u8]) -> Result<&'a str, DecodeError> {
    let text = take_short(bytes)?;
    if text.iter().any(|&byte| byte < 0x20 || byte == 0x7f) {
        return Err(bad("a text contains a control character"));
    }
    std::str::from_utf8(text).map_err(|_| bad("a text is not UTF-8"))
}

fn take_counted<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], DecodeError> {
    let size = take_varint(bytes).ok_or(bad("a length is not a valid number"))?;
    let size = usize::try_from(size).map_err(|_| bad("a length is too large"))?;
    let (found, rest) = bytes.split_at_checked(size).ok_or(bad("its bytes are truncated"))?;
    *bytes = rest;
    Ok(found)
}

fn take_eight(bytes: &mut &[u8]) -> Result<[u8; 8], DecodeError> {
    let (found, rest) = bytes.split_first_chunk::<8>().ok_or(bad("a number is truncated"))?;
    *bytes = rest;
    Ok(*found)
}

/// Removes one attribute from the front of `bytes`.
pub(crate) fn take_attribute<'a>(
    bytes: &mut &'a [u8],
) -> Result<(&'a str, Value<'a>), DecodeError> {
    let key = take_short(bytes)?;
    let key = std::str::from_utf8(key).map_err(|_| bad("a key is not UTF-8"))?;
    if key.is_empty() {
        return Err(bad("a key is empty"));
    }
    let (&kind, rest) = bytes.split_first().ok_or(bad("a value is truncated"))?;
    *bytes = rest;
    let value = match kind {
        0 => Value::Null,
        1 => Value::Boolean(false),
        2 => Value::Boolean(true),
        3 => Value::Integer(i64::from_le_bytes(take_eight(bytes)?)),
        4 => Value::Real(f64::from_bits(u64::from_le_bytes(take_eight(bytes)?))),
        5 => Value::Text(Cow::Borrowed(
            std::str::from_utf8(take_counted(bytes)?).map_err(|_| bad("a text is not UTF-8"))?,
        )),
        6 => Value::Bytes(Cow::Borrowed(take_counted(bytes)?)),
        _ => return Err(bad("a value has an unknown type")),
    };
    Ok((key, value))
}

#[cfg(test)]
mod tests;
