//! W3C extended logs: `#Fields:` names the columns of the rows that follow, as IIS, CloudFront and
//! Exchange write them. Times are UTC by the specification.

use std::borrow::Cow;

use super::time::When;
use super::zeek::FIELDS;
use super::{Format, Reject, json, line};
use crate::event::{Draft, TimeSource, Value};

/// Maximum number of columns.
const COLUMNS_MAX: usize = 512;

/// The names of the columns, once they were read.
#[derive(Debug, Default)]
pub(super) struct Columns {
    names: Vec<String>,
    separator: u8,
}

impl Columns {
    /// Whether rows can be read.
    pub(super) fn ready(&self) -> bool {
        !self.names.is_empty()
    }

    /// Whether a line is one of the directives before the rows.
    pub(super) fn is_directive(line: &[u8]) -> bool {
        [
            &b"#Fields:"[..],
            b"#Version:",
            b"#Software:",
            b"#Date:",
            b"#Start-Date:",
            b"#End-Date:",
            b"#Remark:",
            b"#Log-type:",
        ]
        .iter()
        .any(|name| line.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name)))
    }

    /// Reads a directive, or the draft of a row.
    pub(super) fn parse<'a>(
        &mut self,
        row: &'a [u8],
        now_ms: i64,
    ) -> Result<Option<Draft<'a>>, Reject> {
        if row.starts_with(b"#") {
            self.directive(row);
            return Ok(None);
        }
        if !self.ready() {
            return Err(Reject::new("no #Fields: line precedes this row"));
        }
        let text = std::str::from_utf8(row).map_err(|error| {
            Reject::new(format!("invalid UTF-8 at byte {}", error.valid_up_to() + 1))
        })?;
        let separator = char::from(self.separator);
        let count = text.split(separator).count();
        let expected = self.names.len();
        if count != expected {
            return Err(Reject::new(format!(
                "the row has {count} columns, but #Fields: names {expected}"
            )));
        }
        let names = self.names.iter().map(String::as_str);
        let values = text.split(separator).map(|value| value.trim_matches('"'));
        // The server's address is the same in all rows.
        let pairs = names.zip(values).filter(|(name, value)| *value != "-" && *name != "s-ip");
        let draft = json::from_pairs(pairs, now_ms);
        let when = draft.timestamp_ns.map(When::exact);
        Ok(Some(Draft {
            kind: Cow::Owned(draft.kind.into_owned()),
            host: Cow::Owned(draft.host.into_owned()),
            ip: draft.ip,
            collector: Cow::Owned(draft.collector.into_owned()),
            severity: draft.severity,
            format: Cow::Borrowed(Format::W3c.name()),
            raw: Cow::Borrowed(row),
            // Without the names of its columns, a row can not be read.
            attributes: vec![(FIELDS.into(), Value::Text(self.names.join(" ").into()))],
            time_source: when.map_or(TimeSource::Unknown, When::source),
            ..line::stamped(when)
        }))
    }

    fn directive(&mut self, row: &[u8]) {
        const NAME: &[u8] = b"#Fields:";
        let named = row.get(..NAME.len()).is_some_and(|start| start.eq_ignore_ascii_case(NAME));
        let Some(names) = row.get(NAME.len()..).filter(|_| named) else { return };
        let names = String::from_utf8_lossy(names);
        let names = names.trim();
        self.separator = match names {
            names if names.contains('\t') => b'\t',
            names if names.contains(',') => b',',
            _ => b' ',
        };
        let separator = char::from(self.separator);
        let list = names.split(separator).map(str::trim).filter(|name| !name.is_empty());
        self.names = list.take(COLUMNS_MAX).map(str::to_owned).collect();
        // CloudFront names its columns with spaces, and separates their values by tabs.
        if self.names.iter().any(|name| name == "x-edge-location") {
            self.separator = b'\t';
        }
    }
}
