//! Elements of envelopes, and what the operator says about the fields of records.

use std::borrow::Cow;

use super::lines::envelope;
use super::{Parser, looks_like_json};
use crate::event::{Draft, Severity, TimeSource};
use crate::input::json::{Element, Read};
use crate::input::text::fitting;
use crate::input::time::{self, When};
use crate::input::{Format, Reject, json, pairs, syslog};

impl Parser {
    /// Returns the draft of an element of an envelope.
    pub(super) fn element<'a>(&self, element: Element<'a>) -> Result<Draft<'a>, Reject> {
        let Element { raw: bytes, when, known, complete, object, place } = element;
        let reject = |reject: Reject, bytes: &[u8]| reject.of_element(place, bytes);
        let mut draft: Draft<'a> = if complete {
            known
        } else {
            let read = match &bytes {
                Cow::Borrowed(line) => {
                    self.inner(line, object).map_err(|error| reject(error, line))?
                }
                Cow::Owned(line) => {
                    owned(self.inner(line, object).map_err(|error| reject(error, line))?)
                }
            };
            let severity = match (known.severity, read.severity) {
                (Severity::Unknown, own) => own,
                (declared, Severity::Unknown) => declared,
                // A field of the line is of the event, but a word of a text only suggests a level.
                (declared, _) if is_text(&read) => declared,
                (_, own) => own,
            };
            let fill = |own: Cow<'a, str>, shared| if own.is_empty() { shared } else { own };
            Draft {
                kind: fill(read.kind, known.kind),
                host: fill(read.host, known.host),
                collector: fill(read.collector, known.collector),
                ip: read.ip.or(known.ip),
                severity,
                attributes: known.attributes,
                ..read
            }
        };
        if let Some(when) = when {
            draft.timestamp_ns = Some(when.ns);
            draft.time_source = when.source();
        }
        draft.raw = bytes;
        // What the operator says about fields is about the element.
        Ok(match &draft.raw {
            Cow::Borrowed(line) => {
                let line = *line;
                self.mapped(draft, line)
            }
            Cow::Owned(line) => {
                let line = line.clone();
                self.mapped(draft, &line)
            }
        })
    }

    /// Reads an element as a separate line, of any format unless it must be an object.
    fn inner<'a>(&self, line: &'a [u8], object: bool) -> Result<Draft<'a>, Reject> {
        if object || looks_like_json(line) {
            return match self.json_at(line, Format::Auto, 1)? {
                Read::One(draft) => Ok(draft),
                Read::Several(_) => Err(Reject::new("an envelope in an envelope")),
            };
        }
        if let Some((format, _, _)) = envelope(line, None) {
            return self.enveloped(line, format);
        }
        if syslog::priority(line).is_some() || syslog::begins_with_time(line) {
            return self.syslog(line, 1).or_else(|_| Ok(self.any_line(line)));
        }
        Ok(self.any_line(line))
    }

    /// Applies what the operator said about the records.
    pub(super) fn mapped<'a>(&self, draft: Draft<'a>, line: &[u8]) -> Draft<'a> {
        if self.is_mapped { self.with_fields(draft, line) } else { draft }
    }

    fn with_fields<'a>(&self, mut draft: Draft<'a>, line: &[u8]) -> Draft<'a> {
        let value = |path: &str| {
            let line = line.trim_ascii();
            if looks_like_json(line) {
                return json::value_at(line, path).and_then(json::plain);
            }
            if let Some(object) = object_in(line, self.now_ms) {
                return json::value_at(object, path).and_then(json::plain);
            }
            let text = std::str::from_utf8(line).ok()?;
            pairs::value_of(text, path).map(Cow::Borrowed)
        };
        let field = |path: &Option<String>| path.as_deref().and_then(value);
        if let Some(text) = field(&self.mapping.time_field) {
            let when = time::text(&text, Some(self.now_ms));
            draft.timestamp_ns = when.map(|when| when.ns);
            draft.time_source = when.map(When::source).unwrap_or_default();
        }
        if let Some(host) = field(&self.mapping.host_field) {
            draft.host = fitting(Cow::Owned(host.into_owned()));
        }
        if let Some(kind) = field(&self.mapping.type_field) {
            draft.kind = fitting(Cow::Owned(kind.into_owned()));
        }
        if draft.time_source == TimeSource::Assumed
            && let Some((ns, source)) = draft.timestamp_ns.and_then(|ns| self.mapping.shifted(ns))
        {
            draft.timestamp_ns = Some(ns);
            draft.time_source = source;
        }
        draft
    }
}

/// Whether a line has no fields.
fn is_text(draft: &Draft<'_>) -> bool {
    [Format::Text, Format::Raw].iter().any(|format| draft.format == format.name())
}

/// The JSON object that is the message of a syslog line.
fn object_in(line: &[u8], now_ms: i64) -> Option<&[u8]> {
    if syslog::priority(line).is_none() && !syslog::begins_with_time(line) {
        return None;
    }
    let message = syslog::header(line, now_ms).ok()?.message();
    let message = message.strip_prefix(b"@cee:").unwrap_or(message).trim_ascii_start();
    looks_like_json(message).then_some(message)
}

/// A draft that borrows nothing.
pub(super) fn owned(draft: Draft<'_>) -> Draft<'static> {
    let text = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
    Draft {
        id: draft.id,
        timestamp_ns: draft.timestamp_ns,
        time_source: draft.time_source,
        stream: text(draft.stream),
        kind: text(draft.kind),
        host: text(draft.host),
        ip: draft.ip,
        collector: text(draft.collector),
        format: text(draft.format),
        severity: draft.severity,
        // The caller has the bytes.
        raw: Cow::Borrowed(&[]),
        attributes: Vec::new(),
    }
}
