//! From the bytes of a record to drafts of events: which format a record has. Lines and messages are
//! read in `lines`; elements of envelopes, and what the operator says about fields, in `elements`.

mod elements;
mod lines;

use forebay_base::clock::{Clock, SystemClock};

use super::bulk::{Bulk, Step};
use super::json::{Element, Read};
use super::{Format, Mapping, Reject, json, syslog, w3c, zeek};
use crate::event::Draft;
use elements::owned;
use lines::envelope;

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
    /// `_bulk` body the documents. An element that is not an event is passed on as its [`Reject`],
    /// which has its place and bytes, and affects no other.
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
                let mut each = |found: Result<Element<'_>, Reject>| {
                    take(found.and_then(|element| self.element(element)));
                };
                if let Err(reject) = wrapped.each(line, &mut each) {
                    take(Err(reject));
                }
            }
        }
    }

    fn read<'a>(&mut self, line: &'a [u8]) -> Result<Option<Read<'a>>, Reject> {
        let draft = match self.format {
            Format::Auto => return self.auto(line),
            Format::Zeek if !looks_like_json(line) => self.tsv.parse(line)?,
            Format::W3c => self.w3c.parse(line, self.now_ms)?,
            format if format.is_json() => return self.json(line, format).map(Some),
            format => Some(self.line(line, format)?),
        };
        Ok(draft.map(Read::One))
    }

    fn auto<'a>(&mut self, line: &'a [u8]) -> Result<Option<Read<'a>>, Reject> {
        if let Some(record) = after_cookie(line)
            && let Ok(Read::One(draft)) = self.json(record, Format::Auto)
        {
            return Ok(Some(Read::One(Draft { raw: line.into(), ..draft })));
        }
        let format = self.detect(line);
        let one = |draft| Ok(Some(Read::One(draft)));
        let result = match format {
            Format::Ndjson => self.json(line, Format::Auto).map(Some),
            Format::Zeek => self.tsv.parse(line).map(|draft| draft.map(Read::One)),
            Format::W3c => self.w3c.parse(line, self.now_ms).map(|draft| draft.map(Read::One)),
            Format::Raw => one(self.any_line(line)),
            format => self.line(line, format).and_then(one),
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
}

/// The JSON record after the mark with which syslog daemons announce one, `@cee:`.
fn after_cookie(line: &[u8]) -> Option<&[u8]> {
    let line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
    let record = line.strip_prefix(b"@cee:")?;
    looks_like_json(record).then_some(record)
}

fn looks_like_json(line: &[u8]) -> bool {
    line.trim_ascii_start().first() == Some(&b'{')
}
