//! Lines without a format that names itself: access logs, pairs, Windows events as XML, Palo Alto's
//! values, VPC flow logs, and any line with a time near its start.
//!
//! The same forms are read alone, after a syslog header, and in the message of a JSON record.

use std::borrow::Cow;

use super::text::{address, fitting_bytes};
use super::time::{self, Cursor, When};
use super::{Format, pairs, severity};
use crate::event::{Draft, Severity};

/// Maximum number of words before a time in brackets, before another one, and of bytes before both.
const WORDS_MAX: usize = 8;
const BARE_WORDS_MAX: usize = 2;
const LEAD_MAX: usize = 300;
/// Maximum number of bytes before the request of an access log: Apache's and nginx's for a header.
const NAMES_SIZE_MAX: usize = 16 * 1024;
/// Words before a time that is not the event's.
const OTHER: [&[u8]; 14] = [
    b"expires", b"expiry", b"until", b"since", b"before", b"after", b"from", b"to", b"by", b"on",
    b"at", b"last", b"next", b"valid",
];

/// A line of a known form.
pub(super) struct Parsed<'a> {
    pub(super) format: Format,
    /// Whether the time is the event's for sure, rather than one that the line mentions.
    pub(super) certain: bool,
    /// Whether the line begins with the time.
    pub(super) leading: bool,
    pub(super) draft: Draft<'a>,
}

/// Reads a line; `None` if no form is recognised. `raw` and `format` are set by the caller.
pub(super) fn read(line: &[u8], now_ms: i64) -> Option<Parsed<'_>> {
    let found = |format, draft| Some(Parsed { format, certain: true, leading: false, draft });
    if line.starts_with(b"<Event") {
        return windows(line).and_then(|draft| found(Format::Windows, draft));
    }
    if line.starts_with(b"<?xml") || line.starts_with(b"<EPO") {
        return epo(line).and_then(|draft| found(Format::Text, draft));
    }
    // A relay may leave the colon after a program without a name.
    let values = line.strip_prefix(b": ").unwrap_or(line);
    if values.first().is_some_and(u8::is_ascii_digit)
        && let Some(draft) = palo_alto(values, now_ms).or_else(|| flow(values))
    {
        return found(Format::Text, draft);
    }
    if let Some(draft) = access(line) {
        return found(Format::Clf, draft);
    }
    let begins = [&b"[action:\""[..], b"[flags:\"", b"[sequencenum:\"", b"[product:\""];
    let bracketed = line.strip_prefix(b"[").is_some_and(pairs::begins);
    if (bracketed || pairs::begins(line) || begins.iter().any(|begin| line.starts_with(begin)))
        && let Some(draft) =
            std::str::from_utf8(line).ok().and_then(|text| pairs::parse(text, now_ms))
        // Brackets may also hold a thread or a request, with the time behind them.
        && (draft.timestamp_ns.is_some() || !bracketed)
    {
        return found(Format::Kv, draft);
    }
    if let Some((when, rest)) = time::own(line, now_ms) {
        let draft = after_time(when, b"", rest);
        return Some(Parsed { format: Format::Text, certain: true, leading: true, draft });
    }
    if let Some(draft) = klog(line, now_ms) {
        return Some(Parsed { format: Format::Text, certain: false, leading: true, draft });
    }
    let (leading, draft) =
        text(line, now_ms).or_else(|| labelled(line, now_ms).map(|draft| (false, draft)))?;
    Some(Parsed { format: Format::Text, certain: false, leading, draft })
}

pub(super) fn stamped(when: Option<When>) -> Draft<'static> {
    Draft {
        timestamp_ns: when.map(|when| when.ns),
        time_source: when.map(When::source).unwrap_or_default(),
        ..Draft::default()
    }
}

