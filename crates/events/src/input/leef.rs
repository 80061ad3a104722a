//! `QRadar`'s Log Event Extended Format: `LEEF:1.0|vendor|product|version|event|key=value<tab>...`,
//! of which 2.0 may name another delimiter before the attributes.

use std::borrow::Cow;
use std::net::IpAddr;

use super::syslog::Header;
use super::text::{address, fitting_bytes};
use super::time::{self, When};
use super::{Format, Reject, severity};
use crate::event::{Draft, Severity};

/// Parts of the header before the attributes, without the delimiter.
const HEADER_PARTS: usize = 5;

/// Returns the draft of a record whose `LEEF:` is followed by `body`; `syslog` precedes it.
pub(super) fn parse<'a>(
    line: &'a [u8],
    body: &'a [u8],
    syslog: &Header<'a>,
    now_ms: i64,
) -> Result<Draft<'a>, Reject> {
    let mut rest = body;
    let mut parts = [&b""[..]; HEADER_PARTS];
    for (index, part) in parts.iter_mut().enumerate() {
        let end = memchr::memchr(b'|', rest);
        if end.is_none() && index + 1 < HEADER_PARTS {
            let found = index + 1;
            return Err(Reject::new(format!(
                "a LEEF header has {HEADER_PARTS} parts, not {found}"
            )));
        }
        let (value, after) = rest.split_at(end.unwrap_or(rest.len()));
        *part = value.trim_ascii();
        rest = after.get(1..).unwrap_or_default();
    }
    let [version, vendor, product, _, event] = parts;
    let delimiter = match version {
        [b'1', ..] => b'\t',
        [b'2', ..] => delimiter(&mut rest)?,
        _ => return Err(Reject::new("LEEF: must be followed by version 1 or 2")),
    };
    let mut fields = Fields::default();
    for attribute in rest.split(|byte| *byte == delimiter) {
        if let Some(equals) = memchr::memchr(b'=', attribute) {
            fields.take(attribute[..equals].trim_ascii(), attribute[equals + 1..].trim_ascii());
        }
    }
    let collector = if product.is_empty() { vendor } else { product };
    let host = fields.hosts.into_iter().find(|host| !host.is_empty()).unwrap_or(syslog.host);
    let own = fields.time(now_ms).map(|when| when.aligned(syslog.when));
    let when = own.or(syslog.when);
    Ok(Draft {
        timestamp_ns: when.map(|when| when.ns),
        time_source: when.map(When::source).unwrap_or_default(),
        kind: Cow::Borrowed(fitting_bytes(event)),
        host: Cow::Borrowed(host),
        ip: fields.addresses.into_iter().flatten().next(),
        collector: Cow::Borrowed(fitting_bytes(collector)),
        severity: fields.severity,
        format: Cow::Borrowed(Format::Leef.name()),
        raw: Cow::Borrowed(line),
        ..Draft::default()
    })
}

/// LEEF 2.0 has a delimiter, as a character or as `x5E`; some sources omit that part.
fn delimiter(rest: &mut &[u8]) -> Result<u8, Reject> {
    let Some(end) = memchr::memchr2(b'|', b'=', rest).filter(|end| rest.get(*end) == Some(&b'|'))
    else {
        // The equals sign cannot be a delimiter: without a bar there is no such part.
        return Ok(b'\t');
    };
    let (part, after) = rest.split_at(end);
    let byte = match part {
        [] => Some(b'\t'),
        [byte] => Some(*byte),
        _ => std::str::from_utf8(part).ok().and_then(|part| {
            let digits = part.trim_start_matches(['0', '\\']).strip_prefix(['x', 'X'])?;
            u8::from_str_radix(digits, 16).ok()
        }),
    };
    let byte = byte.ok_or_else(|| Reject::new("the delimiter is neither a character nor xHH"))?;
    *rest = after.get(1..).unwrap_or_default();
    Ok(byte)
}

/// The attributes that are used, in order of preference.
#[derive(Default)]
struct Fields<'a> {
    time: &'a str,
    time_format: &'a str,
    severity: Severity,
    addresses: [Option<IpAddr>; 4],
    hosts: [&'a str; 3],
}

impl<'a> Fields<'a> {
    fn take(&mut self, key: &[u8], value: &'a [u8]) {
        let value = fitting_bytes(value);
        match key {
            b"devTime" => self.time = value,
            b"devTimeFormat" => self.time_format = value,
            b"sev" => self.severity = severity::zero_to_ten(value),
            b"src" => self.addresses[0] = address(value),
            b"identSrc" => self.addresses[1] = address(value),
            b"srcPreNAT" => self.addresses[2] = address(value),
            b"dst" => self.addresses[3] = address(value),
            b"identHostName" => self.hosts[0] = value,
            b"devHost" | b"deviceHostName" => self.hosts[1] = value,
            b"resource" => self.hosts[2] = value,
            _ => {}
        }
    }

    fn time(&self, now_ms: i64) -> Option<When> {
        if self.time.is_empty() {
            return None;
        }
        let exact = (!self.time_format.is_empty())
            .then(|| time::pattern(self.time, self.time_format, now_ms));
        exact.flatten().or_else(|| time::text(self.time, Some(now_ms)))
    }
}
