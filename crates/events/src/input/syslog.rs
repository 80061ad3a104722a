//! Syslog messages: RFC 5424, and the common forms described in RFC 3164.
//!
//! A message that is not RFC 5424 has hardly any reliable structure: unrecognised fields are left
//! empty. Times without a zone are UTC; times without a year are the latest that are not ahead of
//! the parser's clock by more than a day.

use std::borrow::Cow;

use super::text::{address, fitting_bytes};
use super::time::{self, Cursor, When};
use super::{Reject, severity};
use crate::event::{Draft, Severity};

/// The header of a message, and what follows it.
#[derive(Debug, Default)]
pub(super) struct Header<'a> {
    pub(super) severity: Severity,
    pub(super) when: Option<When>,
    /// Whether the time has a year and an offset, and is followed by a message.
    pub(super) is_complete: bool,
    /// Whether the time has no year, so that the latest possible one was taken.
    pub(super) is_yearless: bool,
    pub(super) host: &'a str,
    pub(super) app: &'a str,
    message_id: &'a str,
    /// What follows the host (RFC 3164) or the structured data.
    pub(super) content: &'a [u8],
}

impl<'a> Header<'a> {
    /// The draft of a message of which no more is known.
    pub(super) fn draft(&self) -> Draft<'a> {
        let kind = if self.app.is_empty() { self.message_id } else { self.app };
        Draft {
            timestamp_ns: self.when.map(|when| when.ns),
            time_source: self.when.map(When::source).unwrap_or_default(),
            kind: Cow::Borrowed(kind),
            host: Cow::Borrowed(self.host),
            ip: address(self.host),
            severity: self.severity,
            ..Draft::default()
        }
    }

    /// The message without the program before it.
    pub(super) fn message(&self) -> &'a [u8] {
        let content = self.content.strip_prefix(b":").unwrap_or(self.content).trim_ascii_start();
        let named = !self.app.is_empty() && content.starts_with(self.app.as_bytes());
        let Some(rest) = content.get(self.app.len()..).filter(|_| named) else { return content };
        let rest = match rest.strip_prefix(b"[") {
            Some(process) => {
                let end = process.iter().take(64).position(|byte| *byte == b']');
                end.and_then(|end| process.get(end + 1..)).unwrap_or(rest)
            }
            None => rest,
        };
        rest.strip_prefix(b":").unwrap_or(rest).trim_ascii_start()
    }
}

/// Whether a line without a priority begins as the files of a syslog daemon do: `Jul 14 15:00:00 `,
/// or `2017-07-14T15:00:00.123456+02:00 host program[1]: `.
pub(super) fn begins_with_time(line: &[u8]) -> bool {
    let mut cursor = Cursor { rest: line };
    match line.first() {
        Some(byte) if byte.is_ascii_alphabetic() => {
            let time = time::bsd(&mut cursor).is_some();
            time && (cursor.rest.first() == Some(&b' ') || cursor.rest.starts_with(b": %"))
        }
        Some(byte) if byte.is_ascii_digit() && line.get(10) == Some(&b'T') => {
            let zoned = time::read(&mut cursor, None).is_some_and(|when| when.zoned);
            zoned && cursor.rest.strip_prefix(b" ").is_some_and(has_host_and_program)
        }
        _ => false,
    }
}