/// Common Log Format: a client, two names, a time in brackets and a request in quotes; the
/// combined format adds the virtual host before it.
///
/// A client chooses the second name, which may have brackets: the time is the last one before the
/// request. Servers escape quotes in names.
pub(super) fn access(line: &[u8]) -> Option<Draft<'_>> {
    memchr::memchr(b'[', line.get(..LEAD_MAX).unwrap_or(line))?;
    let start = line.get(..NAMES_SIZE_MAX).unwrap_or(line);
    let request = memchr::memmem::find(start, b" \"");
    let time_at = |open: usize| {
        let (when, rest) = time::leading(line.get(open..)?, None)?;
        let bracketed = line.get(line.len() - rest.len() - 1) == Some(&b']');
        (bracketed && rest.starts_with(b" ") && when.zoned).then_some((open, when, rest))
    };
    let begins_time = |open: &usize| line.get(*open + 1).is_some_and(|byte| byte.is_ascii_digit());
    let (open, when, rest) = match request {
        Some(end) => {
            memchr::memrchr_iter(b'[', start.get(..end)?).filter(begins_time).find_map(time_at)?
        }
        None => memchr::memchr(b'[', start).filter(begins_time).and_then(time_at)?,
    };
    let mut words = line.get(..open)?.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    let (first, second) = (words.next()?, words.next());
    // A log of requests in another one: the line begins with its own time.
    if first.len() >= 19 && time::text(fitting_bytes(first), None).is_some_and(|when| when.zoned) {
        return None;
    }
    let client = address(fitting_bytes(first));
    let behind = second.and_then(|word| address(fitting_bytes(word)));
    if !rest.starts_with(b" \"") && client.is_none() && behind.is_none() {
        return None;
    }
    let host = if client.is_none() { fitting_bytes(first) } else { "" };
    Some(Draft {
        kind: Cow::Borrowed("access"),
        host: Cow::Borrowed(host),
        ip: client.or(behind),
        ..stamped(Some(when))
    })
}

/// Palo Alto's values, separated by commas: the second is the time at which the log was received, the
/// seventh the time at which it was generated. Newer releases write the time at which the firewall took
/// the log near the end, with an offset and milliseconds: the only one that is exact.
fn palo_alto(line: &[u8], now_ms: i64) -> Option<Draft<'_>> {
    let mut fields = line.split(|byte| *byte == b',');
    let digits = fields.next()?;
    if digits.is_empty() || digits.len() > 4 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let field_time = |field: &[u8]| {
        time::text(fitting_bytes(field), Some(now_ms)).or_else(|| time::spreadsheet(field))
    };
    let received = fields.next().and_then(field_time)?;
    let (_serial, kind, subtype) = (fields.next()?, fields.next()?, fields.next()?);
    if !kind.iter().all(|byte| byte.is_ascii_uppercase() || b"-_".contains(byte)) {
        return None;
    }
    let generated = fields.nth(1).and_then(field_time).unwrap_or(received);
    let source = fields.next().and_then(|field| address(fitting_bytes(field)));
    let host = device_name(fields.clone());
    let exact = fields.filter(|field| field.len() >= 20 && field.get(10) == Some(&b'T'));
    // Users choose some of the fields: only a time that differs by an offset from the other counts.
    let is_own = |when: &When| when.zoned && received.aligned(Some(*when)).zoned;
    let exact = exact.filter_map(field_time).find(is_own);
    Some(Draft {
        kind: Cow::Borrowed(fitting_bytes(if kind.is_empty() { subtype } else { kind })),
        host: Cow::Borrowed(host),
        ip: source,
        ..stamped(Some(exact.unwrap_or(generated)))
    })
}

/// The firewall's name in Palo Alto's values: after the action flags (`0x8000000000000000`), the four
/// levels of its device group and the name of its virtual system.
fn device_name<'a>(fields: impl Iterator<Item = &'a [u8]>) -> &'a str {
    let is_number = |field: &[u8]| !field.is_empty() && field.iter().all(u8::is_ascii_digit);
    let mut numbers = 0;
    let mut fields = fields.skip_while(|field| !field.starts_with(b"0x")).skip(1).peekable();
    while let Some(field) = fields.next() {
        // In a traffic log, counts of bytes and packets before the time of the session's start.
        let is_system = numbers >= 4 && !field.contains(&b'/');
        let next = fields.peek().copied().unwrap_or_default();
        if is_number(field) {
            numbers += 1;
        } else if is_system && !next.is_empty() && !is_number(next) {
            return fitting_bytes(next);
        } else {
            numbers = 0;
        }
    }
    ""
}

/// A record of AWS VPC flow logs in the default form: `version account eni-.. src dst ports ...
/// start end action status`.
fn flow(line: &[u8]) -> Option<Draft<'_>> {
    let mut words = line.split(|byte| *byte == b' ');
    let version = words.next()?;
    let interface = words.nth(1)?;
    if version.len() != 1
        || !version.iter().all(u8::is_ascii_digit)
        || !interface.starts_with(b"eni-")
    {
        return None;
    }
    let source = words.next().and_then(|word| address(fitting_bytes(word)));
    let start = words.nth(6)?;
    let when = time::text(fitting_bytes(start), None).filter(|_| start.len() == 10);
    let kind = words.nth(1).map(fitting_bytes).unwrap_or_default();
    Some(Draft { kind: Cow::Borrowed(kind), ip: source, ..stamped(when) })
}

