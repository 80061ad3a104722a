//! From the bytes of a record to drafts of events.

use std::borrow::Cow;

use forebay_base::clock::{Clock, SystemClock};

use super::bulk::{Bulk, Step};
use super::json::{Element, Read};
use super::time::{self, When};
use super::{Format, Mapping, Reject, cef, json, leef, line, pairs, syslog, w3c, zeek};
use crate::event::{Draft, TimeSource};
use crate::input::text::fitting;

/// Maximum offset in a line at which `CEF:` and `LEEF:` are recognised.
const PREFIX_SIZE_MAX: usize = 1024;
/// Maximum depth of messages in messages, and of envelopes.
const DEPTH_MAX: u8 = 2;

/// Parses records of one format, or detects the format of each.
#[derive(Debug)]
pub struct Parser {
    format: Format,
    now_ms: i64,
    mapping: Mapping,
    /// Whether the mapping says anything.
    is_mapped: bool,
    tsv: zeek::Tsv,
    w3c: w3c::Columns,
    bulk: Bulk,
    /// The detected format of the first record.
    first: Option<Format>,
}

impl Parser {
    /// Returns a parser that completes times without a year by the system's clock.
    #[must_use]
    pub fn new(format: Format) -> Self {
        let now_ms = SystemClock::new().now_ms();
        Self::at(format, i64::try_from(now_ms).unwrap_or(i64::MAX))
    }

    /// Returns a parser that completes times without a year by `now_ms`, milliseconds since
    /// 1970-01-01 UTC.
    #[must_use]
    pub fn at(format: Format, now_ms: i64) -> Self {
        Self {
            format,
            now_ms,
            mapping: Mapping::default(),
            is_mapped: false,
            tsv: zeek::Tsv::default(),
            w3c: w3c::Columns::default(),
            bulk: Bulk::default(),
            first: None,
        }
    }

    /// Sets where the fields of the records are.
    #[must_use]
    pub fn with_mapping(self, mapping: Mapping) -> Self {
        Self { is_mapped: mapping != Mapping::default(), mapping, ..self }
    }

    /// Sets the clock of a long-lived parser.
    pub fn set_now(&mut self, now_ms: i64) {
        self.now_ms = now_ms;
    }

