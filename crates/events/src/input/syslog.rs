//! Syslog messages: RFC 5424, and the common forms described in RFC 3164.
//!
//! A message that is not RFC 5424 has hardly any reliable structure: unrecognised fields are left
//! empty. Times without a zone are UTC; times without a year are the latest that are not ahead of
//! the parser's clock by more than a day.

use std::borrow::Cow;

use super::text::{address, fitting_bytes};
use super::time::{self, Cursor};
use super::{Format, Reject, severity};
use crate::event::{Draft, Severity};

/// The header of a message, and what follows it.
#[derive(Debug, Default)]
pub(super) struct Header<'a> {
    pub(super) severity: Severity,
    pub(super) timestamp_ns: Option<i64>,
    pub(super) host: &'a str,
    app: &'a str,
    message_id: &'a str,
    /// What follows the host (RFC 3164) or the structured data.
    pub(super) content: &'a [u8],
}

pub(super) fn parse(line: &[u8], now_ms: i64) -> Result<Draft<'_>, Reject> {
    let header = header(line, now_ms)?;
    let kind = if header.app.is_empty() { header.message_id } else { header.app };
    Ok(Draft {
        timestamp_ns: header.timestamp_ns,
        kind: Cow::Borrowed(kind),
        host: Cow::Borrowed(header.host),
        ip: address(header.host),
        severity: header.severity,
        format: Cow::Borrowed(Format::Syslog.name()),
        raw: Cow::Borrowed(line),
        ..Draft::default()
    })
}

/// Whether a line without a priority begins as the files of a syslog daemon do: `Jul 14 15:00:00 `.
pub(super) fn begins_with_time(line: &[u8]) -> bool {
    let mut cursor = Cursor { rest: line };
    time::bsd(&mut cursor).is_some() && cursor.rest.first() == Some(&b' ')
}

/// Parses the priority, 0 to 191, at the start of a line; returns it and the remainder.
pub(super) fn priority(line: &[u8]) -> Option<(u8, &[u8])> {
    let rest = line.strip_prefix(b"<")?;
    let mut cursor = Cursor { rest };
    let code = cursor.number(1, 3).and_then(|code| u8::try_from(code).ok())?;
    (code <= 191 && cursor.eat(b'>')).then_some((code, cursor.rest))
}

/// Reads the header of a message.
pub(super) fn header(line: &[u8], now_ms: i64) -> Result<Header<'_>, Reject> {
    let (severity, rest) = match priority(line) {
        Some((code, rest)) => (severity::syslog(code & 7), rest),
        None if line.first() == Some(&b'<') => {
            return Err(Reject::new("the priority at byte 1 must be <0> to <191>"));
        }
        None => (Severity::Unknown, line),
    };
    let header = match version(rest).filter(|_| rest.len() < line.len()) {
        Some(fields) => rfc5424(fields)?,
        None => rfc3164(rest, now_ms),
    };
    Ok(Header { severity, ..header })
}

/// What follows the version number of RFC 5424.
fn version(rest: &[u8]) -> Option<&[u8]> {
    let mut cursor = Cursor { rest };
    let version = cursor.number(1, 2)?;
    (version > 0 && cursor.eat(b' ')).then_some(cursor.rest)
}

fn rfc5424(fields: &[u8]) -> Result<Header<'_>, Reject> {
    let mut rest = fields;
    let mut field = |name: &str| {
        let end = memchr::memchr(b' ', rest)
            .ok_or_else(|| Reject::new(format!("the header ends at its {name}")))?;
        let (value, after) = rest.split_at(end);
        rest = after.get(1..).unwrap_or_default();
        Ok(if value == b"-" { b"" } else { value })
    };
    let timestamp = field("TIMESTAMP")?;
    let host = field("HOSTNAME")?;
    let app = field("APP-NAME")?;
    field("PROCID")?;
    let message_id = field("MSGID")?;
    let content = after_structured_data(rest)
        .ok_or_else(|| Reject::new("STRUCTURED-DATA is neither - nor complete elements in []"))?;
    Ok(Header {
        timestamp_ns: time::rfc3339(timestamp),
        host: fitting_bytes(host),
        app: fitting_bytes(app),
        message_id: fitting_bytes(message_id),
        content: content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content),
        severity: Severity::Unknown,
    })
}

fn after_structured_data(text: &[u8]) -> Option<&[u8]> {
    if let Some(rest) = text.strip_prefix(b"-") {
        return rest.strip_prefix(b" ").or(rest.is_empty().then_some(rest));
    }
    let mut rest = text.strip_prefix(b"[")?;
    let mut quoted = false;
    loop {
        let at = memchr::memchr3(b'"', b'\\', b']', rest)?;
        let (found, after) = rest.get(at..)?.split_first()?;
        rest = after;
        match found {
            b'"' => quoted = !quoted,
            b'\\' => rest = rest.get(1..)?,
            _ if quoted => {}
            _ => match rest.split_first() {
                Some((b'[', after)) => rest = after,
                Some((b' ', after)) => return Some(after),
                None => return Some(rest),
                Some(_) => return None,
            },
        }
    }
}

fn rfc3164(rest: &[u8], now_ms: i64) -> Header<'_> {
    let mut header = Header { content: rest, ..Header::default() };
    let mut cursor = Cursor { rest };
    // Cisco marks an unsynchronised clock with one of these.
    if let [b'*' | b'.', unmarked @ ..] = rest {
        cursor.rest = unmarked;
    }
    let time = match time::bsd(&mut cursor) {
        Some(parts) => parts.time(0, Some(now_ms)),
        None => {
            cursor = Cursor { rest };
            let end = memchr::memchr(b' ', rest).unwrap_or(rest.len());
            let time = rest.get(..end).and_then(time::rfc3339);
            cursor.rest = rest.get(end..).filter(|_| time.is_some()).unwrap_or_default();
            time
        }
    };
    if time.is_some() && cursor.eat(b':') {
        // Cisco: the message follows immediately.
        header.timestamp_ns = time;
        header.content = cursor.rest;
    } else if let (Some(_), Some(mut after)) = (time, cursor.rest.strip_prefix(b" ")) {
        header.timestamp_ns = time;
        while let Some(less) = after.strip_prefix(b" ") {
            after = less;
        }
        let end = memchr::memchr(b' ', after).unwrap_or(after.len());
        header.content = after;
        // A message from the local machine may have no host.
        if let Some((host, content)) = after.split_at_checked(end)
            && !host.ends_with(b":")
        {
            header.host = fitting_bytes(host);
            header.content = content.strip_prefix(b" ").unwrap_or(content);
        }
    }
    header.app = tag(header.content);
    header
}

/// Parses the program at the start of a message: `sshd[123]: ` or `%ASA-6-302013: `.
fn tag(content: &[u8]) -> &str {
    const TAG_SIZE_MAX: usize = 64;
    let content = content.strip_prefix(b":").unwrap_or(content).trim_ascii_start();
    let start = content.get(..TAG_SIZE_MAX).unwrap_or(content);
    let end = start.iter().position(|byte| matches!(byte, b'[' | b':' | b' '));
    match end.and_then(|end| start.split_at_checked(end)) {
        Some((tag, [b'[' | b':', ..])) => fitting_bytes(tag),
        _ => "",
    }
}