/// A Windows event as XML. Only its `System` element is read: producers choose the rest.
fn windows(line: &[u8]) -> Option<Draft<'_>> {
    let text = std::str::from_utf8(line).ok()?;
    let (_, system) = text.split_once("<System>")?;
    let (system, _) = system.split_once("</System>")?;
    let element = |name: &str| {
        let (_, rest) = system.split_once(name)?;
        let (_, rest) = rest.split_once('>')?;
        rest.split_once('<').map(|(value, _)| value.trim_ascii())
    };
    let attribute = |name: &str| {
        let (_, rest) = system.split_once(name)?;
        let rest = rest.strip_prefix('=')?;
        let quote = rest.chars().next().filter(|quote| matches!(quote, '\'' | '"'))?;
        rest.get(1..)?.split_once(quote).map(|(value, _)| value)
    };
    let when = attribute("SystemTime").and_then(|value| time::text(value, None));
    let number = element("<EventID").unwrap_or_default();
    let kind = match element("<Channel").unwrap_or_default() {
        "" => number.to_owned(),
        channel => format!("{channel}/{number}"),
    };
    let fitting = |text: &'_ str| super::text::fitting(Cow::Owned(text.to_owned()));
    Some(Draft {
        kind: fitting(&kind),
        host: fitting(element("<Computer").unwrap_or_default()),
        collector: fitting(attribute("Provider Name").unwrap_or_default()),
        severity: element("<Level").and_then(severity::windows).unwrap_or_default(),
        ..stamped(when)
    })
}

/// An event of ePolicy Orchestrator as XML, in one line.
fn epo(line: &[u8]) -> Option<Draft<'_>> {
    let text = std::str::from_utf8(line).ok()?;
    let (_, event) = text.split_once("<EPOEvent").or_else(|| text.split_once("<EPOevent"))?;
    let element = |name: &str| {
        let (_, rest) = event.split_once(name)?;
        rest.split_once('<').map(|(value, _)| value.trim_ascii())
    };
    let when = time::text(element("<GMTTime>")?, None)?;
    let fitting = |text: &'_ str| super::text::fitting(Cow::Owned(text.to_owned()));
    Some(Draft {
        kind: fitting(element("<EventID>").unwrap_or_default()),
        host: fitting(element("<MachineName>").unwrap_or_default()),
        ip: element("<IPAddress>").and_then(address),
        collector: fitting(element("<AnalyzerName>").unwrap_or_default()),
        ..stamped(Some(When::exact(when.ns)))
    })
}

/// Values separated by commas, one of which is a time after its name: Symantec Endpoint Protection's.
fn labelled(line: &[u8], now_ms: i64) -> Option<Draft<'static>> {
    // A scan is recorded when it ends.
    const NAMES: [&[u8]; 3] = [b",Event time: ", b",End Time: ", b",Begin: "];
    let start = line.get(..NAMES_SIZE_MAX).unwrap_or(line);
    NAMES.iter().find_map(|name| {
        let at = memchr::memmem::find(start, name)? + name.len();
        let (when, _) = time::leading(start.get(at..)?, Some(now_ms))?;
        Some(stamped(Some(when)))
    })
}

/// Lines of klog and glog, which Kubernetes' components write: a letter for the level, month and day,
/// the time of day, the thread, and the place in the source with a bracket.
fn klog(line: &[u8], now_ms: i64) -> Option<Draft<'_>> {
    let (letter, rest) = line.split_first()?;
    let severity = match letter {
        b'I' => Severity::Informational,
        b'W' => Severity::Medium,
        b'E' => Severity::High,
        b'F' => Severity::Fatal,
        _ => return None,
    };
    let mut cursor = Cursor { rest };
    let when = time::klog(&mut cursor, now_ms)?;
    let start = cursor.rest.get(..LEAD_MAX).unwrap_or(cursor.rest);
    memchr::memmem::find(start, b"] ")?;
    Some(Draft { severity, ..stamped(Some(when)) })
}

