//! Zeek's tab-separated logs, whose columns are described in `#` lines at the top.

use std::borrow::Cow;

use super::text::{address, fitting, fitting_bytes};
use super::time::{self, Unit, When};
use super::{Format, Reject};
use crate::event::{Draft, Value};

/// The attribute of a row that names its columns.
pub(super) const FIELDS: &str = "fields";

/// The contents of the `#` lines so far.
#[derive(Debug, Default)]
pub(super) struct Tsv {
    header: Option<Header>,
}

#[derive(Debug)]
struct Header {
    separator: u8,
    unset: Vec<u8>,
    path: String,
    /// The names of the columns, separated by spaces.
    names: String,
    columns: Option<Columns>,
}

/// The positions of the columns that are used, and the number of all columns.
#[derive(Debug, Default)]
struct Columns {
    count: usize,
    time: Option<usize>,
    hosts: Vec<usize>,
    addresses: Vec<usize>,
    collectors: Vec<usize>,
}

impl Default for Header {
    fn default() -> Self {
        Self {
            separator: b'\t',
            unset: b"-".to_vec(),
            path: String::new(),
            names: String::new(),
            columns: None,
        }
    }
}

impl Columns {
    fn new(names: &[&[u8]]) -> Self {
        let place = |name: &str| names.iter().position(|known| *known == name.as_bytes());
        let places = |names: &[&str]| names.iter().filter_map(|name| place(name)).collect();
        Self {
            count: names.len(),
            time: place("ts"),
            hosts: places(&["_system_name", "_node_name"]),
            addresses: places(&["id.orig_h", "src", "id.resp_h"]),
            collectors: places(&["sensor_name", "proc"]),
        }
    }

    /// The last column that is used.
    fn last(&self) -> usize {
        let lists = [&self.hosts, &self.addresses, &self.collectors];
        lists.into_iter().flatten().copied().chain(self.time).max().unwrap_or(0)
    }
}

impl Tsv {
    /// Whether a log of this kind has begun.
    pub(super) fn begun(&self) -> bool {
        self.header.is_some()
    }

    /// Whether rows can be parsed: the line with the columns' names has been read.
    pub(super) fn ready(&self) -> bool {
        self.header.as_ref().is_some_and(|header| header.columns.is_some())
    }

    /// Parses a line; `None` for those that begin with `#`.
    pub(super) fn parse<'a>(&mut self, line: &'a [u8]) -> Result<Option<Draft<'a>>, Reject> {
        if let Some(directive) = line.strip_prefix(b"#") {
            self.directive(directive)?;
            return Ok(None);
        }
        let header = self.header.as_ref();
        let columns = header.and_then(|header| header.columns.as_ref());
        match header.zip(columns) {
            Some((header, columns)) => header.row(columns, line).map(Some),
            None => Err(Reject::new("no #fields line precedes this row")),
        }
    }

    fn directive(&mut self, line: &[u8]) -> Result<(), Reject> {
        if let Some(separator) = line.strip_prefix(b"separator ") {
            let separator = separator_byte(separator)
                .ok_or_else(|| Reject::new("#separator must be a single byte, such as \\x09"))?;
            self.header = Some(Header { separator, ..Header::default() });
            return Ok(());
        }
        let header = self.header.get_or_insert_default();
        let mut parts = line.split(|byte| *byte == header.separator);
        match (parts.next(), parts.next()) {
            (Some(b"unset_field"), Some(unset)) => header.unset = unset.to_vec(),
            (Some(b"path"), Some(path)) => header.path = fitting_bytes(path).to_owned(),
            (Some(b"fields"), Some(first)) => {
                let names: Vec<&[u8]> = std::iter::once(first).chain(parts).collect();
                header.columns = Some(Columns::new(&names));
                header.names = String::from_utf8_lossy(&names.join(&b' ')).into_owned();
            }
            _ => {}
        }
        Ok(())
    }
}

impl Header {
    fn row<'a>(&self, columns: &Columns, line: &'a [u8]) -> Result<Draft<'a>, Reject> {
        let count = 1 + memchr::memchr_iter(self.separator, line).count();
        if count != columns.count {
            let expected = columns.count;
            return Err(Reject::new(format!(
                "the row has {count} columns, but #fields names {expected}"
            )));
        }
        let mut draft = Draft {
            kind: Cow::Owned(self.path.clone()),
            format: Cow::Borrowed(Format::Zeek.name()),
            raw: Cow::Borrowed(line),
            // Without the names of its columns, a row can not be read.
            attributes: vec![(FIELDS.into(), Value::Text(self.names.clone().into()))],
            ..Draft::default()
        };
        // The rank in its list of a value that is already in the draft.
        let (mut host, mut ip, mut collector) = (usize::MAX, usize::MAX, usize::MAX);
        let values = line.split(|byte| *byte == self.separator);
        for (place, value) in values.enumerate().take(columns.last() + 1) {
            if value == self.unset || value == b"(empty)" {
                continue;
            }
            let rank = |list: &[usize]| list.iter().position(|known| *known == place);
            if columns.time == Some(place) {
                let text = fitting_bytes(value);
                let when = time::text(text, None);
                let when = when.or_else(|| time::epoch(text, Unit::Seconds).map(When::exact));
                draft.timestamp_ns = when.map(|when| when.ns);
                draft.time_source = when.map(When::source).unwrap_or_default();
            }
            if let Some(rank) = rank(&columns.addresses).filter(|rank| *rank < ip)
                && let Some(found) = address(fitting_bytes(value))
            {
                (ip, draft.ip) = (rank, Some(found));
            }
            if let Some(rank) = rank(&columns.hosts).filter(|rank| *rank < host) {
                (host, draft.host) = (rank, unescaped(value));
            }
            if let Some(rank) = rank(&columns.collectors).filter(|rank| *rank < collector) {
                (collector, draft.collector) = (rank, unescaped(value));
            }
        }
        Ok(draft)
    }
}

/// `\x09`, or the byte itself.
fn separator_byte(text: &[u8]) -> Option<u8> {
    match text {
        [byte] => Some(*byte),
        [b'\\', b'x', digits @ ..] => hex(digits),
        _ => None,
    }
}

fn hex(digits: &[u8]) -> Option<u8> {
    let [high, low] = digits else { return None };
    let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|it| u8::try_from(it).ok());
    Some(digit(high)? << 4 | digit(low)?)
}

/// Decodes the `\x..` escapes of a value; `None` if no field can hold it.
fn unescaped(value: &[u8]) -> Cow<'_, str> {
    if memchr::memchr(b'\\', value).is_none() {
        return Cow::Borrowed(fitting_bytes(value));
    }
    let mut plain = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some((&byte, after)) = rest.split_first() {
        let escaped = match rest {
            [b'\\', b'x', high, low, ..] => hex(&[*high, *low]),
            _ => None,
        };
        plain.push(escaped.unwrap_or(byte));
        rest = if escaped.is_some() { rest.get(4..).unwrap_or_default() } else { after };
    }
    String::from_utf8(plain).map_or(Cow::Borrowed(""), |text| fitting(Cow::Owned(text)))
}
