//! `ArcSight`'s Common Event Format:
//! `CEF:0|vendor|product|version|class|name|severity|key=value ...`.

use std::borrow::Cow;
use std::net::IpAddr;

use super::syslog::Header;
use super::text::{address, fitting};
use super::time::{self, When};
use super::{Format, Reject, severity};
use crate::event::Draft;

/// Parts of the header before the extension.
const HEADER_PARTS: usize = 7;

/// Returns the draft of a record whose `CEF:` is followed by `body`; `syslog` precedes it.
pub(super) fn parse<'a>(
    line: &'a [u8],
    body: &'a [u8],
    syslog: &Header<'a>,
    now_ms: i64,
) -> Result<Draft<'a>, Reject> {
    let (parts, extension) = header(body)?;
    let [_, vendor, product, _, class, name, severity] = parts.map(|part| text(part, b"|\\"));
    let mut fields = Fields { now_ms, ..Fields::default() };
    fields.read(extension);
    let first = |texts: [Cow<'a, str>; 2]| {
        let [first, second] = texts.map(fitting);
        if first.is_empty() { second } else { first }
    };
    let hosts = fields.hosts.map(fitting);
    let host = hosts.into_iter().find(|host| !host.is_empty()).unwrap_or_default();
    // FireEye's and Trellix's network sensors report an event long after it began.
    if product == "MPS" {
        fields.times.swap(0, 1);
    }
    let own = fields.times.into_iter().flatten().next();
    let own = own.and_then(|when| when.in_zone(&fields.zone));
    let when = own.map(|when| when.aligned(fields.times[3]).aligned(syslog.when)).or(syslog.when);
    Ok(Draft {
        timestamp_ns: when.map(|when| when.ns),
        time_source: when.map(When::source).unwrap_or_default(),
        kind: first([class, name]),
        host: if host.is_empty() { Cow::Borrowed(syslog.host) } else { host },
        ip: fields.addresses.into_iter().flatten().next(),
        collector: first([product, vendor]),
        severity: severity::zero_to_ten(&severity),
        format: Cow::Borrowed(Format::Cef.name()),
        raw: Cow::Borrowed(line),
        ..Draft::default()
    })
}

/// The seven parts of the header and the extension.
fn header(body: &[u8]) -> Result<([&[u8]; HEADER_PARTS], &[u8]), Reject> {
    let mut parts = [&b""[..]; HEADER_PARTS];
    let mut rest = body;
    for (index, part) in parts.iter_mut().enumerate() {
        let end = unescaped(rest, b'|');
        // The bar after the severity may be missing if there is no extension.
        if end.is_none() && index + 1 < HEADER_PARTS {
            let found = index + 1;
            return Err(Reject::new(format!("a CEF header has {HEADER_PARTS} parts, not {found}")));
        }
        let (value, after) = rest.split_at(end.unwrap_or(rest.len()));
        *part = value;
        rest = after.get(1..).unwrap_or_default();
    }
    // Check Point writes a space before the version.
    let version = parts[0].trim_ascii();
    if version.is_empty() || !version.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.') {
        return Err(Reject::new("CEF: must be followed by a version number"));
    }
    Ok((parts, rest))
}

/// Returns the first position of a byte that no backslash precedes.
fn unescaped(text: &[u8], wanted: u8) -> Option<usize> {
    let mut from = 0;
    loop {
        let at = from + memchr::memchr2(b'\\', wanted, text.get(from..)?)?;
        if text.get(at) == Some(&wanted) {
            return Some(at);
        }
        from = at + 2;
    }
}

/// Removes the backslashes before `escapes`; `None` if the text is not UTF-8.
fn text<'a>(bytes: &'a [u8], escapes: &[u8]) -> Cow<'a, str> {
    let text = std::str::from_utf8(bytes.trim_ascii()).unwrap_or_default();
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let next = letters.peek().and_then(|next| u8::try_from(*next).ok());
        if letter == '\\' && next.is_some_and(|next| escapes.contains(&next)) {
            plain.extend(letters.next());
        } else {
            plain.push(letter);
        }
    }
    Cow::Owned(plain)
}

/// Whether a name that the format does not have is that of the event's time.
fn is_own_time(key: &[u8]) -> bool {
    const ENDS: [&[u8]; 3] = [b"eventtime", b"event_timestamp", b"detectiontime"];
    ENDS.iter().any(|end| {
        let at = key.len().checked_sub(end.len());
        at.and_then(|at| key.get(at..)).is_some_and(|tail| tail.eq_ignore_ascii_case(end))
    })
}

/// The fields of the extension that are used, in order of preference.
#[derive(Default)]
struct Fields<'a> {
    now_ms: i64,
    times: [Option<When>; 4],
    zone: Cow<'a, str>,
    addresses: [Option<IpAddr>; 5],
    hosts: [Cow<'a, str>; 4],
}

impl<'a> Fields<'a> {
    /// Parses `key=value key=value`: a value ends where the next key begins, and may contain
    /// spaces.
    fn read(&mut self, extension: &'a [u8]) {
        let mut rest = extension.trim_ascii_start();
        let Some(mut equals) = key_end(rest, 0) else { return };
        loop {
            let (key, value) = rest.split_at(equals);
            let Some(value) = value.get(1..) else { return };
            let key = key.trim_ascii();
            // The next equals sign that a key precedes.
            let mut from = 0;
            let next = loop {
                let Some(at) = key_end(value, from) else { break None };
                // No key contains an equals sign: nothing before the last one is searched again.
                let start = value[from..at].iter().rposition(|byte| *byte == b' ');
                match start.map(|start| from + start) {
                    Some(start) if is_key(&value[start + 1..at]) => break Some((start, at)),
                    _ => from = at + 1,
                }
            };
            let Some((start, at)) = next else {
                self.take(key, value);
                return;
            };
            self.take(key, &value[..start]);
            rest = &value[start + 1..];
            equals = at - start - 1;
        }
    }

    fn take(&mut self, key: &[u8], value: &'a [u8]) {
        let value = || text(value, b"=\\|");
        let now_ms = self.now_ms;
        let when = || time::text(&value(), Some(now_ms));
        match key {
            b"rt" => self.times[0] = when(),
            b"start" | b"startTime" => self.times[1] = when(),
            b"end" | b"endTime" => self.times[2] = when(),
            b"dtz" => self.zone = value(),
            b"src" => self.addresses[0] = address(&value()),
            // Custom address 2 is the IPv6 address of the source.
            b"c6a2" => self.addresses[1] = address(&value()),
            b"dvc" => self.addresses[2] = address(&value()),
            b"dst" => self.addresses[3] = address(&value()),
            b"c6a3" => self.addresses[4] = address(&value()),
            b"dvchost" => self.hosts[0] = value(),
            b"shost" => self.hosts[1] = value(),
            b"dhost" => self.hosts[2] = value(),
            b"deviceExternalId" => self.hosts[3] = value(),
            // With the product's prefix: FTNTFGTeventtime, BitdefenderGZDetectionTime.
            _ if is_own_time(key) => self.times[3] = self.times[3].or_else(when),
            _ => {}
        }
    }
}

/// Returns the first equals sign from `from` on that no backslash precedes.
fn key_end(text: &[u8], from: usize) -> Option<usize> {
    unescaped(text.get(from..)?, b'=').map(|at| from + at)
}

fn is_key(text: &[u8]) -> bool {
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.-[]".contains(byte);
    !text.is_empty() && text.iter().all(fits)
}