/// Whether a host and a program follow: `web-1 sshd[123]: ` or `web-1 kernel: `.
fn has_host_and_program(rest: &[u8]) -> bool {
    let end = memchr::memchr(b' ', rest.get(..256).unwrap_or(rest));
    let Some((host, rest)) = end.and_then(|end| rest.split_at_checked(end)) else { return false };
    let named = host.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-._:".contains(byte));
    let host = fitting_bytes(host);
    named
        && !host.ends_with(':')
        && severity::word(host).is_none()
        && !tag(rest.strip_prefix(b" ").unwrap_or(rest)).is_empty()
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
        Some(fields) => rfc5424(fields, now_ms)?,
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

fn rfc5424(fields: &[u8], now_ms: i64) -> Result<Header<'_>, Reject> {
    let mut rest = fields;
    let mut field = |name: &str| {
        let end = memchr::memchr(b' ', rest)
            .ok_or_else(|| Reject::new(format!("the header ends at its {name}")))?;
        let (value, after) = rest.split_at(end);
        rest = after.get(1..).unwrap_or_default();
        Ok(if value == b"-" { b"" } else { value })
    };
    let timestamp = field("TIMESTAMP")?;
    let mut when = time::text(fitting_bytes(timestamp), Some(now_ms));
    if when.is_none() && timestamp.len() == 10 && timestamp.get(4) == Some(&b'-') {
        // Some write a space within the time.
        let clock = fitting_bytes(field("TIMESTAMP")?);
        when = time::text(&format!("{} {clock}", fitting_bytes(timestamp)), None);
    }
    let host = field("HOSTNAME")?;
    let app = field("APP-NAME")?;
    if timestamp.first().is_some_and(u8::is_ascii_digit) && !timestamp.contains(&b'-') {
        // Meraki: a number of seconds, the device and a type, and then the message.
        let (host, app) = (fitting_bytes(host), fitting_bytes(app));
        let is_complete = when.is_some();
        return Ok(Header { when, is_complete, host, app, content: rest, ..Header::default() });
    }
    field("PROCID")?;
    let message_id = field("MSGID")?;
    // Heroku leaves structured data out.
    let is_left_out = !matches!(rest, [b'[', ..] | b"-" | [b'-', b' ', ..]);
    let content = Some(rest)
        .filter(|_| is_left_out)
        .or_else(|| after_structured_data(rest))
        .ok_or_else(|| Reject::new("STRUCTURED-DATA is neither - nor complete elements in []"))?;
    // Check Point writes its pairs where structured data belongs, and no message.
    let is_message = !content.is_empty();
    let content = if is_message { content } else { rest };
    Ok(Header {
        when,
        is_complete: is_message && when.is_some_and(|when| when.zoned),
        is_yearless: false,
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

/// Maximum number of words before the time: Cisco's sequence number and the device's name.
const WORDS_MAX: usize = 3;

fn rfc3164(rest: &[u8], now_ms: i64) -> Header<'_> {
    let mut header = Header { content: rest, ..Header::default() };
    let mut cursor = Cursor { rest };
    let mut device = "";
    let mut when = None;
    let mut is_set = true;
    for _ in 0..=WORDS_MAX {
        // Cisco marks a clock that is not set or synchronised with one of these.
        let starred = cursor.rest.starts_with(b"*");
        if let [b'*' | b'.', unmarked @ ..] = cursor.rest {
            cursor.rest = unmarked;
        }
        let written = cursor;
        let number = cursor.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        when = match number {
            0..10 => time::read(&mut cursor, Some(now_ms)),
            _ => time::leading(cursor.rest, Some(now_ms)).map(|(when, rest)| {
                cursor.rest = rest;
                when
            }),
        };
        if let Some(found) = when {
            // A time that is read without a clock has a year.
            let dated = || number >= 10 || time::read(&mut { written }, None).is_some();
            header.is_yearless = !dated();
            header.is_complete = found.zoned && !header.is_yearless;
            // A device that was never set begins at 1 March 1993, and writes no year.
            is_set = !(starred && header.is_yearless);
            break;
        }
        // `29: `, `: ` or `device: ` may precede the time.
        let start = cursor.rest.get(..80).unwrap_or(cursor.rest);
        let Some(end) = memchr::memchr(b' ', start) else { break };
        let (word, after) = cursor.rest.split_at(end);
        let Some(word) = word.strip_suffix(b":") else { break };
        if !word.is_empty() && !word.iter().all(u8::is_ascii_digit) {
            device = fitting_bytes(word);
        }
        cursor.rest = after.trim_ascii_start();
    }
    if when.is_none() {
        cursor.rest = &[];
    } else {
        header.host = device;
    }
    if when.is_some() && cursor.eat(b':') {
        // Cisco: the message follows immediately.
        header.when = when;
        header.content = cursor.rest;
    } else if let (Some(_), Some(mut after)) = (when, cursor.rest.strip_prefix(b" ")) {
        header.when = when;
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
    header.when = header.when.filter(|_| is_set);
    header.app = tag(header.content);
    header
}

/// Parses the program at the start of a message: `sshd[123]: ` or `%ASA-6-302013: `.
fn tag(content: &[u8]) -> &str {
    const TAG_SIZE_MAX: usize = 64;
    let content = content.strip_prefix(b":").unwrap_or(content).trim_ascii_start();
    let start = content.get(..TAG_SIZE_MAX).unwrap_or(content);
    // A body in brackets or quotes is no program.
    if start.first().is_some_and(|byte| b"{[<\"'".contains(byte)) {
        return "";
    }
    let end = start.iter().position(|byte| matches!(byte, b'[' | b':' | b' '));
    match end.and_then(|end| start.split_at_checked(end)) {
        Some((tag, [b'[' | b':', ..])) => fitting_bytes(tag),
        _ => "",
    }
}
