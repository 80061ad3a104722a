//! From the bytes of a record to a draft of an event.

use std::borrow::Cow;

use forebay_base::clock::{Clock, SystemClock};

use super::{Format, Reject, cef, json, leef, syslog, zeek};
use crate::event::Draft;

/// Maximum offset in a line at which `CEF:` and `LEEF:` are recognised.
const PREFIX_SIZE_MAX: usize = 1024;

/// Parses records of one format, or detects the format of each.
#[derive(Debug)]
pub struct Parser {
    format: Format,
    now_ms: i64,
    tsv: zeek::Tsv,
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
        Self { format, now_ms, tsv: zeek::Tsv::default(), first: None }
    }

    /// Sets the clock of a long-lived parser.
    pub fn set_now(&mut self, now_ms: i64) {
        self.now_ms = now_ms;
    }

    /// Returns the draft of a record, given without its line end. `None`: a line that is not a
    /// record, such as Zeek's headers.
    ///
    /// The draft's `raw` is the unchanged line, its `format` the name of the format. Values that
    /// are missing in the record, or do not fit an event's field, are left at their defaults.
    ///
    /// # Errors
    /// [`Reject`]: the record is not of the format, or truncated.
    pub fn parse<'a>(&mut self, line: &'a [u8]) -> Result<Option<Draft<'a>>, Reject> {
        match self.format {
            Format::Auto => self.auto(line),
            Format::Ndjson | Format::Ocsf | Format::Suricata => {
                json::parse(line, self.format).map(Some)
            }
            Format::Zeek if looks_like_json(line) => json::parse(line, Format::Zeek).map(Some),
            Format::Zeek => self.tsv.parse(line),
            Format::Cef | Format::Leef => self.enveloped(line, self.format).map(Some),
            Format::Syslog => syslog::parse(line, self.now_ms).map(Some),
            Format::Raw => Ok(Some(raw(line))),
        }
    }

    fn auto<'a>(&mut self, line: &'a [u8]) -> Result<Option<Draft<'a>>, Reject> {
        let format = self.detect(line);
        let result = match format {
            Format::Ndjson => json::parse(line, Format::Auto).map(Some),
            Format::Zeek => self.tsv.parse(line),
            Format::Cef | Format::Leef => self.enveloped(line, format).map(Some),
            Format::Syslog => syslog::parse(line, self.now_ms).map(Some),
            _ => Ok(Some(raw(line))),
        };
        let first = *self.first.get_or_insert(format);
        match result {
            // In a file of plain lines, one that only begins like another format is a plain line
            // too.
            Err(_) if first == Format::Raw => Ok(Some(raw(line))),
            result => result,
        }
    }

    /// Detects the format of a line; [`Format::Ndjson`] stands for all JSON formats.
    fn detect(&self, line: &[u8]) -> Format {
        if looks_like_json(line) {
            return Format::Ndjson;
        }
        if line.starts_with(b"#separator ")
            || line.starts_with(b"#fields\t")
            || (self.tsv.begun() && line.starts_with(b"#"))
        {
            return Format::Zeek;
        }
        if let Some((format, _, _)) = envelope(line, None) {
            return format;
        }
        if syslog::priority(line).is_some() || syslog::begins_with_time(line) {
            return Format::Syslog;
        }
        if self.tsv.ready() { Format::Zeek } else { Format::Raw }
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
        let versioned = known.is_some() || body.first().is_some_and(u8::is_ascii_digit);
        (free && versioned && known.is_none_or(|known| known == format))
            .then_some((format, begin, body))
    })
}