/// Any line with a time at its start, or after a few words; also returns whether it is at the
/// start.
fn text(line: &[u8], now_ms: i64) -> Option<(bool, Draft<'_>)> {
    let start = line.get(..LEAD_MAX).unwrap_or(line);
    let mut from = 0;
    for word in 0..WORDS_MAX {
        let here = line.get(from..)?;
        if word <= BARE_WORDS_MAX || here.first() == Some(&b'[') {
            let found = time::leading(here, Some(now_ms));
            // A number counts only at the very start, or with milliseconds after a word with a colon.
            let named = word == 1 && line.get(..from).is_some_and(|before| before.ends_with(b": "));
            let labelled = named && has_millis(here);
            if let Some((when, rest)) = found.filter(|_| word == 0 || labelled || !is_number(here))
            {
                return Some((word == 0, after_time(when, here, rest)));
            }
        } else {
            memchr::memchr(b'[', start.get(from..)?)?;
        }
        let rest = start.get(from..)?;
        let end = rest.iter().position(|byte| matches!(byte, b' ' | b'\t' | b',' | b'|' | b';'))?;
        let before = rest.get(..end)?;
        if end < 8 && OTHER.iter().any(|other| other.eq_ignore_ascii_case(before)) {
            return None;
        }
        from += end + 1;
        while start.get(from) == Some(&b' ') {
            from += 1;
        }
    }
    None
}

/// Whether the text at the front would be a number of seconds or a part of one, not a date.
fn is_number(here: &[u8]) -> bool {
    let here = here.strip_prefix(b"[").unwrap_or(here);
    here.iter().take_while(|byte| byte.is_ascii_digit()).count() > 8
}

/// Whether seconds since 1970 with milliseconds are at the front: `1697034772.123 `.
fn has_millis(here: &[u8]) -> bool {
    let Some((number, [b' ', ..])) = here.split_at_checked(14) else { return false };
    number.iter().enumerate().all(|(at, byte)| match at {
        10 => *byte == b'.',
        _ => byte.is_ascii_digit(),
    })
}

/// What customarily follows a time: a level, a module with its level (Apache), a client.
///
/// * `here`: from the time on.
fn after_time<'a>(when: When, here: &[u8], rest: &'a [u8]) -> Draft<'a> {
    let start = rest.get(..LEAD_MAX).unwrap_or(rest);
    // Go's logger writes no level, and the message after a date with slashes.
    let plain = here.get(4) != Some(&b'/');
    let (level, kind) = level(start, plain).unwrap_or_default();
    let client = [&b"[client "[..], b"client: "].iter().find_map(|mark| {
        let at = memchr::memmem::find(start, mark)?;
        let text = start.get(at + mark.len()..)?;
        let end = text.iter().position(|byte| b"],".contains(byte)).unwrap_or(text.len());
        address(fitting_bytes(text.get(..end)?))
    });
    Draft { kind: Cow::Borrowed(kind), ip: client, severity: level, ..stamped(Some(when)) }
}

/// The level among the first words after a time, and the module before it: in brackets, before a
/// colon, in capitals, or as the first word. Any other word is the message's.
///
/// * `plain`: whether it may also be a word as messages have it.
fn level(text: &[u8], plain: bool) -> Option<(Severity, &str)> {
    const LEVEL_WORDS_MAX: usize = 4;
    let words = text.split(|byte| b" \t,|".contains(byte)).filter(|word| !word.is_empty());
    let mut marked = true;
    for (index, word) in words.take(LEVEL_WORDS_MAX).enumerate() {
        let bare = fitting_bytes(word).trim_matches(['[', ']', ':', '(', ')', '<', '>', '"', '-']);
        let (module, name) = bare.split_once(':').unwrap_or(("", bare));
        let capitals = name.bytes().any(|byte| byte.is_ascii_uppercase())
            && !name.bytes().any(|byte| byte.is_ascii_lowercase());
        let bracketed = word.first().is_some_and(|byte| b"[(<\"]".contains(byte));
        let ended = word.ends_with(b":");
        let placed = bracketed
            || ended && (marked || capitals)
            || index == 0 && (plain || capitals)
            || plain && capitals;
        let found = severity::word(name).or_else(|| severity::postgresql(word));
        if let Some(level) = found.filter(|_| placed && (bracketed || !severity::is_plain(name))) {
            return Some((level, module));
        }
        // `STATEMENT:  select ...`: what follows is the message.
        if ended && capitals {
            return None;
        }
        marked = ended || word.ends_with(b"]");
    }
    None
}