    /// Returns the draft of a record that is one event, given without its line end. `None`: a line
    /// that is not a record, such as Zeek's headers.
    ///
    /// The draft's `raw` is the unchanged line, its `format` the name of the format. Values that
    /// are missing in the record, or do not fit an event's field, are left at their defaults.
    ///
    /// # Errors
    /// [`Reject`]: the record is not of the format, truncated, or an envelope of several events:
    /// [`parse_each`](Self::parse_each) takes it.
    pub fn parse<'a>(&mut self, line: &'a [u8]) -> Result<Option<Draft<'a>>, Reject> {
        match self.read(line)? {
            None => Ok(None),
            Some(Read::One(draft)) => Ok(Some(self.mapped(draft, line))),
            Some(Read::Several(_)) => {
                Err(Reject::new("the record is an envelope of several events"))
            }
        }
    }

    /// Passes each event of a record to `take`: of an envelope its elements, of an Elasticsearch
    /// `_bulk` body the documents. An element that is not an event is passed on as its [`Reject`].
    pub fn parse_each(&mut self, line: &[u8], take: &mut dyn FnMut(Result<Draft<'_>, Reject>)) {
        let json = matches!(self.format, Format::Auto | Format::Ndjson | Format::Ocsf);
        let action = match &self.bulk {
            Bulk::Not => None,
            Bulk::Unknown if !json => None,
            _ => match self.bulk.next(line) {
                Step::Action => return,
                Step::Reject(reject) => return take(Err(reject)),
                Step::Event(action) => Some(action),
            },
        };
        match self.read(line) {
            Err(reject) => take(Err(reject)),
            Ok(None) => {}
            Ok(Some(Read::One(draft))) => {
                let mut draft = self.mapped(draft, line);
                if let Some(action) = action {
                    action.apply(&mut draft);
                }
                take(Ok(draft));
            }
            Ok(Some(Read::Several(wrapped))) => {
                let mut each = |element: Element<'_>| take(self.element(element));
                if let Err(reject) = wrapped.each(line, &mut each) {
                    take(Err(reject));
                }
            }
        }
    }

    fn read<'a>(&mut self, line: &'a [u8]) -> Result<Option<Read<'a>>, Reject> {
        let draft = match self.format {
            Format::Auto => return self.auto(line),
            Format::Ndjson | Format::Ocsf | Format::Suricata => {
                return self.json(line, self.format).map(Some);
            }
            Format::Zeek if looks_like_json(line) => {
                return self.json(line, Format::Zeek).map(Some);
            }
            Format::Zeek => self.tsv.parse(line)?,
            Format::W3c => self.w3c.parse(line, self.now_ms)?,
            Format::Cef | Format::Leef => Some(self.enveloped(line, self.format)?),
            Format::Syslog => Some(self.syslog(line, 0)?),
            Format::Clf | Format::Kv | Format::Windows | Format::Text => {
                Some(self.plain(line, self.format)?)
            }
            Format::Raw => Some(raw(line)),
        };
        Ok(draft.map(Read::One))
    }

    fn auto<'a>(&mut self, line: &'a [u8]) -> Result<Option<Read<'a>>, Reject> {
        let format = self.detect(line);
        let one = |draft| Ok(Some(Read::One(draft)));
        let result = match format {
            Format::Ndjson => self.json(line, Format::Auto).map(Some),
            Format::Zeek => self.tsv.parse(line).map(|draft| draft.map(Read::One)),
            Format::W3c => self.w3c.parse(line, self.now_ms).map(|draft| draft.map(Read::One)),
            Format::Cef | Format::Leef => self.enveloped(line, format).and_then(one),
            Format::Syslog => self.syslog(line, 0).and_then(one),
            _ => one(self.any_line(line)),
        };
        let first = *self.first.get_or_insert(format);
        match result {
            // In a file of plain lines, one that only begins like another format is a plain line
            // too.
            Err(_) if first == Format::Raw => one(self.any_line(line)),
            result => result,
        }
    }

    /// Detects the format of a line; [`Format::Ndjson`] stands for all JSON formats, and
    /// [`Format::Raw`] for those of lines.
    fn detect(&self, line: &[u8]) -> Format {
        if looks_like_json(line) {
            return Format::Ndjson;
        }
        if line.starts_with(b"#") {
            if line.starts_with(b"#separator ")
                || line.starts_with(b"#fields\t")
                || (self.tsv.begun() && !w3c::Columns::is_directive(line))
            {
                return Format::Zeek;
            }
            if w3c::Columns::is_directive(line) {
                return Format::W3c;
            }
        }
        if let Some((format, _, _)) = envelope(line, None) {
            return format;
        }
        if syslog::priority(line).is_some() || syslog::begins_with_time(line) {
            return Format::Syslog;
        }
        match (self.tsv.ready(), self.w3c.ready()) {
            (true, _) => Format::Zeek,
            (_, true) => Format::W3c,
            _ => Format::Raw,
        }
    }

    fn json<'a>(&self, line: &'a [u8], format: Format) -> Result<Read<'a>, Reject> {
        self.json_at(line, format, 0)
    }

    fn json_at<'a>(&self, line: &'a [u8], format: Format, depth: u8) -> Result<Read<'a>, Reject> {
        json::parse(line, format, self.now_ms, &mut |text| {
            self.embedded(text.as_bytes(), depth + 1).map(owned)
        })
    }

    /// Reads the line in a message; `None` if no form is recognised, or it has no time.
    fn embedded<'a>(&self, text: &'a [u8], depth: u8) -> Option<Draft<'a>> {
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

    /// Parses a syslog message. The time of a body that is itself an event precedes that of
    /// the header, and so do its host and type.
    fn syslog<'a>(&self, line: &'a [u8], depth: u8) -> Result<Draft<'a>, Reject> {
        let header = syslog::header(line, self.now_ms)?;
        let mut draft = header.draft();
        draft.format = Cow::Borrowed(Format::Syslog.name());
        draft.raw = Cow::Borrowed(line);
        if let Some(inner) = self.body(header.message(), depth) {
            self.combine(&mut draft, inner, header.when);
        }
        Ok(draft)
    }

    /// Reads the body of a syslog message.
    fn body<'a>(&self, body: &'a [u8], depth: u8) -> Option<line::Found<'a>> {
        if body.len() < 12 || depth > DEPTH_MAX {
            return None;
        }
        let body = body.strip_prefix(b"@cee:").unwrap_or(body).trim_ascii_start();
        if looks_like_json(body) {
            return match self.json_at(body, Format::Auto, depth + 1).ok()? {
                Read::One(draft) => {
                    let format = Format::Ndjson;
                    Some(line::Found { format, certain: true, leading: false, draft })
                }
                Read::Several(_) => None,
            };
        }
        line::read(body, self.now_ms)
    }

    /// Adds the draft of a body to that of its header. A time that the body merely mentions counts
    /// only near that of the header.
    fn combine<'a>(&self, draft: &mut Draft<'a>, inner: line::Found<'a>, header: Option<When>) {
        const NEAR_NS: u64 = 26 * 3_600 * 1_000_000_000;
        const YEAR_NS: u64 = 31_556_952 * 1_000_000_000;
        let line::Found { certain: strong, leading, draft: inner, .. } = inner;
        if let Some(ns) = inner.timestamp_ns {
            let zoned = inner.time_source == TimeSource::Event;
            let own = When { ns, zoned };
            let when = match &self.mapping.zone {
                None => own.aligned(header),
                Some(_) => own,
            };
            let apart = header.map_or(0, |header| header.ns.abs_diff(when.ns));
            // The year of a header may have been completed: then the day of the year is near.
            let guessed = header.is_some_and(|header| !header.zoned);
            let in_year = apart % YEAR_NS;
            let same_day = guessed && in_year.min(YEAR_NS - in_year) <= 2 * NEAR_NS;
            let near = apart <= NEAR_NS || same_day;
            let better = when.zoned && (leading || near) || guessed && leading && near;
            if strong || header.is_none() || better {
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
    fn any_line<'a>(&self, line: &'a [u8]) -> Draft<'a> {
        match line::read(line, self.now_ms) {
            Some(line::Found { format, draft, .. }) => {
                Draft { raw: line.into(), format: format.name().into(), ..draft }
            }
            None => raw(line),
        }
    }

    /// Parses a record of CEF or LEEF, possibly after a syslog header.
    fn enveloped<'a>(&self, line: &'a [u8], format: Format) -> Result<Draft<'a>, Reject> {
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

    /// Returns the draft of an element of an envelope.
    fn element<'a>(&self, element: Element<'a>) -> Result<Draft<'a>, Reject> {
        let Element { raw: bytes, when, known, complete, object } = element;
        let mut draft: Draft<'a> = if complete {
            known
        } else {
            let read = match &bytes {
                Cow::Borrowed(line) => self.inner(line, object)?,
                Cow::Owned(line) => owned(self.inner(line, object)?),
            };
            let fill = |own: Cow<'a, str>, shared| if own.is_empty() { shared } else { own };
            Draft {
                kind: fill(read.kind, known.kind),
                host: fill(read.host, known.host),
                collector: fill(read.collector, known.collector),
                ip: read.ip.or(known.ip),
                severity: if read.severity == crate::Severity::Unknown {
                    known.severity
                } else {
                    read.severity
                },
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
    fn mapped<'a>(&self, draft: Draft<'a>, line: &[u8]) -> Draft<'a> {
        if self.is_mapped { self.with_fields(draft, line) } else { draft }
    }

    fn with_fields<'a>(&self, mut draft: Draft<'a>, line: &[u8]) -> Draft<'a> {
        let value = |path: &str| {
            let line = line.trim_ascii();
            if looks_like_json(line) {
                return json::value_at(line, path).and_then(json::plain);
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
            && let Some(ns) = draft.timestamp_ns.and_then(|ns| self.mapping.shifted(ns))
        {
            draft.timestamp_ns = Some(ns);
            draft.time_source = TimeSource::Event;
        }
        draft
    }
}

/// A draft that borrows nothing.
fn owned(draft: Draft<'_>) -> Draft<'static> {
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

fn looks_like_json(line: &[u8]) -> bool {
    line.trim_ascii_start().first() == Some(&b'{')
}

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
fn envelope(line: &[u8], known: Option<Format>) -> Option<(Format, usize, &[u8])> {
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
