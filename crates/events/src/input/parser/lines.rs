//! Lines, and messages in the bodies of syslog and JSON records.

use std::borrow::Cow;

use super::{Parser, looks_like_json};
use crate::event::{Draft, TimeSource};
use crate::input::json::Read;
use crate::input::time::When;
use crate::input::{Format, Reject, cef, leef, line, pairs, syslog};

/// Maximum offset in a line at which `CEF:` and `LEEF:` are recognised.
const PREFIX_SIZE_MAX: usize = 1024;
/// Maximum depth of messages in messages, and of envelopes.
const DEPTH_MAX: u8 = 2;

impl Parser {
    /// Reads the line in a message; `None` if no form is recognised, or it has no time.
    pub(super) fn embedded<'a>(&self, text: &'a [u8], depth: u8) -> Option<Draft<'a>> {
        let text = text.trim_ascii();
        if depth > DEPTH_MAX || text.is_empty() {
            return None;
        }
        let draft = if looks_like_json(text) {
            match self.json_at(text, Format::Auto, depth).ok()? {
                Read::One(draft) => draft,
                Read::Several(_) => return None,
            }
        } else if let Some((format, _, _)) = envelope(text, None) {
            self.enveloped(text, format).ok()?
        } else if syslog::priority(text).is_some() || syslog::begins_with_time(text) {
            self.syslog(text, depth).ok()?
        } else {
            line::read(text, self.now_ms)?.draft
        };
        draft.timestamp_ns.is_some().then_some(draft)
    }

    /// Parses a line of a format whose records are lines, each understood by itself.
    pub(super) fn line<'a>(&self, line: &'a [u8], format: Format) -> Result<Draft<'a>, Reject> {
        match format {
            Format::Cef | Format::Leef => self.enveloped(line, format),
            Format::Syslog => self.syslog(line, 0),
            Format::Raw => Ok(raw(line)),
            format => self.plain(line, format),
        }
    }

    /// Parses a syslog message. The host and type of a body that is itself an event precede those
    /// of the header, and its time that of a header which is not complete.
    pub(super) fn syslog<'a>(&self, line: &'a [u8], depth: u8) -> Result<Draft<'a>, Reject> {
        let header = syslog::header(line, self.now_ms)?;
        let mut draft = header.draft();
        draft.format = Cow::Borrowed(Format::Syslog.name());
        draft.raw = Cow::Borrowed(line);
        if let Some(inner) = self.body(header.message(), depth) {
            self.combine(&mut draft, inner, &header);
        }
        Ok(draft)
    }

    /// Reads the body of a syslog message.
    fn body<'a>(&self, body: &'a [u8], depth: u8) -> Option<line::Parsed<'a>> {
        if body.len() < 12 || depth > DEPTH_MAX {
            return None;
        }
        let body = body.strip_prefix(b"@cee:").unwrap_or(body).trim_ascii_start();
        if looks_like_json(body) {
            return match self.json_at(body, Format::Auto, depth + 1).ok()? {
                Read::One(draft) => {
                    let format = Format::Ndjson;
                    Some(line::Parsed { format, certain: true, leading: false, draft })
                }
                Read::Several(_) => None,
            };
        }
        line::read(body, self.now_ms)
    }

    /// Adds the draft of a body to that of its header.
    ///
    /// Any program and user of a machine can log a body, so its time counts only near that of the
    /// header: of the same day, whatever the year, if the header has none. One that the body merely
    /// mentions counts only if it is more exact than that of the header.
    fn combine<'a>(
        &self,
        draft: &mut Draft<'a>,
        inner: line::Parsed<'a>,
        header: &syslog::Header<'_>,
    ) {
        const NEAR_NS: u64 = 24 * 3_600 * 1_000_000_000;
        const YEAR_NS: u64 = 31_556_952 * 1_000_000_000;
        let line::Parsed { certain: strong, leading, draft: inner, .. } = inner;
        if let Some(ns) = inner.timestamp_ns {
            let zoned = inner.time_source == TimeSource::Event;
            let own = When { ns, zoned };
            let when = match &self.mapping.zone {
                None => own.aligned(header.when),
                Some(_) => own,
            };
            let counts = header.when.is_none_or(|header_when| {
                let apart = header_when.ns.abs_diff(when.ns);
                let in_year = apart % YEAR_NS;
                let same_day = header.is_yearless && in_year.min(YEAR_NS - in_year) <= 2 * NEAR_NS;
                let better = when.zoned || !header_when.zoned && leading;
                let is_enough = strong || !header.is_complete && better;
                is_enough && (apart <= NEAR_NS || same_day)
            });
            if counts {
                draft.timestamp_ns = Some(when.ns);
                draft.time_source = when.source();
            }
        }
        if !strong {
            return;
        }
        if !inner.host.is_empty() {
            draft.host = inner.host;
        }
        if !inner.kind.is_empty() {
            draft.kind = inner.kind;
        }
        draft.ip = inner.ip.or(draft.ip);
        if draft.collector.is_empty() {
            draft.collector = inner.collector;
        }
        if inner.severity != crate::Severity::Unknown {
            draft.severity = inner.severity;
        }
    }

    /// Parses a line of one of the forms of the module `line`.
    fn plain<'a>(&self, line: &'a [u8], format: Format) -> Result<Draft<'a>, Reject> {
        let found = match format {
            Format::Clf => line::access(line),
            Format::Kv => {
                std::str::from_utf8(line).ok().and_then(|text| pairs::parse(text, self.now_ms))
            }
            wanted => line::read(line, self.now_ms)
                .filter(|found| found.format == wanted || wanted == Format::Text)
                .map(|found| found.draft),
        };
        match found {
            Some(draft) => Ok(Draft { raw: line.into(), format: format.name().into(), ..draft }),
            None if format == Format::Text => {
                Ok(Draft { format: format.name().into(), ..raw(line) })
            }
            None => Err(Reject::new(match format {
                Format::Clf => "no time in brackets follows the client, as in an access log",
                Format::Kv => "the line has no key=value pairs at its start",
                _ => "the line is not a Windows event as XML",
            })),
        }
    }

    /// Any line that is of no other format.
    pub(super) fn any_line<'a>(&self, line: &'a [u8]) -> Draft<'a> {
        match line::read(line, self.now_ms) {
            Some(line::Parsed { format, draft, .. }) => {
                Draft { raw: line.into(), format: format.name().into(), ..draft }
            }
            None => raw(line),
        }
    }

    /// Parses a record of CEF or LEEF, possibly after a syslog header.
    pub(super) fn enveloped<'a>(
        &self,
        line: &'a [u8],
        format: Format,
    ) -> Result<Draft<'a>, Reject> {
        let Some((_, at, body)) = envelope(line, Some(format)) else {
            return Err(Reject::new(match format {
                Format::Cef => "no CEF: at the start or after a syslog header",
                _ => "no LEEF: at the start or after a syslog header",
            }));
        };
        let before = line.get(..at).unwrap_or_default();
        let header = match before.trim_ascii().is_empty() {
            true => syslog::Header::default(),
            // A header that cannot be parsed only means that its fields are unknown.
            false => syslog::header(before, self.now_ms).unwrap_or_default(),
        };
        match format {
            Format::Cef => cef::parse(line, body, &header, self.now_ms),
            _ => leef::parse(line, body, &header, self.now_ms),
        }
    }
}

/// The draft of a line of which nothing is known.
fn raw(line: &[u8]) -> Draft<'_> {
    Draft {
        format: Cow::Borrowed(Format::Raw.name()),
        raw: Cow::Borrowed(line),
        ..Draft::default()
    }
}

/// Finds `CEF:` or `LEEF:` with a version, at the start or after a space; returns it and the
/// remainder.
///
/// Unless the format is given, something that could be a syslog header must precede it.
pub(super) fn envelope(line: &[u8], known: Option<Format>) -> Option<(Format, usize, &[u8])> {
    let start = line.get(..PREFIX_SIZE_MAX).unwrap_or(line);
    let header =
        || known.is_some() || syslog::priority(line).is_some() || syslog::begins_with_time(line);
    memchr::memmem::find_iter(start, b"EF:").find_map(|at| {
        let (format, begin) = if at > 0 && start[at - 1] == b'C' {
            (Format::Cef, at - 1)
        } else if at > 1 && &start[at - 2..at] == b"LE" {
            (Format::Leef, at - 2)
        } else {
            return None;
        };
        let free = match begin.checked_sub(1) {
            None => true,
            Some(before) => matches!(start[before], b' ' | b'>' | b'\t') && header(),
        };
        let body = line.get(at + 3..)?;
        let version = body.trim_ascii_start().first();
        let versioned = known.is_some() || version.is_some_and(u8::is_ascii_digit);
        (free && versioned && known.is_none_or(|known| known == format))
            .then_some((format, begin, body))
    })
}
